#include "lessons/04_rmsnorm/rmsnorm.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

constexpr int kMaxThreads = 1024;  // a block can have no more

void CheckArguments(int num_tokens, int hidden_size, float epsilon) {
  Check(num_tokens >= 0, "RmsNorm: num_tokens is ", num_tokens, ", expected 0 or more");
  Check(hidden_size >= 1, "RmsNorm: hidden_size is ", hidden_size, ", expected 1 or more");
  Check(epsilon > 0, "RmsNorm: epsilon is ", epsilon,
        ", expected more than 0 (rms_norm_eps of config.json), or a row of zeros divides by zero");
}

// In all versions, input and output are not __restrict__: they may be the same memory. Each thread
// writes only elements that it alone reads, after the whole block has read them for the sum.

// Version 1: a block a token, and a tree in shared memory.
//
// Every thread adds up its share of the squares. Then the upper half of the threads' sums is added
// to the lower half, and again, until one is left: 10 steps for 1,024 threads in place of 1,023.
// tag::tree[]
__global__ void RmsNormTreeKernel(const bf16* input,                // (num_tokens, hidden_size)
                                  const bf16* __restrict__ weight,  // (hidden_size)
                                  bf16* output,                     // (num_tokens, hidden_size)
                                  int hidden_size, float epsilon) {
  __shared__ float partial[kMaxThreads];  // one sum of squares a thread
  const int64_t row = static_cast<int64_t>(blockIdx.x) * hidden_size;
  // exercise: Normalise row number blockIdx.x. First let each thread add up the squares of the
  // elements threadIdx.x, threadIdx.x + blockDim.x, ... in f32 and leave its sum in `partial`. Then
  // add the sums in a tree, with a barrier after every step; blockDim.x may be any number from 1 to
  // 1,024. Last, let each thread write input * rsqrtf(mean + epsilon) * weight for its elements,
  // where rsqrtf(x) is 1 / sqrt(x). Convert with __bfloat162float and __float2bfloat16.
  const int thread = threadIdx.x;
  float sum = 0;
  for (int i = thread; i < hidden_size; i += blockDim.x) {
    const float x = __bfloat162float(input[row + i]);
    sum += x * x;
  }
  partial[thread] = sum;
  __syncthreads();

  for (int active = blockDim.x; active > 1;) {
    const int half = (active + 1) / 2;  // rounded up: of 5 sums, 2 are added to the first 2
    if (thread < active - half) partial[thread] += partial[thread + half];
    __syncthreads();
    active = half;
  }

  const float scale = rsqrtf(partial[0] / hidden_size + epsilon);
  for (int i = thread; i < hidden_size; i += blockDim.x) {
    const float x = __bfloat162float(input[row + i]);
    output[row + i] = __float2bfloat16(x * scale * __bfloat162float(weight[i]));
  }
  // end exercise
}
// end::tree[]

// Version 2: warp shuffles in place of the tree.
//
// The lanes of a warp can read each other's registers, so that only one value a warp goes through
// shared memory, and two barriers replace eleven.
// tag::shuffle[]
__global__ void RmsNormShuffleKernel(const bf16* input,                // (num_tokens, hidden_size)
                                     const bf16* __restrict__ weight,  // (hidden_size)
                                     bf16* output,                     // (num_tokens, hidden_size)
                                     int hidden_size, float epsilon) {
  __shared__ float scratch[kMaxWarpsPerBlock];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * hidden_size;
  float sum = 0;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    const float x = __bfloat162float(input[row + i]);
    sum += x * x;
  }
  const float scale = rsqrtf(BlockSum(sum, scratch) / hidden_size + epsilon);
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    const float x = __bfloat162float(input[row + i]);
    output[row + i] = __float2bfloat16(x * scale * __bfloat162float(weight[i]));
  }
}
// end::shuffle[]

// Version 3: 16 bytes a load, and the row stays in registers.
//
// A thread holds kVectors times 8 elements, so that the input is read once and not twice, with an
// eighth of the load instructions; the weights are on their way while the block adds up. The launch
// bounds keep the compiler to the 64 registers a thread that a block of 1,024 can have.
// PRECONDITION: hidden_size is a multiple of 8 and at most kVectors * 8 * blockDim.x; all pointers
// are multiples of 16 bytes.
// tag::vector[]
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormVectorKernel(const bf16* input,                // (num_tokens, hidden_size)
                        const bf16* __restrict__ weight,  // (hidden_size)
                        bf16* output,                     // (num_tokens, hidden_size)
                        int hidden_size, float epsilon) {
  __shared__ float scratch[kMaxWarpsPerBlock];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * hidden_size;
  Bf16x8 x[kVectors], w[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {  // all loads are on their way before the first is needed
    const int i = (v * blockDim.x + threadIdx.x) * Bf16x8::kSize;
    const bool inside = i < hidden_size;
    x[v] = inside ? LoadBf16x8(input + row + i) : Bf16x8{};
    w[v] = inside ? LoadBf16x8(weight + i) : Bf16x8{};
  }
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float values[Bf16x8::kSize];
    x[v].ToFloats(values);
    for (float value : values) sum += value * value;
  }
  const float scale = rsqrtf(BlockSum(sum, scratch) / hidden_size + epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = (v * blockDim.x + threadIdx.x) * Bf16x8::kSize;
    if (i >= hidden_size) break;
    float values[Bf16x8::kSize], weights[Bf16x8::kSize];
    x[v].ToFloats(values);
    w[v].ToFloats(weights);
    for (int k = 0; k < Bf16x8::kSize; ++k) values[k] *= scale * weights[k];
    StoreBf16x8(output + row + i, Bf16x8::FromFloats(values));
  }
}
// end::vector[]

void RmsNormTree(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                 int hidden_size, float epsilon, cudaStream_t stream) {
  CheckArguments(num_tokens, hidden_size, epsilon);
  if (num_tokens == 0) return;
  const int threads = std::min(hidden_size, kMaxThreads);
  RmsNormTreeKernel<<<num_tokens, threads, 0, stream>>>(input, weight, output, hidden_size,
                                                        epsilon);
  CUDA_CHECK_LAUNCH();
}

void RmsNormShuffle(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                    int hidden_size, float epsilon, cudaStream_t stream) {
  CheckArguments(num_tokens, hidden_size, epsilon);
  if (num_tokens == 0) return;
  const int threads = std::min(hidden_size, kMaxThreads);
  RmsNormShuffleKernel<<<num_tokens, threads, 0, stream>>>(input, weight, output, hidden_size,
                                                           epsilon);
  CUDA_CHECK_LAUNCH();
}

// The vector kernel with kVectors vectors of 8 in each thread, in whole warps.
template <int kVectors>
void LaunchVector(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                  int hidden_size, float epsilon, cudaStream_t stream) {
  const int per_warp = kVectors * Bf16x8::kSize * kWarpSize;
  const int threads = (hidden_size + per_warp - 1) / per_warp * kWarpSize;
  RmsNormVectorKernel<kVectors>
      <<<num_tokens, threads, 0, stream>>>(input, weight, output, hidden_size, epsilon);
  CUDA_CHECK_LAUNCH();
}

// tag::choose[]
void RmsNormVector(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                   int hidden_size, float epsilon, cudaStream_t stream) {
  CheckArguments(num_tokens, hidden_size, epsilon);
  if (num_tokens == 0) return;
  // More elements a thread means fewer warps to add up; more threads, more loads under way. What is
  // too long for the registers of 1,024 threads, or does not come in whole vectors, takes
  // version 2.
  const bool fits = FitsBf16x8(hidden_size, input, weight, output);
  const auto launch = !fits                  ? RmsNormShuffle
                      : hidden_size <= 4096  ? LaunchVector<1>
                      : hidden_size <= 8192  ? LaunchVector<2>
                      : hidden_size <= 32768 ? LaunchVector<4>
                                             : RmsNormShuffle;
  launch(input, weight, output, num_tokens, hidden_size, epsilon, stream);
}
// end::choose[]

}  // namespace

void RmsNorm(const bf16* input, const bf16* weight, bf16* output, int num_tokens, int hidden_size,
             float epsilon, cudaStream_t stream) {
  // exercise: This is what the engine calls. Let it run your version 1; when the checks pass, try
  // versions 2 and 3 here.
  // starter: RmsNormTree(input, weight, output, num_tokens, hidden_size, epsilon, stream);
  RmsNormVector(input, weight, output, num_tokens, hidden_size, epsilon, stream);
  // end exercise
}

const RmsNormVersion kRmsNormVersions[3] = {
    {1, "tree", "a block a token; the sums added in a tree in shared memory", RmsNormTree},
    {2, "shuffle", "lanes read each other's registers; two barriers, not eleven", RmsNormShuffle},
    {3, "vector", "16 bytes a load; the row is read once and kept in registers", RmsNormVector},
};

}  // namespace tinyvllm
