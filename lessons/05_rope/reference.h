// RoPE as the formula says it, on the CPU: what the kernels are held against. Angles are f32, as
// the contract says; all that is done with them is f64.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// Rotates the first num_heads heads of each row. x: (num_tokens, row_stride), positions:
// (num_tokens), inverse_frequencies: (head_dim / 2). Returns x, the heads rotated.
inline std::vector<double> RopeReference(const std::vector<bf16>& x,
                                         const std::vector<int>& positions,
                                         const std::vector<float>& inverse_frequencies,
                                         int num_heads, int64_t row_stride) {
  std::vector<double> rotated(x.size());
  for (size_t i = 0; i < x.size(); ++i) rotated[i] = __bfloat162float(x[i]);
  const size_t half = inverse_frequencies.size();
  for (size_t token = 0; token < positions.size(); ++token) {
    for (int head = 0; head < num_heads; ++head) {
      for (size_t i = 0; i < half; ++i) {
        const size_t first = token * row_stride + head * 2 * half + i, second = first + half;
        const float angle = positions[token] * inverse_frequencies[i];
        const double cosine = std::cos(static_cast<double>(angle));
        const double sine = std::sin(static_cast<double>(angle));
        const double a = rotated[first], b = rotated[second];
        rotated[first] = a * cosine - b * sine;
        rotated[second] = b * cosine + a * sine;
      }
    }
  }
  return rotated;
}

}  // namespace tinyvllm
