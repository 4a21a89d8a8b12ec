#include "lessons/08_feed_forward/feed_forward.h"

#include <climits>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

constexpr int kThreads = 256;

// Blocks of kThreads for `threads` threads.
unsigned GridSize(const char* what, int64_t threads) {
  const int64_t blocks = (threads + kThreads - 1) / kThreads;
  Check(blocks <= INT_MAX, what, ": ", blocks, " blocks, expected at most ", INT_MAX,
        "; split the tokens");
  return static_cast<unsigned>(blocks);
}

__device__ int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// --- SwiGLU

// The fast exponential and division err by a few units in the last place of f32: nothing beside the
// rounding to bf16. For a gate below about -88 exp(-gate) overflows to infinity, and the quotient
// becomes 0, which is the limit; NaN would need an infinite gate.
__device__ float SwiGluElement(float gate, float up) {
  // Your turn: The gate is SiLU(gate) = gate / (1 + exp(-gate)); it scales up. Return the product.
  return up;
}

__global__ void SwiGluKernel1(const bf16* __restrict__ gate_up,  // (num_tokens, 2 * size)
                              bf16* __restrict__ output,         // (num_tokens, size)
                              int64_t count, int size) {
  const int64_t i = GlobalThread();
  if (i >= count) return;
  const int64_t token = i / size;
  const int64_t gate = token * 2 * size + i % size;
  output[i] = __float2bfloat16(
      SwiGluElement(__bfloat162float(gate_up[gate]), __bfloat162float(gate_up[gate + size])));
}

// PRECONDITION: size is a multiple of 8, both pointers are multiples of 16 bytes.
__global__ void SwiGluKernel2(const bf16* __restrict__ gate_up,  // (num_tokens, 2 * size)
                              bf16* __restrict__ output,         // (num_tokens, size)
                              int64_t count, int size) {
  const int64_t i = GlobalThread() * Bf16x8::kSize;
  if (i >= count) return;
  // Your turn: This thread's eight outputs are output[i] to output[i + 7], of one token. Find where
  // the token's gate begins in gate_up (its up is `size` elements further), load eight of each
  // with LoadBf16x8(...).ToFloats(...), and store eight results.
}

// The number of outputs; 0 when there is nothing to do.
int64_t CheckedCount(int num_tokens, int intermediate_size) {
  Check(num_tokens >= 0 && intermediate_size >= 0, "SwiGLU: ", num_tokens,
        " tokens of intermediate_size ", intermediate_size, ", expected 0 or more of both");
  return int64_t{num_tokens} * intermediate_size;
}

// --- Residual

// One element of residual += update. The remainder takes what the rounding to bf16 leaves over.

__device__ void AddToStream(float update, bf16* residual, bf16* remainder) {
  const float sum = __bfloat162float(*residual) + __bfloat162float(*remainder) + update;
  *residual = __float2bfloat16(sum);
  *remainder = __float2bfloat16(sum - __bfloat162float(*residual));
}

__global__ void ResidualAddKernel1(bf16* __restrict__ residual, bf16* __restrict__ remainder,
                                   const float* __restrict__ update, int64_t count) {
  const int64_t i = GlobalThread();
  if (i >= count) return;
  AddToStream(update[i], &residual[i], &remainder[i]);
}

// PRECONDITION: all pointers are multiples of 16 bytes.
__global__ void ResidualAddKernel2(bf16* __restrict__ residual, bf16* __restrict__ remainder,
                                   const float* __restrict__ update, int64_t count) {
  const int64_t first = GlobalThread() * Bf16x8::kSize;
  if (first + Bf16x8::kSize <= count) {
    float high[Bf16x8::kSize];
    float low[Bf16x8::kSize];
    LoadBf16x8(residual + first).ToFloats(high);
    LoadBf16x8(remainder + first).ToFloats(low);
    const float4* fours = reinterpret_cast<const float4*>(update + first);
    const float4 a = fours[0], b = fours[1];
    const float added[Bf16x8::kSize] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < Bf16x8::kSize; ++j) {
      const float sum = high[j] + low[j] + added[j];
      high[j] = __bfloat162float(__float2bfloat16(sum));
      low[j] = sum - high[j];
    }
    StoreBf16x8(residual + first, Bf16x8::FromFloats(high));
    StoreBf16x8(remainder + first, Bf16x8::FromFloats(low));
    return;
  }
  for (int64_t i = first; i < count; ++i) {  // the last, incomplete eight
    AddToStream(update[i], &residual[i], &remainder[i]);
  }
}

}  // namespace

void SwiGlu1(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
             cudaStream_t stream) {
  const int64_t count = CheckedCount(num_tokens, intermediate_size);
  if (count == 0) return;
  SwiGluKernel1<<<GridSize("SwiGLU", count), kThreads, 0, stream>>>(gate_up, output, count,
                                                                    intermediate_size);
  CUDA_CHECK_LAUNCH();
}

void SwiGlu2(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
             cudaStream_t stream) {
  if (!FitsBf16x8(intermediate_size, gate_up, output)) {
    return SwiGlu1(gate_up, output, num_tokens, intermediate_size, stream);
  }
  const int64_t count = CheckedCount(num_tokens, intermediate_size);
  if (count == 0) return;
  SwiGluKernel2<<<GridSize("SwiGLU", count / Bf16x8::kSize), kThreads, 0, stream>>>(
      gate_up, output, count, intermediate_size);
  CUDA_CHECK_LAUNCH();
}

void SwiGlu(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
            cudaStream_t stream) {
  SwiGlu2(gate_up, output, num_tokens, intermediate_size, stream);
}

void ResidualAdd1(bf16* residual, bf16* remainder, const float* update, int64_t count,
                  cudaStream_t stream) {
  Check(count >= 0, "residual: ", count, " elements, expected 0 or more");
  if (count == 0) return;
  ResidualAddKernel1<<<GridSize("residual", count), kThreads, 0, stream>>>(residual, remainder,
                                                                           update, count);
  CUDA_CHECK_LAUNCH();
}

void ResidualAdd2(bf16* residual, bf16* remainder, const float* update, int64_t count,
                  cudaStream_t stream) {
  if (!FitsBf16x8(Bf16x8::kSize, residual, remainder, update)) {
    return ResidualAdd1(residual, remainder, update, count, stream);
  }
  Check(count >= 0, "residual: ", count, " elements, expected 0 or more");
  if (count == 0) return;
  const int64_t eights = (count + Bf16x8::kSize - 1) / Bf16x8::kSize;
  ResidualAddKernel2<<<GridSize("residual", eights), kThreads, 0, stream>>>(residual, remainder,
                                                                            update, count);
  CUDA_CHECK_LAUNCH();
}

void ResidualAdd(bf16* residual, bf16* remainder, const float* update, int64_t count,
                 cudaStream_t stream) {
  ResidualAdd2(residual, remainder, update, count, stream);
}

}  // namespace tinyvllm
