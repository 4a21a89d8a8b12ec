// The challenge of lesson 05: keys that move. When the beginning of a long text is dropped, the
// rest moves up, and its cached keys stand at the wrong positions. They need not be computed again:
// turn each by the angle of the distance.
//
//   Rope(keys, positions, table, ...);       // as they were computed
//   ShiftRope(keys, shifts, table, ...);     // as if they had been at positions + shifts
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/cuda/bf16.h"
#include "lessons/05_rope/rope.h"

namespace tinyvllm {

// Turns the first num_heads heads of each row by shifts[t] positions, in place; f32 inside. The
// elements behind them are not touched, and a shift of 0 changes no bit. A shift may be negative,
// so that the table of cosines has no row for it: the angle is shifts[t] * inverse_frequencies[i],
// in f32.
void ShiftRope(bf16* x,            // (num_tokens, row_stride), already rotated
               const int* shifts,  // (num_tokens), of any sign
               const RopeTable& table, int num_tokens, int num_heads, int head_dim,
               int64_t row_stride, cudaStream_t stream);

}  // namespace tinyvllm
