// Checks of bf16x8.cuh: eight bf16 to f32 and back, against the scalar conversions of CUDA.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/testing/random.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

constexpr int kThreads = 256;

__global__ void WidenKernel(const bf16* input, float* output, int groups) {
  const int group = blockIdx.x * blockDim.x + threadIdx.x;
  if (group >= groups) return;
  float values[Bf16x8::kSize];
  LoadBf16x8(input + Bf16x8::kSize * group).ToFloats(values);
  for (int k = 0; k < Bf16x8::kSize; ++k) output[Bf16x8::kSize * group + k] = values[k];
}

__global__ void NarrowKernel(const float* input, bf16* output, int groups) {
  const int group = blockIdx.x * blockDim.x + threadIdx.x;
  if (group >= groups) return;
  float values[Bf16x8::kSize];
  for (int k = 0; k < Bf16x8::kSize; ++k) values[k] = input[Bf16x8::kSize * group + k];
  StoreBf16x8(output + Bf16x8::kSize * group, Bf16x8::FromFloats(values));
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Every bf16 there is: the f32 must be these 16 bits with 16 zeros below.
TEST(Bf16x8, WidensEveryValueExactly) {
  constexpr int kSize = 1 << 16;
  std::vector<uint16_t> input(kSize);
  for (int i = 0; i < kSize; ++i) input[i] = static_cast<uint16_t>(i);
  const DeviceBuffer<uint16_t> device_input(input);
  DeviceBuffer<float> device_output(kSize);
  WidenKernel<<<kSize / Bf16x8::kSize / kThreads, kThreads>>>(
      reinterpret_cast<const bf16*>(device_input.data()), device_output.data(),
      kSize / Bf16x8::kSize);
  CUDA_CHECK_LAUNCH();
  const std::vector<float> output = device_output.ToHost();
  for (int i = 0; i < kSize; ++i) ASSERT_EQ(BitsOf(output[i]), static_cast<uint32_t>(i) << 16);
}

TEST(Bf16x8, RoundsToNearestEven) {
  Random random(3);
  std::vector<float> input = {1.0f,        1.00390625f, 1.01171875f, -1.00390625f,
                              1.00390637f, INFINITY,    -INFINITY,   3.4028235e38f,
                              0.0f,        -0.0f,       1e-40f,      NAN};
  const std::vector<float> known = {1.0f,       1.0f,     1.015625f, -1.0f,
                                    1.0078125f, INFINITY, -INFINITY, INFINITY};
  while (input.size() < 8 * 4096) {
    const auto bits = static_cast<uint32_t>(random.Bits());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    input.push_back(value);
  }
  const int groups = static_cast<int>(input.size()) / Bf16x8::kSize;
  const DeviceBuffer<float> device_input(input);
  DeviceBuffer<bf16> device_output(input.size());
  NarrowKernel<<<(groups + kThreads - 1) / kThreads, kThreads>>>(device_input.data(),
                                                                 device_output.data(), groups);
  CUDA_CHECK_LAUNCH();
  const std::vector<bf16> output = device_output.ToHost();
  for (size_t i = 0; i < known.size(); ++i) EXPECT_EQ(__bfloat162float(output[i]), known[i]);
  for (size_t i = 0; i < input.size(); ++i) {
    const float actual = __bfloat162float(output[i]);
    if (std::isnan(input[i])) {
      ASSERT_TRUE(std::isnan(actual)) << "element " << i;
    } else {
      ASSERT_EQ(BitsOf(actual), BitsOf(__bfloat162float(__float2bfloat16(input[i]))))
          << "element " << i << ", " << input[i];
    }
  }
}

TEST(FitsBf16x8, AsksForWholeEightsAndAlignedAddresses) {
  alignas(16) static bf16 memory[64];
  EXPECT_TRUE(FitsBf16x8(16, memory, memory + 8));
  EXPECT_FALSE(FitsBf16x8(12, memory));
  EXPECT_FALSE(FitsBf16x8(16, memory, memory + 4));
  EXPECT_FALSE(FitsBf16x8(16, memory + 1, memory));
}

}  // namespace
}  // namespace tinyvllm
