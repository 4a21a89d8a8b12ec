// Generation in its simplest form: for each new token, the whole sequence goes through the model
// again. Right, and slower the longer the text gets; lesson 10 keeps what it throws away here.
#pragma once

#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/09_forward_pass/generator.h"

namespace tinyvllm {

class RecomputeGenerator : public Generator {
 public:
  // Buffers for sequences of up to max_model_len tokens, prompt and answer together, which must not
  // exceed the model's own max_position_embeddings. `weights` must outlive the generator.
  RecomputeGenerator(const ModelConfig& config, const Weights& weights, int max_model_len,
                     GemmBackend gemm = GemmBackend::kCublas);

  std::string name() const override { return "09 forward pass"; }
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

  int max_model_len() const { return pass_.limits().max_sequence_len; }

 private:
  Stream stream_;
  ForwardPass pass_;
};

}  // namespace tinyvllm
