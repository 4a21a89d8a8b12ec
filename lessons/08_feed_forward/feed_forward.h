// What stands around the matrices of a layer's feed-forward half: the gate and the residual.
//
//   linear(normed, gate_up_weight, gate_up, num_tokens, hidden_size, 2 * intermediate_size);
//   SwiGlu(gate_up, activated, num_tokens, intermediate_size, stream);
//   linear(activated, down_weight, update, num_tokens, intermediate_size, hidden_size);
//   ResidualAdd(residual, remainder, update, int64_t{num_tokens} * hidden_size, stream);
//
// SwiGLU is from Shazeer, "GLU Variants Improve Transformer" (2020); its gate SiLU(x) = x / (1 +
// exp(-x)) from Elfwing, Uchibe and Doya (2017). f32 inside, one rounding to bf16 at the end.
//
// The work is queued on the stream; nothing waits. No pointer needs an alignment beyond bf16's own
// (multiples of 16 bytes are faster). Throws Error for negative sizes; does nothing for empty ones.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// output[t][i] = SiLU(gate[t][i]) * up[t][i], where a row of gate_up is a row of gate and then a
// row of up: one matrix product makes both.
void SwiGlu(const bf16* gate_up,  // (num_tokens, 2 * intermediate_size)
            bf16* output,         // (num_tokens, intermediate_size), apart from gate_up
            int num_tokens, int intermediate_size, cudaStream_t stream);

// residual[i] += update[i] for i below count, without losing what does not fit into bf16: the
// stream's value is residual[i] + remainder[i], of 16 significant bits, and readers take
// residual[i] alone. The remainder begins as zeros. The update is a product's f32 sums, not yet
// rounded. Kahan, "Further remarks on reducing truncation errors" (1965), carried the remainder of
// a sum in this way.
void ResidualAdd(bf16* residual, bf16* remainder, const float* update, int64_t count,
                 cudaStream_t stream);

struct SwiGluVersion {
  int number;
  const char* name;
  const char* idea;
  void (*launch)(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
                 cudaStream_t stream);
};

struct ResidualAddVersion {
  int number;
  const char* name;
  const char* idea;
  void (*launch)(bf16* residual, bf16* remainder, const float* update, int64_t count,
                 cudaStream_t stream);
};

void SwiGlu1(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
             cudaStream_t stream);
void SwiGlu2(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
             cudaStream_t stream);
void ResidualAdd1(bf16* residual, bf16* remainder, const float* update, int64_t count,
                  cudaStream_t stream);
void ResidualAdd2(bf16* residual, bf16* remainder, const float* update, int64_t count,
                  cudaStream_t stream);

constexpr SwiGluVersion kSwiGluVersions[] = {
    {1, "elements", "a thread an element: reads gate and up, writes their product", SwiGlu1},
    {2, "eights", "a thread eight elements: three 16-byte accesses instead of 24 of 2", SwiGlu2},
};

constexpr ResidualAddVersion kResidualAddVersions[] = {
    {1, "elements", "a thread an element", ResidualAdd1},
    {2, "eights", "a thread eight elements, in 16-byte accesses", ResidualAdd2},
};

}  // namespace tinyvllm
