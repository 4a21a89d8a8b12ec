// What the kernels know of a request: one of these a slot, in device memory.
#pragma once

#include <cstdint>

namespace tinyvllm {

struct SlotParams {
  float temperature;  // 0: greedy
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  int top_k;           // 0: all
  int num_biases;      // entries of the slot's logit_bias
  int has_bans;        // whether the slot's banned bits count
  int tracks_history;  // whether the slot's history is kept
  uint64_t seed;
};

// A slot's history: one word a token of the vocabulary. The uppermost bit says that the prompt has
// the token, the others count how often it was generated.
constexpr uint32_t kInPrompt = 1u << 31;

// Arrays over slots, as the kernels see them.
struct SlotArrays {
  SlotParams* params;     // (max_slots)
  int* bias_ids;          // (max_slots, kMaxLogitBiases)
  float* bias_values;     // (max_slots, kMaxLogitBiases)
  uint32_t* banned_bits;  // (max_slots, ceil(vocab_size / 32))
  uint32_t* history;      // (max_slots, vocab_size)
};

}  // namespace tinyvllm
