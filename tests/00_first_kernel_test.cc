// Checks of lesson 00: every element is added, every block summed, and nothing beyond is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/00_first_kernel/first_kernel.h"
#include "lessons/00_first_kernel/planted_bugs.h"

namespace tinyvllm {
namespace {

// Room behind every array, so that a kernel without `if (i < n)` writes where it is noticed.
constexpr int kMargin = 2 * kThreadsPerBlock;

// --- First steps: a few numbers that one can add in the head.

constexpr char kStartAt[] = "lessons/00_first_kernel/exercise/first_kernel.cu";

// The elements up to the last that is not `old` any more, but no fewer than n.
std::vector<float> Written(std::vector<float> values, size_t n, float old) {
  const auto is_old = [old](float value) {
    return value == old || (std::isnan(value) && std::isnan(old));
  };
  while (values.size() > n && is_old(values.back())) values.pop_back();
  return values;
}

// a[i] + b[i] for n elements; what lies behind them is 7 in both.
testing::AssertionResult CheckAdded(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr float kBeyond = 7;
  const int n = a.size(), blocks = BlocksFor(n, kThreadsPerBlock), size = n + kMargin;
  std::vector<float> all_a = a, all_b = b;
  all_a.resize(size, kBeyond);
  all_b.resize(size, kBeyond);
  const auto Sum = [&](int i) { return all_a[i] + all_b[i]; };

  // What comes when thread `t` of block `k` takes element index(k, t), if that is below `end`.
  using Index = std::function<int(int k, int t)>;
  using Value = std::function<float(int i)>;
  const auto Added = [&](const Index& index, int end, const Value& value) {
    std::vector<float> output(size, NAN);
    for (int k = 0; k < blocks; ++k) {
      for (int t = 0; t < kThreadsPerBlock; ++t) {
        if (index(k, t) < end) output[index(k, t)] = value(index(k, t));
      }
    }
    return Written(output, n, NAN);
  };
  const auto Indexed = [&](const Index& index) { return Added(index, n, Sum); };
  const Index right = [](int k, int t) { return k * kThreadsPerBlock + t; };

  constexpr char kGrid[] = "docs/00_first_kernel.md#threads-blocks-grid";
  Guide guide("docs/00_first_kernel.md#the-kernel-and-how-it-is-launched");
  guide.Input("n", n).Input("a", a).Input("b", b);
  return guide
      .Start(StrCat("write the body of VectorAddKernel in ", kStartAt,
                    "; begin with the number of this thread's element, from blockIdx.x, blockDim.x "
                    "and threadIdx.x"))
      .Mistake(
          "threads beyond the last element added, too: a block always has 256 threads, and "
          "those without an element must do nothing",
          Added(right, size, Sum))
      .Mistake("one element too many: the last is number n - 1", Added(right, n + 1, Sum))
      .Mistake("the last element is missing: it is number n - 1", Added(right, n - 1, Sum))
      .Mistake(
          "every block took the elements of block 0: the number of an element is made of the "
          "thread's number and of the block's",
          Indexed([](int, int t) { return t; }), kGrid)
      .Mistake(
          "all threads of a block took the same element: the thread's number in its block is "
          "threadIdx.x",
          Indexed([](int k, int) { return k; }), kGrid)
      .Mistake("all threads of a block took its first element: the thread's number is missing",
               Indexed([&](int k, int) { return right(k, 0); }), kGrid)
      .Mistake(
          "block k begins at element k here; before it come k whole blocks, of blockDim.x "
          "threads each",
          Indexed([](int k, int t) { return k + t; }), kGrid)
      .Mistake(
          "the numbers of block and thread were multiplied with each other; before block k "
          "come k whole blocks, of blockDim.x threads each",
          Indexed([](int k, int t) { return k * t; }), kGrid)
      .Mistake("block and thread changed places: neighbouring threads take neighbouring elements",
               Indexed([](int k, int t) { return t * kThreadsPerBlock + k; }), kGrid)
      .Mistake("block and thread changed places: neighbouring threads take neighbouring elements",
               Indexed([&](int k, int t) { return t * blocks + k; }), kGrid)
      .Mistake("b is missing", Added(right, n, [&](int i) { return all_a[i]; }))
      .Mistake("a is missing", Added(right, n, [&](int i) { return all_b[i]; }))
      .Mistake("subtracted, not added", Added(right, n, [&](int i) { return all_a[i] - all_b[i]; }))
      .Mistake("multiplied, not added", Added(right, n, [&](int i) { return all_a[i] * all_b[i]; }))
      .WhenOrderMatters("two threads write the same element: each has one of its own", kGrid)
      .Otherwise(
          "which element does thread 1 of block 0 take, and which thread 0 of block 1? With "
          "blocks of 256 threads they are numbers 1 and 256")
      .Compare(
          [&] {
            const Stream stream;
            DeviceBuffer<float> device_a(all_a), device_b(all_b), output(size);
            output.Fill(0xff);  // NaN, so that an element nobody wrote shows
            VectorAdd(device_a.data(), device_b.data(), output.data(), n, stream.get());
            stream.Synchronize();
            return Written(output.ToHost(), n, NAN);
          },
          Added(right, n, Sum));
}

TEST(FirstKernelFirstSteps, FourElements) {
  EXPECT_TRUE(CheckAdded({1, 2, 3, 4}, {10, 20, 30, 40}));
}

TEST(FirstKernelFirstSteps, MoreElementsThanABlockHasThreads) {
  std::vector<float> a(300), b(300, 1000);
  for (int i = 0; i < 300; ++i) a[i] = static_cast<float>(i);
  EXPECT_TRUE(CheckAdded(a, b));
}

// The sums of the blocks; what lies behind the input is 1000.
testing::AssertionResult CheckSummed(const std::vector<float>& input) {
  constexpr float kBeyond = 1000, kOld = -1;
  const int n = input.size(), blocks = BlocksFor(n, kThreadsPerBlock), size = n + kMargin;
  std::vector<float> all = input;
  all.resize(size, kBeyond);

  // A tree that begins with `first` and ends after `last`, over what threads find from 0 to `end`.
  const auto Tree = [&](int first, int last, int end) {
    std::vector<float> sums;
    for (int k = 0; k < blocks; ++k) {
      std::vector<float> partial(kThreadsPerBlock, 0);
      for (int t = 0; t < kThreadsPerBlock && k * kThreadsPerBlock + t < end; ++t) {
        partial[t] = all[k * kThreadsPerBlock + t];
      }
      for (int half = first; half >= last; half /= 2) {
        for (int t = 0; t < half; ++t) partial[t] += partial[t + half];
      }
      sums.push_back(partial[0]);
    }
    return sums;
  };
  constexpr int kHalf = kThreadsPerBlock / 2;
  const std::vector<float> expected = Tree(kHalf, 1, n);
  std::vector<float> first_only(blocks, kOld), last_only(blocks, kOld), second_lost = expected;
  first_only[0] = expected.front();
  last_only[0] = expected.back();
  second_lost.back() = NAN;

  Guide guide("docs/00_first_kernel.md#threads-that-work-together");
  guide.Input("n", n).Input("input", input).Input("sums before", std::vector<float>(blocks, kOld));
  if (blocks > 1) {
    guide
        .Mistake(
            "the second block's sum is made of memory that nobody wrote: each block has a "
            "`partial` of its own, where this thread's place is threadIdx.x",
            second_lost)
        .Mistake(
            "every block took the elements of block 0: the number of an element is made of the "
            "thread's number and of the block's",
            std::vector<float>(blocks, expected.front()))
        .Mistake("every block wrote its sum to the first place; it belongs to number blockIdx.x",
                 first_only)
        .Mistake("every block wrote its sum to the first place; it belongs to number blockIdx.x",
                 last_only);
  }
  return guide
      .Start(
          StrCat("write the body of BlockSumsKernel in ", kStartAt,
                 "; begin with what each thread puts into partial, then a barrier, and let thread "
                 "0 write partial[0]: that is the block's first number, and the tree comes next"),
          std::vector<float>(blocks, kOld))
      .Mistake("the tree is missing: this is only the first number of the block",
               Tree(kHalf, kThreadsPerBlock, n))
      .Mistake(
          "memory that nobody wrote is in the sum: a thread without an element puts a 0 into "
          "partial, and `half` begins at half the number of threads",
          std::vector<float>(blocks, NAN))
      .Mistake(
          "what lies behind the end of the input is in the sum: a thread without an element "
          "puts a 0 into partial",
          Tree(kHalf, 1, size))
      .Mistake("one element too many is in the sum: the last is number n - 1",
               Tree(kHalf, 1, n + 1))
      .Mistake("the last element is not in the sum: it is number n - 1", Tree(kHalf, 1, n - 1))
      .Mistake(
          "the tree's last step is missing, in which half is 1: every second number is not in "
          "the sum",
          Tree(kHalf, 2, n))
      .Mistake(
          "the tree's first step is missing, in which half is 128: the second half of the "
          "block is not in the sum",
          Tree(kHalf / 2, 1, n))
      .WhenOrderMatters(
          "one thread reads what another has not written yet, or has changed already; all wait at "
          "a barrier after each round of writing, and in each step only the threads below half add")
      .WhenThrown(
          "illegal memory access",
          "an index beyond `partial`, at the line that the report above names: each block has a "
          "`partial` of its own with 256 places, and this thread's place there is threadIdx.x; the "
          "number of its element in the grid is for input alone")
      .WhenThrown(
          "launch failure",
          "not all threads of the block reach the barrier, says the report above: no thread may "
          "return before it, and it stands in no `if`. A thread without an element has a 0")
      .Otherwise(
          "do the tree on paper with 8 numbers, as in the picture: which threads add in each "
          "step, and which number does each of them add?")
      .Compare(
          [&] {
            const Stream stream;
            DeviceBuffer<float> device_input(all);
            DeviceBuffer<float> sums(std::vector<float>(blocks + kMargin, kOld));
            BlockSums(device_input.data(), sums.data(), n, stream.get());
            stream.Synchronize();
            return Written(sums.ToHost(), blocks, kOld);
          },
          expected);
}

// Of powers of two, a sum tells which are in it.
TEST(FirstKernelFirstSteps, ASumOfEightPowersOfTwo) {
  EXPECT_TRUE(CheckSummed({1, 2, 4, 8, 16, 32, 64, 128}));
}

// And of ones, how many.
TEST(FirstKernelFirstSteps, SumsOfTwoBlocksOfOnes) {
  EXPECT_TRUE(CheckSummed(std::vector<float>(300, 1)));
}

// --- All sizes.

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

TEST(PlantedBugs, TheSimulatorNamesTheBarrierInAnIf) {
  if (!IsSimulator()) GTEST_SKIP() << "undefined behaviour on a GPU";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto launch = [](const float* a, const float*, float* output, int n, cudaStream_t stream) {
    BlockSumsWithBarrierInIf(a, output, n, stream);
  };
  EXPECT_EXIT(RunPlantedBug(launch), testing::ExitedWithCode(3), "128 thread.*planted_bugs.cu:");
}

TEST(PlantedBugs, TheMemoryCheckerNamesTheMissingGuard) {
  if (!ChecksMemory()) GTEST_SKIP() << "no memory checker; --config=check has it";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(RunPlantedBug(VectorAddWithoutGuard), "WithoutGuardKernel");
#else
  EXPECT_EXIT(RunPlantedBug(VectorAddWithoutGuard), testing::ExitedWithCode(3),
              "WithoutGuardKernel.*(\n.*)*out of bounds(\n.*)*planted_bugs.cu:");
#endif
}

TEST(PlantedBugs, TheRaceDetectorNamesTheMissingBarrier) {
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
