// Checks of lesson 04: every version against the formula in f64, over many shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/04_rmsnorm/reference.h"
#include "lessons/04_rmsnorm/rmsnorm.h"

namespace tinyvllm {
namespace {

constexpr float kEpsilon = 1e-5f;

// One rounding to bf16, and what f32 sums and rsqrtf lose before it.
constexpr double kRelative = kBf16Rounding + 1e-5;

using Launch = decltype(&RmsNorm);

std::vector<bf16> Norm(Launch launch, const std::vector<bf16>& x, const std::vector<bf16>& weight,
                       float epsilon) {
  const Stream stream;
  DeviceBuffer<bf16> input(x), weights(weight), output(x.size());
  output.Fill(0xff);  // NaN, so that an element nobody wrote shows
  launch(input.data(), weights.data(), output.data(), x.size() / weight.size(), weight.size(),
         epsilon, stream.get());
  stream.Synchronize();
  return output.ToHost();
}

// --- First steps: version 1, the exercise, on inputs that one can follow by hand.

std::vector<bf16> Bf16s(const std::vector<double>& numbers) {
  std::vector<bf16> values;
  for (double number : numbers) values.push_back(__float2bfloat16(static_cast<float>(number)));
  return values;
}

constexpr size_t kMaxThreads = 1024;  // of a block
constexpr char kTree[] = "docs/04_rmsnorm.md#version-1-a-tree";
constexpr char kTwoThreadsMeet[] =
    "one thread reads a sum that another has not written yet, or is changing: a barrier is missing "
    "(before the tree, and after each of its steps), or more threads add than the distance is long";
constexpr char kBeyondPartial[] =
    "an index beyond `partial`, at the line that the report above names: it has a place for each "
    "thread of one block, and this thread's is threadIdx.x";

// The sum that a tree gives which rounds down where it halves.
double TreeThatLosesTheMiddle(std::vector<double> sums) {
  for (size_t active = sums.size(); active > 1; active /= 2) {
    for (size_t t = 0; t < active / 2; ++t) sums[t] += sums[t + active / 2];
  }
  return sums[0];
}

// Version 1's result for one row against the formula, and against what the usual mistakes give.
testing::AssertionResult CheckRow(const std::vector<double>& row, const std::vector<double>& weight,
                                  float epsilon) {
  const size_t size = row.size();
  std::vector<double> squares, alone;
  double sum = 0, sum_of_squares = 0;
  for (double x : row) {
    squares.push_back(x * x);
    sum += x;
    sum_of_squares += x * x;
  }
  for (size_t i = 0; i < size; ++i) {
    alone.push_back(row[i] * weight[i] / std::sqrt(squares[i] / size + epsilon));
  }
  const auto Scaled = [&](double scale) {
    std::vector<double> output;
    for (size_t i = 0; i < size; ++i) output.push_back(row[i] * scale * weight[i]);
    return output;
  };
  const auto Divided = [&](double total, size_t count) {
    return Scaled(1 / std::sqrt(total / count + epsilon));
  };
  const double mean = sum_of_squares / size, root = std::sqrt(mean + epsilon);
  std::vector<double> unweighted;
  for (double x : row) unweighted.push_back(x / root);

  Guide guide("docs/04_rmsnorm.md#the-mathematics");
  if (size > kMaxThreads) {
    double sum_of_first = 0;
    for (size_t i = 0; i < kMaxThreads; ++i) sum_of_first += squares[i];
    const std::vector<double> short_sum = Divided(sum_of_first, size);
    std::vector<double> short_row = short_sum;
    for (size_t i = kMaxThreads; i < size; ++i) short_row[i] = NAN;
    constexpr char kGoesOn[] =
        "a block has at most 1,024 threads, so each goes on, in steps of blockDim.x, until the row "
        "ends";
    guide
        .Mistake(
            StrCat("only the first 1,024 elements are in the sum, and were written: ", kGoesOn),
            short_row, kTree)
        .Mistake(StrCat("only the first 1,024 elements are in the sum: ", kGoesOn), short_sum,
                 kTree);
  }
  return guide.Input("x", row)
      .Input("weight", weight)
      .Input("epsilon", epsilon)
      .Start(
          "write the body of RmsNormTreeKernel in lessons/04_rmsnorm/exercise/rmsnorm.cu; the "
          "easiest part is the last, the loop that writes: begin there, with a scale of 1")
      .Mistake("the row went through as it is", row)
      .Mistake("the scale is 1: only the weight is in it", Scaled(1))
      .Mistake("the weight is missing", unweighted)
      .Mistake("the sum of the squares was not divided by hidden_size", Divided(sum_of_squares, 1))
      .Mistake("the sum was divided by the number of threads, not by hidden_size",
               Divided(sum_of_squares, std::min<size_t>(size, 1024)))
      .Mistake("multiplied by the root; rsqrtf(x) is 1 / sqrt(x), to multiply with", Scaled(root))
      .Mistake("divided by the mean square, not by its root", Scaled(1 / (mean + epsilon)))
      .Mistake("the elements were added up, not their squares", Divided(std::abs(sum), size))
      .Mistake("epsilon is missing", Scaled(1 / std::sqrt(mean)))
      .Mistake("epsilon was added to the root; it belongs under it",
               Scaled(1 / (std::sqrt(mean) + epsilon)), "docs/04_rmsnorm.md#pitfalls")
      .Mistake("epsilon was added to what rsqrtf gave; it belongs into its argument",
               Scaled(1 / std::sqrt(mean) + epsilon), "docs/04_rmsnorm.md#pitfalls")
      .Mistake("each thread scaled by its own square; the sum of all is partial[0]", alone, kTree)
      .Mistake(
          "the tree loses sums: of an odd count the middle one has no partner, and waits for "
          "the next step",
          Divided(TreeThatLosesTheMiddle(squares), size), kTree)
      .WhenOrderMatters(kTwoThreadsMeet, kTree)
      .WhenThrown("illegal memory access", kBeyondPartial, kTree)
      .WhenThrown(
          "timed out",
          "a loop does not end, at the line that the report above names: half of 1, rounded up, is "
          "1 again. Stop when one sum is left",
          kTree)
      .Otherwise(
          "the sum of the squares: follow the tree on paper, who adds which sum in each step")
      .Compare([&] { return Norm(kRmsNormVersions[0].launch, Bf16s(row), Bf16s(weight), epsilon); },
               Divided(sum_of_squares, size), kRelative);
}

TEST(RmsNormFirstSteps, ARowOfFour) {
  EXPECT_TRUE(CheckRow({1, -2, 3, 0.5}, {1, 1, 2, 1}, kEpsilon));
}

TEST(RmsNormFirstSteps, ARowOfSevenWhichIsNoPowerOfTwo) {
  EXPECT_TRUE(CheckRow({1, -2, 3, 0.5, 4, -1, 2}, {1, 1, 2, 1, 0.5, 1, 3}, kEpsilon));
}

TEST(RmsNormFirstSteps, ASmallRowWhereEpsilonCounts) {
  EXPECT_TRUE(CheckRow({0.0625, -0.125, 0.25, 0}, {1, 1, 1, 1}, 0.5f));
}

TEST(RmsNormFirstSteps, ARowLongerThanABlock) {
  std::vector<double> row(1500, 0.5), weight(1500, 1);
  row[1499] = 19.5;  // of the sum of 755, it is half
  EXPECT_TRUE(CheckRow(row, weight, kEpsilon));
}

TEST(RmsNormFirstSteps, ThreeRowsABlockEach) {
  constexpr int kSize = 4;
  const std::vector<double> x = {1, -2, 3, 0.5, 4, 1, -1, 2, 0.5, 0.5, 2, -3};
  const std::vector<double> weight = {1, 1, 2, 1};
  std::vector<double> scales;
  for (size_t row = 0; row < x.size(); row += kSize) {
    double sum = 0;
    for (int i = 0; i < kSize; ++i) sum += x[row + i] * x[row + i];
    scales.push_back(1 / std::sqrt(sum / kSize + kEpsilon));
  }
  // Element i of row r is `x` of row `from`, times the scale of row `of`.
  const auto Rows = [&](const std::function<size_t(size_t r)>& from,
                        const std::function<size_t(size_t r)>& of) {
    std::vector<double> output;
    for (size_t k = 0; k < x.size(); ++k) {
      const size_t r = k / kSize, i = k % kSize;
      output.push_back(x[from(r) * kSize + i] * scales[of(r)] * weight[i]);
    }
    return output;
  };
  const auto own = [](size_t r) { return r; };
  const auto first = [](size_t) { return size_t{0}; };
  std::vector<double> first_alone = Rows(own, own);
  std::fill(first_alone.begin() + kSize, first_alone.end(), NAN);
  EXPECT_TRUE(
      Guide(kTree)
          .Input("x", x, kSize)
          .Input("weight", weight)
          .Start("row number blockIdx.x begins at element `row`, in the input and in the output")
          .Mistake("the first row alone came out. Block b's row begins at b * hidden_size; its "
                   "places in "
                   "`partial`, which each block has for itself, begin at 0",
                   first_alone)
          .Mistake("every block took the first row: its row begins at element `row` of the input",
                   Rows(first, first))
          .Mistake("every row has the scale of the first: in the sum, too, a block's row begins at "
                   "element `row` of the input",
                   Rows(own, first))
          .Mistake("each row is the first, with its own scale: where it writes, too, a block's row "
                   "begins at element `row` of the input",
                   Rows(first, own))
          .WhenOrderMatters(
              "two blocks write the same elements: block b's row begins at b * hidden_size in the "
              "output, too. Or a barrier is missing")
          .WhenThrown("illegal memory access", kBeyondPartial)
          .Otherwise("the first step that fails, above, says more")
          .Compare(
              [&] { return Norm(kRmsNormVersions[0].launch, Bf16s(x), Bf16s(weight), kEpsilon); },
              Rows(own, own), kRelative, 0, kSize));
}

// --- All versions, and the function that the engine calls.

class RmsNormTest : public testing::TestWithParam<int> {
 protected:
  Launch launch() const {
    return GetParam() == 0 ? RmsNorm : kRmsNormVersions[GetParam() - 1].launch;
  }

  std::vector<bf16> Compute(const std::vector<bf16>& x, const std::vector<bf16>& weight,
                            float epsilon = kEpsilon) const {
    return Norm(launch(), x, weight, epsilon);
  }
};

INSTANTIATE_TEST_SUITE_P(, RmsNormTest, testing::Values(0, 1, 2, 3), [](const auto& version) {
  return version.param == 0 ? std::string("Engine") : StrCat("Version", version.param);
});

struct Shape {
  int num_tokens, hidden_size;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.num_tokens << " tokens of " << shape.hidden_size;
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (int hidden_size : {1, 2, 3, 8, 31, 32, 96, 100, 257, 576, 2048}) {
    for (int num_tokens : {1, 3}) shapes.push_back({num_tokens, hidden_size});
  }
  for (int hidden_size : {3, 96, 256}) shapes.push_back({1025, hidden_size});
  // Around the sizes at which version 3 takes another number of vectors a thread.
  for (int hidden_size : {4088, 4096, 4104, 8184, 8192, 8200, 16384, 16385, 32760, 32768, 32776}) {
    shapes.push_back({2, hidden_size});
  }
  shapes.push_back({1, 100000});
  shapes.push_back({1, 131072});
  Random random(1);
  for (int k = 0; k < 25; ++k) {
    shapes.push_back({random.Integer(1, 6), random.Integer(1, 1500)});
    shapes.push_back({random.Integer(1, 6), 8 * random.Integer(1, 600)});
  }
  return shapes;
}

TEST_P(RmsNormTest, IsTheFormulaRoundedOnce) {
  Random random(2);
  for (const Shape& shape : Shapes()) {
    // Rows of very different lengths: the norm must take out the length, whatever it is.
    std::vector<bf16> x;
    for (int token = 0; token < shape.num_tokens; ++token) {
      const double length = std::exp(random.Normal() * 3);
      for (bf16 value : random.Bf16(shape.hidden_size, length)) x.push_back(value);
    }
    const std::vector<bf16> weight = random.Bf16(shape.hidden_size, 2);
    ASSERT_EQ(
        FirstMismatch(Compute(x, weight), RmsNormReference(x, weight, kEpsilon), kRelative, 0), "")
        << testing::PrintToString(shape);
  }
}

// An f32 result lies so near to the exact one that the two round to the same bf16, but for a few
// that lie next to the middle between two. A second rounding changes every fourth element.
TEST_P(RmsNormTest, RoundsOnlyAtTheEnd) {
  Random random(3);
  const std::vector<bf16> x = random.Bf16(16 * 2048), weight = random.Bf16(2048);
  const std::vector<double> exact = RmsNormReference(x, weight, kEpsilon);
  const auto Differing = [&](const std::vector<bf16>& output) {
    int count = 0;
    for (size_t i = 0; i < output.size(); ++i) {
      count += __bfloat162float(output[i]) !=
               __bfloat162float(__float2bfloat16(static_cast<float>(exact[i])));
    }
    return count / static_cast<double>(output.size());
  };
  EXPECT_LT(Differing(Compute(x, weight)), 0.001);
  EXPECT_GT(Differing(RmsNormRoundedTwice(x, weight, kEpsilon)), 0.2);
}

TEST_P(RmsNormTest, InPlaceGivesTheSameBits) {
  Random random(4);
  for (const Shape& shape : {Shape{5, 100}, Shape{5, 2048}, Shape{3, 8192}, Shape{2, 40000}}) {
    const std::vector<bf16> x =
        random.Bf16(static_cast<size_t>(shape.num_tokens) * shape.hidden_size);
    const std::vector<bf16> weight = random.Bf16(shape.hidden_size);
    const std::vector<bf16> apart = Compute(x, weight);
    const Stream stream;
    DeviceBuffer<bf16> both(x), weights(weight);
    launch()(both.data(), weights.data(), both.data(), shape.num_tokens, shape.hidden_size,
             kEpsilon, stream.get());
    stream.Synchronize();
    const std::vector<bf16> in_place = both.ToHost();
    EXPECT_EQ(std::memcmp(in_place.data(), apart.data(), apart.size() * sizeof(bf16)), 0)
        << testing::PrintToString(shape);
  }
}

TEST_P(RmsNormTest, ATokenAloneHasTheSameBitsAsInABatch) {
  Random random(5);
  for (int hidden_size : {100, 2048}) {
    const std::vector<bf16> x = random.Bf16(7 * hidden_size), weight = random.Bf16(hidden_size);
    const std::vector<bf16> together = Compute(x, weight);
    const std::vector<bf16> last(x.end() - hidden_size, x.end());
    const std::vector<bf16> alone = Compute(last, weight);
    EXPECT_EQ(std::memcmp(alone.data(), &together[6 * hidden_size], hidden_size * sizeof(bf16)), 0);
  }
}

// Rows that do not begin at a multiple of 16 bytes, with whole vectors' worth of elements.
TEST_P(RmsNormTest, TakesAnyAlignmentAndKeepsToItsRows) {
  Random random(6);
  const int num_tokens = 3, hidden_size = 64;
  const size_t size = num_tokens * hidden_size;
  const std::vector<bf16> x = random.Bf16(size + 1), weight = random.Bf16(hidden_size + 1);
  const std::vector<double> expected =
      RmsNormReference({x.begin() + 1, x.end()}, {weight.begin() + 1, weight.end()}, kEpsilon);
  const Stream stream;
  DeviceBuffer<bf16> input(x), weights(weight), output(size + 2);
  output.Fill(0xff);
  launch()(input.data() + 1, weights.data() + 1, output.data() + 1, num_tokens, hidden_size,
           kEpsilon, stream.get());
  stream.Synchronize();
  const std::vector<bf16> written = output.ToHost();
  EXPECT_EQ(FirstMismatch(std::vector<bf16>(written.begin() + 1, written.end() - 1), expected,
                          kRelative, 0),
            "");
  for (const bf16& beyond : {written.front(), written.back()}) {
    unsigned short bits;
    std::memcpy(&bits, &beyond, sizeof bits);
    EXPECT_EQ(bits, 0xffff) << "an element outside the rows was written";
  }
}

TEST_P(RmsNormTest, EpsilonKeepsZerosAndTinyRowsFinite) {
  for (int hidden_size : {100, 256}) {
    std::vector<bf16> x(2 * hidden_size, __float2bfloat16(0.0f));
    for (int i = 0; i < hidden_size; ++i) x[hidden_size + i] = __float2bfloat16(1e-3f);
    const std::vector<bf16> weight(hidden_size, __float2bfloat16(1.0f));
    EXPECT_EQ(
        FirstMismatch(Compute(x, weight), RmsNormReference(x, weight, kEpsilon), kRelative, 0), "");
    // The mean square is 1e-6 here, so that a larger epsilon must show.
    EXPECT_EQ(
        FirstMismatch(Compute(x, weight, 1e-2f), RmsNormReference(x, weight, 1e-2f), kRelative, 0),
        "");
  }
}

TEST_P(RmsNormTest, NoTokensIsNoWork) {
  const Stream stream;
  launch()(nullptr, nullptr, nullptr, 0, 2048, kEpsilon, stream.get());
  stream.Synchronize();
}

TEST_P(RmsNormTest, RefusesWhatHasNoResult) {
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, -1, 64, kEpsilon, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, 1, 0, kEpsilon, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, 1, 64, 0.0f, nullptr), Error);
}

}  // namespace
}  // namespace tinyvllm
