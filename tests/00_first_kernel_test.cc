// Checks of lesson 00: every element is added, every block summed, and nothing beyond is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/random.h"
#include "lessons/00_first_kernel/first_kernel.h"
#include "lessons/00_first_kernel/planted_bugs.h"

namespace tinyvllm {
namespace {

// Room behind every array, so that a kernel without `if (i < n)` writes where it is noticed.
constexpr int kMargin = 2 * kThreadsPerBlock;

std::vector<int> Sizes() {
  std::vector<int> sizes = {0, 1, 2, 31, 255, 256, 257, 1000, 1024, 1025};
  Random random(2);
  for (int k = 0; k < 20; ++k) sizes.push_back(random.Integer(1, 20000));
  return sizes;
}

// Whether all elements from `begin` on still hold the bytes 0xff.
bool Untouched(const std::vector<float>& values, int begin) {
  return std::all_of(values.begin() + begin, values.end(), [](float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits == 0xffffffffu;
  });
}

TEST(BlocksFor, RoundsUp) {
  EXPECT_EQ(BlocksFor(0, 256), 0);
  EXPECT_EQ(BlocksFor(1, 256), 1);
  EXPECT_EQ(BlocksFor(256, 256), 1);
  EXPECT_EQ(BlocksFor(257, 256), 2);
  EXPECT_EQ(BlocksFor(2147483647, 256), 8388608);
}

TEST(WhoDoesWhat, NumbersBlocksAndThreads) {
  const Stream stream;
  for (int threads : {1, 4, 256, 1024}) {
    const int n = 1000;
    DeviceBuffer<int> block_of(n), thread_of(n);
    WhoDoesWhat(block_of.data(), thread_of.data(), n, threads, stream.get());
    stream.Synchronize();
    const std::vector<int> blocks = block_of.ToHost(), places = thread_of.ToHost();
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(blocks[i], i / threads) << "element " << i;
      ASSERT_EQ(places[i], i % threads) << "element " << i;
    }
  }
}

TEST(VectorAdd, AddsEveryElementAndTouchesNothingBeyond) {
  const Stream stream;
  Random random(1);
  for (int n : Sizes()) {
    const std::vector<float> a = random.F32(n + kMargin), b = random.F32(n + kMargin);
    DeviceBuffer<float> device_a(a), device_b(b), device_output(n + kMargin);
    device_output.Fill(0xff);
    VectorAdd(device_a.data(), device_b.data(), device_output.data(), n, stream.get());
    stream.Synchronize();
    const std::vector<float> output = device_output.ToHost();
    for (int i = 0; i < n; ++i) ASSERT_EQ(output[i], a[i] + b[i]) << "n " << n << ", i " << i;
    ASSERT_TRUE(Untouched(output, n)) << "n " << n << ": something beyond the end was written";
  }
}

TEST(BlockSums, AddsUpEachBlock) {
  const Stream stream;
  Random random(3);
  for (int n : Sizes()) {
    // Whole numbers small enough that every partial sum is exact, in whatever order.
    std::vector<float> input(n + kMargin);
    for (float& value : input) value = static_cast<float>(random.Integer(-1000, 1000));
    const int blocks = BlocksFor(n, kThreadsPerBlock);
    DeviceBuffer<float> device_input(input), device_sums(blocks + kMargin);
    device_sums.Fill(0xff);
    BlockSums(device_input.data(), device_sums.data(), n, stream.get());
    stream.Synchronize();
    const std::vector<float> sums = device_sums.ToHost();
    for (int k = 0; k < blocks; ++k) {
      double expected = 0;
      for (int i = k * kThreadsPerBlock; i < std::min((k + 1) * kThreadsPerBlock, n); ++i) {
        expected += input[i];
      }
      ASSERT_EQ(sums[k], expected) << "n " << n << ", block " << k;
    }
    ASSERT_TRUE(Untouched(sums, blocks)) << "n " << n << ": something beyond the end was written";
  }
}

TEST(Launches, RefuseANegativeSizeAndATooLargeBlock) {
  const Stream stream;
  EXPECT_THROW(VectorAdd(nullptr, nullptr, nullptr, -1, stream.get()), Error);
  EXPECT_THROW(BlockSums(nullptr, nullptr, -1, stream.get()), Error);
  DeviceBuffer<int> block_of(2000), thread_of(2000);
  EXPECT_THROW(WhoDoesWhat(block_of.data(), thread_of.data(), 2000, 2000, stream.get()), Error);
  // The refusal is not sticky: the next launch works.
  EXPECT_NO_THROW(WhoDoesWhat(block_of.data(), thread_of.data(), 2000, 1024, stream.get()));
  stream.Synchronize();
}

// Runs `launch` on arrays of 1,000 elements, prints the Error and leaves with status 3.
template <typename Launch>
void RunPlantedBug(Launch launch) {
  constexpr int kElements = 1000;
  const Stream stream;
  DeviceBuffer<float> a(std::vector<float>(kElements, 1.0f)),
      b(std::vector<float>(kElements, 1.0f)), output(kElements);
  try {
    launch(a.data(), b.data(), output.data(), kElements, stream.get());
    stream.Synchronize();
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(3);
  }
  std::_Exit(0);
}

TEST(PlantedBugs, AreNotRunOnAGpu) {
  if (IsSimulator()) GTEST_SKIP() << "this is the simulator";
  const Stream stream;
  EXPECT_THROW(BlockSumsWithBarrierInIf(nullptr, nullptr, 1, stream.get()), Error);
  EXPECT_THROW(BlockSumsWithoutBarrier(nullptr, nullptr, 1, stream.get()), Error);
  EXPECT_THROW(VectorAddWithoutGuard(nullptr, nullptr, nullptr, 1, stream.get()), Error);
}

TEST(PlantedBugsDeathTest, TheSimulatorNamesTheBarrierInAnIf) {
  if (!IsSimulator()) GTEST_SKIP() << "undefined behaviour on a GPU";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto launch = [](const float* a, const float*, float* output, int n, cudaStream_t stream) {
    BlockSumsWithBarrierInIf(a, output, n, stream);
  };
  EXPECT_EXIT(RunPlantedBug(launch), testing::ExitedWithCode(3), "128 thread.*planted_bugs.cu:");
}

TEST(PlantedBugsDeathTest, TheMemoryCheckerNamesTheMissingGuard) {
  if (!ChecksMemory()) GTEST_SKIP() << "no memory checker; --config=check has it";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(RunPlantedBug(VectorAddWithoutGuard), "WithoutGuardKernel");
#else
  EXPECT_EXIT(RunPlantedBug(VectorAddWithoutGuard), testing::ExitedWithCode(3),
              "WithoutGuardKernel.*(\n.*)*out of bounds(\n.*)*planted_bugs.cu:");
#endif
}

TEST(PlantedBugsDeathTest, TheRaceDetectorNamesTheMissingBarrier) {
  if (!FindsRaces()) GTEST_SKIP() << "no race detector; --config=race has it";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto launch = [](const float* a, const float*, float* output, int n, cudaStream_t stream) {
    BlockSumsWithoutBarrier(a, output, n, stream);
  };
  EXPECT_EXIT(RunPlantedBug(launch), testing::ExitedWithCode(3),
              "MissingBarrierKernel.*(\n.*)*race: .*(\n.*)*planted_bugs.cu:");
}

}  // namespace
}  // namespace tinyvllm
