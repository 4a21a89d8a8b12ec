#include "lessons/09_forward_pass/recompute_generator.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

// Rows of a prompt's logits at a time: a vocabulary of 128,256 in f32 takes half a megabyte a row.
constexpr int kLogitRows = 32;

PassLimits OneSequence(const ModelConfig& config, int max_model_len) {
  Check(max_model_len >= 1 && max_model_len <= config.max_position_embeddings, "max_model_len is ",
        max_model_len, ", expected 1 to the model's max_position_embeddings ",
        config.max_position_embeddings);
  PassLimits limits;
  limits.max_tokens = max_model_len;
  limits.max_sequences = 1;
  limits.max_sequence_len = max_model_len;
  limits.max_logit_rows = std::min(kLogitRows, max_model_len);
  return limits;
}

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

const char* ToString(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

RecomputeGenerator::RecomputeGenerator(const ModelConfig& config, const Weights& weights,
                                       int max_model_len, GemmBackend gemm)
    : pass_(config, weights, OneSequence(config, max_model_len), stream_.get(), PlainStages(),
            gemm) {}

void RecomputeGenerator::Validate(const GenerationRequest& request) const {
  const std::vector<int>& prompt = request.prompt_token_ids;
  Check(!prompt.empty(), "prompt: is empty; expected at least one token");
  Check(request.max_tokens >= 1, "max_tokens is ", request.max_tokens, ", expected at least 1");
  Check(static_cast<int>(prompt.size()) < max_model_len(), "prompt: ", prompt.size(),
        " tokens leave no room for an answer in the length of ", max_model_len(),
        "; shorten the prompt or raise --max-model-len");
  for (size_t i = 0; i < prompt.size(); ++i) {
    Check(prompt[i] >= 0 && prompt[i] < pass_.config().vocab_size, "prompt: token ", prompt[i],
          " at position ", i, " is not in the vocabulary of ", pass_.config().vocab_size);
  }
}

std::vector<Generation> RecomputeGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  for (const GenerationRequest& request : requests) Validate(request);
  std::vector<Generation> generations;
  for (size_t i = 0; i < requests.size(); ++i) {
    generations.push_back(GenerateOne(i, requests[i], on_token));
  }
  return generations;
}

// tag::generate[]
Generation RecomputeGenerator::GenerateOne(
    size_t index, const GenerationRequest& request,
    const std::function<void(const GeneratedToken&)>& on_token) {
  std::vector<int> sequence = request.prompt_token_ids;
  Generation generation;
  while (static_cast<int>(generation.token_ids.size()) < request.max_tokens &&
         static_cast<int>(sequence.size()) < max_model_len()) {
    pass_.Run(Batch::WholeSequence(sequence));
    const std::vector<float> logits = pass_.LogitsToHost();  // (vocab_size): of the last token
    const int token =
        static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (!request.ignore_eos && Contains(pass_.config().eos_token_ids, token)) {
      generation.finish_reason = FinishReason::kStop;
      break;
    }
    sequence.push_back(token);
    generation.token_ids.push_back(token);
    if (on_token) on_token({index, token, logits.data()});
  }
  return generation;
}
// end::generate[]

void RecomputeGenerator::PromptLogits(
    const std::vector<int>& prompt_token_ids,
    const std::function<void(int position, const float* logits)>& on_row) {
  Batch batch = Batch::WholeSequence(prompt_token_ids);
  batch.logit_rows.clear();
  pass_.Run(batch);
  const int vocab_size = pass_.config().vocab_size;
  for (int first = 0; first < batch.num_tokens(); first += pass_.limits().max_logit_rows) {
    const int count = std::min(pass_.limits().max_logit_rows, batch.num_tokens() - first);
    std::vector<int> rows(count);
    std::iota(rows.begin(), rows.end(), first);
    pass_.RunHead(rows);
    const std::vector<float> logits = pass_.LogitsToHost();
    for (int i = 0; i < count; ++i) on_row(first + i, logits.data() + size_t(i) * vocab_size);
  }
}

}  // namespace tinyvllm
