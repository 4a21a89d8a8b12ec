// The challenge of lesson 09: how surprised is the model? Perplexity is the measure by which
// language models, and the damage that a smaller one takes, are compared.
//
//   ForwardPass pass(config, weights, limits, stream);
//   const double surprise = Perplexity(&pass, token_ids);
#pragma once

#include <vector>

#include "lessons/09_forward_pass/forward_pass.h"

namespace tinyvllm {

// exp(-mean over i of log p(token_ids[i] | token_ids[0] to token_ids[i - 1])), for i from 1 on. A
// model that always hesitates between k tokens alike has perplexity k.
//
// One pass over the layers, however long the text. The logits may be larger than exp can take, and
// there may be more rows of them than pass->limits().max_logit_rows. In f64, right to 1e-6. Throws
// Error for fewer than two tokens.
double Perplexity(ForwardPass* pass, const std::vector<int>& token_ids);

}  // namespace tinyvllm
