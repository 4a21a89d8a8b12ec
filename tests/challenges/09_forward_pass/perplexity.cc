#include "lessons/09_forward_pass/challenge/perplexity.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "lessons/09_forward_pass/generator.h"

namespace tinyvllm {

double Perplexity(ForwardPass* pass, const std::vector<int>& token_ids) {
  // exercise: The logits of token i say what the model expects of token i + 1. generator.h has a
  // function that visits all rows of a pass, in portions.
  // starter: return 0;
  const int length = static_cast<int>(token_ids.size());
  Check(length >= 2, "perplexity: a text of ", length, " tokens, expected at least 2");
  Batch batch = Batch::WholeSequence(token_ids);
  batch.logit_rows.clear();
  pass->Run(batch);
  const int vocab_size = pass->config().vocab_size;
  double log_probability = 0;
  VisitLogits(pass, length, [&](int token, const float* logits) {
    if (token + 1 == length) return;
    const double largest = *std::max_element(logits, logits + vocab_size);
    double sum = 0;
    for (int v = 0; v < vocab_size; ++v) sum += std::exp(logits[v] - largest);
    log_probability += logits[token_ids[token + 1]] - largest - std::log(sum);
  });
  return std::exp(-log_probability / (length - 1));
  // end exercise
}

}  // namespace tinyvllm
