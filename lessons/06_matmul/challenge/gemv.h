// The challenge of lesson 06: one token. While a model writes, its matrices are multiplied with a
// single vector, and each weight is used once: nothing counts but how the weights are read.
//
//   Gemv(input.data(), weight.data(), output.data(), in_features, out_features, stream);
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// output[f] = sum over k of input[k] weight[f][k], in f32. in_features is a multiple of 8 and at
// most 16,384; input and weight are multiples of 16 bytes, in device memory.
//
// Each weight is read once, 16 bytes at a time and coalesced, and the input so seldom that all
// reads together are at most 1.2 times the weights. The same bits come out in any order of the
// threads.
void Gemv(const bf16* input,   // (in_features)
          const bf16* weight,  // (out_features, in_features)
          float* output,       // (out_features)
          int in_features, int out_features, cudaStream_t stream);

}  // namespace tinyvllm
