// Log-probabilities of tokens, from raw logits (before any temperature or penalty).
#pragma once

#include <utility>
#include <vector>

namespace tinyvllm {

struct TokenLogprob {
  int token_id = 0;
  double logprob = 0;                       // natural logarithm of the softmax
  std::vector<std::pair<int, double>> top;  // the likeliest tokens, ids rising among equals
};

// `logits` is (vocab_size). In f64: logit - max - log(sum of exp(logit - max)).
TokenLogprob LogprobOf(const float* logits, int vocab_size, int token_id, int top);

}  // namespace tinyvllm
