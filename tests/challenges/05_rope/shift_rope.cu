#include "lessons/05_rope/challenge/shift_rope.h"

#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

// exercise: Write the kernel. Version 1 of the lesson is near; which of its operands may have
// either sign, and which of its 24-bit floats would lose something?
__global__ void ShiftRopeKernel(bf16* __restrict__ x, const int* __restrict__ shifts,
                                const float* __restrict__ inverse_frequencies, int num_heads,
                                int half, int64_t row_stride) {
  bf16* row = x + blockIdx.x * row_stride;
  const int shift = shifts[blockIdx.x];
  if (shift == 0) return;
  for (int p = threadIdx.x; p < num_heads * half; p += blockDim.x) {
    const int i = p % half;
    bf16* head = row + p / half * (2 * half);
    const float angle = static_cast<float>(shift) * inverse_frequencies[i];
    const float cosine = cosf(angle), sine = sinf(angle);
    const float a = __bfloat162float(head[i]), b = __bfloat162float(head[i + half]);
    head[i] = __float2bfloat16(a * cosine - b * sine);
    head[i + half] = __float2bfloat16(b * cosine + a * sine);
  }
}
// end exercise

}  // namespace

void ShiftRope(bf16* x, const int* shifts, const RopeTable& table, int num_tokens, int num_heads,
               int head_dim, int64_t row_stride, cudaStream_t stream) {
  if (num_tokens == 0) return;
  // exercise: Launch it, and check the launch.
  ShiftRopeKernel<<<num_tokens, 128, 0, stream>>>(x, shifts, table.inverse_frequencies(), num_heads,
                                                  head_dim / 2, row_stride);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
