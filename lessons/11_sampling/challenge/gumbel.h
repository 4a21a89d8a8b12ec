// The challenge of lesson 11: sampling without a distribution. Add noise of the right kind to every
// logit and take the largest: no exponential of a logit, no sum, no second look at the row.
//
//   GumbelSample(logits, temperatures, seeds, positions, token_ids, num_rows, vocab_size, stream);
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tinyvllm {

// token_ids[r] = the id with the largest logits[r][id] / temperatures[r] + g, where each g is
// independent and has Gumbel's distribution: g = -log(-log(u)), u uniform between 0 and 1. An id
// then comes with its probability under softmax(logits / temperature). Temperature 0 takes the
// largest logit, the lowest id among equals. Minus infinity and NaN are never chosen; a row of
// nothing else gives -1.
//
// The noise of a token is drawn from (seeds[r], positions[r], id) alone: the same request at the
// same position chooses the same, in any row of any batch, and another position draws anew.
// vocab_size is at most kMaxVocabSize; all pointers are device memory.
void GumbelSample(const float* logits,        // (num_rows, vocab_size)
                  const float* temperatures,  // (num_rows), 0 or more
                  const uint64_t* seeds,      // (num_rows)
                  const uint32_t* positions,  // (num_rows)
                  int* token_ids,             // (num_rows)
                  int num_rows, int vocab_size, cudaStream_t stream);

}  // namespace tinyvllm
