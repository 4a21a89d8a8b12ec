#include "lessons/00_first_kernel/challenge/prefix_sums.h"

#include "common/cuda/check.h"
#include "lessons/00_first_kernel/first_kernel.h"

namespace tinyvllm {
namespace {

// exercise: Write the kernels. One block can do its own 256 elements, in 8 rounds with a barrier
// each; what it cannot know is the sum of all blocks before it. (BlockSums has half of the idea.)

// The sums within each block, and each block's total.
__global__ void SumWithinBlocksKernel(const int* __restrict__ input, int64_t* __restrict__ sums,
                                      int64_t* __restrict__ totals, int n) {
  __shared__ int64_t partial[kThreadsPerBlock];
  const int thread = threadIdx.x;
  const int i = blockIdx.x * kThreadsPerBlock + thread;
  partial[thread] = i < n ? input[i] : 0;
  __syncthreads();
  for (int distance = 1; distance < kThreadsPerBlock; distance *= 2) {
    const int64_t other = thread >= distance ? partial[thread - distance] : 0;
    __syncthreads();
    partial[thread] += other;
    __syncthreads();
  }
  if (i < n) sums[i] = partial[thread];
  if (thread == kThreadsPerBlock - 1) totals[blockIdx.x] = partial[thread];
}

// Each block's total becomes the sum of the totals before it. One 256th of the work: one thread.
__global__ void SumBlocksKernel(int64_t* totals, int num_blocks) {
  int64_t before = 0;
  for (int block = 0; block < num_blocks; ++block) {
    const int64_t total = totals[block];
    totals[block] = before;
    before += total;
  }
}

__global__ void AddBlocksKernel(int64_t* sums, const int64_t* __restrict__ before, int n) {
  const int i = blockIdx.x * kThreadsPerBlock + threadIdx.x;
  if (i < n) sums[i] += before[blockIdx.x];
}
// end exercise

}  // namespace

void PrefixSums(const int* input, int64_t* sums, int64_t* scratch, int n, cudaStream_t stream) {
  if (n == 0) return;
  // exercise: Launch them, and check each launch.
  const int num_blocks = BlocksFor(n, kThreadsPerBlock);
  SumWithinBlocksKernel<<<num_blocks, kThreadsPerBlock, 0, stream>>>(input, sums, scratch, n);
  CUDA_CHECK_LAUNCH();
  SumBlocksKernel<<<1, 1, 0, stream>>>(scratch, num_blocks);
  CUDA_CHECK_LAUNCH();
  AddBlocksKernel<<<num_blocks, kThreadsPerBlock, 0, stream>>>(sums, scratch, n);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
