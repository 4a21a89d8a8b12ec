// RMSNorm: brings every token's vector to length sqrt(hidden_size), then stretches each coordinate
// by a learned weight.
//
//   output[i] = input[i] / sqrt(mean of all input[j]^2 + epsilon) * weight[i]
//
//   RmsNorm(x, weight, x, num_tokens, config.hidden_size, 1e-5f, stream);   // in place
//
// The mathematics: Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019,
// equation 4; epsilon under the root as in Llama.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// Everything is computed in f32 and rounded to bf16 once, at the end. `output` may be `input`;
// otherwise the two must not overlap. Any num_tokens >= 0 and hidden_size >= 1; epsilon > 0, else
// Error. A token's result does not depend on the other tokens, to the bit.
void RmsNorm(const bf16* input,   // (num_tokens, hidden_size)
             const bf16* weight,  // (hidden_size)
             bf16* output,        // (num_tokens, hidden_size)
             int num_tokens, int hidden_size, float epsilon, cudaStream_t stream);

// The same by each version of the lesson, from naive to fast.
struct RmsNormVersion {
  int number;
  const char* name;
  const char* idea;  // the one that this version adds
  decltype(&RmsNorm) launch;
};
extern const RmsNormVersion kRmsNormVersions[3];

}  // namespace tinyvllm
