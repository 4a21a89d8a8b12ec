#include "lessons/07_attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/warp.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/01_safetensors/safetensors.h"

namespace tinyvllm {
namespace {

// Lengths of one sequence.
struct Lengths {
  int queries;
  int keys;
};

constexpr int kPoison = 0xff;  // NaN in every bf16 and f32

// A batch on the host. The gaps between rows hold NaN, so that reading one shows.
struct Problem {
  AttentionShape shape;
  std::vector<Lengths> sequences;
  int64_t q_stride = 0;
  int64_t kv_stride = 0;
  int slot_keys = 0;  // 0: keys are packed; else each sequence has a slot of so many rows
  std::vector<bf16> q, k, v;

  int NumQueries() const {
    int sum = 0;
    for (const Lengths& lengths : sequences) sum += lengths.queries;
    return sum;
  }
  int MaxQueries() const {
    int most = 0;
    for (const Lengths& lengths : sequences) most = std::max(most, lengths.queries);
    return most;
  }
  int MaxKeys() const {
    int most = 0;
    for (const Lengths& lengths : sequences) most = std::max(most, lengths.keys);
    return most;
  }
  std::vector<int> QueryOffsets() const {
    std::vector<int> offsets = {0};
    for (const Lengths& lengths : sequences) offsets.push_back(offsets.back() + lengths.queries);
    return offsets;
  }
  std::vector<int> KvOffsets() const {
    std::vector<int> offsets = {0};
    for (const Lengths& lengths : sequences) {
      offsets.push_back(offsets.back() + (slot_keys > 0 ? slot_keys : lengths.keys));
    }
    return offsets;
  }
  int KvHead(int head) const { return head / (shape.num_heads / shape.num_kv_heads); }
};

AttentionShape MakeShape(int num_kv_heads, int group, int head_dim) {
  return {num_kv_heads * group, num_kv_heads, head_dim,
          static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}

// `rows` rows of `width` random elements, `stride` apart, NaN in between.
std::vector<bf16> RandomRows(Random& random, int rows, int width, int64_t stride, double scale) {
  std::vector<bf16> matrix(rows * stride, __float2bfloat16(NAN));
  for (int row = 0; row < rows; ++row) {
    const std::vector<bf16> values = random.Bf16(width, scale);
    std::copy(values.begin(), values.end(), matrix.begin() + row * stride);
  }
  return matrix;
}

Problem RandomProblem(Random& random, AttentionShape shape, std::vector<Lengths> sequences,
                      int slot_keys = 0) {
  Problem problem;
  problem.shape = shape;
  problem.sequences = sequences;
  problem.slot_keys = slot_keys;
  const int q_width = shape.num_heads * shape.head_dim;
  const int kv_width = shape.num_kv_heads * shape.head_dim;
  problem.q_stride = q_width + 8 * random.Integer(0, 3);
  problem.kv_stride = kv_width + 8 * random.Integer(0, 3);
  const int num_keys = problem.KvOffsets().back();
  problem.q = RandomRows(random, problem.NumQueries(), q_width, problem.q_stride, 2);
  problem.k = RandomRows(random, num_keys, kv_width, problem.kv_stride, 2);
  problem.v = RandomRows(random, num_keys, kv_width, problem.kv_stride, 1);
  return problem;
}

// The formula, in f64.
std::vector<double> Reference(const Problem& problem) {
  const AttentionShape& shape = problem.shape;
  const std::vector<int> query_offsets = problem.QueryOffsets(), kv_offsets = problem.KvOffsets();
  std::vector<double> output(static_cast<size_t>(problem.NumQueries()) * shape.num_heads *
                             shape.head_dim);
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Lengths lengths = problem.sequences[s];
    for (int i = 0; i < lengths.queries; ++i) {
      const int visible = std::max(0, i + 1 + lengths.keys - lengths.queries);
      for (int head = 0; head < shape.num_heads; ++head) {
        const int kv_column = problem.KvHead(head) * shape.head_dim;
        const bf16* q =
            &problem.q[(query_offsets[s] + i) * problem.q_stride + head * shape.head_dim];
        double* out = &output[(static_cast<size_t>(query_offsets[s] + i) * shape.num_heads + head) *
                              shape.head_dim];
        std::vector<double> weights(visible);
        double largest = -INFINITY, sum = 0;
        for (int j = 0; j < visible; ++j) {
          const bf16* k = &problem.k[(kv_offsets[s] + j) * problem.kv_stride + kv_column];
          for (int d = 0; d < shape.head_dim; ++d) weights[j] += ToDouble(q[d]) * ToDouble(k[d]);
          weights[j] *= shape.scale;
          largest = std::max(largest, weights[j]);
        }
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (int j = 0; j < visible; ++j) {
          const bf16* v = &problem.v[(kv_offsets[s] + j) * problem.kv_stride + kv_column];
          for (int d = 0; d < shape.head_dim; ++d) out[d] += weights[j] / sum * ToDouble(v[d]);
        }
      }
    }
  }
  return output;
}

// What a version of the lesson makes of the problem; nullptr: what the engine's Attention makes.
std::vector<bf16> Compute(const Problem& problem, const AttentionVersion* version) {
  const AttentionShape& shape = problem.shape;
  DeviceBuffer<bf16> q(problem.q), k(problem.k), v(problem.v);
  DeviceBuffer<int> query_offsets(problem.QueryOffsets()), kv_offsets(problem.KvOffsets());
  std::vector<int> lens;
  for (const Lengths& lengths : problem.sequences) lens.push_back(lengths.keys);
  DeviceBuffer<int> kv_lens(lens);
  DeviceBuffer<bf16> output(static_cast<size_t>(problem.NumQueries()) * shape.num_heads *
                            shape.head_dim);
  output.Fill(kPoison);

  AttentionBatch batch;
  batch.num_sequences = problem.sequences.size();
  batch.num_queries = problem.NumQueries();
  batch.max_query_len = problem.MaxQueries();
  batch.max_kv_len = problem.MaxKeys();
  batch.query_offsets = query_offsets.data();
  batch.kv_offsets = kv_offsets.data();
  if (problem.slot_keys > 0) batch.kv_lens = kv_lens.data();
  AttentionTensors tensors;
  tensors.q = q.data();
  tensors.k = k.data();
  tensors.v = v.data();
  tensors.q_stride = problem.q_stride;
  tensors.kv_stride = problem.kv_stride;
  tensors.output = output.data();
  const auto workspace_bytes =
      version != nullptr ? version->workspace_bytes : AttentionWorkspaceBytes;
  DeviceBuffer<char> workspace(workspace_bytes(shape, batch.num_queries, batch.max_kv_len));
  workspace.Fill(kPoison);
  const auto launch = version != nullptr ? version->launch : Attention;
  launch(shape, batch, tensors, workspace.data(), workspace.bytes(), nullptr);
  return output.ToHost();
}

// Every version that can do the shape, and Attention itself.
std::vector<const AttentionVersion*> Candidates(const AttentionShape& shape) {
  std::vector<const AttentionVersion*> candidates = {nullptr};
  for (const AttentionVersion& version : kAttentionVersions) {
    if (version.supports(shape)) candidates.push_back(&version);
  }
  return candidates;
}

std::string Name(const AttentionVersion* version) {
  return version == nullptr ? "Attention" : StrCat("version ", version->number);
}

std::string Describe(const Problem& problem) {
  std::string text = StrCat(problem.shape.num_heads, " heads, ", problem.shape.num_kv_heads,
                            " KV heads, head_dim ", problem.shape.head_dim, ", queries/keys");
  for (const Lengths& lengths : problem.sequences) {
    text += StrCat(" ", lengths.queries, "/", lengths.keys);
  }
  return text;
}

// The output is rounded to bf16 once. Before that, f32 sums of up to a thousand terms and scores of
// some tens leave an error of about 1e-5 of values near 1.
constexpr double kAbsolute = 3e-5;

void ExpectMatchesReference(const Problem& problem) {
  const std::vector<double> expected = Reference(problem);
  for (const AttentionVersion* version : Candidates(problem.shape)) {
    EXPECT_EQ(FirstMismatch(Compute(problem, version), expected, kBf16Rounding, kAbsolute), "")
        << Name(version) << ": " << Describe(problem);
  }
}

// The first element whose bits differ; empty when none does.
std::string FirstDifference(const bf16* actual, const bf16* expected, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(bf16)) != 0) {
      return StrCat("element ", i, " of ", size, ": ", ToDouble(actual[i]), " and ",
                    ToDouble(expected[i]));
    }
  }
  return "";
}

// --- First steps: the two exercises, on inputs that one can follow by hand.

using Matrix = std::vector<std::vector<double>>;

std::vector<double> Flat(const Matrix& matrix) {
  std::vector<double> flat;
  for (const std::vector<double>& row : matrix) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

std::vector<bf16> ToBf16(const std::vector<double>& numbers) {
  std::vector<bf16> values;
  for (double number : numbers) values.push_back(__float2bfloat16(static_cast<float>(number)));
  return values;
}

// One head, one sequence, which ends with the last of the queries.
Problem OneHead(const Matrix& q, const Matrix& k, const Matrix& v, float scale) {
  Problem problem;
  const int head_dim = q[0].size();
  problem.shape = {1, 1, head_dim, scale};
  problem.sequences = {{static_cast<int>(q.size()), static_cast<int>(k.size())}};
  problem.q_stride = problem.kv_stride = head_dim;
  problem.q = ToBf16(Flat(q));
  problem.k = ToBf16(Flat(k));
  problem.v = ToBf16(Flat(v));
  return problem;
}

// Row r: the sum of weights[r][j] * v[j], divided by divisors[r].
std::vector<double> Average(const Matrix& weights, const Matrix& v,
                            const std::vector<double>& divisors) {
  std::vector<double> output;
  for (size_t r = 0; r < weights.size(); ++r) {
    for (size_t i = 0; i < v[0].size(); ++i) {
      double sum = 0;
      for (size_t j = 0; j < v.size(); ++j) sum += weights[r][j] * v[j][i];
      output.push_back(sum / divisors[r]);
    }
  }
  return output;
}

constexpr char kByHand[] = "docs/07_attention.md#by-hand";
constexpr char kLargest[] = "docs/07_attention.md#why-subtract-the-largest";
constexpr char kFused[] = "docs/07_attention.md#version-2-the-scores-stay-on-the-chip";

// What version 1 makes of one row of scores, of one query, which sees them all: the softmax, and
// what the usual mistakes in ExponentiateRow give.
Guide SoftmaxGuide(const std::vector<double>& scores, const Matrix& v) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  const double size = scores.size();
  std::vector<double> exponentials, reversed, differences, ones(scores.size(), 1);
  double sum = 0, sum_of_scores = 0;
  for (double score : scores) {
    exponentials.push_back(std::exp(score - largest));
    reversed.push_back(std::exp(largest - score));
    differences.push_back(score - largest);
    sum += exponentials.back();
    sum_of_scores += score;
  }
  const auto Gives = [&](const std::vector<double>& row, double divisor) {
    return Average({row}, v, {divisor});
  };
  return Guide(kByHand)
      .Start(
          "write ExponentiateRow in lessons/07_attention/exercise/attention.cu; begin with its "
          "second half, as if the largest score were 0: expf of each score, and their sum",
          Gives(scores, 1))
      .Mistake(
          "each lane divided by the exponential of its own score: WarpSum gives all lanes the "
          "sum of all",
          Gives(ones, 1))
      .Mistake(
          "each lane subtracted its own score, so that all weights are the same: WarpMax "
          "gives all lanes the largest of the row",
          Gives(ones, size))
      .Mistake(
          "the sum is right, but the scores in the row are still scores: each must be "
          "replaced by its exponential",
          Gives(scores, sum))
      .Mistake(
          "the largest score was found and returned; what is missing is the second half, the "
          "exponentials and their sum",
          Gives(scores, largest))
      .Mistake("the largest was subtracted, but expf is missing", Gives(differences, sum))
      .Mistake("the exponentials are right, but 1 was returned in place of their sum",
               Gives(exponentials, 1))
      .Mistake("the exponentials are right, but the largest was returned in place of their sum",
               Gives(exponentials, largest))
      .Mistake("what was returned is the sum of the scores; it must be that of the exponentials",
               Gives(exponentials, sum_of_scores))
      .Mistake("the row was divided twice: return the sum and leave the division to the kernel",
               Gives(exponentials, sum * sum))
      .Mistake(
          "the smallest score got the largest weight: subtract the largest from the score, "
          "not the score from the largest",
          Gives(reversed, std::accumulate(reversed.begin(), reversed.end(), 0.0)));
}

std::vector<double> Weights(const std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  double sum = 0;
  for (double score : scores) sum += std::exp(score - largest);
  for (double score : scores) weights.push_back(std::exp(score - largest) / sum);
  return weights;
}

const Matrix kUnitVectors = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};

// Three keys; the values are unit vectors, so that the output shows the weights.
testing::AssertionResult CheckSoftmax(const Matrix& q, const Matrix& k, float scale,
                                      const std::string& nan_cause) {
  std::vector<double> scores;
  for (const std::vector<double>& key : k) {
    scores.push_back(scale * std::inner_product(key.begin(), key.end(), q[0].begin(), 0.0));
  }
  return SoftmaxGuide(scores, kUnitVectors)
      .Input("q", q[0])
      .Input("k", Flat(k), 4)
      .Input("scale", scale)
      .Input("scores", scores)
      .Input("v", Flat(kUnitVectors), 4)
      .Mistake(nan_cause, Average({{NAN, NAN, NAN}}, kUnitVectors, {1}), kLargest)
      .Otherwise(
          "the three numbers must be the weights of the three scores: compute them as the "
          "page does, column by column")
      .Compare([&] { return Compute(OneHead(q, k, kUnitVectors, scale), &kAttentionVersions[0]); },
               Average({Weights(scores)}, kUnitVectors, {1}), kBf16Rounding, kAbsolute, 4);
}

constexpr char kNotANumber[] = "not a number: something was divided by 0, or was never written";
constexpr char kOverflow[] =
    "expf of more than 88 is infinite, and infinity divided by infinity is not a number: subtract "
    "the row's largest score from each first";
constexpr char kBeganAtZero[] =
    "all exponentials became 0, and 0 / 0 is not a number: the search for the largest must not "
    "begin at 0, which no score here reaches, but at minus infinity";

TEST(AttentionFirstSteps, TheThreeWeightsOfThePage) {
  EXPECT_TRUE(
      CheckSoftmax({{1, 2, 0, 1}}, {{1, 1, 0, 1}, {0, 1, 3, 0}, {-1, 0, 1, 1}}, 0.5f, kNotANumber));
}

TEST(AttentionFirstSteps, ScoresAboveAThousand) {
  EXPECT_TRUE(
      CheckSoftmax({{128, 1, 0, 0}}, {{8, 2, 0, 0}, {8, 1, 0, 0}, {8, 0, 0, 0}}, 1, kOverflow));
}

TEST(AttentionFirstSteps, ScoresBelowMinusAThousand) {
  EXPECT_TRUE(CheckSoftmax({{128, 1, 0, 0}}, {{-8, 2, 0, 0}, {-8, 1, 0, 0}, {-8, 0, 0, 0}}, 1,
                           kBeganAtZero));
}

// More scores than a warp has lanes.
testing::AssertionResult CheckARowLongerThanAWarp() {
  constexpr int kKeys = 100;
  const Matrix q = {{1, 0, 0, 0}};
  std::vector<double> scores(kKeys, -96);
  scores[70] = 1;
  scores[71] = 0;
  Matrix k, v;
  for (int j = 0; j < kKeys; ++j) {
    k.push_back({scores[j], 0, 0, 0});
    v.push_back({j == 70 ? 1.0 : 0, j == 71 ? 1.0 : 0, j != 70 && j != 71 ? 1.0 : 0, 0});
  }
  // Each lane took its first element alone: 0 less than the largest of these.
  std::vector<double> one_a_lane = scores;
  std::fill_n(one_a_lane.begin(), kWarpSize, 1);
  return SoftmaxGuide(scores, v)
      .Input("scores", "100 of them: number 70 is 1, number 71 is 0, all others are -96")
      .Input("v", "(1, 0, 0, 0) of key 70, (0, 1, 0, 0) of key 71, (0, 0, 1, 0) of all others")
      .Mistake(
          "each lane looked at one score only: a row can be longer than a warp, so it goes "
          "on with the one kWarpSize further, in a loop",
          Average({one_a_lane}, v, {static_cast<double>(kWarpSize)}))
      .Mistake(
          "expf became infinite: the largest of the row was not found, because it stands "
          "where no lane looked for it",
          {NAN, NAN, NAN, NAN}, kLargest)
      .Otherwise(
          "lane l has the elements l, l + kWarpSize, l + 2 kWarpSize and so on, in the "
          "search for the largest as in the sum")
      .Compare([&] { return Compute(OneHead(q, k, v, 1), &kAttentionVersions[0]); },
               Average({Weights(scores)}, v, {1}), kBf16Rounding, kAbsolute);
}

TEST(AttentionFirstSteps, ARowLongerThanAWarp) { EXPECT_TRUE(CheckARowLongerThanAWarp()); }

// Version 4, whose tile holds all three queries: query r sees the values 0 to r.
testing::AssertionResult CheckThreeQueriesShareATileOfValues() {
  const std::vector<double> one = {1, 0, 0, 0, 0, 0, 0, 0};
  const Matrix q = {one, one, one};
  const std::vector<double> scores = {0.5, 1.5, 2};
  Matrix k(3, std::vector<double>(8));
  for (int j = 0; j < 3; ++j) k[j][0] = scores[j];
  const Matrix v = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {10, 20, 30, 40, 50, 60, 70, 80}, {100, 0, 100, 0, 100, 0, 100, 0}};
  // What `weights` holds by then, whose rows are three apart: eight of them, of which the queries
  // fill three. What a row may not see is still a score.
  Matrix held(3, scores), seen(3, std::vector<double>(3));
  std::vector<double> sums(3);
  for (int r = 0; r < 3; ++r) {
    for (int j = 0; j <= r; ++j) {
      seen[r][j] = held[r][j] = std::exp(scores[j] - scores[r]);
      sums[r] += seen[r][j];
    }
  }
  std::vector<double> memory = Flat(held);
  memory.resize(8 * 3);
  const auto Where = [&](auto weight) {
    Matrix weights(3, std::vector<double>(3));
    for (int r = 0; r < 3; ++r) {
      for (int j = 0; j < 3; ++j) weights[r][j] = weight(r, j);
    }
    return Average(weights, v, sums);
  };
  const auto Elements = [&](auto element) {
    std::vector<double> output;
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < 8; ++i) output.push_back(element(r, i) / sums[r]);
    }
    return output;
  };
  constexpr char kMask[] = "docs/07_attention.md#the-causal-mask";
  return Guide(kFused)
      .Input("v", Flat(v), 8)
      .Input("weights", Flat(held), 3)
      .Input("visible", {1, 2, 3})
      .Start(
          "write the loops in SumValues, in lessons/07_attention/exercise/attention.cu: "
          "begin with row r = 0 alone, its weight times the eight elements of `value`",
          std::vector<double>(24, 0))
      .Mistake("only row 0 has its average: each of the kRows rows wants this value",
               Where([&](int r, int j) { return r == 0 ? seen[r][j] : 0; }))
      .Mistake(
          "the mask is missing: row r must leave out the values from visible[r] on, where "
          "`weights` holds no weights",
          Where([&](int r, int j) { return held[r][j]; }), kMask)
      .Mistake(
          "the mask is off by one: row r may see the values below visible[r], and not "
          "that one as well",
          Where([&](int r, int j) { return j <= r + 1 ? held[r][j] : 0; }), kMask)
      .Mistake(
          "the mask is off by one: row r sees its own value too, the one before "
          "visible[r]",
          Where([&](int r, int j) { return j < r ? held[r][j] : 0; }), kMask)
      .Mistake("the mask is the wrong way round: row r sees the values below visible[r]",
               Where([&](int r, int j) { return j > r ? held[r][j] : 0; }), kMask)
      .Mistake(
          "every row got the weights of row 0: those of row r begin weight_stride times r "
          "elements further",
          Where([&](int r, int j) { return j <= r ? held[0][j] : 0; }))
      .Mistake(
          "the weights were read by columns; they lie by rows: those of row r are side by "
          "side, weight_stride elements a row",
          Where([&](int r, int j) { return j <= r ? memory[3 * j + r] : 0; }))
      .Mistake(
          "the weights were read kRows apart, as the queries lie; those of row r lie side by side, "
          "from weight_stride times r on",
          Where([&](int r, int j) { return j <= r ? memory[8 * j + r] : 0; }))
      .Mistake("the weight is missing: each value went in whole",
               Where([&](int r, int j) { return j <= r ? 1 : 0; }))
      .Mistake("the weights were added up, without the values they belong to",
               std::vector<double>(24, 1))
      .Mistake("every element got value[r], the row's number; element i needs value[i]",
               Elements([&](int r, int) {
                 double sum = 0;
                 for (int j = 0; j <= r; ++j) sum += seen[r][j] * v[j][r];
                 return sum;
               }))
      .Mistake("row and element are exchanged: sums[r][i] belongs to row r and element i",
               Elements([&](int r, int i) {
                 double sum = 0;
                 for (int j = 0; i < 3 && j <= i; ++j) sum += seen[i][j] * v[j][r];
                 return sum;
               }))
      .Otherwise(
          "each row of the answer is the sum of the values that it sees, each times its "
          "weight, and then divided (WriteOutput does that) by the sum of the weights")
      .Compare([&] { return Compute(OneHead(q, k, v, 1), &kAttentionVersions[3]); },
               Where([&](int r, int j) { return seen[r][j]; }), kBf16Rounding, kAbsolute, 8);
}

TEST(AttentionFirstSteps, ThreeQueriesShareATileOfValues) {
  EXPECT_TRUE(CheckThreeQueriesShareATileOfValues());
}

// Of 64 elements a row, 16 values are worked on at a time, so that one thread gets several.
testing::AssertionResult CheckMoreValuesThanThreadsForThem() {
  constexpr int kKeys = 40, kSlots = 16, kHeadDim = 64;
  Matrix q(1, std::vector<double>(kHeadDim)), k(kKeys, std::vector<double>(kHeadDim)), v;
  q[0][0] = 1;
  double sum = 0, of_values = 0, last_of_each_slot = 0, first_of_each_slot = 0;
  const auto Weight = [](int j) { return std::exp(j < kSlots ? 0.0 : 1.0); };
  for (int j = 0; j < kKeys; ++j) {
    k[j][0] = j < kSlots ? 0 : 1;
    v.emplace_back(kHeadDim, j);
    sum += Weight(j);
    of_values += Weight(j) * j;
    if (j + kSlots >= kKeys) last_of_each_slot += Weight(j) * j;
    first_of_each_slot += Weight(j % kSlots) * j;
  }
  const auto All = [&](double total) { return std::vector<double>(kHeadDim, total / sum); };
  return Guide(kFused)
      .Input("scores", "40 of them: 0 of the keys 0 to 15, 1 of the others")
      .Input("v", "64 elements each: all 0 of key 0, all 1 of key 1, ... all 39 of key 39")
      .Mistake("a thread kept only the last of its values: it must add to sums[r][i], not set it",
               All(last_of_each_slot))
      .Mistake("value j got the weight of the first in its slot: element j of the row is its own",
               All(first_of_each_slot))
      .Otherwise(
          "the answer is the sum of all values, each times e to its score, divided by the "
          "sum of these")
      .Compare([&] { return Compute(OneHead(q, k, v, 1), &kAttentionVersions[3]); }, All(of_values),
               kBf16Rounding, kAbsolute);
}

TEST(AttentionFirstSteps, MoreValuesThanThreadsForThem) {
  EXPECT_TRUE(CheckMoreValuesThanThreadsForThem());
}

// --- All versions, and the function that the engine calls.

TEST(AttentionTest, RandomShapesMatchTheFormula) {
  Random random(7);
  const int head_dims[] = {8, 16, 32, 64, 80, 96, 128, 256};
  const int groups[] = {1, 2, 3, 4, 8};
  for (int round = 0; round < 40; ++round) {
    std::vector<Lengths> sequences(random.Integer(1, 4));
    for (Lengths& lengths : sequences) {
      lengths.queries = random.Integer(1, 24);
      lengths.keys = lengths.queries + (random.Integer(0, 1) ? random.Integer(0, 90) : 0);
    }
    const AttentionShape shape =
        MakeShape(random.Integer(1, 2), groups[round % 5], head_dims[round % 8]);
    ExpectMatchesReference(RandomProblem(random, shape, sequences));
  }
}

TEST(AttentionTest, WidthsThatAreNoMultipleOfEight) {
  Random random(8);
  for (const int head_dim : {1, 12, 33, 264}) {
    Problem problem = RandomProblem(random, MakeShape(2, 3, head_dim), {{5, 5}, {1, 9}});
    ExpectMatchesReference(problem);
  }
}

TEST(AttentionTest, OneToken) {
  Random random(9);
  for (const int head_dim : {32, 64, 128}) {
    const Problem problem = RandomProblem(random, MakeShape(2, 4, head_dim), {{1, 1}});
    // The softmax of one score is 1, so the answer is the value itself, bit for bit.
    for (const AttentionVersion* version : Candidates(problem.shape)) {
      const std::vector<bf16> output = Compute(problem, version);
      for (int head = 0; head < problem.shape.num_heads; ++head) {
        EXPECT_EQ(FirstDifference(&output[head * head_dim],
                                  &problem.v[problem.KvHead(head) * head_dim], head_dim),
                  "")
            << Name(version) << ", head " << head;
      }
    }
  }
}

TEST(AttentionTest, AThousandAndTwentyFiveTokens) {
  Random random(10);
  ExpectMatchesReference(RandomProblem(random, MakeShape(1, 1, 64), {{1025, 1025}}));
  ExpectMatchesReference(RandomProblem(random, MakeShape(1, 8, 128), {{3, 1025}, {1, 1024}}));
}

TEST(AttentionTest, EmptyBatchAndEmptySequences) {
  Random random(11);
  ExpectMatchesReference(RandomProblem(random, MakeShape(2, 2, 32), {}));
  ExpectMatchesReference(RandomProblem(random, MakeShape(2, 2, 32), {{0, 0}, {0, 4}}));
  ExpectMatchesReference(
      RandomProblem(random, MakeShape(2, 3, 32), {{0, 5}, {3, 3}, {0, 0}, {4, 9}}));
}

TEST(AttentionTest, AQueryThatSeesNoKeyGivesZeros) {
  Random random(12);
  for (const std::vector<Lengths>& sequences :
       {std::vector<Lengths>{{7, 3}, {2, 2}}, {{4, 0}}, {{1, 0}, {20, 1}}}) {
    const Problem problem = RandomProblem(random, MakeShape(2, 3, 64), sequences);
    ExpectMatchesReference(problem);
    const int row = problem.shape.num_heads * problem.shape.head_dim;
    const int blind = sequences[0].queries - sequences[0].keys;
    for (const AttentionVersion* version : Candidates(problem.shape)) {
      const std::vector<bf16> output = Compute(problem, version);
      for (int i = 0; i < blind * row; ++i) {
        ASSERT_EQ(ToDouble(output[i]), 0) << Name(version) << ", element " << i;
      }
    }
  }
}

TEST(AttentionTest, ScoresOfMinusSixtyThousandGiveTheMean) {
  Random random(13);
  Problem problem = RandomProblem(random, MakeShape(1, 2, 64), {{40, 40}});
  std::fill(problem.q.begin(), problem.q.end(), __float2bfloat16(80));
  std::fill(problem.k.begin(), problem.k.end(), __float2bfloat16(-96));  // 64 * 80 * -96 / 8
  ExpectMatchesReference(problem);
  const std::vector<bf16> output = Compute(problem, nullptr);
  for (int d = 0; d < 64; ++d) {
    double mean = 0;
    for (int j = 0; j < 40; ++j) mean += ToDouble(problem.v[j * problem.kv_stride + d]) / 40;
    EXPECT_NEAR(ToDouble(output[39 * 2 * 64 + d]), mean,
                kBf16Rounding * std::abs(mean) + kAbsolute);
  }
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  Random random(14);
  Problem problem = RandomProblem(random, MakeShape(2, 2, 32), {{30, 30}});
  for (bf16& element : problem.q) element = __float2bfloat16(300 * ToDouble(element));
  // Scores of thousands: an error of 1e-7 of them moves a weight by 1e-3.
  const std::vector<double> expected = Reference(problem);
  for (const AttentionVersion* version : Candidates(problem.shape)) {
    EXPECT_EQ(FirstMismatch(Compute(problem, version), expected, kBf16Rounding, 5e-3), "")
        << Name(version);
  }
}

TEST(AttentionTest, LaterKeysChangeNothing) {
  Random random(15);
  const Problem problem = RandomProblem(random, MakeShape(2, 3, 64), {{50, 50}});
  const int row = problem.shape.num_heads * problem.shape.head_dim;
  for (const AttentionVersion* version : Candidates(problem.shape)) {
    const std::vector<bf16> before = Compute(problem, version);
    for (const int first_changed : {1, 7, 33, 49}) {
      Problem changed = problem;
      for (size_t i = first_changed * problem.kv_stride; i < changed.k.size(); ++i) {
        changed.k[i] = changed.v[i] = __float2bfloat16(NAN);
      }
      const std::vector<bf16> after = Compute(changed, version);
      EXPECT_EQ(FirstDifference(after.data(), before.data(), first_changed * row), "")
          << Name(version) << ", keys changed from " << first_changed;
      EXPECT_TRUE(std::isnan(ToDouble(after[first_changed * row]))) << Name(version);
    }
  }
}

// The part of a problem that is sequence s alone, with the last `queries` queries of its first
// `keys` keys.
Problem Alone(const Problem& problem, int s, int queries, int keys) {
  Problem alone = problem;
  alone.sequences = {{queries, keys}};
  alone.slot_keys = 0;
  const Lengths lengths = problem.sequences[s];
  const int first_query =
      problem.QueryOffsets()[s] + lengths.queries - lengths.keys + keys - queries;
  const int first_key = problem.KvOffsets()[s];
  const auto rows = [](const std::vector<bf16>& matrix, int first, int count, int64_t stride) {
    return std::vector<bf16>(matrix.begin() + first * stride,
                             matrix.begin() + (first + count) * stride);
  };
  alone.q = rows(problem.q, first_query, queries, problem.q_stride);
  alone.k = rows(problem.k, first_key, keys, problem.kv_stride);
  alone.v = rows(problem.v, first_key, keys, problem.kv_stride);
  return alone;
}

TEST(AttentionTest, AloneAndInACrowdAreTheSameBits) {
  Random random(16);
  for (const int group : {1, 2, 3, 4, 8}) {
    const Problem crowd = RandomProblem(random, MakeShape(2, group, 64),
                                        {{9, 9}, {1, 70}, {33, 33}, {1, 1}, {5, 64}});
    const int row = crowd.shape.num_heads * crowd.shape.head_dim;
    for (const AttentionVersion* version : Candidates(crowd.shape)) {
      const std::vector<bf16> together = Compute(crowd, version);
      for (size_t s = 0; s < crowd.sequences.size(); ++s) {
        const Lengths lengths = crowd.sequences[s];
        const std::vector<bf16> alone =
            Compute(Alone(crowd, s, lengths.queries, lengths.keys), version);
        EXPECT_EQ(
            FirstDifference(alone.data(), &together[crowd.QueryOffsets()[s] * row], alone.size()),
            "")
            << Name(version) << ", group " << group << ", sequence " << s;
      }
    }
  }
}

TEST(AttentionTest, PrefillChunksAndDecodeAreTheSameBits) {
  Random random(17);
  for (const int head_dim : {32, 64, 128}) {
    const Problem prefill = RandomProblem(random, MakeShape(1, 3, head_dim), {{150, 150}});
    const int row = prefill.shape.num_heads * head_dim;
    for (const AttentionVersion* version : Candidates(prefill.shape)) {
      const std::vector<bf16> all = Compute(prefill, version);
      for (const Lengths part : {Lengths{1, 1}, {1, 2}, {1, 64}, {1, 149}, {1, 150}, {17, 60}}) {
        const std::vector<bf16> later =
            Compute(Alone(prefill, 0, part.queries, part.keys), version);
        EXPECT_EQ(
            FirstDifference(later.data(), &all[(part.keys - part.queries) * row], later.size()), "")
            << Name(version) << ", head_dim " << head_dim << ", " << part.queries << " queries of "
            << part.keys << " keys";
      }
    }
  }
}

TEST(AttentionTest, TheFusedVersionsAreTheSameBits) {
  Random random(18);
  for (const int group : {1, 2, 3, 4, 8, 12}) {
    const Problem problem =
        RandomProblem(random, MakeShape(1, group, 64), {{19, 40}, {1, 100}, {3, 3}});
    const std::vector<bf16> engine = Compute(problem, nullptr);
    for (int v = 1; v < kNumAttentionVersions; ++v) {
      const std::vector<bf16> output = Compute(problem, &kAttentionVersions[v]);
      EXPECT_EQ(FirstDifference(output.data(), engine.data(), engine.size()), "")
          << Name(&kAttentionVersions[v]) << ", group " << group;
    }
  }
}

TEST(AttentionTest, ACacheWithRoomToGrow) {
  Random random(19);
  Problem problem = RandomProblem(random, MakeShape(2, 2, 64), {{1, 12}, {1, 30}, {4, 7}}, 32);
  // Nothing has been written behind the keys that count.
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const size_t begin = (problem.KvOffsets()[s] + problem.sequences[s].keys) * problem.kv_stride;
    const size_t end = problem.KvOffsets()[s + 1] * problem.kv_stride;
    for (size_t i = begin; i < end; ++i) problem.k[i] = problem.v[i] = __float2bfloat16(NAN);
  }
  ExpectMatchesReference(problem);
}

// The longest row whose scores still fit into shared memory, and the first that does not.
TEST(AttentionTest, RowsTooLongForSharedMemory) {
  const AttentionShape shape = MakeShape(1, 2, 32);
  int fits = 1024, too_long = 1 << 20;
  ASSERT_EQ(AttentionWorkspaceBytes(shape, 2, fits), 0u);
  ASSERT_GT(AttentionWorkspaceBytes(shape, 2, too_long), 0u);
  while (too_long - fits > 1) {
    const int middle = (fits + too_long) / 2;
    (AttentionWorkspaceBytes(shape, 2, middle) == 0 ? fits : too_long) = middle;
  }
  Random random(20);
  for (const int keys : {fits, too_long}) {
    const Problem problem = RandomProblem(random, shape, {{2, keys}});
    ExpectMatchesReference(problem);
    // One and the same sequence, first with its scores in shared memory, then in the workspace.
    if (keys != too_long) continue;
    const Problem shorter = Alone(problem, 0, 1, keys - 1);
    EXPECT_EQ(FirstDifference(Compute(shorter, nullptr).data(), Compute(problem, nullptr).data(),
                              shape.num_heads * shape.head_dim),
              "");
  }
}

// The rows that count begin 2^32 elements behind the pointer; nothing lies before them.
TEST(AttentionTest, OffsetsBeyondTwoToThe31) {
  Random random(21);
  const Problem problem = RandomProblem(random, MakeShape(2, 2, 64), {{3, 20}});
  const std::vector<double> expected = Reference(problem);
  const int first_row = static_cast<int>((int64_t{1} << 32) / problem.kv_stride);
  DeviceBuffer<bf16> q(problem.q), k(problem.k), v(problem.v), output(expected.size());
  DeviceBuffer<int> query_offsets(std::vector<int>{0, 3});
  DeviceBuffer<int> kv_offsets(std::vector<int>{first_row, first_row + 20});
  const auto before = [&](const bf16* rows) {
    return reinterpret_cast<const bf16*>(reinterpret_cast<uintptr_t>(rows) -
                                         sizeof(bf16) * first_row * problem.kv_stride);
  };
  const AttentionBatch batch{1, 3, 3, 20, query_offsets.data(), kv_offsets.data()};
  const AttentionTensors tensors{q.data(),         before(k.data()),  before(v.data()),
                                 problem.q_stride, problem.kv_stride, output.data()};
  for (const AttentionVersion& version : kAttentionVersions) {
    output.Fill(kPoison);
    DeviceBuffer<char> workspace(version.workspace_bytes(problem.shape, 3, 20));
    version.launch(problem.shape, batch, tensors, workspace.data(), workspace.bytes(), nullptr);
    EXPECT_EQ(FirstMismatch(output.ToHost(), expected, kBf16Rounding, kAbsolute), "")
        << Name(&version);
  }
}

template <typename T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const TensorView* tensor = file.Find(name);
  Check(tensor != nullptr, "the fixture has no tensor ", name);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// Queries, keys and values of the bundled model as transformers computed them in bf16, through our
// kernels: no further from its f32 run than 1.25 times what its own bf16 attention is.
TEST(AttentionTest, LayersOfTheBundledModelMatchTransformers) {
  const SafetensorsFile fixture(DataPath("tests/fixtures/pocket_sum.safetensors"));
  for (const std::string layer : {"layers.0.", "layers.5."}) {
    Problem problem;
    problem.shape = MakeShape(2, 2, 64);
    problem.q_stride = 256;
    problem.kv_stride = 128;
    problem.q = Values<bf16>(fixture, layer + "q_rope.bf16");
    problem.k = Values<bf16>(fixture, layer + "k_rope.bf16");
    problem.v = Values<bf16>(fixture, layer + "v.bf16");
    const int tokens = static_cast<int>(problem.q.size() / problem.q_stride);
    problem.sequences = {{tokens, tokens}};
    ExpectMatchesReference(problem);

    const std::vector<float> expected = Values<float>(fixture, layer + "attention.f32");
    const double theirs = RelativeError(Values<bf16>(fixture, layer + "attention.bf16"), expected);
    for (const AttentionVersion* version : Candidates(problem.shape)) {
      EXPECT_LE(RelativeError(Compute(problem, version), expected), 1.25 * theirs)
          << Name(version) << ", " << layer;
    }
  }
}

// The message of the Error that `call` throws; empty when it throws none.
template <typename Call>
std::string ErrorOf(Call call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(AttentionTest, BadCallsAreNamed) {
  Random random(22);
  const Problem good = RandomProblem(random, MakeShape(2, 2, 64), {{2, 2}});
  Problem problem = good;
  problem.shape.num_kv_heads = 3;
  EXPECT_NE(ErrorOf([&] { Compute(problem, nullptr); }).find("4 heads cannot be divided among 3"),
            std::string::npos);
  problem = good;
  problem.kv_stride = 64;
  EXPECT_NE(ErrorOf([&] { Compute(problem, nullptr); }).find("overlap"), std::string::npos);
  problem = good;
  problem.q_stride += 1;
  problem.q.resize(2 * problem.q_stride);
  EXPECT_NE(ErrorOf([&] { Compute(problem, &kAttentionVersions[1]); }).find("multiples of 8"),
            std::string::npos);
  AttentionVersion no_workspace = kAttentionVersions[0];
  no_workspace.workspace_bytes = [](const AttentionShape&, int, int) { return size_t{8}; };
  EXPECT_NE(ErrorOf([&] { Compute(good, &no_workspace); }).find("a workspace of 8 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace tinyvllm
