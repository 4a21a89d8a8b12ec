#include "lessons/09_forward_pass/recompute_generator.h"

#include <algorithm>

namespace tinyvllm {
namespace {

// Rows of a prompt's logits at a time: a vocabulary of 128,256 in f32 takes half a megabyte a row.
constexpr int kLogitRows = 32;

PassLimits OneSequence(const ModelConfig& config, int max_model_len) {
  CheckMaxModelLen(config, max_model_len);
  PassLimits limits;
  limits.max_tokens = max_model_len;
  limits.max_sequences = 1;
  limits.max_sequence_len = max_model_len;
  limits.max_logit_rows = std::min(kLogitRows, max_model_len);
  return limits;
}

}  // namespace

RecomputeGenerator::RecomputeGenerator(const ModelConfig& config, const Weights& weights,
                                       int max_model_len, GemmBackend gemm)
    : pass_(config, weights, OneSequence(config, max_model_len), stream_.get(), PlainStages(),
            gemm) {}

void RecomputeGenerator::Validate(const GenerationRequest& request) const {
  ValidateRequest(request, pass_.config().vocab_size, max_model_len());
}

// tag::recompute[]
std::vector<Generation> RecomputeGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  for (const GenerationRequest& request : requests) Validate(request);
  const auto next_logits = [&](const std::vector<int>& sequence) {
    pass_.Run(Batch::WholeSequence(sequence));
    return pass_.LogitsToHost();  // (vocab_size): of the last token
  };
  std::vector<Generation> generations;
  for (size_t i = 0; i < requests.size(); ++i) {
    generations.push_back(
        ContinueGreedily(i, requests[i], pass_.config(), max_model_len(), next_logits, on_token));
  }
  return generations;
}
// end::recompute[]

void RecomputeGenerator::PromptLogits(
    const std::vector<int>& prompt_token_ids,
    const std::function<void(int position, const float* logits)>& on_row) {
  Batch batch = Batch::WholeSequence(prompt_token_ids);
  batch.logit_rows.clear();
  pass_.Run(batch);
  VisitLogits(&pass_, batch.num_tokens(), on_row);
}

}  // namespace tinyvllm
