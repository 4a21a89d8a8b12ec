// RMSNorm as the formula says it, on the CPU in f64: what the kernels are held against.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// tag::reference[]
// x: (num_tokens, hidden_size), weight: (hidden_size). Returns (num_tokens, hidden_size), exact to
// f64; the caller rounds.
inline std::vector<double> RmsNormReference(const std::vector<bf16>& x,
                                            const std::vector<bf16>& weight, float epsilon) {
  const size_t hidden_size = weight.size();
  std::vector<double> output(x.size());
  for (size_t row = 0; row < x.size(); row += hidden_size) {
    double sum = 0;
    for (size_t i = 0; i < hidden_size; ++i) {
      const double value = __bfloat162float(x[row + i]);
      sum += value * value;
    }
    const double scale = 1 / std::sqrt(sum / hidden_size + epsilon);
    for (size_t i = 0; i < hidden_size; ++i) {
      output[row + i] = __bfloat162float(x[row + i]) * scale * __bfloat162float(weight[i]);
    }
  }
  return output;
}
// end::reference[]

// The same with two roundings to bf16, one before and one after the weight: the order of operations
// in Hugging Face's transformers, LlamaRMSNorm.
inline std::vector<bf16> RmsNormRoundedTwice(const std::vector<bf16>& x,
                                             const std::vector<bf16>& weight, float epsilon) {
  const std::vector<bf16> ones(weight.size(), __float2bfloat16(1.0f));
  const std::vector<double> normalised = RmsNormReference(x, ones, epsilon);
  std::vector<bf16> output(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const float rounded = __bfloat162float(__float2bfloat16(static_cast<float>(normalised[i])));
    output[i] = __float2bfloat16(rounded * __bfloat162float(weight[i % weight.size()]));
  }
  return output;
}

}  // namespace tinyvllm
