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
