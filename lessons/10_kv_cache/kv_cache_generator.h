// Generation with a KV cache: the prompt goes through the model once (prefill), then each new token
// alone (decode). The same tokens as lesson 09's RecomputeGenerator, for a fraction of the work.
#pragma once

#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/09_forward_pass/generator.h"
#include "lessons/10_kv_cache/kv_cache.h"

namespace tinyvllm {

class KvCacheGenerator : public Generator {
 public:
  static constexpr int kDefaultChunk = 512;

  // A cache for one sequence of up to max_model_len tokens, prompt and answer together, which must
  // not exceed the model's own max_position_embeddings. A longer prompt than `chunk` goes through
  // the model in parts of so many tokens, which bounds the activations.
  // `weights` must outlive the generator. Throws Error when the memory does not suffice.
  KvCacheGenerator(const ModelConfig& config, const Weights& weights, int max_model_len,
                   GemmBackend gemm = GemmBackend::kCublas, int chunk = kDefaultChunk);

  std::string name() const override { return "10 KV cache"; }
  int64_t num_passes() const override { return pass_.num_passes(); }

  std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) override;

  // The logits of every position of a prompt, portion by portion: on_row(position, logits) with
  // logits (vocab_size) on the host, valid during the call.
  void PromptLogits(const std::vector<int>& prompt_token_ids,
                    const std::function<void(int position, const float* logits)>& on_row);

  // Throws Error when a request cannot be generated; says why.
  void Validate(const GenerationRequest& request) const;

  int max_model_len() const { return cache_.max_len(); }
  const ContiguousKvCache& cache() const { return cache_; }

 private:
  // Runs the tokens that follow the first `cached` ones, one chunk of them at most, and returns how
  // many the cache then holds.
  int RunChunk(const std::vector<int>& sequence, int cached, bool want_logits);

  Stream stream_;
  ContiguousKvCache cache_;
  ForwardPass pass_;
};

}  // namespace tinyvllm
