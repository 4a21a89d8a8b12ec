#include "final/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tinyvllm {

TokenLogprob LogprobOf(const float* logits, int vocab_size, int token_id, int top) {
  const double max = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (int i = 0; i < vocab_size; ++i) sum += std::exp(logits[i] - max);
  const double log_sum = max + std::log(sum);

  TokenLogprob result;
  result.token_id = token_id;
  result.logprob = logits[token_id] - log_sum;
  std::vector<int> ids(vocab_size);
  std::iota(ids.begin(), ids.end(), 0);
  const int count = std::clamp(top, 0, vocab_size);
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int a, int b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (int i = 0; i < count; ++i) result.top.emplace_back(ids[i], logits[ids[i]] - log_sum);
  return result;
}

}  // namespace tinyvllm
