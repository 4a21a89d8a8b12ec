// What every stage of the course from here on can do: continue prompts. One interface, so that the
// stages can be run, timed and held against each other alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tinyvllm {

struct GenerationRequest {
  std::vector<int> prompt_token_ids;
  int max_tokens = 256;
  bool ignore_eos = false;  // go on after an end-of-text token, as if it were any other
};

// Why a sequence ended: the model said so; it reached max_tokens or the model's length.
enum class FinishReason { kStop, kLength };

const char* ToString(FinishReason reason);  // "stop", "length"

struct Generation {
  std::vector<int> token_ids;  // what was generated, without the end-of-text token
  FinishReason finish_reason = FinishReason::kLength;
};

// A token just chosen, and what it was chosen from.
struct GeneratedToken {
  size_t request;       // index into the requests
  int token_id;         // an end-of-text token is not reported, unless ignore_eos
  const float* logits;  // (vocab_size) on the host, valid during the call
};

class Generator {
 public:
  virtual ~Generator() = default;

  // "09 forward pass": for tables and charts.
  virtual std::string name() const = 0;

  // Continues every prompt greedily: the token with the highest logit, the lowest id among equals.
  // Calls on_token, if there is one, as tokens come. Throws Error for a prompt that is empty, too
  // long for the model, or not made of its tokens; nothing is generated then.
  virtual std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) = 0;
};

}  // namespace tinyvllm
