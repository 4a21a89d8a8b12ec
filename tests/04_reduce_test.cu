// WarpSum, WarpMax, BlockSum and BlockMax, called by kernels of this file's own.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "common/testing/random.h"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

__global__ void WarpResults(const float* in, float* sums, float* maxima) {
  sums[threadIdx.x] = WarpSum(in[threadIdx.x]);
  maxima[threadIdx.x] = WarpMax(in[threadIdx.x]);
}

// The second call follows with the same scratch, as in a real kernel, and with other values, so
// that a thread that is still in the first one would notice.
__global__ void BlockResults(const float* in, float* sums, float* maxima) {
  __shared__ float scratch[kMaxWarpsPerBlock];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = BlockSum(in[i], scratch);
  maxima[i] = BlockMax(2 * in[i], scratch);
}

struct Results {
  std::vector<float> sums, maxima;
};

Results Reduce(const std::vector<float>& in, int blocks, int threads, bool warp_only) {
  DeviceBuffer<float> input(in), sums(in.size()), maxima(in.size());
  sums.Fill(0xff);
  maxima.Fill(0xff);
  if (warp_only) {
    WarpResults<<<blocks, threads>>>(input.data(), sums.data(), maxima.data());
  } else {
    BlockResults<<<blocks, threads>>>(input.data(), sums.data(), maxima.data());
  }
  CUDA_CHECK_LAUNCH();
  return {sums.ToHost(), maxima.ToHost()};
}

// Whole numbers below 2^10 add up without rounding, so that sums must be exact.
std::vector<float> WholeNumbers(Random& random, size_t size) {
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Integer(-1000, 1000));
  return values;
}

TEST(ReduceTest, EveryLaneGetsTheWarpsResult) {
  Random random(1);
  for (int warps : {1, 2, 8}) {
    const std::vector<float> in = WholeNumbers(random, static_cast<size_t>(warps) * kWarpSize);
    const Results results = Reduce(in, 1, warps * kWarpSize, /*warp_only=*/true);
    for (size_t i = 0; i < in.size(); ++i) {
      const auto begin = in.begin() + i / kWarpSize * kWarpSize;
      float sum = 0;
      for (auto value = begin; value != begin + kWarpSize; ++value) sum += *value;
      EXPECT_EQ(results.sums[i], sum) << "thread " << i;
      EXPECT_EQ(results.maxima[i], *std::max_element(begin, begin + kWarpSize)) << "thread " << i;
    }
  }
}

TEST(ReduceTest, EveryThreadGetsTheBlocksResult) {
  Random random(2);
  for (int threads :
       {1, 2, 3, 31, 32, 33, 63, 64, 65, 96, 100, 127, 255, 256, 257, 511, 1000, 1023, 1024}) {
    const int blocks = 3;
    const std::vector<float> in = WholeNumbers(random, static_cast<size_t>(blocks) * threads);
    const Results results = Reduce(in, blocks, threads, /*warp_only=*/false);
    for (size_t i = 0; i < in.size(); ++i) {
      const auto begin = in.begin() + i / threads * threads;
      float sum = 0;
      for (auto value = begin; value != begin + threads; ++value) sum += *value;
      ASSERT_EQ(results.sums[i], sum) << "thread " << i << " in blocks of " << threads;
      ASSERT_EQ(results.maxima[i], 2 * *std::max_element(begin, begin + threads))
          << "thread " << i << " in blocks of " << threads;
    }
  }
}

TEST(ReduceTest, TheMaximumOfNothingButMinusInfinityIsMinusInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int threads : {5, 96}) {
    for (float maximum : Reduce(std::vector<float>(threads, -infinity), 1, threads, false).maxima) {
      EXPECT_EQ(maximum, -infinity);
    }
  }
}

TEST(ReduceTest, ANanReachesEverySum) {
  std::vector<float> in(100, 1.0f);
  in[99] = std::numeric_limits<float>::quiet_NaN();
  for (float sum : Reduce(in, 1, 100, false).sums) EXPECT_TRUE(std::isnan(sum));
}

TEST(ReduceTest, TheSameNumbersGiveTheSameBitsInEveryThread) {
  Random random(3);
  for (int threads : {33, 256, 1000}) {
    const Results results = Reduce(random.F32(threads), 1, threads, false);
    for (float sum : results.sums) EXPECT_EQ(sum, results.sums[0]);
  }
}

}  // namespace
}  // namespace tinyvllm
