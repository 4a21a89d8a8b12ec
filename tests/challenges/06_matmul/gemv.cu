#include "lessons/06_matmul/challenge/gemv.h"

#include <cstdint>

#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

// exercise: Write the kernel. What must a block know before its threads can start on a row of the
// weights, and for how many rows can it be used? Which threads share out one row?

constexpr int kThreads = 256;
constexpr int kFeatures = 16;  // of a block

// A block brings the input into shared memory, once for 16 features; a warp takes a feature.
__global__ void GemvKernel(const bf16* __restrict__ input, const bf16* __restrict__ weight,
                           float* __restrict__ output, int in_features, int out_features) {
  extern __shared__ uint4 shared_input[];
  const int num_vectors = in_features / Bf16x8::kSize;
  for (int v = threadIdx.x; v < num_vectors; v += blockDim.x) {
    shared_input[v] = reinterpret_cast<const uint4*>(input)[v];
  }
  __syncthreads();
  const bf16* x = reinterpret_cast<const bf16*>(shared_input);
  const int lane = threadIdx.x % kWarpSize, num_warps = blockDim.x / kWarpSize;
  for (int f = threadIdx.x / kWarpSize; f < kFeatures; f += num_warps) {
    const int feature = blockIdx.x * kFeatures + f;
    if (feature >= out_features) return;
    const bf16* row = weight + static_cast<int64_t>(feature) * in_features;
    float sum = 0;
    for (int v = lane; v < num_vectors; v += kWarpSize) {
      float a[Bf16x8::kSize], b[Bf16x8::kSize];
      LoadBf16x8(x + v * Bf16x8::kSize).ToFloats(a);
      LoadBf16x8(row + v * Bf16x8::kSize).ToFloats(b);
      for (int k = 0; k < Bf16x8::kSize; ++k) sum += a[k] * b[k];
    }
    sum = WarpSum(sum);
    if (lane == 0) output[feature] = sum;
  }
}
// end exercise

}  // namespace

void Gemv(const bf16* input, const bf16* weight, float* output, int in_features, int out_features,
          cudaStream_t stream) {
  if (out_features == 0) return;
  // exercise: Launch it, and check the launch.
  const int num_blocks = (out_features + kFeatures - 1) / kFeatures;
  GemvKernel<<<num_blocks, kThreads, in_features * sizeof(bf16), stream>>>(
      input, weight, output, in_features, out_features);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
