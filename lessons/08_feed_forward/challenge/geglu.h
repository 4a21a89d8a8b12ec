// The challenge of lesson 08: another gate. Google's Gemma has GELU where Llama has SiLU.
//
//   GeGlu(gate_up.data(), output.data(), num_tokens, intermediate_size, stream);
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// output[t][i] = gelu(gate[t][i]) * up[t][i], with
//
//   gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//
// right to the rounding for every gate, also where the formula as it stands is not: at x = -5 the
// sum in it is 2 parts in ten million, of which f32 has lost most digits. No finite input gives
// NaN. Where intermediate_size is a multiple of 8 and the pointers are of 16 bytes, all accesses
// are of 16 bytes.
void GeGlu(const bf16* gate_up,  // (num_tokens, 2 * intermediate_size): gate, then up
           bf16* output,         // (num_tokens, intermediate_size)
           int num_tokens, int intermediate_size, cudaStream_t stream);

}  // namespace tinyvllm
