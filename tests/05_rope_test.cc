// Checks of lesson 05: frequencies against transformers' formula, the table, and every version of
// the rotation against f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/05_rope/reference.h"
#include "lessons/05_rope/rope.h"

namespace tinyvllm {
namespace {

const Llama3Scaling kScaling1B{32, 1, 4, 8192};
const Llama3Scaling kScaling8B{8, 1, 4, 8192};

// Inputs are around 1, so that f32 arithmetic is off by less than the absolute part; the relative
// part is the rounding to bf16.
constexpr double kRelative = kBf16Rounding + 1e-6;
constexpr double kAbsolute = 4e-6;

bool SameBits(const bf16* a, const bf16* b, size_t size) {
  return std::memcmp(a, b, size * sizeof(bf16)) == 0;
}

// Tables are costly on the simulator, so that checks share them.
const RopeTable& Table(int head_dim, int max_positions) {
  static std::map<std::pair<int, int>, RopeTable> tables;
  const auto key = std::make_pair(head_dim, max_positions);
  auto found = tables.find(key);
  if (found == tables.end()) {
    const RopeConfig config{500000, head_dim, kScaling1B};
    found = tables.emplace(key, RopeTable(config, max_positions)).first;
  }
  return found->second;
}

std::vector<float> FrequenciesOf(int head_dim) {
  return InverseFrequencies({500000, head_dim, kScaling1B});
}

// --- First steps: version 1, the exercise, on heads of four elements.

constexpr int kSmallHalf = 2;                              // so that a head has 2 pairs
const RopeConfig kSmall{/*theta=*/4, /*head_dim=*/4, {}};  // frequencies 1 and 1/2
constexpr int kBeyond = 100;  // lies behind the last row, and must stay

// Token t's row begins with num_heads heads, which are to be turned, and goes on with others.
struct Heads {
  std::vector<double> x;  // (positions.size(), row_stride)
  int row_stride;
  int num_heads;
  std::vector<int> positions;

  // The rotation, and the same with a mistake in one of its three parts.
  using Pair = std::function<std::pair<int, int>(int head, int i)>;  // which elements of a row
  using Angle = std::function<double(int token, int i)>;
  using Turn = std::function<void(double& a, double& b, double cosine, double sine)>;

  std::vector<double> Turned(const Pair& pair, const Angle& angle, const Turn& turn,
                             int heads) const {
    std::vector<double> turned = x;
    turned.resize(x.size() + row_stride, kBeyond);
    for (size_t token = 0; token < positions.size(); ++token) {
      for (int head = 0; head < heads; ++head) {
        for (int i = 0; i < kSmallHalf; ++i) {
          const auto [first, second] = pair(head, i);
          double* row = &turned[token * row_stride];
          const float radians = static_cast<float>(angle(token, i));
          turn(row[first], row[second], std::cos(radians), std::sin(radians));
        }
      }
    }
    return Written(std::move(turned));
  }

  std::vector<double> Run() const {
    std::vector<bf16> rows;
    for (double value : x) rows.push_back(__float2bfloat16(static_cast<float>(value)));
    rows.resize(x.size() + row_stride, __float2bfloat16(kBeyond));
    static const RopeTable table(kSmall, 16);
    const Stream stream;
    DeviceBuffer<bf16> device_x(rows);
    DeviceBuffer<int> device_positions(positions);
    kRopeVersions[0].launch(device_x.data(), device_positions.data(), table, positions.size(),
                            num_heads, 2 * kSmallHalf, row_stride, stream.get());
    stream.Synchronize();
    std::vector<double> turned;
    for (bf16 value : device_x.ToHost()) turned.push_back(__bfloat162float(value));
    return Written(std::move(turned));
  }

  // The rows, and behind them as much as was changed.
  std::vector<double> Written(std::vector<double> turned) const {
    while (turned.size() > x.size() && turned.back() == kBeyond) turned.pop_back();
    return turned;
  }
};

testing::AssertionResult CheckTurned(const Heads& heads) {
  const auto Frequency = [](int i) { return i == 0 ? 1.0 : 0.5; };
  const Heads::Pair pair = [](int head, int i) {
    const int first = head * 2 * kSmallHalf + i;
    return std::make_pair(first, first + kSmallHalf);
  };
  const Heads::Angle angle = [&](int token, int i) {
    return heads.positions[token] * Frequency(i);
  };
  const Heads::Turn turn = [](double& a, double& b, double cosine, double sine) {
    const double turned_a = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned_a;
  };
  const Heads::Pair pair_0 = [&](int head, int) { return pair(head, 0); };
  const Heads::Angle angle_0 = [&](int token, int) { return angle(token, 0); };
  const Heads::Turn first_only = [](double& a, double& b, double cosine, double sine) {
    a = a * cosine - b * sine;
  };
  const auto Pairs = [&](const Heads::Pair& wrong) {
    return heads.Turned(wrong, angle, turn, heads.num_heads);
  };
  const auto Angles = [&](const Heads::Angle& wrong) {
    return heads.Turned(pair, wrong, turn, heads.num_heads);
  };
  const auto Turns = [&](const Heads::Turn& wrong) {
    return heads.Turned(pair, angle, wrong, heads.num_heads);
  };
  const auto Rounded = [](double value) {
    return static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(value))));
  };

  constexpr char kPairs[] = "docs/05_rope.md#which-two-make-a-pair";
  constexpr char kFrequencies[] = "docs/05_rope.md#many-frequencies";
  constexpr char kVersion1[] = "docs/05_rope.md#version-1-compute-it";
  Guide guide("docs/05_rope.md#a-pair-of-coordinates-is-a-point");
  guide.Input("positions", heads.positions)
      .Input("frequencies", {1, 0.5})
      .Input("num_heads", heads.num_heads)
      .Input("half", kSmallHalf);
  if (heads.x.size() <= 24) {
    guide.Input("x", heads.x, heads.row_stride);
  } else {
    guide.Input("x", "1, 2, 3, 4 in every head");
  }
  return guide
      .Start(
          "write the body of RopeDirectKernel in lessons/05_rope/exercise/rope.cu; the easiest "
          "beginning is pair 0 of head 0, which is made of the elements 0 and half. (If you have "
          "written it, its angle was 0: it is position times frequency, and the position is not "
          "the token's number in the batch.)",
          heads.x)
      .Mistake(
          "the pairs are neighbours, as in the paper; in our files element i belongs to "
          "element i + half",
          Pairs([](int head, int i) {
            const int first = head * 2 * kSmallHalf + 2 * i;
            return std::make_pair(first, first + 1);
          }),
          kPairs)
      .Mistake(
          "the whole row was split in half, not each head: element i of a head belongs to "
          "element i + half of the same head",
          Pairs([&](int head, int i) {
            const int first = head * kSmallHalf + i;
            return std::make_pair(first, first + heads.num_heads * kSmallHalf);
          }),
          kPairs)
      .Mistake(
          "only the first head was turned, or the others by an angle of 0: there are num_heads * "
          "half "
          "pairs in a row, and every head has the same `half` frequencies",
          heads.Turned(pair, angle, turn, 1), kVersion1)
      .Mistake("all heads of the row were turned, v's too; only the first num_heads are to be",
               heads.Turned(pair, angle, turn, heads.row_stride / (2 * kSmallHalf)),
               "docs/05_rope.md#pitfalls")
      .Mistake(
          "a block's threads turned one pair each, and no more; where a row has more pairs "
          "than the block has threads, each goes on, in steps of blockDim.x",
          heads.Turned(pair, angle, turn, std::min(heads.num_heads, 128)), kVersion1)
      .Mistake("only pair 0 of each head was turned; a head has `half` pairs",
               Angles([&](int token, int i) { return i == 0 ? angle(token, i) : 0; }), kPairs)
      .Mistake(
          "the first coordinate of pair 0 is right; its second one is missing, and pair 1",
          heads.Turned(
              pair, [&](int token, int i) { return i == 0 ? angle(token, i) : 0; }, first_only, 1))
      .Mistake(
          "every thread turned pair 0, so it was turned more than once; thread number t takes "
          "pair number t",
          heads.Turned(pair_0, angle_0, turn, 1), kVersion1)
      .Mistake(
          "every thread turned pair 0, so it was turned more than once, and its first "
          "coordinate only; thread number t takes pair number t",
          heads.Turned(pair_0, angle_0, first_only, 1), kVersion1)
      .Mistake("turned the other way round: the sign of the sine",
               Turns([](double& a, double& b, double cosine, double sine) {
                 const double turned_a = a * cosine + b * sine;
                 b = b * cosine - a * sine;
                 a = turned_a;
               }))
      .Mistake(
          "the second coordinate was made of the new first one; it takes the old, so both are "
          "read before one is written",
          Turns([](double& a, double& b, double cosine, double sine) {
            a = a * cosine - b * sine;
            b = b * cosine + a * sine;
          }),
          kVersion1)
      .Mistake(
          "the first coordinate was made of the new second one; it takes the old, so both are "
          "read before one is written",
          Turns([](double& a, double& b, double cosine, double sine) {
            b = b * cosine + a * sine;
            a = a * cosine - b * sine;
          }),
          kVersion1)
      .Mistake("both coordinates got a minus; the second one gets a plus",
               Turns([](double& a, double& b, double cosine, double sine) {
                 const double turned_a = a * cosine - b * sine;
                 b = b * cosine - a * sine;
                 a = turned_a;
               }))
      .Mistake("both coordinates got a plus; the first one gets a minus",
               Turns([](double& a, double& b, double cosine, double sine) {
                 const double turned_a = a * cosine + b * sine;
                 b = b * cosine + a * sine;
                 a = turned_a;
               }))
      .Mistake("sine and cosine changed places",
               Turns([&](double& a, double& b, double cosine, double sine) {
                 turn(a, b, sine, cosine);
               }))
      .Mistake("the two new coordinates changed places",
               Turns([&](double& a, double& b, double cosine, double sine) {
                 turn(a, b, cosine, sine);
                 std::swap(a, b);
               }))
      .Mistake("the second coordinate was left as it was", Turns(first_only))
      .Mistake("the first coordinate was left as it was",
               Turns([](double& a, double& b, double cosine, double sine) {
                 b = b * cosine + a * sine;
               }))
      .Mistake("the position is missing in the angle, which is the position times the frequency",
               Angles([&](int, int i) { return Frequency(i); }))
      .Mistake("the token's number in the batch was taken for its position",
               Angles([&](int token, int i) { return token * Frequency(i); }),
               "docs/05_rope.md#pitfalls")
      .Mistake("all tokens were turned as the first one; each has a position of its own",
               Angles([&](int, int i) { return angle(0, i); }))
      .Mistake("the frequency is missing in the angle, which is the position times the frequency",
               Angles([&](int token, int) { return heads.positions[token]; }), kFrequencies)
      .Mistake("the position was divided by the frequency; the angle is their product",
               Angles([&](int token, int i) { return heads.positions[token] / Frequency(i); }),
               kFrequencies)
      .Mistake("all pairs were turned with the first one's frequency; pair i has frequency i",
               Angles(angle_0), kFrequencies)
      .Mistake("the angle was cut to a whole number; it is a float",
               Angles([&](int token, int i) { return std::floor(angle(token, i)); }))
      .Mistake("something was rounded to bf16 on the way; all is float until the result",
               Turns([&](double& a, double& b, double cosine, double sine) {
                 turn(a, b, Rounded(cosine), Rounded(sine));
               }),
               "docs/05_rope.md#how-exact")
      .WhenOrderMatters(
          "two threads turn the same element. Which pairs have an element in common? "
          "Pair i of a head has the elements i and i + half, and the next head "
          "begins 2 * half elements later",
          kPairs)
      .Otherwise(
          "which elements of the row make a pair, and by which angle it is turned: write "
          "both down for each pair, then compare the first wrong one")
      .Compare([&] { return heads.Run(); }, Pairs(pair), kRelative, kAbsolute,
               heads.x.size() <= 24 ? heads.row_stride : 0);
}

TEST(RopeFirstSteps, OneHead) { EXPECT_TRUE(CheckTurned({{1, 2, 3, 4}, 4, 1, {3}})); }

TEST(RopeFirstSteps, TwoHeadsAndOneThatIsNotTurned) {
  EXPECT_TRUE(CheckTurned({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12, 2, {3}}));
}

TEST(RopeFirstSteps, TwoTokens) {
  EXPECT_TRUE(CheckTurned({{1, 2, 3, 4, 1, 2, 3, 4}, 4, 1, {2, 5}}));
}

TEST(RopeFirstSteps, MorePairsThanThreads) {
  std::vector<double> x;
  for (int i = 0; i < 130 * 4; ++i) x.push_back(i % 4 + 1);
  EXPECT_TRUE(CheckTurned({x, 130 * 4, 130, {3}}));
}

// --- frequencies

// From transformers' formula, written with NumPy's float32.
TEST(InverseFrequencies, AreTransformersForLlama3_2_1B) {
  const std::vector<float> expected = {1,
                                       0.663601279,
                                       0.440366626,
                                       0.292227834,
                                       0.193922758,
                                       0.128687382,
                                       0.0853971019,
                                       0.0566696189,
                                       0.0376060307,
                                       0.0249554086,
                                       0.0165604409,
                                       0.0109895291,
                                       0.00729266508,
                                       0.00483942125,
                                       0.00321144611,
                                       0.00129054801,
                                       0.000429556705,
                                       9.70828623e-05,
                                       1.94616387e-05,
                                       1.29147675e-05,
                                       8.57025589e-06,
                                       5.68723226e-06,
                                       3.77405445e-06,
                                       2.50446715e-06,
                                       1.66196742e-06,
                                       1.10288363e-06,
                                       7.31874934e-07,
                                       4.85673127e-07,
                                       3.22293289e-07,
                                       2.1387423e-07,
                                       1.41927202e-07,
                                       9.41830649e-08};
  EXPECT_EQ(FirstMismatch(FrequenciesOf(64), expected, 3e-7, 0), "");
}

TEST(InverseFrequencies, AreTransformersForLlama3_1_8B) {
  const std::vector<float> frequencies = InverseFrequencies({500000, 128, kScaling8B});
  // One of each kind: left alone, the whole of the transition, slowed.
  const std::map<int, float> expected = {{0, 1.0f},
                                         {1, 0.814617217f},
                                         {27, 0.00394227589f},
                                         {28, 0.00321144611f},
                                         {29, 0.00216657063f},
                                         {30, 0.00137189368f},
                                         {31, 0.00085675146f},
                                         {32, 0.000524846022f},
                                         {33, 0.00031269365f},
                                         {34, 0.000178507791f},
                                         {35, 9.55621217e-05f},
                                         {36, 7.78465546e-05f},
                                         {63, 3.06892588e-07f}};
  for (const auto& [i, value] : expected) {
    EXPECT_NEAR(frequencies[i], value, 3e-7 * value) << "pair " << i;
  }
}

// The same formula once more in f64, turns first: for any configuration.
double ReferenceFrequency(const RopeConfig& config, int i) {
  const double unscaled = std::pow(config.theta, -2.0 * i / config.head_dim);
  if (!config.scaling) return unscaled;
  const Llama3Scaling& scaling = *config.scaling;
  const double turns = scaling.original_max_position_embeddings * unscaled / (2 * M_PI);
  const double share_left_alone = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return unscaled * (share_left_alone + (1 - share_left_alone) / scaling.factor);
}

TEST(InverseFrequencies, AreTheFormulaInF64) {
  for (const RopeConfig& config :
       {RopeConfig{10000, 32, {}}, RopeConfig{500000, 64, {}}, RopeConfig{500000, 64, kScaling1B},
        RopeConfig{500000, 128, kScaling8B}, RopeConfig{10000, 96, Llama3Scaling{4, 2, 3, 512}},
        RopeConfig{1000000, 256, Llama3Scaling{1, 1, 4, 8192}},
        RopeConfig{500000, 2, kScaling8B}}) {
    const std::vector<float> frequencies = InverseFrequencies(config);
    ASSERT_EQ(static_cast<int>(frequencies.size()), config.head_dim / 2);
    for (int i = 0; i < config.head_dim / 2; ++i) {
      // In the transition a difference of two near numbers of turns loses a digit.
      const double expected = ReferenceFrequency(config, i);
      EXPECT_NEAR(frequencies[i], expected, 2e-6 * expected)
          << "pair " << i << " of " << config.head_dim / 2 << ", theta " << config.theta;
    }
  }
}

TEST(InverseFrequencies, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(InverseFrequencies({10000, 0, {}}), Error);
  EXPECT_THROW(InverseFrequencies({10000, 63, {}}), Error);
  EXPECT_THROW(InverseFrequencies({0, 64, {}}), Error);
  EXPECT_THROW(InverseFrequencies({10000, 64, Llama3Scaling{0, 1, 4, 8192}}), Error);
  EXPECT_THROW(InverseFrequencies({10000, 64, Llama3Scaling{8, 4, 4, 8192}}), Error);
  EXPECT_THROW(InverseFrequencies({10000, 64, Llama3Scaling{8, 1, 4, 0}}), Error);
  EXPECT_THROW(RopeTable({10000, 64, {}}, 0), Error);
  EXPECT_THROW(RopeTable({10000, 64, {}}, (1 << 24) + 1), Error);
}

// --- the table

TEST(RopeTable, HoldsTheCosineAndSineOfTheF32Angle) {
  const int head_dim = 64, half = head_dim / 2, max_positions = 131072;
  const RopeTable& table = Table(head_dim, max_positions);
  EXPECT_EQ(table.max_positions(), max_positions);
  EXPECT_EQ(table.head_dim(), head_dim);
  std::vector<float2> entries(static_cast<size_t>(max_positions) * half);
  CUDA_CHECK(cudaMemcpy(entries.data(), table.data(), entries.size() * sizeof(float2),
                        cudaMemcpyDeviceToHost));
  const std::vector<float> frequencies = FrequenciesOf(head_dim);
  std::vector<int> positions = {0, 1, 2, 99, 100, 5000, 8191, 8192, 131071};
  Random random(1);
  for (int k = 0; k < 500; ++k) positions.push_back(random.Integer(0, max_positions - 1));
  for (int position : positions) {
    for (int i = 0; i < half; ++i) {
      const float2 entry = entries[static_cast<size_t>(position) * half + i];
      const float angle = position * frequencies[i];
      // Two units in the last place of 1: what CUDA promises of cosf and sinf at any angle.
      ASSERT_NEAR(entry.x, std::cos(static_cast<double>(angle)), 2.4e-7)
          << "cos at position " << position << ", pair " << i;
      ASSERT_NEAR(entry.y, std::sin(static_cast<double>(angle)), 2.4e-7)
          << "sin at position " << position << ", pair " << i;
    }
  }
}

// --- the rotation

struct Shape {
  int num_tokens, num_heads, head_dim;
  int64_t row_stride;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.num_tokens << " tokens, " << shape.num_heads << " heads of " << shape.head_dim
       << " in rows of " << shape.row_stride;
}

// All versions, and the function that the engine calls.
class RopeTest : public testing::TestWithParam<int> {
 protected:
  decltype(&Rope) launch() const {
    return GetParam() == 0 ? Rope : kRopeVersions[GetParam() - 1].launch;
  }

  // `offset`: elements that x begins after the start of an allocation.
  std::vector<bf16> Compute(const std::vector<bf16>& x, const std::vector<int>& positions,
                            const RopeTable& table, const Shape& shape, int offset = 0) const {
    const Stream stream;
    std::vector<bf16> shifted(offset);
    shifted.insert(shifted.end(), x.begin(), x.end());
    DeviceBuffer<bf16> device_x(shifted);
    DeviceBuffer<int> device_positions(positions);
    launch()(device_x.data() + offset, device_positions.data(), table, shape.num_tokens,
             shape.num_heads, shape.head_dim, shape.row_stride, stream.get());
    stream.Synchronize();
    const std::vector<bf16> output = device_x.ToHost();
    return {output.begin() + offset, output.end()};
  }

  void ExpectTheFormula(const Shape& shape, const std::vector<int>& positions,
                        const RopeTable& table, uint64_t seed, int offset = 0) const {
    Random random(seed);
    const std::vector<bf16> x = random.Bf16(shape.num_tokens * shape.row_stride);
    const std::vector<bf16> rotated = Compute(x, positions, table, shape, offset);
    const std::vector<double> expected = RopeReference(x, positions, FrequenciesOf(shape.head_dim),
                                                       shape.num_heads, shape.row_stride);
    ASSERT_EQ(FirstMismatch(rotated, expected, kRelative, kAbsolute), "")
        << testing::PrintToString(shape) << ", offset " << offset;
    // What lies in a row beyond the heads (v, in a fused row) keeps its bits.
    const int64_t width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
    for (int token = 0; token < shape.num_tokens; ++token) {
      const int64_t rest = token * shape.row_stride + width;
      ASSERT_TRUE(SameBits(&rotated[rest], &x[rest], shape.row_stride - width))
          << testing::PrintToString(shape) << ", token " << token;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, RopeTest, testing::Values(0, 1, 2, 3), [](const auto& version) {
  return version.param == 0 ? std::string("Engine") : StrCat("Version", version.param);
});

TEST_P(RopeTest, IsTheFormula) {
  Random random(2);
  std::vector<Shape> shapes = {{1, 1, 2, 2}, {3, 5, 2, 11}, {1, 40, 64, 3072}, {1025, 3, 64, 256}};
  for (int head_dim : {8, 16, 32, 48, 64, 80, 96, 128}) {
    for (int num_heads : {1, 3, 5, 9, 12}) {
      const int num_tokens = random.Integer(1, 6);
      const int width = num_heads * head_dim;
      shapes.push_back({num_tokens, num_heads, head_dim, width});
      shapes.push_back({num_tokens, num_heads, head_dim, width + 3 * head_dim});  // q|k|v
      shapes.push_back({num_tokens, num_heads, head_dim, width + 5});  // rows that begin anywhere
    }
  }
  for (const Shape& shape : shapes) {
    const RopeTable& table = Table(shape.head_dim, 5001);
    const std::vector<int> positions = random.Integers(shape.num_tokens, 0, 5000);
    ExpectTheFormula(shape, positions, table, random.Bits());
    if (HasFatalFailure()) return;
  }
}

TEST_P(RopeTest, IsTheFormulaAtFarPositions) {
  for (int num_heads : {3, 40}) {
    ExpectTheFormula({6, num_heads, 64, num_heads * 64 + 128}, {0, 1, 100, 5000, 131071, 65537},
                     Table(64, 131072), 3);
  }
}

TEST_P(RopeTest, TakesAnyAlignment) {
  for (int offset : {1, 4, 8}) {
    ExpectTheFormula({3, 3, 64, 256}, {7, 4321, 2}, Table(64, 5001), 4, offset);
  }
}

// One coordinate of the pair alone: it must move into the other half, never to its neighbour.
TEST_P(RopeTest, PairsElementIWithElementIPlusHalf) {
  const int position = 3;
  for (int head_dim : {32, 64, 128}) {
    const int half = head_dim / 2;
    const std::vector<float> frequencies = FrequenciesOf(head_dim);
    for (int i : {0, 1, 2, half - 1}) {
      std::vector<bf16> x(head_dim, __float2bfloat16(0.0f));
      x[i] = __float2bfloat16(1.0f);
      const std::vector<bf16> rotated =
          Compute(x, {position}, Table(head_dim, 5001), {1, 1, head_dim, head_dim});
      for (int k = 0; k < head_dim; ++k) {
        const double angle = position * frequencies[i];
        const double expected = k == i ? std::cos(angle) : k == i + half ? std::sin(angle) : 0;
        EXPECT_NEAR(__bfloat162float(rotated[k]), expected, 0.004)
            << "element " << k << " after element " << i << " alone was 1, head_dim " << head_dim;
      }
    }
  }
}

TEST_P(RopeTest, PositionZeroChangesNothing) {
  Random random(5);
  const std::vector<bf16> x = random.Bf16(2 * 3 * 64);
  const std::vector<bf16> rotated = Compute(x, {0, 0}, Table(64, 5001), {2, 3, 64, 192});
  EXPECT_TRUE(SameBits(rotated.data(), x.data(), x.size()));
}

double Dot(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += ToDouble(a[i]) * ToDouble(b[i]);
  return sum;
}

// What RoPE is for: the score of a query and a key depends on their distance alone.
TEST_P(RopeTest, ScoresDependOnTheDistanceAlone) {
  Random random(6);
  const int head_dim = 64;
  const std::vector<bf16> q = random.Bf16(head_dim), k = random.Bf16(head_dim);
  const RopeTable& table = Table(head_dim, 5001);
  const Shape shape{1, 1, head_dim, head_dim};
  const auto Score = [&](int q_position, int k_position) {
    return Dot(Compute(q, {q_position}, table, shape), Compute(k, {k_position}, table, shape));
  };
  std::vector<double> by_distance;
  for (int distance : {0, 1, 2, 5, 50, 1000}) {
    const double score = Score(distance, 0);
    by_distance.push_back(score);
    for (int shift : {1, 10, 700, 4000}) {
      // 128 rounded factors of about 1, each off by 0.002: their products' sum, by about 0.03.
      EXPECT_NEAR(Score(distance + shift, shift), score, 0.12)
          << "distance " << distance << " at " << shift;
    }
  }
  const auto [low, high] = std::minmax_element(by_distance.begin(), by_distance.end());
  EXPECT_GT(*high - *low, 2) << "the scores do not depend on the distance either";
}

TEST_P(RopeTest, ATokenAloneHasTheSameBitsAsInABatch) {
  Random random(7);
  const std::vector<bf16> x = random.Bf16(4 * 5 * 64);
  const RopeTable& table = Table(64, 5001);
  const std::vector<bf16> together = Compute(x, {9, 4000, 17, 256}, table, {4, 5, 64, 320});
  const std::vector<bf16> alone =
      Compute({x.begin() + 320, x.begin() + 640}, {4000}, table, {1, 5, 64, 320});
  EXPECT_TRUE(SameBits(alone.data(), &together[320], 320));
}

TEST_P(RopeTest, NoTokensIsNoWork) {
  const Stream stream;
  launch()(nullptr, nullptr, Table(64, 5001), 0, 4, 64, 256, stream.get());
  stream.Synchronize();
}

TEST_P(RopeTest, RefusesWhatDoesNotFit) {
  const RopeTable& table = Table(64, 5001);
  EXPECT_THROW(launch()(nullptr, nullptr, table, -1, 4, 64, 256, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, table, 1, 0, 64, 256, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, table, 1, 4, 32, 256, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, table, 1, 4, 64, 255, nullptr), Error);
}

}  // namespace
}  // namespace tinyvllm
