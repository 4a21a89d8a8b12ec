// A step that is planned before the one before it has ended does not know that one's tokens: they
// lie on the device, where lesson 11 has chosen them. This brings them to where the pass reads.
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

struct LateToken {
  int place;  // in the batch
  int row;    // of `chosen`
};

// token_ids[place] = chosen[row] for each. A row for which no token could be chosen (-1) gives
// token 0: its request will end, and what is computed for it is for nothing.
void FillInLateTokens(const LateToken* __restrict__ late,  // (num_late)
                      int num_late,
                      const int* __restrict__ chosen,  // (rows): lesson 11's token ids
                      int* __restrict__ token_ids,     // (num_tokens): lesson 09's batch
                      cudaStream_t stream);

}  // namespace tinyvllm
