#include "lessons/09_forward_pass/generator.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"
#include "lessons/09_forward_pass/forward_pass.h"

namespace tinyvllm {

const char* ToString(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

void ValidateRequest(const GenerationRequest& request, int vocab_size, int max_model_len) {
  const std::vector<int>& prompt = request.prompt_token_ids;
  Check(!prompt.empty(), "prompt: is empty; expected at least one token");
  Check(request.max_tokens >= 1, "max_tokens is ", request.max_tokens, ", expected at least 1");
  Check(static_cast<int>(prompt.size()) < max_model_len, "prompt: ", prompt.size(),
        " tokens leave no room for an answer in the length of ", max_model_len,
        "; shorten the prompt or raise --max-model-len");
  for (size_t i = 0; i < prompt.size(); ++i) {
    Check(prompt[i] >= 0 && prompt[i] < vocab_size, "prompt: token ", prompt[i], " at position ", i,
          " is not in the vocabulary of ", vocab_size);
  }
}

void CheckMaxModelLen(const ModelConfig& config, int max_model_len) {
  Check(max_model_len >= 1 && max_model_len <= config.max_position_embeddings, "max_model_len is ",
        max_model_len, ", expected 1 to the model's max_position_embeddings ",
        config.max_position_embeddings);
}

bool IsEndToken(int token_id, const GenerationRequest& request, const ModelConfig& config) {
  const std::vector<int>& ends = config.eos_token_ids;
  return !request.ignore_eos && std::find(ends.begin(), ends.end(), token_id) != ends.end();
}

// tag::generate[]
Generation ContinueGreedily(
    size_t index, const GenerationRequest& request, const ModelConfig& config, int max_model_len,
    const std::function<std::vector<float>(const std::vector<int>& sequence)>& next_logits,
    const std::function<void(const GeneratedToken&)>& on_token) {
  std::vector<int> sequence = request.prompt_token_ids;
  Generation generation;
  while (static_cast<int>(generation.token_ids.size()) < request.max_tokens &&
         static_cast<int>(sequence.size()) < max_model_len) {
    const std::vector<float> logits = next_logits(sequence);
    const int token =
        static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (IsEndToken(token, request, config)) {
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

void VisitLogits(ForwardPass* pass, int num_tokens,
                 const std::function<void(int token, const float* logits)>& on_row) {
  const size_t vocab_size = pass->config().vocab_size;
  for (int first = 0; first < num_tokens; first += pass->limits().max_logit_rows) {
    std::vector<int> rows(std::min(pass->limits().max_logit_rows, num_tokens - first));
    std::iota(rows.begin(), rows.end(), first);
    pass->RunHead(rows);
    const std::vector<float> logits = pass->LogitsToHost();
    for (size_t i = 0; i < rows.size(); ++i) on_row(rows[i], logits.data() + i * vocab_size);
  }
}

}  // namespace tinyvllm
