// Three first kernels: who does what, a vector add, and a sum that needs threads to work together.
//
//   DeviceBuffer<float> a(host_a), b(host_b), output(n);
//   VectorAdd(a.data(), b.data(), output.data(), n, stream);   // returns at once
//   CUDA_CHECK(cudaStreamSynchronize(stream));                 // now output is there
//
// All pointers are device pointers. The functions queue their work on `stream` and return; n = 0 is
// no work at all. They throw Error for a negative n and when CUDA refuses the launch.
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

// Threads in each block of VectorAdd and BlockSums. A power of two, which BlockSums relies on.
constexpr int kThreadsPerBlock = 256;

// The blocks of `threads_per_block` threads that n elements need at one thread an element: n
// divided by threads_per_block, rounded up.
int BlocksFor(int n, int threads_per_block);

// Each element learns which block and which thread of the block took care of it.
void WhoDoesWhat(int* block_of /* (n) */, int* thread_of /* (n) */, int n, int threads_per_block,
                 cudaStream_t stream);

// output[i] = a[i] + b[i].
void VectorAdd(const float* a /* (n) */, const float* b /* (n) */, float* output /* (n) */, int n,
               cudaStream_t stream);

// sums[k] = the sum of input[kThreadsPerBlock * k] to input[kThreadsPerBlock * k + 255], or to the
// last element in the last block.
void BlockSums(const float* input /* (n) */, float* sums /* (BlocksFor(n, kThreadsPerBlock)) */,
               int n, cudaStream_t stream);

}  // namespace tinyvllm
