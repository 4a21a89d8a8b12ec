// The challenge of lesson 00: running sums, where every element depends on all before it.
//
//   PrefixSums(input.data(), sums.data(), scratch.data(), n, stream);
//   // input (3, 1, 4, 1) gives sums (3, 4, 8, 9)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tinyvllm {

// sums[i] = input[0] + ... + input[i], exactly: a sum can be larger than an int. All pointers are
// device memory. Several launches are allowed; blocks know nothing of each other within one. Nearly
// all of the work must be shared out among threads.
void PrefixSums(const int* input,  // (n)
                int64_t* sums,     // (n)
                int64_t* scratch,  // (BlocksFor(n, kThreadsPerBlock)), to be used as you like
                int n, cudaStream_t stream);

}  // namespace tinyvllm
