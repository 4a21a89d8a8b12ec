#include "lessons/00_first_kernel/first_kernel.h"

#include "common/base/error.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

// tag::who[]
// tag::who_kernel[]
__global__ void WhoDoesWhatKernel(int* block_of, int* thread_of, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    block_of[i] = blockIdx.x;
    thread_of[i] = threadIdx.x;
  }
}
// end::who_kernel[]
// end::who[]

// tag::add_kernel[]
__global__ void VectorAddKernel(const float* __restrict__ a, const float* __restrict__ b,
                                float* __restrict__ output, int n) {
  // exercise: Add one pair of numbers. Every thread runs this function, and the only difference
  // between them is what threadIdx.x and blockIdx.x say: make from these (and blockDim.x) the
  // number i of the element that is this thread's. The last block has threads to spare: they must
  // not touch memory beyond element n - 1.
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) output[i] = a[i] + b[i];
  // end exercise
}
// end::add_kernel[]

// tag::sum_kernel[]
// PRECONDITION: blockDim.x is kThreadsPerBlock, a power of two.
__global__ void BlockSumsKernel(const float* __restrict__ input, float* __restrict__ sums, int n) {
  __shared__ float partial[kThreadsPerBlock];
  // exercise: Add up the block's numbers. First each thread puts its own element into
  // partial[threadIdx.x] (0 if there is none). Then halve, again and again, the number of threads
  // that work: while 2 * half numbers are left, thread t < half adds partial[t + half] to its own.
  // In the end thread 0 writes partial[0] to sums[blockIdx.x]. Where must all threads wait for
  // each other with __syncthreads(), and why must that not be inside an `if`?
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  partial[t] = i < n ? input[i] : 0.0f;
  __syncthreads();
  for (int half = kThreadsPerBlock / 2; half > 0; half /= 2) {
    if (t < half) partial[t] += partial[t + half];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
  // end exercise
}
// end::sum_kernel[]

}  // namespace

int BlocksFor(int n, int threads_per_block) {
  return n / threads_per_block + (n % threads_per_block != 0 ? 1 : 0);
}

void WhoDoesWhat(int* block_of, int* thread_of, int n, int threads_per_block, cudaStream_t stream) {
  Check(n >= 0, "WhoDoesWhat: n is ", n, ", expected 0 or more");
  if (n == 0) return;
  const int blocks = BlocksFor(n, threads_per_block);
  WhoDoesWhatKernel<<<blocks, threads_per_block, 0, stream>>>(block_of, thread_of, n);
  CUDA_CHECK_LAUNCH();
}

// tag::add_launch[]
void VectorAdd(const float* a, const float* b, float* output, int n, cudaStream_t stream) {
  Check(n >= 0, "VectorAdd: n is ", n, ", expected 0 or more");
  if (n == 0) return;  // a grid of no blocks is an error in CUDA
  const int blocks = BlocksFor(n, kThreadsPerBlock);
  VectorAddKernel<<<blocks, kThreadsPerBlock, 0, stream>>>(a, b, output, n);
  CUDA_CHECK_LAUNCH();
}
// end::add_launch[]

void BlockSums(const float* input, float* sums, int n, cudaStream_t stream) {
  Check(n >= 0, "BlockSums: n is ", n, ", expected 0 or more");
  if (n == 0) return;
  const int blocks = BlocksFor(n, kThreadsPerBlock);
  BlockSumsKernel<<<blocks, kThreadsPerBlock, 0, stream>>>(input, sums, n);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
