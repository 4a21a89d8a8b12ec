#include "lessons/00_first_kernel/planted_bugs.h"

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/device.h"
#include "lessons/00_first_kernel/first_kernel.h"

namespace tinyvllm {
namespace {

// tag::barrier_in_if[]
__global__ void BarrierInIfKernel(const float* input, float* sums, int n) {
  __shared__ float partial[kThreadsPerBlock];
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  partial[t] = i < n ? input[i] : 0.0f;
  __syncthreads();
  for (int half = kThreadsPerBlock / 2; half > 0; half /= 2) {
    if (t < half) {
      partial[t] += partial[t + half];
      __syncthreads();  // BUG: the threads from `half` on never come here
    }
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}
// end::barrier_in_if[]

// tag::without_guard[]
__global__ void WithoutGuardKernel(const float* a, const float* b, float* output) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  output[i] = a[i] + b[i];  // BUG: the last block has threads beyond the last element
}
// end::without_guard[]

// tag::missing_barrier[]
__global__ void MissingBarrierKernel(const float* input, float* sums, int n) {
  __shared__ float partial[kThreadsPerBlock];
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  partial[t] = i < n ? input[i] : 0.0f;
  __syncthreads();
  for (int half = kThreadsPerBlock / 2; half > 0; half /= 2) {
    if (t < half) partial[t] += partial[t + half];
    // BUG: nobody waits for this round's sums before the next round reads them
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}
// end::missing_barrier[]

void RefuseOnGpu() {
  Check(IsSimulator(), "a planted bug is undefined behaviour on a GPU; run it with --config=cpu");
}

}  // namespace

bool FindsRaces() {
#ifdef TINYVLLM_SIMULATOR
  return simulator::FindsRaces();
#else
  return false;
#endif
}

bool ChecksMemory() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(TINYVLLM_SIMULATOR)
  return simulator::ChecksMemory();
#else
  return false;
#endif
}

void BlockSumsWithBarrierInIf(const float* input, float* sums, int n, cudaStream_t stream) {
  RefuseOnGpu();
  const int blocks = BlocksFor(n, kThreadsPerBlock);
  BarrierInIfKernel<<<blocks, kThreadsPerBlock, 0, stream>>>(input, sums, n);
  CUDA_CHECK_LAUNCH();
}

void VectorAddWithoutGuard(const float* a, const float* b, float* output, int n,
                           cudaStream_t stream) {
  RefuseOnGpu();
  const int blocks = BlocksFor(n, kThreadsPerBlock);
  WithoutGuardKernel<<<blocks, kThreadsPerBlock, 0, stream>>>(a, b, output);
  CUDA_CHECK_LAUNCH();
}

void BlockSumsWithoutBarrier(const float* input, float* sums, int n, cudaStream_t stream) {
  RefuseOnGpu();
  const int blocks = BlocksFor(n, kThreadsPerBlock);
  MissingBarrierKernel<<<blocks, kThreadsPerBlock, 0, stream>>>(input, sums, n);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
