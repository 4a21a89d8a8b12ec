// How a request wants its tokens chosen. Names, ranges and meaning are vLLM's.
//
//   SamplingParams params;
//   params.temperature = 0.8f;
//   params.top_p = 0.95f;
//   params.seed = 7;
//   params.Validate(config.vocab_size);
//
// What happens to a row of logits, in this order, which is vLLM's:
//   1. logit_bias is added; tokens not allowed, or banned, become minus infinity
//   2. penalties: repetition, then frequency, then presence
//   3. temperature 0: the highest is chosen; else logits / temperature
//   4. min_p, then top_k, then top_p over the probabilities of what top_k has left
//   5. one of the tokens that are left is drawn
// Hugging Face's generate applies min_p after top_p. Logprobs are of the logits before step 1.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tinyvllm {

struct SamplingParams {
  // 0: greedy. Below 0.001 too: two tokens whose logits differ by 0.01 are then e^10 times apart,
  // and what differs less, a model that computes in bf16 has not told apart.
  float temperature = 0;
  int top_k = 0;    // the k most probable tokens; 0 or -1: all
  float top_p = 1;  // the fewest most probable tokens that have this probability together
  float min_p = 0;  // tokens at least this fraction as probable as the most probable one

  // Tokens of the prompt and of the answer: positive logits are divided by it, others multiplied.
  float repetition_penalty = 1;
  // Tokens of the answer alone: subtracted once, and once for each time it was generated.
  float presence_penalty = 0;
  float frequency_penalty = 0;

  uint64_t seed = 0;

  std::vector<std::pair<int, float>> logit_bias;  // (token id, what to add), each id once
  std::vector<int> allowed_token_ids;             // empty: all
  std::vector<int> bad_token_ids;                 // never chosen

  int logprobs = -1;  // of the chosen token and this many of the most probable; -1: none

  static constexpr float kGreedyTemperature = 1e-3f;
  bool greedy() const { return temperature < kGreedyTemperature; }
  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool has_bans() const { return !allowed_token_ids.empty() || !bad_token_ids.empty(); }
  bool changes_logits() const { return has_penalties() || has_bans() || !logit_bias.empty(); }

  // Throws Error naming the field, its value and its range; also where no token would be left.
  void Validate(int vocab_size) const;

  // One bit a token, set where it may not be chosen, into (ceil(vocab_size / 32)) words.
  void WriteBannedBits(int vocab_size, uint32_t* bits) const;
  std::vector<uint32_t> BannedBits(int vocab_size) const;
};

// The most of what a request may ask for.
constexpr int kMaxLogitBiases = 1024;
constexpr int kMaxLogprobs = 128;

}  // namespace tinyvllm
