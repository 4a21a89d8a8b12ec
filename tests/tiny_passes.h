// What the checks of lesson 10's and of lesson 13's cache share: passes over small models that say
// something of every token they are given.
#pragma once

#include <vector>

#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {

inline PassLimits Limits(int tokens = 64, int sequences = 4, int max_len = 64) {
  PassLimits limits;
  limits.max_tokens = tokens;
  limits.max_sequences = sequences;
  limits.max_sequence_len = max_len;
  limits.max_logit_rows = tokens;
  return limits;
}

// A batch with a sequence for each part, of which it takes token_ids and first_position. Logits are
// wanted of every token.
template <typename Part>
Batch BatchOf(const std::vector<Part>& parts) {
  Batch batch;
  batch.sequence_offsets = {0};
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.token_ids.size(); ++i) {
      batch.logit_rows.push_back(batch.num_tokens());
      batch.token_ids.push_back(part.token_ids[i]);
      batch.positions.push_back(part.first_position + static_cast<int>(i));
    }
    batch.sequence_offsets.push_back(batch.num_tokens());
  }
  return batch;
}

// Lesson 09, everything in one pass. (tokens, vocab_size)
inline std::vector<float> Uncached(const Model& model, const std::vector<int>& token_ids) {
  const Stream stream;
  const int length = static_cast<int>(token_ids.size());
  ForwardPass pass(model.config, model.weights, Limits(length, 1, length), stream.get());
  Batch batch = Batch::WholeSequence(token_ids);
  batch.logit_rows = batch.positions;
  pass.Run(batch);
  return pass.LogitsToHost();
}

// Rows [begin, end) of (rows, vocab_size).
inline std::vector<float> Rows(const Model& model, const std::vector<float>& logits, int begin,
                               int end) {
  const int width = model.config.vocab_size;
  return {logits.begin() + begin * width, logits.begin() + end * width};
}

inline std::vector<int> Slice(const std::vector<int>& values, size_t begin, size_t end) {
  return {values.begin() + begin, values.begin() + end};
}

inline void Append(const std::vector<float>& more, std::vector<float>* logits) {
  logits->insert(logits->end(), more.begin(), more.end());
}

}  // namespace tinyvllm
