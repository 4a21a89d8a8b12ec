// The challenge of lesson 10: several tokens a pass, and still the same text. A pass over five
// tokens of a sequence costs hardly more than one over a single token, for the weights are read
// once. So guess what comes, let the model look at all guesses at once, and keep those that it
// would have chosen itself: speculative decoding (Leviathan, Kalman and Matias, 2023). The cheapest
// guess is what followed the last time the text stood at the same words (prompt lookup).
//
//   const LookupGeneration answer = GenerateWithLookup(request, /*max_guesses=*/4, &pass, &cache,
//                                                      stream);
#pragma once

#include <cuda_runtime.h>

#include "lessons/09_forward_pass/generator.h"
#include "lessons/10_kv_cache/kv_cache.h"

namespace tinyvllm {

struct LookupGeneration {
  Generation generation;  // what KvCacheGenerator gives, to the token
  int num_passes = 0;     // runs of the model, that over the prompt included
};

// Continues one prompt greedily in slot 0 of the cache, whose stages `pass` has. Looks up where the
// last two tokens of the sequence occurred before (the latest such place), and guesses the tokens
// that followed there, at most max_guesses of them. Each pass takes the newest token and the
// guesses; every guess that is the token the model chooses at its place is kept, and the token
// chosen behind the last of these as well.
//
// PRECONDITION: the request is valid for the model and the cache; the pass takes the whole prompt,
// and max_guesses + 1 tokens and rows of logits, at once.
LookupGeneration GenerateWithLookup(const GenerationRequest& request, int max_guesses,
                                    ForwardPass* pass, ContiguousKvCache* cache,
                                    cudaStream_t stream);

}  // namespace tinyvllm
