// Checks of lesson 08: SwiGLU and the residual, every version against f64.
#include "lessons/08_feed_forward/feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/08_feed_forward/pocket_layer.h"

namespace tinyvllm {
namespace {

// One rounding to bf16, and room for a few units of f32 where the result lies at a tie. Of a gate
// below -88 f32 knows only that exp(-gate) is beyond its range: 88 / 2^126 is the most that is
// lost.
constexpr double kRelative = kBf16Rounding * 1.001;
constexpr double kAbsolute = 88 * 0x1p-126;

constexpr size_t kGuard = 64;  // elements after the output that must not be touched

// Every bit set: NaN in bf16 and in f32.
template <typename T>
T Poison() {
  T value;
  std::memset(static_cast<void*>(&value), 0xff, sizeof value);
  return value;
}

// `host`, from element `offset` of device memory on: an odd offset makes 16-byte accesses
// impossible.
template <typename T>
DeviceBuffer<T> Upload(const std::vector<T>& host, size_t offset, size_t guard = 0) {
  std::vector<T> shifted(offset + host.size() + guard, Poison<T>());
  std::copy(host.begin(), host.end(), shifted.begin() + offset);
  return DeviceBuffer<T>(shifted);
}

// Elements `offset` to `offset + size - 1`, after a look at the rest, which must still be poison.
std::vector<bf16> Download(const DeviceBuffer<bf16>& device, size_t offset, size_t size) {
  const std::vector<bf16> all = device.ToHost();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= offset && i < offset + size) continue;
    uint16_t bits;
    std::memcpy(&bits, &all[i], sizeof bits);
    EXPECT_EQ(bits, 0xffff) << "written outside the output, at " << int64_t(i) - int64_t(offset);
  }
  return {all.begin() + offset, all.begin() + offset + size};
}

std::vector<bf16> ToBf16(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (float value : values) result.push_back(__float2bfloat16(value));
  return result;
}

// --- SwiGLU

double SwiGluReference(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

// --- First steps: the two exercises, on inputs that one can follow by hand.

// A token's row of gate_up: gates, then ups.
std::vector<bf16> GateUp(const std::vector<float>& gates, const std::vector<float>& ups) {
  std::vector<float> row = gates;
  row.insert(row.end(), ups.begin(), ups.end());
  return ToBf16(row);
}

std::vector<bf16> RunSmall(const SwiGluVersion& version, const std::vector<bf16>& gate_up,
                           int num_tokens) {
  const size_t count = gate_up.size() / 2;
  const DeviceBuffer<bf16> input = Upload(gate_up, 0, kGuard);
  DeviceBuffer<bf16> output(count + kGuard);
  output.Fill(0xff);
  version.launch(input.data(), output.data(), num_tokens, count / num_tokens, nullptr);
  std::vector<bf16> written = output.ToHost();
  written.resize(count);
  return written;
}

// One token through version 1: the formula, and what the usual mistakes in SwiGluElement give.
testing::AssertionResult CheckGate(const std::vector<float>& gates, const std::vector<float>& ups) {
  const auto Each = [&](auto formula) {
    std::vector<double> output;
    for (size_t i = 0; i < gates.size(); ++i) output.push_back(formula(gates[i], ups[i]));
    return output;
  };
  const auto Sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  return Guide("docs/08_feed_forward.md#the-gate")
      .Input("gate", gates)
      .Input("up", ups)
      .Start(
          "write SwiGluElement in lessons/08_feed_forward/exercise/feed_forward.cu: one line; "
          "begin with SiLU(gate), and look at the first element with a calculator",
          Each([](double, double up) { return up; }))
      .Mistake("gate and up are exchanged: it is the gate that goes through SiLU",
               Each([&](double gate, double up) { return gate * up * Sigmoid(up); }),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake("gate times up, without SiLU",
               Each([](double gate, double up) { return gate * up; }))
      .Mistake("SiLU(gate) alone: the product with up is missing",
               Each([&](double gate, double) { return gate * Sigmoid(gate); }))
      .Mistake("1 / (1 + exp(-gate)) is not yet SiLU: the gate itself stands above the line",
               Each([&](double gate, double up) { return Sigmoid(gate) * up; }))
      .Mistake("the sign of the exponent: exp(-gate), so that a large gate is open",
               Each([&](double gate, double up) { return gate * Sigmoid(-gate) * up; }))
      .Mistake("multiplied by 1 + exp(-gate); SiLU divides by it",
               Each([&](double gate, double up) { return gate / Sigmoid(gate) * up; }))
      .Mistake("the 1 under the line is missing: gate / (1 + exp(-gate))",
               Each([](double gate, double up) { return gate / std::exp(-gate) * up; }))
      .Mistake("SiLU(gate) was added to up; the two are multiplied",
               Each([&](double gate, double up) { return gate * Sigmoid(gate) + up; }))
      .Mistake("this is ReLU, max(gate, 0), the gate with a corner; SiLU is its smooth sister",
               Each([](double gate, double up) { return std::max(gate, 0.0) * up; }),
               "docs/08_feed_forward.md#why-there-must-be-something-between-two-matrices")
      .Mistake(
          "exp(gate) of a large gate is infinite, and infinity divided by infinity is not a "
          "number: with exp(-gate) under the line this cannot happen",
          Each([&](double gate, double up) {
            return gate > 88.8 ? NAN : SwiGluReference(gate, up);
          }))
      .Compare([&] { return RunSmall(kSwiGluVersions[0], GateUp(gates, ups), 1); },
               Each([](double gate, double up) { return SwiGluReference(gate, up); }), kRelative,
               kAbsolute);
}

TEST(SwiGluFirstSteps, TheThreeNeuronsOfThePage) {
  EXPECT_TRUE(CheckGate({3, -4, 0.5f}, {1.5f, 3.5f, 1}));
}

TEST(SwiGluFirstSteps, GatesThatAreWideOpenOrShut) {
  EXPECT_TRUE(CheckGate({100, -100, 0, 20}, {2, 2, 2, 2}));
}

// Version 2: a thread has eight outputs, and two tokens of 16 have four such threads.
testing::AssertionResult CheckTwoTokensByEights() {
  constexpr int kSize = 16, kCount = 2 * kSize;
  std::vector<bf16> gate_up;
  for (int token = 0; token < 2; ++token) {
    std::vector<float> gates, ups;
    for (int i = 0; i < kSize; ++i) {
      gates.push_back(i == 0 ? -1 : token == 0 ? 20 + i : 50 + i);
      ups.push_back(token == 0 ? 1 + i : -2 - i);
    }
    for (bf16 value : GateUp(gates, ups)) gate_up.push_back(value);
  }
  // Output i, if its gate and its up were at these elements of gate_up, after which come NaNs.
  const auto At = [&](size_t i) { return i < gate_up.size() ? ToDouble(gate_up[i]) : NAN; };
  const auto From = [&](auto gate, auto up) {
    std::vector<double> output;
    for (int i = 0; i < kCount; ++i) output.push_back(SwiGluReference(At(gate(i)), At(up(i))));
    return output;
  };
  const auto Gate = [](int i) { return i / kSize * 2 * kSize + i % kSize; };
  const auto Up = [&](int i) { return Gate(i) + kSize; };
  const auto Place = [](int i) { return i % kSize; };
  const auto Eight = [](int i) { return i % 8; };
  constexpr char kUpsBehindAllGates[] =
      "the ups were looked for behind all gates; they stand behind the gates of their own token, "
      "`size` elements further";
  const std::vector<double> expected = From(Gate, Up);
  std::vector<double> without_silu, firsts = expected, at_the_gate = expected;
  for (int i = 0; i < kCount; ++i) {
    without_silu.push_back(ToDouble(gate_up[Gate(i)]) * ToDouble(gate_up[Up(i)]));
    if (i % 8 != 0) firsts[i] = NAN;
    if (i >= kSize) at_the_gate[i] = NAN;
  }
  return Guide("docs/08_feed_forward.md#version-2-eight-elements-a-thread")
      .Input("gate_up", gate_up, 2 * kSize)
      .Input("size", kSize)
      .Start(
          "write the body of SwiGluKernel2 in "
          "lessons/08_feed_forward/exercise/feed_forward.cu: begin with the token of output "
          "i, which is i / size, and its place in the row, i % size")
      .Mistake("a row of gate_up was taken to be `size` long; it is twice that: gates, then ups",
               From([](int i) { return i; }, [](int i) { return i + kSize; }),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake(kUpsBehindAllGates, From([](int i) { return i; }, [](int i) { return i + kCount; }),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake(kUpsBehindAllGates, From(Gate, [&](int i) { return Gate(i) + kCount; }),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake("gate and up are exchanged: the first half of a row are the gates", From(Up, Gate),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake("gates and ups were taken by turns; they are the two halves of a row",
               From([](int i) { return 2 * i; }, [](int i) { return 2 * i + 1; }),
               "docs/08_feed_forward.md#pitfalls")
      .Mistake(
          "every token got the first token's result: the token's number must go into the "
          "address",
          From(Place, [&](int i) { return Place(i) + kSize; }))
      .Mistake(
          "the second eight of a token repeats the first: the place in the row, i % size, "
          "must go into the address",
          From([&](int i) { return i / kSize * 2 * kSize + Eight(i); },
               [&](int i) { return i / kSize * 2 * kSize + Eight(i) + kSize; }))
      .Mistake("the up stands `size` elements after its gate, not eight",
               From(Gate, [&](int i) { return Gate(i) + 8; }))
      .Mistake("the gate went in as it is: send each through SwiGluElement", without_silu)
      .Mistake("of its eight outputs each thread wrote one", firsts)
      .Mistake(
          "the results were stored where the gates lie; a row of the output is half as "
          "long as one of gate_up, and this thread's begins at output + i",
          at_the_gate)
      .Compare([&] { return RunSmall(kSwiGluVersions[1], gate_up, 2); }, expected, kRelative,
               kAbsolute, kSize);
}

TEST(SwiGluFirstSteps, TwoTokensByEights) { EXPECT_TRUE(CheckTwoTokensByEights()); }

// --- All versions.

class SwiGluTest : public testing::TestWithParam<SwiGluVersion> {
 protected:
  std::vector<bf16> RunSwiGlu(const std::vector<bf16>& gate_up, int num_tokens, int size,
                              size_t offset = 0) {
    const DeviceBuffer<bf16> input = Upload(gate_up, offset);
    const size_t count = size_t(num_tokens) * size;
    DeviceBuffer<bf16> output(offset + count + kGuard);
    output.Fill(0xff);
    GetParam().launch(input.data() + offset, output.data() + offset, num_tokens, size, nullptr);
    return Download(output, offset, count);
  }

  void CheckShape(int num_tokens, int size, size_t offset = 0) {
    SCOPED_TRACE(StrCat(num_tokens, " tokens of ", size, ", offset ", offset));
    const std::vector<bf16> gate_up = random_.Bf16(size_t(num_tokens) * 2 * size, 3);
    std::vector<double> expected;
    for (int token = 0; token < num_tokens; ++token) {
      const bf16* gate = &gate_up[size_t(token) * 2 * size];
      for (int i = 0; i < size; ++i) {
        expected.push_back(SwiGluReference(ToDouble(gate[i]), ToDouble(gate[size + i])));
      }
    }
    EXPECT_EQ(
        FirstMismatch(RunSwiGlu(gate_up, num_tokens, size, offset), expected, kRelative, kAbsolute),
        "");
  }

  Random random_{8};
};

INSTANTIATE_TEST_SUITE_P(Version, SwiGluTest, testing::ValuesIn(kSwiGluVersions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SwiGluTest, IsRightForAnyShape) {
  for (int num_tokens : {1, 2, 3, 17, 64}) {
    for (int size : {1, 7, 8, 24, 768, 1000, 2731}) CheckShape(num_tokens, size);
    CheckShape(num_tokens, random_.Integer(1, 3000));
    CheckShape(num_tokens, 8 * random_.Integer(1, 400));
  }
  CheckShape(1025, 264);
  CheckShape(2, 8192);
  CheckShape(1, 14336);
}

TEST_P(SwiGluTest, NeedsNoAlignment) {
  for (size_t offset : {1, 2, 4, 8}) CheckShape(3, 96, offset);
}

TEST_P(SwiGluTest, LargeGatesAreNotNan) {
  const std::vector<float> gates = {-3.3e38f, -1e30f, -1000, -104, -89, -88.5f, -20,  -0.0f,
                                    0,        1e-38f, 20,    88,   89,  104,    1000, 3.3e38f};
  std::vector<float> gate_up = gates;
  gate_up.resize(2 * gates.size(), 1.0f);
  std::vector<double> expected;
  for (bf16 gate : ToBf16(gates)) expected.push_back(SwiGluReference(ToDouble(gate), 1));
  EXPECT_EQ(FirstMismatch(RunSwiGlu(ToBf16(gate_up), 1, static_cast<int>(gates.size())), expected,
                          kRelative, kAbsolute),
            "");
}

TEST_P(SwiGluTest, ANanStaysWhereItIs) {
  std::vector<bf16> gate_up = random_.Bf16(3 * 2 * 16);
  gate_up[2 * 16 + 5] = __float2bfloat16(NAN);           // token 1, gate 5
  gate_up[2 * 2 * 16 + 16 + 9] = __float2bfloat16(NAN);  // token 2, up 9
  const std::vector<bf16> output = RunSwiGlu(gate_up, 3, 16);
  for (int i = 0; i < 3 * 16; ++i) {
    EXPECT_EQ(std::isnan(ToDouble(output[i])), i == 16 + 5 || i == 2 * 16 + 9) << i;
  }
}

TEST_P(SwiGluTest, NothingToDo) {
  EXPECT_TRUE(RunSwiGlu({}, 0, 8).empty());
  EXPECT_TRUE(RunSwiGlu({}, 3, 0).empty());
  try {
    GetParam().launch(nullptr, nullptr, -1, 8, nullptr);
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "SwiGLU: -1 tokens of intermediate_size 8, expected 0 or more of both");
  }
}

// More gates than an int can count: 13 GB, so only where there is a GPU.
TEST_P(SwiGluTest, CountsBeyond31Bits) {
  if (IsSimulator()) GTEST_SKIP() << "needs 13 GB of device memory";
  const int num_tokens = 65537, size = 32768;
  DeviceBuffer<bf16> gate_up(size_t(num_tokens) * 2 * size), output(size_t(num_tokens) * size);
  gate_up.Fill(0x40);  // 0x4040 is 3.0
  output.Fill(0xff);
  GetParam().launch(gate_up.data(), output.data(), num_tokens, size, nullptr);
  std::vector<bf16> last(size);
  CUDA_CHECK(cudaMemcpy(last.data(), output.data() + output.size() - size, size * sizeof(bf16),
                        cudaMemcpyDeviceToHost));
  EXPECT_EQ(FirstMismatch(last, std::vector<double>(size, SwiGluReference(3, 3)), kRelative, 0),
            "");
}

// --- the residual

// A remainder as ResidualAdd leaves it: below half a unit in the last place of its element.
std::vector<bf16> RemainderOf(const std::vector<bf16>& values, Random* random) {
  std::vector<bf16> remainder;
  for (const bf16 value : values) {
    remainder.push_back(
        __float2bfloat16(__bfloat162float(value) * (random->Uniform() - 0.5) / 256));
  }
  return remainder;
}

class ResidualAddTest : public testing::TestWithParam<ResidualAddVersion> {
 protected:
  void CheckCount(size_t count, size_t offset = 0) {
    SCOPED_TRACE(StrCat(count, " elements, offset ", offset));
    const std::vector<bf16> before = random_.Bf16(count, 10);
    const std::vector<bf16> rest = RemainderOf(before, &random_);
    const std::vector<float> update = random_.F32(count);
    std::vector<double> expected;
    for (size_t i = 0; i < count; ++i)
      expected.push_back(ToDouble(before[i]) + ToDouble(rest[i]) + ToDouble(update[i]));
    DeviceBuffer<bf16> residual = Upload(before, offset, kGuard);
    DeviceBuffer<bf16> remainder = Upload(rest, offset, kGuard);
    const DeviceBuffer<float> device_update = Upload(update, offset);
    GetParam().launch(residual.data() + offset, remainder.data() + offset,
                      device_update.data() + offset, count, nullptr);
    const std::vector<bf16> high = Download(residual, offset, count);
    const std::vector<bf16> low = Download(remainder, offset, count);
    EXPECT_EQ(FirstMismatch(high, expected, kRelative, 1e-6), "");
    std::vector<double> both;
    for (size_t i = 0; i < count; ++i) both.push_back(ToDouble(high[i]) + ToDouble(low[i]));
    // A rounding to 8 bits of what a rounding to 8 bits left over, and f32's own of sums up to 40.
    EXPECT_EQ(FirstMismatch(both, expected, kRelative / 256, 1e-5), "");
    EXPECT_EQ(
        std::memcmp(device_update.ToHost().data() + offset, update.data(), count * sizeof(float)),
        0)
        << "the update was changed";
  }

  Random random_{88};
};

INSTANTIATE_TEST_SUITE_P(Version, ResidualAddTest, testing::ValuesIn(kResidualAddVersions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ResidualAddTest, IsRightForAnyCount) {
  for (size_t count : {1, 7, 8, 9, 2047, 2048, 2049, 1025 * 96}) CheckCount(count);
  for (int i = 0; i < 10; ++i) CheckCount(random_.Integer(1, 5000));
}

TEST_P(ResidualAddTest, NeedsNoAlignment) {
  for (size_t offset : {1, 2, 4, 8}) CheckCount(999, offset);
}

TEST_P(ResidualAddTest, NothingToDo) {
  GetParam().launch(nullptr, nullptr, nullptr, 0, nullptr);
  CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_THROW(GetParam().launch(nullptr, nullptr, nullptr, -1, nullptr), Error);
}

// Near 100 the bf16 numbers are half a unit apart: without a remainder, 0.1 would never arrive.
TEST_P(ResidualAddTest, ManySmallUpdatesAddUp) {
  DeviceBuffer<bf16> residual(std::vector<bf16>(9, __float2bfloat16(100)));
  DeviceBuffer<bf16> remainder(std::vector<bf16>(9, __float2bfloat16(0)));
  const DeviceBuffer<float> update(std::vector<float>(9, 0.1f));
  for (int i = 0; i < 1000; ++i) {
    GetParam().launch(residual.data(), remainder.data(), update.data(), 9, nullptr);
  }
  for (const bf16 value : residual.ToHost()) EXPECT_NEAR(ToDouble(value), 200, 1);
}

// --- both, in a layer of the bundled model

// Our inputs are rounded once. Transformers' bf16 run carries every rounding since the embedding,
// so its distance from the f32 run is a bound with room, and the engine's tolerance of 1.25 is not
// needed.
TEST(FeedForward, IsAsGoodAsTransformers) {
  for (int layer_number : {0, 5}) {
    SCOPED_TRACE(StrCat("layer ", layer_number));
    const PocketLayer layer = LoadPocketLayer(layer_number);
    const int num_tokens = layer.num_tokens, hidden_size = layer.hidden_size,
              intermediate_size = layer.intermediate_size;
    const DeviceBuffer<bf16> normed(layer.normed), gate_up_weight(layer.gate_up_weight),
        down_weight(layer.down_weight);
    DeviceBuffer<bf16> residual(layer.residual);
    DeviceBuffer<bf16> remainder(residual.size());
    remainder.Fill(0);
    DeviceBuffer<bf16> gate_up(size_t(num_tokens) * 2 * intermediate_size);
    DeviceBuffer<bf16> activated(size_t(num_tokens) * intermediate_size);
    DeviceBuffer<float> update(size_t(num_tokens) * hidden_size);
    const Linear linear(nullptr);
    linear(normed.data(), gate_up_weight.data(), gate_up.data(), num_tokens, hidden_size,
           2 * intermediate_size);
    SwiGlu(gate_up.data(), activated.data(), num_tokens, intermediate_size, nullptr);
    linear(activated.data(), down_weight.data(), update.data(), num_tokens, intermediate_size,
           hidden_size);
    ResidualAdd(residual.data(), remainder.data(), update.data(), int64_t{num_tokens} * hidden_size,
                nullptr);
    const auto& f32 = layer.f32;
    const auto& theirs = layer.bf16_run;
    EXPECT_LE(RelativeError(activated.ToHost(), f32.activated),
              RelativeError(theirs.activated, f32.activated));
    EXPECT_LE(RelativeError(update.ToHost(), f32.update), RelativeError(theirs.update, f32.update));
    EXPECT_LE(RelativeError(residual.ToHost(), f32.output),
              RelativeError(theirs.output, f32.output));
  }
}

}  // namespace
}  // namespace tinyvllm
