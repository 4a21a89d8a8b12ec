// The storage type of every weight and activation: 1 sign, 8 exponent and 7 fraction bits, the
// upper half of an f32. Arithmetic is done in f32.
#pragma once

#include <cuda_bf16.h>

namespace tinyvllm {

using bf16 = __nv_bfloat16;

}  // namespace tinyvllm
