// The challenge of lesson 07: attention that looks back only so far. Mistral 7B let each token see
// the 4,096 before it: the cost of a token then no longer grows with the text.
//
//   SlidingWindowAttention(shape, q, k, v, output, length, /*window=*/4096, stream);
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/bf16.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {

// As Attention of one sequence of `length` tokens, but query i sees the keys from i - window + 1 to
// i, as far as there are any. All pointers are device memory; head_dim is at most 256, window at
// least 1.
//
// No score goes to memory, and keys outside the window are not read: a query of a head reads at
// most its window's keys and values, and itself.
void SlidingWindowAttention(const AttentionShape& shape,
                            const bf16* q,  // (length, num_heads, head_dim)
                            const bf16* k,  // (length, num_kv_heads, head_dim)
                            const bf16* v,  // like k
                            bf16* output,   // (length, num_heads, head_dim)
                            int length, int window, cudaStream_t stream);

}  // namespace tinyvllm
