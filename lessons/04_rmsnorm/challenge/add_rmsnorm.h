// The challenge of lesson 04: the residual addition and the norm behind it, in one kernel.
//
//   AddRmsNorm(x.data(), residual.data(), weight.data(), output.data(), num_tokens, hidden_size,
//              epsilon, stream);
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// residual = x + residual, rounded to bf16; output = RMSNorm(that, weight). All pointers are device
// memory and multiples of 16 bytes; hidden_size is a multiple of 8 and at most 8,192.
//
// One launch. Each element of x and of residual is read once from memory, each of residual and
// output written once. The norm is of the sum as it is stored, so that the two steps made one give
// the bits that they give apart.
void AddRmsNorm(const bf16* x,       // (num_tokens, hidden_size)
                bf16* residual,      // (num_tokens, hidden_size), updated
                const bf16* weight,  // (hidden_size)
                bf16* output,        // (num_tokens, hidden_size)
                int num_tokens, int hidden_size, float epsilon, cudaStream_t stream);

}  // namespace tinyvllm
