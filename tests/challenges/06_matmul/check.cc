// The challenge of lesson 06: right for every shape, and every weight read once, in wide steps.
#include <gtest/gtest.h>

#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/06_matmul/challenge/gemv.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {
namespace {

std::vector<float> Product(const std::vector<bf16>& input, const std::vector<bf16>& weight) {
  const Stream stream;
  const int out_features = static_cast<int>(weight.size() / input.size());
  DeviceBuffer<bf16> x(input), w(weight);
  DeviceBuffer<float> output(out_features);
  output.Fill(0xff);
  Gemv(x.data(), w.data(), output.data(), static_cast<int>(input.size()), out_features,
       stream.get());
  stream.Synchronize();
  return output.ToHost();
}

TEST(GemvChallenge, IsTheProductForEveryShape) {
  for (int in_features : {8, 40, 256, 2048, 16384}) {
    for (int out_features : {1, 3, 16, 33, 100}) {
      const std::vector<bf16> input = Random(1).Bf16(in_features);
      const std::vector<bf16> weight = Random(2).Bf16(size_t(in_features) * out_features);
      std::vector<double> expected(out_features);
      double length = 0;  // of the terms: what f32 may lose grows with it
      for (int k = 0; k < in_features; ++k) {
        length += ToDouble(input[k]) * ToDouble(input[k]);
        for (int f = 0; f < out_features; ++f) {
          expected[f] += ToDouble(input[k]) * ToDouble(weight[size_t(f) * in_features + k]);
        }
      }
      ASSERT_TRUE(Guide("docs/06_matmul.md#challenge")
                      .Input("in_features", in_features)
                      .Input("out_features", out_features)
                      .Compare([&] { return Product(input, weight); }, expected, 0,
                               1e-5 * std::sqrt(length)));
    }
  }
}

TEST(GemvChallenge, NothingIsNoWork) { Gemv(nullptr, nullptr, nullptr, 64, 0, nullptr); }

// AddressSanitizer takes the place of what counts accesses.
#if defined(TINYVLLM_SIMULATOR) && !defined(__SANITIZE_ADDRESS__)

TEST(GemvChallenge, ReadsEachWeightOnceInWideSteps) {
  const std::vector<bf16> input = Random(1).Bf16(2048), weight = Random(2).Bf16(2048 * 128);
  simulator::KernelStatistics all;
  for (const auto& kernel : simulator::CountKernels([&] { Product(input, weight); })) {
    all.Add(kernel);
  }
  const double weight_bytes = static_cast<double>(weight.size() * sizeof(bf16));
  EXPECT_LE(static_cast<double>(all.bytes_read), 1.2 * weight_bytes);
  EXPECT_LE(static_cast<double>(all.sectors), 1.05 * static_cast<double>(all.fewest_sectors))
      << "lanes of a warp read places that lie apart";
  EXPECT_GE(static_cast<double>(all.bytes_read) / static_cast<double>(all.accesses), 256)
      << "bytes an access of a warp";
}

#endif

}  // namespace
}  // namespace tinyvllm
