// The challenge of lesson 08: right to the rounding where the formula cancels, and in wide steps.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/08_feed_forward/challenge/geglu.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {
namespace {

// Smaller than this is zero to bf16, or nearly.
constexpr double kTiny = 1e-37;

double Gelu(double x) {
  const double y = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * y));
}

std::vector<bf16> GatedUp(const std::vector<bf16>& gate_up, int intermediate_size) {
  const Stream stream;
  DeviceBuffer<bf16> input(gate_up), output(gate_up.size() / 2);
  output.Fill(0xff);
  GeGlu(input.data(), output.data(), static_cast<int>(gate_up.size() / 2 / intermediate_size),
        intermediate_size, stream.get());
  stream.Synchronize();
  return output.ToHost();
}

std::vector<double> Expected(const std::vector<bf16>& gate_up, int size) {
  std::vector<double> output;
  for (size_t row = 0; row < gate_up.size(); row += 2 * size) {
    for (int i = 0; i < size; ++i) {
      output.push_back(Gelu(ToDouble(gate_up[row + i])) * ToDouble(gate_up[row + size + i]));
    }
  }
  return output;
}

TEST(GeGluChallenge, IsRightForEveryGate) {
  std::vector<bf16> gate_up;
  for (double gate : {-1e4, -12.0, -8.0, -5.0, -3.0, -1.0, -0.01, 0.0, 0.01, 1.0, 3.0, 8.0, 1e4}) {
    gate_up.push_back(__float2bfloat16(static_cast<float>(gate)));
  }
  const int size = static_cast<int>(gate_up.size());
  gate_up.resize(2 * size, __float2bfloat16(1));
  const std::vector<bf16> gates(gate_up.begin(), gate_up.begin() + size);
  EXPECT_TRUE(Guide("docs/08_feed_forward.md#challenge")
                  .Input("gate", gates)
                  .Input("up", 1)
                  .Mistake("the gate came back without its factor", gates)
                  .Otherwise("look at the first wrong gate: is it very negative? Then 1 + tanh(y) "
                             "has cancelled")
                  .Compare([&] { return GatedUp(gate_up, size); }, Expected(gate_up, size),
                           kBf16Rounding + 1e-5, kTiny));
}

TEST(GeGluChallenge, EveryShape) {
  for (int size : {1, 7, 8, 100, 257, 2048}) {
    for (int num_tokens : {1, 3}) {
      const std::vector<bf16> gate_up = Random(size).Bf16(size_t(2) * num_tokens * size, 3);
      ASSERT_TRUE(Guide("docs/08_feed_forward.md#challenge")
                      .Input("num_tokens", num_tokens)
                      .Input("intermediate_size", size)
                      .Compare([&] { return GatedUp(gate_up, size); }, Expected(gate_up, size),
                               kBf16Rounding + 1e-5, kTiny));
    }
  }
}

TEST(GeGluChallenge, NothingIsNoWork) { GeGlu(nullptr, nullptr, 0, 64, nullptr); }

// AddressSanitizer takes the place of what counts accesses.
#if defined(TINYVLLM_SIMULATOR) && !defined(__SANITIZE_ADDRESS__)

TEST(GeGluChallenge, MovesEachByteOnceInWideSteps) {
  const std::vector<bf16> gate_up = Random(1).Bf16(2 * 3 * 2048);
  simulator::KernelStatistics all;
  for (const auto& kernel : simulator::CountKernels([&] { GatedUp(gate_up, 2048); }))
    all.Add(kernel);
  EXPECT_EQ(all.bytes_read, gate_up.size() * sizeof(bf16));
  EXPECT_EQ(all.bytes_written, gate_up.size() / 2 * sizeof(bf16));
  EXPECT_EQ(all.lanes * 16, all.bytes_read + all.bytes_written) << "16 bytes a thread and access";
}

#endif

}  // namespace
}  // namespace tinyvllm
