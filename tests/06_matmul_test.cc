// Checks of lesson 06: every version against sums in f64, and the promise of the tiles that a row's
// result does not depend on the rows beside it.
#include "lessons/06_matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/testing/guide.h"
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

// --- First steps: the call of cuBLAS, with the matrices of the page.

const std::vector<double> kInput = {1, 2, 3, 4, 5, 6};                      // (2, 3)
const std::vector<double> kWeight = {1, 0, -1, 2, 1, 0, 0, 3, 1, 1, 1, 1};  // (4, 3)
const std::vector<double> kProduct = {-2, 4, 9, 6, -2, 13, 21, 15};         // (2, 4)
constexpr int kTokens = 2, kIn = 3, kOut = 4;
constexpr int kOld = 100;    // what the output holds before the product is written
constexpr int kBeyond = 50;  // what lies behind input and weight
constexpr size_t kSpare = 64;

std::vector<bf16> Bf16s(const std::vector<double>& numbers) {
  std::vector<bf16> values;
  for (double number : numbers) values.push_back(__float2bfloat16(static_cast<float>(number)));
  return values;
}

std::vector<double> WithSpare(std::vector<double> numbers, double spare) {
  numbers.resize(numbers.size() + kSpare, spare);
  return numbers;
}

// A call of cublasGemmEx, right unless changed.
struct GemmCall {
  bool weight_first = true;
  bool weight_transposed = true;
  bool input_transposed = false;
  int m = kOut, n = kTokens, k = kIn;
  int weight_ld = kIn, input_ld = kIn, output_ld = kOut;

  // What is wrong, and how it would be right; empty if nothing is.
  std::string Faults() const {
    if (!weight_first) {
      return "the operands stand as in input · weightᵀ, but cuBLAS is to write outputᵀ = weight · "
             "inputᵀ: the weight comes first; after that, look at the rest again";
    }
    std::string faults;
    const auto add = [&](bool wrong, const char* fault) {
      if (wrong) faults += (faults.empty() ? "" : "; also, ") + std::string(fault);
    };
    const GemmCall right;
    add(weight_transposed != right.weight_transposed,
        "the operation on the weight is wrong: cuBLAS sees weightᵀ in our memory, and outputᵀ = "
        "weight · "
        "inputᵀ wants the weight itself");
    add(input_transposed != right.input_transposed,
        "the operation on the input is wrong: cuBLAS sees inputᵀ in our memory, and that is what "
        "outputᵀ = "
        "weight · inputᵀ wants");
    add(m != right.m || n != right.n || k != right.k,
        "m, n and k are mixed up: m is the number of rows and n that of columns of what cuBLAS "
        "writes, outputᵀ, "
        "and k how many products each sum has");
    add(weight_ld != right.weight_ld,
        "the weight's leading dimension is not the length of its row in our memory");
    add(input_ld != right.input_ld,
        "the input's leading dimension is not the length of its row in our memory");
    add(output_ld != right.output_ld,
        "the output's leading dimension is not the length of its row in our memory");
    return faults;
  }

  // Whether cuBLAS accepts it.
  bool IsValid() const {
    const bool transposed_a = weight_first ? weight_transposed : input_transposed;
    const bool transposed_b = weight_first ? input_transposed : weight_transposed;
    const int lda = weight_first ? weight_ld : input_ld;
    const int ldb = weight_first ? input_ld : weight_ld;
    return lda >= (transposed_a ? k : m) && ldb >= (transposed_b ? n : k) && output_ld >= m;
  }

  // What then stands in the output's memory.
  std::vector<double> Result() const {
    const std::vector<double> input = WithSpare(kInput, kBeyond);
    const std::vector<double> weight = WithSpare(kWeight, kBeyond);
    const auto element = [](const std::vector<double>& matrix, int ld, bool transposed, int row,
                            int column) {
      return matrix.at(transposed ? row * ld + column : column * ld + row);
    };
    std::vector<double> output = WithSpare(std::vector<double>(kTokens * kOut, kOld), kOld);
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          sum += weight_first ? element(weight, weight_ld, weight_transposed, row, i) *
                                    element(input, input_ld, input_transposed, i, column)
                              : element(input, input_ld, input_transposed, row, i) *
                                    element(weight, weight_ld, weight_transposed, i, column);
        }
        output.at(column * output_ld + row) = sum;
      }
    }
    output.resize(kTokens * kOut);
    return output;
  }
};

// All calls with up to three faults, those with few first.
std::vector<GemmCall> WrongCalls() {
  std::vector<std::pair<size_t, GemmCall>> calls;
  GemmCall call;
  const int sizes[] = {kTokens, kIn, kOut};
  int order[] = {0, 1, 2};
  do {
    call.m = sizes[order[0]], call.n = sizes[order[1]], call.k = sizes[order[2]];
    for (int bits = 0; bits < 8; ++bits) {
      call.weight_first = bits & 1, call.weight_transposed = bits & 2;
      call.input_transposed = bits & 4;
      for (int ld = 0; ld < 27; ++ld) {
        call.weight_ld = sizes[ld % 3], call.input_ld = sizes[ld / 3 % 3];
        call.output_ld = sizes[ld / 9];
        const std::string faults = call.Faults();
        const size_t count = 1 + std::count(faults.begin(), faults.end(), ';');
        if (faults.empty() || count > 3 || !call.IsValid()) continue;
        if (call.Result() != kProduct) calls.emplace_back(count, call);
      }
    }
  } while (std::next_permutation(order, order + 3));
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GemmCall> sorted;
  for (const auto& counted : calls) sorted.push_back(counted.second);
  return sorted;
}

// The memory of `numbers`, read as another type.
template <typename From, typename To>
std::vector<double> ReadAs(const std::vector<double>& numbers, To old) {
  std::vector<From> from;
  for (double number : numbers) {
    if constexpr (sizeof(From) == sizeof(float)) {
      from.push_back(static_cast<float>(number));
    } else {
      from.push_back(__float2bfloat16(static_cast<float>(number)));
    }
  }
  std::vector<To> to(numbers.size(), old);
  std::memcpy(to.data(), from.data(), numbers.size() * std::min(sizeof(From), sizeof(To)));
  std::vector<double> values;
  for (To value : to) values.push_back(ToDouble(value));
  return values;
}

template <typename Out>
testing::AssertionResult CheckCall() {
  const Out old = []() -> Out {
    if constexpr (sizeof(Out) == sizeof(float)) return kOld;
    return __float2bfloat16(kOld);
  }();
  std::vector<double> transposed(kTokens * kOut), gaps(kTokens * kOut, kOld), added;
  for (int token = 0; token < kTokens; ++token) {
    for (int feature = 0; feature < kOut; ++feature) {
      const double value = kProduct[token * kOut + feature];
      transposed[feature * kTokens + token] = value;
      if (feature * kOut + token < kTokens * kOut) gaps[feature * kOut + token] = value;
    }
  }
  for (double value : kProduct) added.push_back(value + kOld);
  Guide guide("docs/06_matmul.md#version-3-cublas");
  guide.Input("input", kInput, kIn)
      .Input("weight", kWeight, kIn)
      .Input("output before", kOld)
      .Start(
          "write the call in MatmulCublas in lessons/06_matmul/exercise/matmul.cu; begin with "
          "the three sizes m, n and k of outputᵀ = weight · inputᵀ. (If it is written, cuBLAS "
          "refused it: CUBLAS_CHECK around it says so.)",
          std::vector<double>(kTokens * kOut, kOld))
      .Mistake(
          "the product is right, but it was written column by column, as cuBLAS does: ask it "
          "for outputᵀ = weight · inputᵀ, whose columns are the rows of our output",
          transposed)
      .Mistake(
          "the product is right, but it was written column by column, as cuBLAS does, with "
          "gaps: ask it for outputᵀ = weight · inputᵀ, whose columns are the rows of our "
          "output",
          gaps)
      .Mistake("the old output was added to the product: beta is 1, it must be 0", added)
      .Mistake(
          "cuBLAS read 0 for alpha: it must be a `float` that is 1 (the first four bytes of a "
          "`double` that is 1 are 0)",
          std::vector<double>(kTokens * kOut, 0))
      .Mistake("the output was written as another type than it has: kCudaType<Out> is its type",
               sizeof(Out) == sizeof(float) ? ReadAs<bf16, Out>(kProduct, old)
                                            : ReadAs<float, Out>(kProduct, old));
  for (const GemmCall& call : WrongCalls()) guide.Mistake(call.Faults(), call.Result());
  return guide
      .WhenThrown("functionality is not supported",
                  "cuBLAS does not have this combination of types: input and weight are "
                  "CUDA_R_16BF, the output is kCudaType<Out>, the sums are CUBLAS_COMPUTE_32F")
      .WhenRefused(
          "cuBLAS refuses a leading dimension that is shorter than a column it sees, and its "
          "columns are our rows. Is lda, ldb or ldc not the length of a row in our memory? Is the "
          "operand not transposed that must be? Or do the operands, m, n and k not stand in the "
          "order of outputᵀ = weight · inputᵀ?")
      .Otherwise(
          "read the six numbers of the input in columns of three, as the page does: what "
          "does cuBLAS see, and what does outputᵀ = weight · inputᵀ want?")
      .Compare(
          [&] {
            const Linear linear(nullptr, GemmBackend::kCublas);
            const DeviceBuffer<bf16> input(Bf16s(WithSpare(kInput, kBeyond)));
            const DeviceBuffer<bf16> weight(Bf16s(WithSpare(kWeight, kBeyond)));
            DeviceBuffer<Out> output(std::vector<Out>(kTokens * kOut + kSpare, old));
            linear(input.data(), weight.data(), output.data(), kTokens, kIn, kOut);
            std::vector<Out> all = output.ToHost();
            all.resize(kTokens * kOut);
            return all;
          },
          kProduct, 0, 0, kOut);
}

TEST(MatmulFirstSteps, TheCallOfCublas) { EXPECT_TRUE(CheckCall<bf16>()); }

TEST(MatmulFirstSteps, TheCallOfCublasWithOutputInF32) { EXPECT_TRUE(CheckCall<float>()); }

// --- First steps: the heart of the tiles, with 17 tokens, the fewest that take them.

struct TileStep {
  int in_features, out_features;
  const char* input_words;
  std::function<int(int token, int k)> input;
  const char* weight_words;
  std::function<int(int feature, int k)> weight;
};

testing::AssertionResult CheckTiles(const TileStep& step, bool order_counts = false) {
  constexpr int kSmallTokens = 17, kChunk = 64, kPatch = 4;
  const int in = step.in_features, out = step.out_features;
  const int chunks = (in + kChunk - 1) / kChunk;
  const auto X = [&](int token, int k) {
    return token < kSmallTokens && k < in ? step.input(token, k) : 0;
  };
  const auto W = [&](int feature, int k) {
    return feature < out && k < in ? step.weight(feature, k) : 0;
  };
  // The output whose element is, for each chunk and k, the product of two elements times a weight.
  using Row = std::function<int(int token, int feature, int k)>;
  using Times = std::function<double(int chunk, int k)>;
  const auto Summed = [&](const Row& x_row, const Row& w_row, const Times& times) {
    std::vector<double> output;
    for (int token = 0; token < kSmallTokens; ++token) {
      for (int feature = 0; feature < out; ++feature) {
        double sum = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (int k = 0; k < kChunk; ++k) {
            sum += times(chunk, k) * X(x_row(token, feature, k), chunk * kChunk + k) *
                   W(w_row(token, feature, k), chunk * kChunk + k);
          }
        }
        output.push_back(sum);
      }
    }
    return output;
  };
  const Row token_row = [](int token, int, int) { return token; };
  const Row feature_row = [](int, int feature, int) { return feature; };
  const Times once = [](int, int) { return 1; };
  const auto Rows = [&](const Row& x_row, const Row& w_row) { return Summed(x_row, w_row, once); };
  const auto Weighted = [&](const Times& times) { return Summed(token_row, feature_row, times); };
  // Where row `row` would be looked for without the swizzle, another one stands.
  const Row token_swizzled = [](int token, int, int k) { return token ^ (4 * (k / 8)); };
  const Row feature_swizzled = [](int, int feature, int k) { return feature ^ (4 * (k / 8)); };

  const std::vector<double> expected = Weighted(once);
  const auto Kept = [&](const std::function<int(int i, int j)>& times) {
    std::vector<double> output = expected;
    for (size_t k = 0; k < output.size(); ++k)
      output[k] *= times(k / out % kPatch, k % out % kPatch);
    return output;
  };

  constexpr char kSwizzle[] = "docs/06_matmul.md#staging-without-conflicts";
  constexpr char kOrder[] = "docs/06_matmul.md#the-order-of-a-sum-is-part-of-its-result";
  const std::vector<double> zeros(expected.size(), 0);
  Guide guide("docs/06_matmul.md#version-2-tiles");
  guide.Input("input of token t", step.input_words)
      .Input("weight of feature f", step.weight_words)
      .Input("num_tokens", kSmallTokens)
      .Input("in_features", in)
      .Input("out_features", out);
  if (order_counts) {
    guide.Mistake(
        "each product was added to total at once. Here total is 16,777,216 after the first "
        "chunk, and an f32 of this size does not change by a 1; so the second chunk's 64 "
        "ones have to be summed by themselves first, in `partial`",
        zeros, kOrder);
  } else {
    guide.Start(
        "write the sum in TiledKernel in lessons/06_matmul/exercise/matmul.cu: begin with "
        "partial[0][0] alone, the products of one token and one feature for k from 0 to "
        "kChunk - 1. (If it is written, its sums do not arrive in total.)",
        zeros);
  }
  return guide
      .Mistake(
          "only the first output of each patch was summed, the other 15 are missing: x[i] times "
          "w[j] belongs to partial[i][j], for all i and j",
          Kept([](int i, int j) { return i == 0 && j == 0; }))
      .Mistake(
          "only the first token of each patch was summed: x[i] times w[j] belongs to "
          "partial[i][j], for all i and j",
          Kept([](int i, int) { return i == 0; }))
      .Mistake(
          "only the first feature of each patch was summed: x[i] times w[j] belongs to "
          "partial[i][j], for all i and j",
          Kept([](int, int j) { return j == 0; }))
      .Mistake(
          "only the diagonal of each patch was summed: x[i] times w[j] belongs to "
          "partial[i][j], for all i and j",
          Kept([](int i, int j) { return i == j; }))
      .Mistake(
          "only the diagonal of each patch was summed, and four times: x[i] times w[j] belongs "
          "to partial[i][j]",
          Kept([](int i, int j) { return i == j ? 4 : 0; }))
      .Mistake(
          "token and feature changed places inside the patch: x[i] times w[j] belongs to row i "
          "and column j",
          Rows([](int token, int feature,
                  int) { return token / kPatch * kPatch + feature % kPatch; },
               [](int token, int feature, int) {
                 return feature / kPatch * kPatch + token % kPatch;
               }))
      .Mistake("the input's tile was read at the patch's features; its rows are tokens",
               Rows([](int token, int feature,
                       int) { return feature / kPatch * kPatch + token % kPatch; },
                    feature_row))
      .Mistake("the weights' tile was read at the patch's tokens; its rows are features",
               Rows(token_row, [](int token, int feature,
                                  int) { return token / kPatch * kPatch + feature % kPatch; }))
      .Mistake(
          "the two tiles changed places: the input's is read at the patch's tokens, the "
          "weights' at its features",
          Rows([](int token, int feature,
                  int) { return feature / kPatch * kPatch + token % kPatch; },
               [](int token, int feature, int) {
                 return token / kPatch * kPatch + feature % kPatch;
               }))
      .Mistake("all tokens of a patch got the first one's products",
               Rows([](int token, int, int) { return token / kPatch * kPatch; }, feature_row))
      .Mistake("all features of a patch got the first one's products",
               Rows(token_row, [](int, int feature, int) { return feature / kPatch * kPatch; }))
      .Mistake("all outputs of a patch got the first one's products",
               Rows([](int token, int, int) { return token / kPatch * kPatch; },
                    [](int, int feature, int) { return feature / kPatch * kPatch; }))
      .Mistake("every thread read the tile's first four tokens, not its own patch's",
               Rows([](int token, int, int) { return token % kPatch; }, feature_row))
      .Mistake("every thread read the tile's first four features, not its own patch's",
               Rows(token_row, [](int, int feature, int) { return feature % kPatch; }))
      .Mistake("every thread read the first four rows of both tiles, not its own patch's",
               Rows([](int token, int, int) { return token % kPatch; },
                    [](int, int feature, int) { return feature % kPatch; }))
      .Mistake(
          "the input's tile was read without its swizzle: for k from 8 on, row r is not at "
          "place r",
          Rows(token_swizzled, feature_row), kSwizzle)
      .Mistake(
          "the weights' tile was read without its swizzle: for k from 8 on, row r is not at "
          "place r",
          Rows(token_row, feature_swizzled), kSwizzle)
      .Mistake(
          "both tiles were read without their swizzle: for k from 8 on, row r is not at place r",
          Rows(token_swizzled, feature_swizzled), kSwizzle)
      .Mistake("only the last product of each chunk was kept: products are added up",
               Weighted([](int, int k) { return k == kChunk - 1; }))
      .Mistake("only the first product of each chunk was added: k goes from 0 to kChunk - 1",
               Weighted([](int, int k) { return k == 0; }))
      .Mistake("the last product of each chunk is missing: k goes from 0 to kChunk - 1",
               Weighted([](int, int k) { return k < kChunk - 1; }))
      .Mistake("the first product of each chunk is missing: k goes from 0 to kChunk - 1",
               Weighted([](int, int k) { return k > 0; }))
      .Mistake("only the first four products of each chunk were added: k goes from 0 to kChunk - 1",
               Weighted([](int, int k) { return k < kPatch; }))
      .Mistake("only the last chunk was kept: each chunk's sum is added to total",
               Weighted([&](int chunk, int) { return chunk == chunks - 1; }), kOrder)
      .Mistake(
          "partial was added to total after every k, so that the first products are in it many "
          "times; it is added once, when k is through",
          Weighted([](int, int k) { return kChunk - k; }), kOrder)
      .Mistake("the sum of the earlier chunks was still in partial; it begins each chunk at zero",
               Weighted([&](int chunk, int) { return chunks - chunk; }), kOrder)
      .Mistake("x[i] and w[j] were not multiplied, but added",
               [&] {
                 std::vector<double> output;
                 for (int token = 0; token < kSmallTokens; ++token) {
                   for (int feature = 0; feature < out; ++feature) {
                     double sum = 0;
                     for (int k = 0; k < in; ++k) sum += X(token, k) + W(feature, k);
                     output.push_back(sum);
                   }
                 }
                 return output;
               }())
      .Otherwise(
          "which four rows of the input, and which of the weights, does this thread need for "
          "one k, and to which field of partial belongs each of the 16 products?")
      .Compare(
          [&] {
            std::vector<double> x, w;
            for (int token = 0; token < kSmallTokens; ++token) {
              for (int k = 0; k < in; ++k) x.push_back(X(token, k));
            }
            for (int feature = 0; feature < out; ++feature) {
              for (int k = 0; k < in; ++k) w.push_back(W(feature, k));
            }
            const Linear linear(nullptr, GemmBackend::kTiled);
            const DeviceBuffer<bf16> input(Bf16s(x)), weight(Bf16s(w));
            DeviceBuffer<float> output(expected.size());
            output.Fill(0xff);
            linear(input.data(), weight.data(), output.data(), kSmallTokens, in, out);
            return output.ToHost();
          },
          expected, 0, 0, out);
}

const TileStep kThreeProducts = {3,
                                 12,
                                 "(t + 1, 1, 2)",
                                 [](int t, int k) { return k == 0 ? t + 1 : k; },
                                 "(f, 1, -1)",
                                 [](int f, int k) { return k == 0   ? f
                                                           : k == 1 ? 1
                                                                    : -1; }};

TEST(MatmulFirstSteps, TilesOfThreeProducts) { EXPECT_TRUE(CheckTiles(kThreeProducts)); }

const TileStep kSixteenProducts = {16,
                                   6,
                                   "t + 1 at k = 0 and at k = 9, else 0",
                                   [](int t, int k) { return k == 0 || k == 9 ? t + 1 : 0; },
                                   "1 at k = 0, f + 1 at k = 9, else 0",
                                   [](int f, int k) { return k == 0   ? 1
                                                             : k == 9 ? f + 1
                                                                      : 0; }};

TEST(MatmulFirstSteps, TilesWithASwizzle) { EXPECT_TRUE(CheckTiles(kSixteenProducts)); }

const TileStep kThreeChunks = {
    130,
    6,
    "t + 1 at k = 0, 10 at k = 63, 100 at k = 70, 1000 at k = 129, else 0",
    [](int t, int k) {
      return k == 0 ? t + 1 : k == 63 ? 10 : k == 70 ? 100 : k == 129 ? 1000 : 0;
    },
    "f + 1 at k = 0, else 1",
    [](int f, int k) { return k == 0 ? f + 1 : 1; }};

TEST(MatmulFirstSteps, TilesInThreeChunks) { EXPECT_TRUE(CheckTiles(kThreeChunks)); }

const TileStep kLargeAndSmall = {
    192,
    4,
    "4096 at k = 0, 1 at k = 64 to 127, 4096 at k = 128, else 0",
    [](int, int k) { return k == 0 || k == 128   ? 4096
                            : k >= 64 && k < 128 ? 1
                                                 : 0; },
    "4096 at k = 0, 1 at k = 64 to 127, -4096 at k = 128, else 0",
    [](int, int k) {
      return k == 0 ? 4096 : k == 128 ? -4096 : k >= 64 && k < 128 ? 1 : 0;
    }};

TEST(MatmulFirstSteps, TilesWhoseChunksAreSummedByThemselves) {
  EXPECT_TRUE(CheckTiles(kLargeAndSmall, /*order_counts=*/true));
}

// --- All versions.

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
