// Checks of lesson 06: every version against sums in f64, and the promise of the tiles that a row's
// result does not depend on the rows beside it.
#include "lessons/06_matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"

namespace tinyvllm {
namespace {

struct Shape {
  int num_tokens;
  int in_features;
  int out_features;
};

std::string ToString(const Shape& shape) {
  return StrCat(shape.num_tokens, " tokens, ", shape.in_features, " to ", shape.out_features);
}

struct Matrices {
  Matrices(const Shape& shape, Random& random)
      : input(random.Bf16(size_t(shape.num_tokens) * shape.in_features)),
        weight(random.Bf16(size_t(shape.out_features) * shape.in_features)) {}
  std::vector<bf16> input;
  std::vector<bf16> weight;
};

// The product in f64, and for each element the sum of its products' magnitudes, which rounding
// errors are measured by.
struct Reference {
  Reference(const Shape& shape, const Matrices& matrices) {
    const std::vector<double> x(ToDoubles(matrices.input)), w(ToDoubles(matrices.weight));
    for (int token = 0; token < shape.num_tokens; ++token) {
      for (int feature = 0; feature < shape.out_features; ++feature) {
        double sum = 0, magnitude = 0;
        const double* x_row = &x[size_t(token) * shape.in_features];
        const double* w_row = &w[size_t(feature) * shape.in_features];
        for (int k = 0; k < shape.in_features; ++k) {
          sum += x_row[k] * w_row[k];
          magnitude += std::abs(x_row[k] * w_row[k]);
        }
        sums.push_back(sum);
        magnitudes.push_back(magnitude);
      }
    }
  }
  static std::vector<double> ToDoubles(const std::vector<bf16>& values) {
    std::vector<double> doubles;
    for (bf16 value : values) doubles.push_back(ToDouble(value));
    return doubles;
  }
  std::vector<double> sums;
  std::vector<double> magnitudes;
};

constexpr size_t kGuard = 64;  // elements after the output that must not be touched

// Runs `linear` on fresh device memory; the operands begin `offset` elements into theirs, so that
// an odd offset makes 16-byte loads impossible.
template <typename Out>
std::vector<Out> Multiply(const Linear& linear, const Shape& shape, const Matrices& matrices,
                          size_t offset = 0) {
  const auto upload = [&](const std::vector<bf16>& host) {
    std::vector<bf16> shifted(offset);
    shifted.insert(shifted.end(), host.begin(), host.end());
    return DeviceBuffer<bf16>(shifted);
  };
  const DeviceBuffer<bf16> input = upload(matrices.input), weight = upload(matrices.weight);
  const size_t size = size_t(shape.num_tokens) * shape.out_features;
  DeviceBuffer<Out> output(offset + size + kGuard);
  output.Fill(0xff);
  linear(input.data() + offset, weight.data() + offset, output.data() + offset, shape.num_tokens,
         shape.in_features, shape.out_features);
  const std::vector<Out> all = output.ToHost();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= offset && i < offset + size) continue;
    unsigned char bytes[sizeof(Out)];
    std::memcpy(bytes, &all[i], sizeof(Out));
    EXPECT_EQ(bytes[0], 0xff) << "written outside the output, at " << int64_t(i) - int64_t(offset);
  }
  return {all.begin() + offset, all.begin() + offset + size};
}

// The first element outside its own bound. Any order of summing k products in f32 errs by at most
// k half-units in the last place of the sum of their magnitudes; tensor cores cut off instead of
// rounding, so whole units. Writing bf16 rounds once more.
template <typename Out>
std::string FirstOutOfBound(const std::vector<Out>& actual, const Reference& reference, int k) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double sum_error = (k + 1) * 0x1p-23 * reference.magnitudes[i];
    const double rounding = sizeof(Out) == 2 ? kBf16Rounding * std::abs(reference.sums[i]) : 0;
    const double error = std::abs(ToDouble(actual[i]) - reference.sums[i]);
    if (!(error <= 1.01 * (sum_error + rounding))) {
      return StrCat("element ", i, ": got ", ToDouble(actual[i]), ", expected ", reference.sums[i],
                    " within ", sum_error + rounding);
    }
  }
  return "";
}

// The bound above is certain but wide. Errors are random and mostly cancel: as a whole the product
// lies within sqrt(k) half-units of f32, or within the mean rounding of bf16, which is below its
// largest.
template <typename Out>
double ExpectedRelativeError(int k) {
  const double summing = 4 * std::sqrt(double(k)) * 0x1p-24;
  return summing + (sizeof(Out) == 2 ? kBf16Rounding : 0);
}

class Matmul : public testing::TestWithParam<MatmulVersion> {
 protected:
  template <typename Out>
  void CheckShape(const Shape& shape, size_t offset = 0) {
    SCOPED_TRACE(
        StrCat(ToString(shape), sizeof(Out) == 2 ? ", bf16" : ", float", ", offset ", offset));
    const Matrices matrices(shape, random_);
    const Reference reference(shape, matrices);
    const std::vector<Out> output = Multiply<Out>(linear_, shape, matrices, offset);
    EXPECT_EQ(FirstOutOfBound(output, reference, shape.in_features), "");
    EXPECT_LE(RelativeError(output, reference.sums), ExpectedRelativeError<Out>(shape.in_features));
  }

  Random random_{6};
  Linear linear_{nullptr, GetParam().backend};
};

INSTANTIATE_TEST_SUITE_P(Version, Matmul, testing::ValuesIn(kMatmulVersions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Matmul, SmallNumbersAreExact) {
  const auto values = [](std::vector<float> floats) {
    std::vector<bf16> result;
    for (float value : floats) result.push_back(__float2bfloat16(value));
    return result;
  };
  const Shape shape = {2, 3, 4};
  Matrices matrices(shape, random_);
  matrices.input = values({1, 2, 3, 4, 5, 6});
  matrices.weight = values({1, 0, -1, 2, 1, 0, 0, 3, 1, 1, 1, 1});
  EXPECT_EQ(Multiply<float>(linear_, shape, matrices),
            (std::vector<float>{-2, 4, 9, 6, -2, 13, 21, 15}));
}

TEST_P(Matmul, IsRightForAnyShape) {
  for (int num_tokens : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 130}) {
    // Odd and even sizes, below, at and beyond the tiles' edges.
    const Shape shape = {num_tokens, random_.Integer(1, 200), random_.Integer(1, 150)};
    CheckShape<bf16>(shape);
    CheckShape<float>(shape);
    CheckShape<bf16>({num_tokens, 8 * random_.Integer(1, 25), random_.Integer(1, 150)});
  }
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{64, 64, 64}, Shape{1, 7, 1}, Shape{17, 1, 65}, Shape{1025, 40, 33},
        Shape{1, 2048, 5}, Shape{2, 2049, 5}, Shape{3, 4168, 9}, Shape{20, 2056, 7}}) {
    CheckShape<bf16>(shape);
    CheckShape<float>(shape);
  }
}

TEST_P(Matmul, IsRightForModels) {
  // A small model's projections, and a vocabulary that is not a multiple of 8.
  for (int num_tokens : {1, 3, 18}) {
    CheckShape<bf16>({num_tokens, 256, 512});
    CheckShape<bf16>({num_tokens, 768, 256});
    CheckShape<float>({num_tokens, 256, 2051});
  }
}

TEST_P(Matmul, NeedsNoAlignment) {
  for (int num_tokens : {1, 5, 70}) {
    CheckShape<bf16>({num_tokens, 64, 40}, 1);
    CheckShape<float>({num_tokens, 136, 24}, 3);
    CheckShape<bf16>({num_tokens, 61, 40}, 8);
  }
}

TEST_P(Matmul, ARowOfNanStaysAlone) {
  for (int num_tokens : {3, 40}) {
    const Shape shape = {num_tokens, 70, 20};
    Matrices matrices(shape, random_);
    for (int k = 0; k < shape.in_features; ++k) {
      matrices.input[shape.in_features + k] = __float2bfloat16(NAN);
    }
    const std::vector<float> output = Multiply<float>(linear_, shape, matrices);
    for (size_t i = 0; i < output.size(); ++i) {
      EXPECT_EQ(std::isnan(output[i]), i / shape.out_features == 1) << "element " << i;
    }
  }
}

TEST_P(Matmul, NoTokensIsNoWork) {
  DeviceBuffer<bf16> output(4);
  output.Fill(0x5a);
  linear_(nullptr, nullptr, output.data(), 0, 8, 4);
  for (bf16 value : output.ToHost()) {
    uint16_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    EXPECT_EQ(bits, 0x5a5a);
  }
}

TEST_P(Matmul, NamesWhatIsWrong) {
  const auto error_of = [&](const bf16* input, int num_tokens, int in_features, int out_features) {
    DeviceBuffer<bf16> buffer(64);
    try {
      linear_(input != nullptr ? buffer.data() : nullptr, buffer.data(), buffer.data(), num_tokens,
              in_features, out_features);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const bf16 some = {};
  EXPECT_EQ(error_of(&some, -1, 8, 4), "matmul: -1 tokens, expected 0 or more");
  EXPECT_EQ(error_of(&some, 1, 0, 4),
            "matmul: weight of (out_features, in_features) (4, 0), expected both to be positive");
  EXPECT_EQ(error_of(&some, 1, 8, -4),
            "matmul: weight of (out_features, in_features) (-4, 8), expected both to be positive");
  EXPECT_EQ(error_of(nullptr, 1, 8, 4), "matmul: null pointer for input, expected device memory");
}

// More elements than an int can count: 8 GB of output, so only where there is a GPU.
TEST_P(Matmul, CountsBeyond31Bits) {
  if (IsSimulator()) GTEST_SKIP() << "needs 9 GB of device memory";
  const Shape shape = {32769, 8, 65537};
  const size_t size = size_t(shape.num_tokens) * shape.out_features;
  const Matrices matrices(shape, random_);
  const DeviceBuffer<bf16> input(matrices.input), weight(matrices.weight);
  DeviceBuffer<float> output(size);
  output.Fill(0xff);
  linear_(input.data(), weight.data(), output.data(), shape.num_tokens, shape.in_features,
          shape.out_features);
  std::vector<float> last_row(shape.out_features);
  CUDA_CHECK(cudaMemcpy(last_row.data(), output.data() + size - shape.out_features,
                        last_row.size() * sizeof(float), cudaMemcpyDeviceToHost));
  Matrices last = matrices;
  last.input.erase(last.input.begin(), last.input.end() - shape.in_features);
  const Reference reference({1, shape.in_features, shape.out_features}, last);
  EXPECT_EQ(FirstOutOfBound(last_row, reference, shape.in_features), "");
}

// --- batch invariance

// The rows `first` to `first + count - 1` of the input, multiplied without the others.
template <typename Out>
std::vector<Out> MultiplyRows(const Linear& linear, const Shape& shape, const Matrices& crowd,
                              int first, int count) {
  Matrices rows = crowd;
  rows.input.assign(crowd.input.begin() + size_t(first) * shape.in_features,
                    crowd.input.begin() + size_t(first + count) * shape.in_features);
  return Multiply<Out>(linear, {count, shape.in_features, shape.out_features}, rows);
}

template <typename Out>
void ExpectSameBitsInAnyCrowd(const Linear& linear, const Shape& shape, Random& random) {
  SCOPED_TRACE(ToString(shape));
  const Matrices crowd(shape, random);
  const std::vector<Out> together = Multiply<Out>(linear, shape, crowd);
  for (int count : {1, 2, 3, 4, 5, 16, 17, 64, 65}) {
    if (count > shape.num_tokens) break;
    const int first = random.Integer(0, shape.num_tokens - count);
    const std::vector<Out> alone = MultiplyRows<Out>(linear, shape, crowd, first, count);
    EXPECT_EQ(std::memcmp(alone.data(), &together[size_t(first) * shape.out_features],
                          alone.size() * sizeof(Out)),
              0)
        << count << " rows from row " << first;
  }
}

void CheckBatchInvariance(GemmBackend backend) {
  Random random(606);
  const Linear linear(nullptr, backend);
  for (const Shape& shape : {Shape{130, 64, 30}, Shape{17, 63, 65}, Shape{70, 577, 24},
                             Shape{66, 256, 131}, Shape{20, 2500, 12}, Shape{20, 4608, 9}}) {
    ExpectSameBitsInAnyCrowd<bf16>(linear, shape, random);
    ExpectSameBitsInAnyCrowd<float>(linear, shape, random);
  }
}

TEST(BatchInvariance, OfTheTiles) { CheckBatchInvariance(GemmBackend::kTiled); }

TEST(BatchInvariance, OfCublasOnTheSimulator) {
  if (!IsSimulator()) GTEST_SKIP() << "the GPU's cuBLAS chooses its order by the shape";
  CheckBatchInvariance(GemmBackend::kCublas);
}

// 16-byte loads or single ones: the same order of sums.
TEST(BatchInvariance, DoesNotDependOnAlignment) {
  Random random(16);
  const Linear linear(nullptr, GemmBackend::kTiled);
  for (int num_tokens : {1, 40}) {
    const Shape shape = {num_tokens, 200, 37};
    const Matrices matrices(shape, random);
    EXPECT_EQ(Multiply<float>(linear, shape, matrices),
              Multiply<float>(linear, shape, matrices, 1));
  }
}

// The bf16 output is the float output, rounded once.
TEST(BatchInvariance, RoundsOnce) {
  Random random(17);
  const Linear linear(nullptr, GemmBackend::kTiled);
  const Shape shape = {5, 300, 40};
  const Matrices matrices(shape, random);
  const std::vector<float> exact = Multiply<float>(linear, shape, matrices);
  const std::vector<bf16> rounded = Multiply<bf16>(linear, shape, matrices);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(ToDouble(rounded[i]), ToDouble(__float2bfloat16(exact[i])));
  }
}

}  // namespace
}  // namespace tinyvllm
