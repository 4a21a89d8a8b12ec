// Generation for many requests at a time: a slot of lesson 10's cache for each of those that run,
// one flat batch a step, tokens chosen on the device by lesson 11. Only token ids come back.
//
//   BatchOptions options;
//   options.num_slots = 2;
//   ContinuousBatchGenerator generator(config, weights, options);
//   const std::vector<Generation> answers = generator.Generate(requests);   // in their order
//   std::cout << DrawTimeline(generator.steps(), options.num_slots, 1);
//
// A request's tokens do not depend on the slot it gets or on those who run beside it: bit for bit
// on the simulator, and on a GPU with GemmBackend::kTiled. With cuBLAS on a GPU they may part from
// those of the request alone where two tokens are almost equally likely (docs/06_matmul.md).
#pragma once

#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/09_forward_pass/generator.h"
#include "lessons/10_kv_cache/kv_cache.h"
#include "lessons/11_sampling/sampler.h"
#include "lessons/12_continuous_batching/slots.h"

namespace tinyvllm {

struct BatchOptions {
  int num_slots = 2;        // sequences at a time
  int max_model_len = 512;  // of each, prompt and answer together; a slot has room for so many
  int chunk = 128;  // of a prompt, at most so many tokens a step: they bound the activations
  GemmBackend gemm = GemmBackend::kCublas;
};

// A request that says how its tokens are to be chosen; greedily, unless it asks for more.
struct SampledRequest {
  GenerationRequest generation;
  SamplingParams sampling;
};

class BatchGenerator : public Generator {
 public:
  int64_t num_passes() const override { return pass_.num_passes(); }

  // tokens in GeneratedToken come without logits, which stay on the device.
  std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) override;

  // The same with a choice for each request. Throws Error, too, for parameters that lesson 11
  // refuses; and, in the middle, when no token can be chosen: all logits are NaN.
  std::vector<Generation> GenerateSampled(
      const std::vector<SampledRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr);

  // What the last call of Generate did.
  const std::vector<Step>& steps() const { return steps_; }

  const BatchOptions& options() const { return options_; }
  const ContiguousKvCache& cache() const { return cache_; }

 protected:
  // Takes all memory there will be. `weights` must outlive the generator. Throws Error for options
  // out of range, and when the memory does not suffice.
  BatchGenerator(const ModelConfig& config, const Weights& weights, const BatchOptions& options,
                 Refill refill);

 private:
  void Validate(const std::vector<SampledRequest>& requests) const;
  void RunStep(const Step& step, const std::vector<SampledRequest>& requests,
               const std::vector<std::vector<int>>& sequences);

  const BatchOptions options_;
  const Refill refill_;
  Stream stream_;
  ContiguousKvCache cache_;
  ForwardPass pass_;
  Sampler sampler_;
  std::vector<Step> steps_;
};

// Fills all slots, and fills them again when the longest answer is complete.
class StaticBatchGenerator : public BatchGenerator {
 public:
  StaticBatchGenerator(const ModelConfig& config, const Weights& weights,
                       const BatchOptions& options)
      : BatchGenerator(config, weights, options, Refill::kWhenAllAreFree) {}
  std::string name() const override { return "12 static batches"; }
};

// Gives a slot to the next request as soon as the one before has ended.
class ContinuousBatchGenerator : public BatchGenerator {
 public:
  ContinuousBatchGenerator(const ModelConfig& config, const Weights& weights,
                           const BatchOptions& options)
      : BatchGenerator(config, weights, options, Refill::kAtOnce) {}
  std::string name() const override { return "12 continuous batching"; }
};

}  // namespace tinyvllm
