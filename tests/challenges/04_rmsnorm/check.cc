// The challenge of lesson 04: one launch, right to the rounding, and no byte moved twice.
#include <gtest/gtest.h>

#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/04_rmsnorm/challenge/add_rmsnorm.h"
#include "lessons/04_rmsnorm/reference.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Case {
  Case(int num_tokens, int hidden_size)
      : num_tokens(num_tokens),
        hidden_size(hidden_size),
        x(Random(1).Bf16(num_tokens * hidden_size, 3)),
        residual(Random(2).Bf16(num_tokens * hidden_size, 3)),
        weight(Random(3).Bf16(hidden_size)) {
    for (size_t i = 0; i < x.size(); ++i) {
      sum.push_back(__float2bfloat16(__bfloat162float(x[i]) + __bfloat162float(residual[i])));
    }
  }

  void Run() {
    const Stream stream;
    DeviceBuffer<bf16> d_x(x), d_residual(residual), d_weight(weight), d_output(x.size());
    d_output.Fill(0xff);
    AddRmsNorm(d_x.data(), d_residual.data(), d_weight.data(), d_output.data(), num_tokens,
               hidden_size, kEpsilon, stream.get());
    stream.Synchronize();
    new_residual = d_residual.ToHost();
    output = d_output.ToHost();
  }

  int num_tokens, hidden_size;
  std::vector<bf16> x, residual, weight, sum;
  std::vector<bf16> new_residual, output;
};

TEST(AddRmsNormChallenge, IsTheSumAndItsNorm) {
  for (int hidden_size : {8, 64, 96, 2048, 4096, 8192}) {
    for (int num_tokens : {1, 5}) {
      Case c(num_tokens, hidden_size);
      c.Run();
      ASSERT_EQ(FirstMismatch(c.new_residual, c.sum, 0, 0), "") << "residual, of " << hidden_size;
      ASSERT_EQ(FirstMismatch(c.output, RmsNormReference(c.sum, c.weight, kEpsilon),
                              kBf16Rounding + 1e-5, 0),
                "")
          << "output, of " << hidden_size;
    }
  }
}

TEST(AddRmsNormChallenge, NoTokensIsNoWork) {
  AddRmsNorm(nullptr, nullptr, nullptr, nullptr, 0, 64, kEpsilon, nullptr);
}

#ifdef TINYVLLM_SIMULATOR

TEST(AddRmsNormChallenge, IsOneLaunchThatMovesEachByteOnce) {
  Case c(4, 2048);
  const std::vector<simulator::KernelStatistics> kernels =
      simulator::CountKernels([&] { c.Run(); });
  ASSERT_EQ(kernels.size(), 1u) << "kernels";
  EXPECT_EQ(kernels[0].launches, 1u);
#ifndef __SANITIZE_ADDRESS__  // it takes the place of what counts accesses
  const uint64_t matrix = c.x.size() * sizeof(bf16);
  EXPECT_EQ(kernels[0].bytes_read, 2 * matrix + matrix) << "x, residual, and the weight a row";
  EXPECT_EQ(kernels[0].bytes_written, 2 * matrix);
#endif
}

#endif

}  // namespace
}  // namespace tinyvllm
