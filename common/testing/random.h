// Fresh random inputs for checks and demos, the same on every machine for the same seed.
//
//   Random random(seed);
//   std::vector<bf16> x = random.Bf16(num_tokens * hidden_size);   // standard normal, rounded
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/cuda/bf16.h"

namespace tinyvllm {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
  uint64_t Bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, 1).
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

  // In [low, high], both included.
  int Integer(int low, int high) {
    const int64_t count = int64_t{high} - low + 1;
    return static_cast<int>(low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(count)));
  }

  // Mean 0, variance 1, by Box and Muller's transform.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * M_PI * Uniform());
  }

  std::vector<float> F32(size_t size, double scale = 1) {
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(scale * Normal());
    return values;
  }

  std::vector<bf16> Bf16(size_t size, double scale = 1) {
    std::vector<bf16> values(size);
    for (bf16& value : values) value = __float2bfloat16(static_cast<float>(scale * Normal()));
    return values;
  }

  std::vector<int> Integers(size_t size, int low, int high) {
    std::vector<int> values(size);
    for (int& value : values) value = Integer(low, high);
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace tinyvllm
