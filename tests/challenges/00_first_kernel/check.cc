// The challenge of lesson 00: exact sums for every length, in any order of threads, shared out.
#include <gtest/gtest.h>

#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/00_first_kernel/challenge/prefix_sums.h"
#include "lessons/00_first_kernel/first_kernel.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {
namespace {

std::vector<int64_t> Sums(const std::vector<int>& input) {
  const Stream stream;
  const int n = static_cast<int>(input.size());
  DeviceBuffer<int> device_input(input);
  DeviceBuffer<int64_t> sums(n), scratch(BlocksFor(n, kThreadsPerBlock));
  sums.Fill(0xff);
  PrefixSums(device_input.data(), sums.data(), scratch.data(), n, stream.get());
  stream.Synchronize();
  return sums.ToHost();
}

std::vector<int64_t> Expected(const std::vector<int>& input) {
  std::vector<int64_t> sums;
  for (int number : input) sums.push_back(number + (sums.empty() ? 0 : sums.back()));
  return sums;
}

TEST(PrefixSumsChallenge, AddsUpWhatComesBefore) {
  const std::vector<int> input = {3, 1, 4, 1};
  EXPECT_TRUE(
      Guide("docs/00_first_kernel.md#challenge")
          .Input("input", input)
          .Start("write the kernels in lessons/00_first_kernel/challenge/prefix_sums.cu, and "
                 "launch them in PrefixSums",
                 std::vector<double>(input.size(), -1))
          .Mistake("element i itself is missing in sum i", {0, 3, 4, 8})
          .Compare([&] { return Sums(input); }, Expected(input)));
}

TEST(PrefixSumsChallenge, GoesOnInTheNextBlock) {
  const std::vector<int> ones(600, 1);
  std::vector<double> anew;
  for (size_t i = 0; i < ones.size(); ++i) anew.push_back(i % kThreadsPerBlock + 1);
  EXPECT_TRUE(
      Guide("docs/00_first_kernel.md#challenge")
          .Input("input", ones)
          .Mistake("each block begins anew: the sum of all blocks before it is missing", anew)
          .Compare([&] { return Sums(ones); }, Expected(ones)));
}

TEST(PrefixSumsChallenge, IsExactForEveryLength) {
  for (int n : {1, 4, 255, 256, 257, 512, 1000, 70000}) {
    const std::vector<int> input = Random(n).Integers(n, -1'000'000'000, 2'000'000'000);
    ASSERT_TRUE(Guide("docs/00_first_kernel.md#challenge")
                    .Input("n", n)
                    .Compare([&] { return Sums(input); }, Expected(input)));
  }
}

TEST(PrefixSumsChallenge, NothingIsNoWork) { PrefixSums(nullptr, nullptr, nullptr, 0, nullptr); }

// AddressSanitizer takes the place of what counts accesses.
#if defined(TINYVLLM_SIMULATOR) && !defined(__SANITIZE_ADDRESS__)

TEST(PrefixSumsChallenge, IsSharedOutAmongTheThreads) {
  const std::vector<int> input(70000, 1);
  simulator::KernelStatistics all;
  for (const auto& kernel : simulator::CountKernels([&] { Sums(input); })) all.Add(kernel);
  // What a warp does with one lane costs as much as what it does with all.
  EXPECT_GT(static_cast<double>(all.lanes), 0.5 * static_cast<double>(all.possible_lanes))
      << "most lanes have nothing to do";
}

#endif

}  // namespace
}  // namespace tinyvllm
