#include "lessons/07_attention/challenge/sliding_window.h"

#include <cstdint>

#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

// exercise: Write the kernel. With a window there are few scores, but they still need a place, or
// none at all: can the average be kept up to date key by key? What must happen to it when a score
// comes that is larger than all before?

constexpr int kMaxHeadDim = 256;
constexpr int kMaxElements = kMaxHeadDim / 32;  // of a lane

// A warp a query and head; its lanes share out the elements. The average is kept as the sum of
// weights and the weighted sum of values, both relative to the largest score so far.
__global__ void SlidingWindowKernel(const bf16* __restrict__ q, const bf16* __restrict__ k,
                                    const bf16* __restrict__ v, bf16* __restrict__ output,
                                    int num_kv_heads, int head_dim, float scale, int window) {
  const int query = blockIdx.x, head = blockIdx.y, num_heads = gridDim.y;
  const int kv_head = head / (num_heads / num_kv_heads), lane = threadIdx.x;
  const bf16* q_row = q + (static_cast<int64_t>(query) * num_heads + head) * head_dim;
  float mine[kMaxElements], sums[kMaxElements];
  for (int e = 0, i = lane; i < head_dim; ++e, i += kWarpSize) {
    mine[e] = __bfloat162float(q_row[i]) * scale;
    sums[e] = 0;
  }
  float largest = -INFINITY, total = 0;
  for (int key = max(0, query - window + 1); key <= query; ++key) {
    const int64_t row = (static_cast<int64_t>(key) * num_kv_heads + kv_head) * head_dim;
    float score = 0;
    for (int e = 0, i = lane; i < head_dim; ++e, i += kWarpSize) {
      score += mine[e] * __bfloat162float(k[row + i]);
    }
    score = WarpSum(score);
    const float new_largest = fmaxf(largest, score);
    const float shrink = expf(largest - new_largest), weight = expf(score - new_largest);
    total = total * shrink + weight;
    for (int e = 0, i = lane; i < head_dim; ++e, i += kWarpSize) {
      sums[e] = sums[e] * shrink + weight * __bfloat162float(v[row + i]);
    }
    largest = new_largest;
  }
  bf16* out_row = output + (static_cast<int64_t>(query) * num_heads + head) * head_dim;
  for (int e = 0, i = lane; i < head_dim; ++e, i += kWarpSize) {
    out_row[i] = __float2bfloat16(sums[e] / total);
  }
}
// end exercise

}  // namespace

void SlidingWindowAttention(const AttentionShape& shape, const bf16* q, const bf16* k,
                            const bf16* v, bf16* output, int length, int window,
                            cudaStream_t stream) {
  if (length == 0) return;
  // exercise: Launch it, and check the launch.
  SlidingWindowKernel<<<dim3(length, shape.num_heads), kWarpSize, 0, stream>>>(
      q, k, v, output, shape.num_kv_heads, shape.head_dim, shape.scale, window);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
