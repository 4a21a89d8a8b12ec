// The three mistakes that everybody makes in a first kernel, planted on purpose for the simulator
// to name. They are undefined behaviour on a GPU (a hang, a wrong result, a crash, or nothing to be
// seen), so these functions throw Error there instead of launching.
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

// BlockSums, but with the barrier inside the `if`: only half of the threads reach it.
void BlockSumsWithBarrierInIf(const float* input, float* sums, int n, cudaStream_t stream);

// VectorAdd, but without `if (i < n)`: the last block reads and writes beyond the end.
// Only the memory checker (--config=check) and AddressSanitizer (--config=asan) see that.
void VectorAddWithoutGuard(const float* a, const float* b, float* output, int n,
                           cudaStream_t stream);

// BlockSums, but without the barrier in the loop: right or wrong, as the threads happen to run.
// Only the race detector (--config=race, --config=check) always sees that.
void BlockSumsWithoutBarrier(const float* input, float* sums, int n, cudaStream_t stream);

// What watches these kernels: the race detector; the memory checker, or AddressSanitizer.
bool FindsRaces();
bool ChecksMemory();

}  // namespace tinyvllm
