// Eight bf16 in one 16-byte load or store, the widest a GPU thread can do; arithmetic in f32.
//
// In a kernel, thread i takes the elements 8 i to 8 i + 7 of a row:
//   float x[Bf16x8::kSize];
//   LoadBf16x8(row + 8 * i).ToFloats(x);
//   ...
//   StoreBf16x8(out + 8 * i, Bf16x8::FromFloats(x));
// and its launcher asks first, and takes another kernel if the answer is no:
//   if (FitsBf16x8(hidden_size, table, output)) ...
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/cuda/bf16.h"

namespace tinyvllm {

struct Bf16x8 {
  static constexpr int kSize = 8;

  uint4 bits;  // word w holds element 2 w in its lower half and 2 w + 1 in its upper half

  // A bf16 is the upper half of the f32 of the same value, so widening it is a shift.
  __device__ void ToFloats(float (&values)[kSize]) const {
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      values[2 * w] = __uint_as_float(words[w] << 16);
      values[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
    }
  }

  // Rounds to nearest, ties to even.
  static __device__ Bf16x8 FromFloats(const float (&values)[kSize]) {
    unsigned words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * w], values[2 * w + 1]);
      words[w] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }
};

// tag::load[]
// PRECONDITION of both: the address is a multiple of 16 bytes.
inline __device__ Bf16x8 LoadBf16x8(const bf16* from) {
  return {*reinterpret_cast<const uint4*>(from)};
}
inline __device__ void StoreBf16x8(bf16* to, const Bf16x8& values) {
  *reinterpret_cast<uint4*>(to) = values.bits;
}
// end::load[]

// For launchers: whether rows of `width` bf16 that begin at each of `pointers` can be read and
// written by eights, which needs whole eights and addresses that are multiples of 16 bytes.
template <typename... Pointers>
bool FitsBf16x8(int width, const Pointers*... pointers) {
  return width % Bf16x8::kSize == 0 &&
         ((reinterpret_cast<uintptr_t>(pointers) % sizeof(Bf16x8) == 0) && ...);
}

}  // namespace tinyvllm
