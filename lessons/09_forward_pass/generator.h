// What every stage of the course from here on can do: continue prompts. One interface, so that the
// stages can be run, timed and held against each other alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lessons/09_forward_pass/model_config.h"

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
  size_t request;  // index into the requests
  int token_id;    // an end-of-text token is not reported, unless ignore_eos
  // (vocab_size) on the host, valid during the call; null from generators that choose on the
  // device.
  const float* logits;
};

class Generator {
 public:
  virtual ~Generator() = default;

  // "09 forward pass": for tables and charts.
  virtual std::string name() const = 0;

  // Through the model, so far. On a GPU a pass takes little longer for many tokens than for one.
  virtual int64_t num_passes() const = 0;

  // Continues every prompt greedily: the token with the highest logit, the lowest id among equals.
  // Calls on_token, if there is one, as tokens come. Throws Error for a prompt that is empty, too
  // long for the model, or not made of its tokens; nothing is generated then.
  virtual std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) = 0;
};

// --- what generators have in common

class ForwardPass;

// Throws Error, saying why, for a request that a model with this vocabulary cannot continue within
// max_model_len tokens, prompt and answer together.
void ValidateRequest(const GenerationRequest& request, int vocab_size, int max_model_len);

// Throws Error unless max_model_len is 1 to the model's own max_position_embeddings.
void CheckMaxModelLen(const ModelConfig& config, int max_model_len);

// Whether this token, just chosen, ends the request's sequence as the model wishes.
bool IsEndToken(int token_id, const GenerationRequest& request, const ModelConfig& config);

// Continues one prompt, number `index` of the requests, until an end-of-text token, max_tokens or
// max_model_len ends it. next_logits(sequence) gives the (vocab_size) logits of the token that
// follows the sequence, which is the prompt at first and a token longer at each further call.
Generation ContinueGreedily(
    size_t index, const GenerationRequest& request, const ModelConfig& config, int max_model_len,
    const std::function<std::vector<float>(const std::vector<int>& sequence)>& next_logits,
    const std::function<void(const GeneratedToken&)>& on_token);

// The logits of every token of the batch that the pass has just run, in portions that its buffers
// hold: on_row(token, logits) with logits (vocab_size) on the host, valid during the call.
void VisitLogits(ForwardPass* pass, int num_tokens,
                 const std::function<void(int token, const float* logits)>& on_row);

}  // namespace tinyvllm
