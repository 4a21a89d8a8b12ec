// Checks of lesson 13's kernels: every version against the formula in f64, against lesson 07 over
// the same keys in one piece, and against itself in other company, other chunks and other pages.
#include "lessons/13_paged_attention/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {
namespace {

constexpr int kPoison = 0xff;  // NaN in every bf16 and f32

struct Lengths {
  int queries;
  int keys;
};

// A batch on the host: the keys of each sequence in order, and the blocks that they shall lie in.
struct Problem {
  AttentionShape shape;
  std::vector<Lengths> sequences;
  int block_size = 16;
  int num_blocks = 0;
  int64_t q_stride = 0;
  std::vector<std::vector<int>> tables;  // (sequences)
  std::vector<bf16> q;                   // (queries, q_stride)
  std::vector<std::vector<bf16>> k, v;   // (sequences): (keys, num_kv_heads * head_dim)

  int KvWidth() const { return shape.num_kv_heads * shape.head_dim; }
  int OutWidth() const { return shape.num_heads * shape.head_dim; }
  int KvHead(int head) const { return head / (shape.num_heads / shape.num_kv_heads); }
  int NumQueries() const { return QueryOffsets().back(); }
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
  std::vector<int> KvLens() const {
    std::vector<int> lens;
    for (const Lengths& lengths : sequences) lens.push_back(lengths.keys);
    return lens;
  }
};

AttentionShape MakeShape(int num_kv_heads, int group, int head_dim) {
  return {num_kv_heads * group, num_kv_heads, head_dim,
          static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}

int BlocksOf(int keys, int block_size) { return (keys + block_size - 1) / block_size; }

// Other blocks for the same keys.
void ShuffleBlocks(Random& random, Problem* problem) {
  std::vector<int> blocks(problem->num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  size_t taken = 0;
  problem->tables.clear();
  for (const Lengths& lengths : problem->sequences) {
    std::vector<int> table;
    for (int i = 0; i < BlocksOf(lengths.keys, problem->block_size); ++i, ++taken) {
      std::swap(blocks[taken],
                blocks[random.Integer(static_cast<int>(taken), problem->num_blocks - 1)]);
      table.push_back(blocks[taken]);
    }
    problem->tables.push_back(table);
  }
}

Problem RandomProblem(Random& random, AttentionShape shape, std::vector<Lengths> sequences,
                      int block_size = 16) {
  Problem problem;
  problem.shape = shape;
  problem.sequences = sequences;
  problem.block_size = block_size;
  problem.q_stride = problem.OutWidth() + 8 * random.Integer(0, 3);
  problem.q.assign(problem.NumQueries() * problem.q_stride, __float2bfloat16(NAN));
  for (int i = 0; i < problem.NumQueries(); ++i) {
    const std::vector<bf16> row = random.Bf16(problem.OutWidth(), 2);
    std::copy(row.begin(), row.end(), problem.q.begin() + i * problem.q_stride);
  }
  problem.num_blocks = 3;
  for (const Lengths& lengths : sequences) {
    problem.k.push_back(random.Bf16(static_cast<size_t>(lengths.keys) * problem.KvWidth(), 2));
    problem.v.push_back(random.Bf16(static_cast<size_t>(lengths.keys) * problem.KvWidth(), 1));
    problem.num_blocks += BlocksOf(lengths.keys, block_size);
  }
  ShuffleBlocks(random, &problem);
  return problem;
}

// The formula, in f64.
std::vector<double> Reference(const Problem& problem) {
  const AttentionShape& shape = problem.shape;
  const std::vector<int> query_offsets = problem.QueryOffsets();
  std::vector<double> output(static_cast<size_t>(problem.NumQueries()) * problem.OutWidth());
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Lengths lengths = problem.sequences[s];
    for (int i = 0; i < lengths.queries; ++i) {
      const int visible = std::max(0, i + 1 + lengths.keys - lengths.queries);
      for (int head = 0; head < shape.num_heads; ++head) {
        const int column = problem.KvHead(head) * shape.head_dim;
        const int64_t query = query_offsets[s] + i;
        const bf16* q = &problem.q[query * problem.q_stride + head * shape.head_dim];
        double* out = &output[(query * shape.num_heads + head) * shape.head_dim];
        std::vector<double> weights(visible);
        double largest = -INFINITY, sum = 0;
        for (int j = 0; j < visible; ++j) {
          const bf16* k = &problem.k[s][j * problem.KvWidth() + column];
          for (int d = 0; d < shape.head_dim; ++d) weights[j] += ToDouble(q[d]) * ToDouble(k[d]);
          weights[j] *= shape.scale;
          largest = std::max(largest, weights[j]);
        }
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (int j = 0; j < visible; ++j) {
          const bf16* v = &problem.v[s][j * problem.KvWidth() + column];
          for (int d = 0; d < shape.head_dim; ++d) out[d] += weights[j] / sum * ToDouble(v[d]);
        }
      }
    }
  }
  return output;
}

// The pool as the kernels want it: NaN wherever no key lies.
std::vector<bf16> Pages(const Problem& problem, const std::vector<std::vector<bf16>>& rows) {
  const AttentionShape& shape = problem.shape;
  std::vector<bf16> pages(
      static_cast<size_t>(problem.num_blocks) * problem.block_size * problem.KvWidth(),
      __float2bfloat16(NAN));
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    for (int j = 0; j < problem.sequences[s].keys; ++j) {
      const size_t block = problem.tables[s][j / problem.block_size];
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const size_t row =
            (block * shape.num_kv_heads + head) * problem.block_size + j % problem.block_size;
        std::copy_n(&rows[s][j * problem.KvWidth() + head * shape.head_dim], shape.head_dim,
                    &pages[row * shape.head_dim]);
      }
    }
  }
  return pages;
}

// The start of a pool whose blocks from first_block on are `pages`. Nothing lies before them.
bf16* PoolAround(bf16* pages, const AttentionShape& shape, int block_size, int first_block) {
  return reinterpret_cast<bf16*>(reinterpret_cast<uintptr_t>(pages) -
                                 sizeof(bf16) * first_block * block_size * shape.num_kv_heads *
                                     shape.head_dim);
}

// What a version of the lesson makes of the problem; nullptr: what the engine's PagedAttention
// makes. Its blocks are those from first_block on of a larger pool.
std::vector<bf16> Compute(const Problem& problem, const PagedAttentionVersion* version,
                          int q_offset = 0, int first_block = 0) {
  const AttentionShape& shape = problem.shape;
  const bool tiles = version == nullptr || version->makes_tiles;
  std::vector<int> query_offsets = problem.QueryOffsets(), kv_lens = problem.KvLens();
  std::vector<int> table_offsets, tables;
  for (const std::vector<int>& table : problem.tables) {
    table_offsets.push_back(static_cast<int>(tables.size()));
    for (const int block : table) tables.push_back(first_block + block);
  }
  PagedWork work;
  work.Make(shape, static_cast<int>(problem.sequences.size()), query_offsets.data(), kv_lens.data(),
            table_offsets.data(), tiles);

  std::vector<bf16> q(q_offset);
  q.insert(q.end(), problem.q.begin(), problem.q.end());
  const DeviceBuffer<bf16> device_q(q);
  DeviceBuffer<bf16> k(Pages(problem, problem.k)), v(Pages(problem, problem.v));
  const DeviceBuffer<int> device_queries(query_offsets), device_lens(kv_lens);
  const DeviceBuffer<int> device_offsets(table_offsets), device_tables(tables);
  const DeviceBuffer<PagedSpan> spans(work.spans);
  const DeviceBuffer<PagedTile> device_tiles(work.tiles);
  DeviceBuffer<int> tickets(
      PagedAttentionTickets(shape, static_cast<int64_t>(work.spans.size()), problem.MaxKeys()));
  tickets.Fill(0);
  DeviceBuffer<bf16> output(static_cast<size_t>(problem.NumQueries()) * problem.OutWidth());
  output.Fill(kPoison);

  PagedAttentionBatch batch;
  batch.num_sequences = static_cast<int>(problem.sequences.size());
  batch.num_queries = problem.NumQueries();
  batch.max_kv_len = problem.MaxKeys();
  batch.query_offsets = device_queries.data();
  batch.kv_lens = device_lens.data();
  batch.table_offsets = device_offsets.data();
  batch.block_tables = device_tables.data();
  batch.spans = spans.data();
  batch.tiles = device_tiles.data();
  batch.num_spans = static_cast<int>(spans.size());
  batch.num_tiles = static_cast<int>(device_tiles.size());
  batch.tickets = tickets.data();
  PagedAttentionTensors tensors;
  tensors.q = device_q.data() + q_offset;
  tensors.q_stride = problem.q_stride;
  tensors.pages.k = PoolAround(k.data(), shape, problem.block_size, first_block);
  tensors.pages.v = PoolAround(v.data(), shape, problem.block_size, first_block);
  tensors.pages.num_blocks = first_block + problem.num_blocks;
  tensors.pages.block_size = problem.block_size;
  tensors.output = output.data();
  const auto workspace_bytes =
      version != nullptr ? version->workspace_bytes : PagedAttentionWorkspaceBytes;
  DeviceBuffer<char> workspace(workspace_bytes(shape, batch.num_spans, batch.max_kv_len));
  workspace.Fill(kPoison);
  const auto launch = version != nullptr ? version->launch : PagedAttention;
  launch(shape, batch, tensors, workspace.data(), workspace.bytes(), nullptr);
  for (const int ticket : tickets.ToHost()) EXPECT_EQ(ticket, 0);
  return output.ToHost();
}

std::vector<const PagedAttentionVersion*> Candidates(const AttentionShape& shape) {
  std::vector<const PagedAttentionVersion*> candidates = {nullptr};
  for (const PagedAttentionVersion& version : kPagedAttentionVersions) {
    if (version.supports(shape)) candidates.push_back(&version);
  }
  return candidates;
}

std::string Name(const PagedAttentionVersion* version) {
  return version == nullptr ? "PagedAttention" : StrCat("version ", version->number);
}

std::string Describe(const Problem& problem) {
  std::string text = StrCat(problem.shape.num_heads, " heads, ", problem.shape.num_kv_heads,
                            " KV heads, head_dim ", problem.shape.head_dim, ", blocks of ",
                            problem.block_size, ", queries/keys");
  for (const Lengths& lengths : problem.sequences) {
    text += StrCat(" ", lengths.queries, "/", lengths.keys);
  }
  return text;
}

// As in lesson 07's checks: one rounding to bf16; before it f32 sums of up to some thousand terms.
constexpr double kAbsolute = 3e-5;

void ExpectMatchesReference(const Problem& problem) {
  const std::vector<double> expected = Reference(problem);
  for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
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

std::string FirstDifference(const std::vector<bf16>& actual, const std::vector<bf16>& expected) {
  if (actual.size() != expected.size()) return "sizes differ";
  return FirstDifference(actual.data(), expected.data(), actual.size());
}

// --- First steps: the two exercises, on scores that are whole powers of two.

// Some keys of one row, seen from the softmax: a = sum of 2^(score - largest) * value.
struct Part {
  double largest, sum, a;
};

Part PartOf(const std::vector<double>& scores, const std::vector<double>& values) {
  Part part = {*std::max_element(scores.begin(), scores.end()), 0, 0};
  for (size_t j = 0; j < scores.size(); ++j) {
    part.sum += std::exp2(scores[j] - part.largest);
    part.a += std::exp2(scores[j] - part.largest) * values[j];
  }
  return part;
}

// One head, one query, with such scores to base 2 and values that are the same in all elements.
Problem OneRow(int head_dim, const std::vector<double>& scores, const std::vector<double>& values) {
  Problem problem;
  problem.shape = {1, 1, head_dim, std::log(2.0f)};
  const int keys = static_cast<int>(scores.size());
  problem.sequences = {{1, keys}};
  problem.num_blocks = BlocksOf(keys, problem.block_size);
  problem.tables.emplace_back();
  for (int block = problem.num_blocks - 1; block >= 0; --block) {
    problem.tables[0].push_back(block);
  }
  problem.q_stride = head_dim;
  problem.q.assign(head_dim, __float2bfloat16(0));
  problem.q[0] = __float2bfloat16(1);
  problem.k.emplace_back();
  problem.v.emplace_back();
  for (int j = 0; j < keys; ++j) {
    for (int d = 0; d < head_dim; ++d) {
      problem.k[0].push_back(__float2bfloat16(d == 0 ? static_cast<float>(scores[j]) : 0));
      problem.v[0].push_back(__float2bfloat16(static_cast<float>(values[j])));
    }
  }
  return problem;
}

// The row's element 0, or element d if that differs from it.
double OneElement(const std::vector<bf16>& output) {
  for (const bf16& element : output) {
    if (!(ToDouble(element) == ToDouble(output[0]))) return ToDouble(element);
  }
  return ToDouble(output[0]);
}

// What merging gives: how the sums shrink, how the softmax does, and which largest is kept.
struct MergeRules {
  using Factor = std::function<double(double whole, double part, double largest)>;
  static double WholeFactor(double whole, double, double largest) {
    return std::exp2(whole - largest);
  }
  static double PartFactor(double, double part, double largest) {
    return std::exp2(part - largest);
  }
  static double One(double, double, double) { return 1; }

  Factor whole_sum = WholeFactor, part_sum = PartFactor;  // of the sum of weights
  Factor whole_a = WholeFactor, part_a = PartFactor;      // as returned, of the weighted values
};

double Merged(const std::vector<Part>& parts, const MergeRules& rules = {}) {
  Part whole = {-INFINITY, 0, 0};
  for (const Part& part : parts) {
    const double largest = std::max(whole.largest, part.largest);
    const auto Factor = [&](const MergeRules::Factor& factor) {
      return factor(whole.largest, part.largest, largest);
    };
    whole.sum = whole.sum * Factor(rules.whole_sum) + part.sum * Factor(rules.part_sum);
    whole.a = whole.a * Factor(rules.whole_a) + part.a * Factor(rules.part_a);
    whole.largest = largest;
  }
  return whole.a / whole.sum;
}

constexpr char kTwoParts[] = "docs/13_paged_attention.md#two-parts-into-one";
constexpr char kPitfalls[] = "docs/13_paged_attention.md#pitfalls";
constexpr char kOneScore[] = "docs/13_paged_attention.md#one-score-at-a-time";

// Version 3 sums up parts of 32 keys, and merges them.
testing::AssertionResult CheckMerge(const std::vector<Part>& parts,
                                    const std::vector<double>& scores,
                                    const std::vector<double>& values, const std::string& keys) {
  const auto With = [&](auto change) {
    MergeRules rules;
    change(&rules);
    return Values(Merged(parts, rules));
  };
  Guide guide(kTwoParts);
  guide.Input("keys", keys);
  for (size_t i = 0; i < parts.size(); ++i) {
    guide.Input(StrCat("part ", i),
                StrCat("largest score ", parts[i].largest, ", sum of weights ", parts[i].sum,
                       ", sum of weights times values ", parts[i].a));
  }
  return guide
      .Mistake(
          "whole->sum is still 0, and everything is divided by it. If nothing is written yet: "
          "Merge in lessons/13_paged_attention/exercise/paged_attention.cu. Begin with the larger "
          "of both largest scores, and the two factors that exp2f(old - new) gives",
          INFINITY)
      .Mistake(
          "the last part alone counts: either the new largest score is not stored in "
          "whole->largest, or whole and part have each other's factors",
          parts.back().a / parts.back().sum)
      .Mistake(
          "whole->sum was set to the part's sum; it keeps its own, shrunk, and the part's comes "
          "on top",
          With([](MergeRules* rules) {
            rules->whole_sum = [](double, double, double) { return 0.0; };
          }))
      .Mistake(
          "the whole was not shrunk: its factor is exp2f(its old largest score - the new one), "
          "so do not overwrite the old one before",
          With([](MergeRules* rules) { rules->whole_sum = rules->whole_a = MergeRules::One; }))
      .Mistake("the part was not shrunk: it has its own factor, from its own largest score",
               With([](MergeRules* rules) { rules->part_sum = rules->part_a = MergeRules::One; }))
      .Mistake(
          "nothing shrinks: both sides' sums were added as they are, though they are measured "
          "against different largest scores",
          With([](MergeRules* rules) {
            rules->whole_sum = rules->part_sum = MergeRules::One;
            rules->whole_a = rules->part_a = MergeRules::One;
          }))
      .Mistake(
          "the sum of the weights shrinks, but the caller's sums of weights times values do "
          "not: return the two factors",
          With([](MergeRules* rules) { rules->whole_a = rules->part_a = MergeRules::One; }))
      .Mistake(
          "the factors are returned, but whole->sum was made without them",
          With([](MergeRules* rules) { rules->whole_sum = rules->part_sum = MergeRules::One; }))
      .Mistake(
          "the factors are returned the wrong way round: `whole` is that of what was there, "
          "`part` that of what is new",
          With([](MergeRules* rules) { std::swap(rules->whole_a, rules->part_a); }))
      .Mistake("powers of e; the scores here are to base 2: exp2f", With([&](MergeRules* rules) {
                 rules->whole_sum = rules->whole_a = [&](double whole, double, double largest) {
                   return std::exp(whole - largest);
                 };
                 rules->part_sum = rules->part_a = [&](double, double part, double largest) {
                   return std::exp(part - largest);
                 };
               }))
      .Mistake(
          "not a number. Either the exponents are new - old (it is old - new, never above 0, so "
          "that sums shrink and do not grow), or the larger of both largest scores was not taken",
          NAN)
      .Otherwise(
          "merge part 0 into a whole of no keys (largest -infinity, sum 0), then part 1, with "
          "a pencil, as the page does")
      .Compare(
          [&] {
            const Problem problem = OneRow(64, scores, values);
            return OneElement(Compute(problem, &kPagedAttentionVersions[2]));
          },
          Merged(parts), kBf16Rounding, kAbsolute);
}

// So many keys of one score and one value.
struct Run {
  int keys;
  double score, value;
};

testing::AssertionResult CheckMergeOf(const std::vector<Run>& runs, const std::string& keys) {
  std::vector<double> scores, values;
  std::vector<Part> parts;
  for (const Run& run : runs) {
    scores.insert(scores.end(), run.keys, run.score);
    values.insert(values.end(), run.keys, run.value);
    parts.push_back(
        PartOf(std::vector<double>(run.keys, run.score), std::vector<double>(run.keys, run.value)));
  }
  return CheckMerge(parts, scores, values, keys);
}

TEST(PagedAttentionFirstSteps, ALargerScoreComesLater) {
  EXPECT_TRUE(CheckMergeOf({{32, 0, 1}, {1, 5, 3}},
                           "0 to 31 with score 0 and value 1; 32 with score 5 and value 3"));
}

TEST(PagedAttentionFirstSteps, TheLargestScoreIsInTheMiddle) {
  EXPECT_TRUE(
      CheckMergeOf({{32, 1, 8}, {32, 3, 1}, {8, 2, 20}},
                   "0 to 31 with score 1 and value 8; 32 to 63 with score 3 and value 1; 64 "
                   "to 71 with score 2 and value 20"));
}

TEST(PagedAttentionFirstSteps, ScoresFarApart) {
  EXPECT_TRUE(CheckMergeOf({{32, 200, 1}, {1, 0, 3}},
                           "0 to 31 with score 200 and value 1; 32 with score 0 and value 3"));
}

// Version 2 with four groups: the first gets the keys 0, 4, 8 and 12, whose scores are those of the
// page. The other keys have next to no weight.
testing::AssertionResult CheckOnline() {
  constexpr double kNoWeight = -96;
  const std::vector<double> page_scores = {1, 3, 2, 5}, page_values = {10, 20, 300, 40};
  std::vector<double> scores(13, kNoWeight), values(13, 0);
  for (int i = 0; i < 4; ++i) {
    scores[4 * i] = page_scores[i];
    values[4 * i] = page_values[i];
  }
  constexpr char kPowersOfE[] = "powers of e; the scores here are to base 2: exp2f";
  struct Rules {
    bool shrinks_sum = true, shrinks_a = true, weighs_a = true, weighs_sum = true;
    bool shrinks_new = false, resets = false, adds_a = true, adds_sum = true;
    bool natural_shrink = false, natural_weight = false;
    bool skips_largest = false, only_largest = false, measured_from_zero = false;
  };
  const auto With = [&](auto change) {
    Rules rules;
    change(&rules);
    double m = -INFINITY, l = 0, a = 0;
    for (int i = 0; i < 4; ++i) {
      const double s = page_scores[i], next = std::max(m, s);
      if (rules.skips_largest && s > m && m > -INFINITY) {
        const double c = std::exp2(m - next);
        l *= c, a *= c, m = next;
        continue;
      }
      if (rules.only_largest && s <= m) continue;
      double c = rules.natural_shrink ? std::exp(m - next) : std::exp2(m - next);
      double w = rules.natural_weight ? std::exp(s - next) : std::exp2(s - next);
      if (rules.measured_from_zero) w = std::exp2(s);
      if (rules.resets && s > m) c = 0;
      if (rules.shrinks_new) w *= m == -INFINITY ? 1 : c;
      l = l * (rules.shrinks_sum ? c : 1) + (rules.adds_sum ? rules.weighs_sum ? w : 1 : 0);
      a = (rules.adds_a ? a : 0) * (rules.shrinks_a ? c : 1) +
          (rules.weighs_a ? w : 1) * page_values[i];
      m = next;
    }
    return Values(a / l);
  };
  return Guide(kOneScore)
      .Input("scores", page_scores)
      .Input("values", page_values)
      .Input(
          "they are",
          "the page's, but for the value 300, which is 30 there: so each mistake gives another "
          "number. They belong to the keys 0, 4, 8 and 12, which one group of lanes takes one by "
          "one; the keys between them have next to no weight")
      .Mistake(
          "not a number. If nothing is written yet: the update at \"Your turn\" in OnlineKernel, "
          "in lessons/13_paged_attention/exercise/paged_attention.cu; begin with the new largest "
          "score and the key's weight. Otherwise: softmax.largest does not get the new largest "
          "score, or the weight was measured against the old one, which is minus infinity at the "
          "first key",
          NAN)
      .Mistake(
          "nothing shrinks when a larger score comes: what was summed before was measured "
          "against a smaller one",
          With([](Rules* rules) { rules->shrinks_sum = rules->shrinks_a = false; }))
      .Mistake("only the sum of the weights shrinks: all of sum[c][i] must shrink as well",
               With([](Rules* rules) { rules->shrinks_a = false; }), kPitfalls)
      .Mistake("only sum[c][i] shrinks: softmax.sum must shrink as well",
               With([](Rules* rules) { rules->shrinks_sum = false; }), kPitfalls)
      .Mistake("the weight is missing at the values: add weight * value[c][i]",
               With([](Rules* rules) { rules->weighs_a = false; }))
      .Mistake("softmax.sum grew by 1 a key; it grows by the key's weight",
               With([](Rules* rules) { rules->weighs_sum = false; }))
      .Mistake("the new key's weight was shrunk too: only what was there before shrinks",
               With([](Rules* rules) { rules->shrinks_new = true; }))
      .Mistake(
          "when a larger score came, what was there before was thrown away; it shrinks, and "
          "stays",
          With([](Rules* rules) { rules->resets = true; }))
      .Mistake(kPowersOfE, With([](Rules* rules) { rules->natural_shrink = true; }))
      .Mistake(kPowersOfE, With([](Rules* rules) { rules->natural_weight = true; }))
      .Mistake(kPowersOfE,
               With([](Rules* rules) { rules->natural_shrink = rules->natural_weight = true; }))
      .Mistake("the weight is 2^score: it is measured against the largest score so far, as all are",
               With([](Rules* rules) { rules->measured_from_zero = true; }))
      .Mistake("softmax.sum has the weights, but nothing was added to sum[c][i]", 0.0)
      .Mistake("sum[c][i] was set, not added to", With([](Rules* rules) { rules->adds_a = false; }))
      .Mistake(
          "a key whose score is the largest so far shrinks what is there, and must then be "
          "added itself",
          With([](Rules* rules) { rules->skips_largest = true; }))
      .Mistake("a key whose score is not the largest so far was passed over; its weight counts too",
               With([](Rules* rules) { rules->only_largest = true; }))
      .Otherwise(
          "go down the table of the page, row by row: the largest score so far, the factor, "
          "the weight, the two sums")
      .Compare(
          [&] {
            const Problem problem = OneRow(256, scores, values);
            return OneElement(Compute(problem, &kPagedAttentionVersions[1]));
          },
          With([](Rules*) {}), kBf16Rounding, kAbsolute);
}

TEST(PagedAttentionFirstSteps, TheFourScoresOfThePage) { EXPECT_TRUE(CheckOnline()); }

// --- All versions, and the function that the engine calls.

TEST(PagedAttentionTest, RandomShapesMatchTheFormula) {
  Random random(1301);
  const int head_dims[] = {32, 64, 128};
  const int groups[] = {1, 2, 3, 4, 7, 8, 11};
  const int block_sizes[] = {16, 1, 8, 5, 32, 300};
  for (int round = 0; round < 14; ++round) {
    std::vector<Lengths> sequences(random.Integer(1, 4));
    for (Lengths& lengths : sequences) {
      lengths.queries = random.Integer(0, 1) ? 1 : random.Integer(2, 40);
      lengths.keys = lengths.queries + (random.Integer(0, 1) ? random.Integer(0, 130) : 0);
    }
    ExpectMatchesReference(RandomProblem(
        random, MakeShape(random.Integer(1, 2), groups[round % 7], head_dims[round % 3]), sequences,
        block_sizes[round % 6]));
  }
}

TEST(PagedAttentionTest, AnyOtherHeadDim) {
  Random random(1302);
  for (const int head_dim : {1, 6, 8, 12, 16, 80, 96, 256, 264, 1024}) {
    ExpectMatchesReference(
        RandomProblem(random, MakeShape(2, 3, head_dim), {{5, 5}, {1, 70}, {2, 41}}, 4));
  }
  const Problem wide = RandomProblem(random, MakeShape(1, 1, 1032), {{1, 2}});
  EXPECT_THROW(Compute(wide, nullptr), Error);
}

TEST(PagedAttentionTest, QueriesAtAnyAddress) {
  Random random(1303);
  Problem problem = RandomProblem(random, MakeShape(2, 2, 64), {{1, 40}, {3, 9}});
  const std::vector<double> expected = Reference(problem);
  EXPECT_EQ(FirstMismatch(Compute(problem, nullptr, 3), expected, kBf16Rounding, kAbsolute), "");
  EXPECT_THROW(Compute(problem, &kPagedAttentionVersions[2], 3), Error);
}

// One span and its edges, several spans, a decode step, a prompt and a chunk of one.
TEST(PagedAttentionTest, LongContexts) {
  Random random(1304);
  ExpectMatchesReference(RandomProblem(random, MakeShape(1, 4, 64),
                                       {{1, 255}, {1, 256}, {1, 257}, {1, 513}, {1, 1100}}));
  ExpectMatchesReference(RandomProblem(random, MakeShape(1, 2, 128), {{1, 300}, {9, 520}}));
  ExpectMatchesReference(RandomProblem(random, MakeShape(1, 2, 32), {{1, 300}, {290, 290}}));
}

TEST(PagedAttentionTest, OneTokenIsItsValue) {
  Random random(1305);
  for (const int head_dim : {32, 64, 128}) {
    const Problem problem = RandomProblem(random, MakeShape(2, 4, head_dim), {{1, 1}});
    for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
      const std::vector<bf16> output = Compute(problem, version);
      for (int head = 0; head < problem.shape.num_heads; ++head) {
        EXPECT_EQ(FirstDifference(&output[head * head_dim],
                                  &problem.v[0][problem.KvHead(head) * head_dim], head_dim),
                  "")
            << Name(version) << ", head " << head;
      }
    }
  }
}

TEST(PagedAttentionTest, EmptyBatchAndEmptySequences) {
  Random random(1306);
  ExpectMatchesReference(RandomProblem(random, MakeShape(2, 2, 32), {}));
  ExpectMatchesReference(RandomProblem(random, MakeShape(2, 2, 32), {{0, 0}, {0, 4}}));
  ExpectMatchesReference(
      RandomProblem(random, MakeShape(2, 3, 32), {{0, 5}, {3, 3}, {0, 0}, {1, 9}, {0, 1}}));
}

TEST(PagedAttentionTest, AQueryThatSeesNoKeyGivesZeros) {
  Random random(1307);
  for (const std::vector<Lengths>& sequences :
       {std::vector<Lengths>{{7, 3}, {2, 2}}, {{4, 0}}, {{1, 0}, {20, 1}}}) {
    const Problem problem = RandomProblem(random, MakeShape(2, 3, 64), sequences);
    ExpectMatchesReference(problem);
    const int blind = sequences[0].queries - sequences[0].keys;
    for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
      const std::vector<bf16> output = Compute(problem, version);
      for (int i = 0; i < blind * problem.OutWidth(); ++i) {
        ASSERT_EQ(ToDouble(output[i]), 0) << Name(version) << ", element " << i;
      }
    }
  }
}

TEST(PagedAttentionTest, ScoresOfMinusSixtyThousandGiveTheMean) {
  Random random(1308);
  for (const Lengths& lengths : {Lengths{40, 40}, Lengths{1, 300}}) {
    Problem problem = RandomProblem(random, MakeShape(1, 2, 64), {lengths});
    std::fill(problem.q.begin(), problem.q.end(), __float2bfloat16(80));
    for (bf16& element : problem.k[0]) element = __float2bfloat16(-96);  // 64 * 80 * -96 / 8
    ExpectMatchesReference(problem);
    const std::vector<bf16> output = Compute(problem, nullptr);
    const bf16* last = &output[output.size() - 64];
    for (int d = 0; d < 64; ++d) {
      double mean = 0;
      for (int j = 0; j < lengths.keys; ++j) {
        mean += ToDouble(problem.v[0][j * 64 + d]) / lengths.keys;
      }
      EXPECT_NEAR(ToDouble(last[d]), mean, kBf16Rounding * std::abs(mean) + kAbsolute);
    }
  }
}

TEST(PagedAttentionTest, LargeScoresDoNotOverflow) {
  Random random(1309);
  Problem problem = RandomProblem(random, MakeShape(2, 2, 32), {{30, 30}, {1, 280}});
  for (bf16& element : problem.q) element = __float2bfloat16(300 * ToDouble(element));
  // Scores of thousands: an error of 1e-7 of them moves a weight by 1e-3.
  const std::vector<double> expected = Reference(problem);
  for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
    EXPECT_EQ(FirstMismatch(Compute(problem, version), expected, kBf16Rounding, 5e-3), "")
        << Name(version);
  }
}

TEST(PagedAttentionTest, LaterKeysChangeNothing) {
  Random random(1310);
  const Problem problem = RandomProblem(random, MakeShape(2, 3, 64), {{50, 50}});
  for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
    const std::vector<bf16> before = Compute(problem, version);
    for (const int first_changed : {1, 7, 33, 49}) {
      Problem changed = problem;
      for (size_t i = first_changed * problem.KvWidth(); i < changed.k[0].size(); ++i) {
        changed.k[0][i] = changed.v[0][i] = __float2bfloat16(NAN);
      }
      const std::vector<bf16> after = Compute(changed, version);
      const size_t unchanged = static_cast<size_t>(first_changed) * problem.OutWidth();
      EXPECT_EQ(FirstDifference(after.data(), before.data(), unchanged), "")
          << Name(version) << ", keys changed from " << first_changed;
      EXPECT_TRUE(std::isnan(ToDouble(after[unchanged]))) << Name(version);
    }
  }
}

// Keys that are not numbers must not pass for keys that nobody sees.
TEST(PagedAttentionTest, NotANumberStaysNotANumber) {
  Random random(1311);
  for (const Lengths& lengths : {Lengths{1, 20}, Lengths{1, 300}, Lengths{20, 20}}) {
    Problem problem = RandomProblem(random, MakeShape(1, 2, 64), {lengths});
    std::fill(problem.k[0].begin(), problem.k[0].end(), __float2bfloat16(NAN));
    for (const PagedAttentionVersion* version : Candidates(problem.shape)) {
      for (const bf16 element : Compute(problem, version)) {
        ASSERT_TRUE(std::isnan(ToDouble(element))) << Name(version) << ": " << Describe(problem);
      }
    }
  }
}

// --- the same bits, whatever the company

// A sum that is taken in another order is off by 1e-7 of it, and a rounding to bf16 hides that in
// all but one of some ten thousand elements. So let every second key be that before it once more,
// and its values the next bf16 after those: a query that sees pairs only has, exactly, a value
// halfway between two bf16, and the least error decides which of them comes out.
void PutOnTheEdge(Problem* problem) {
  const int width = problem->KvWidth();
  for (size_t s = 0; s < problem->sequences.size(); ++s) {
    for (int j = 1; j < problem->sequences[s].keys; j += 2) {
      for (int i = j * width; i < (j + 1) * width; ++i) {
        problem->k[s][i] = problem->k[s][i - width];
        uint16_t bits;
        std::memcpy(&bits, &problem->v[s][i - width], sizeof bits);
        ++bits;
        std::memcpy(static_cast<void*>(&problem->v[s][i]), &bits, sizeof bits);
      }
    }
  }
}

// Sequence s of a problem alone, with the last `queries` queries of its first `keys` keys.
Problem Alone(const Problem& problem, int s, int queries, int keys) {
  Problem alone = problem;
  const Lengths lengths = problem.sequences[s];
  const int first_query =
      problem.QueryOffsets()[s] + lengths.queries - lengths.keys + keys - queries;
  alone.sequences = {{queries, keys}};
  alone.q.assign(problem.q.begin() + first_query * problem.q_stride,
                 problem.q.begin() + (first_query + queries) * problem.q_stride);
  alone.k = {problem.k[s]};
  alone.v = {problem.v[s]};
  alone.tables = {problem.tables[s]};
  return alone;
}

TEST(PagedAttentionTest, AloneAndInACrowdAreTheSameBits) {
  Random random(1312);
  for (const AttentionShape& shape :
       {MakeShape(1, 3, 32), MakeShape(1, 8, 64), MakeShape(1, 2, 128), MakeShape(1, 11, 32),
        MakeShape(2, 2, 16)}) {
    Problem crowd = RandomProblem(random, shape, {{9, 9}, {1, 270}, {33, 40}, {1, 1}, {5, 64}});
    PutOnTheEdge(&crowd);
    for (const PagedAttentionVersion* version : Candidates(shape)) {
      const std::vector<bf16> together = Compute(crowd, version);
      for (size_t s = 0; s < crowd.sequences.size(); ++s) {
        const Lengths lengths = crowd.sequences[s];
        const std::vector<bf16> alone =
            Compute(Alone(crowd, static_cast<int>(s), lengths.queries, lengths.keys), version);
        EXPECT_EQ(FirstDifference(
                      alone.data(),
                      &together[static_cast<size_t>(crowd.QueryOffsets()[s]) * crowd.OutWidth()],
                      alone.size()),
                  "")
            << Name(version) << ", sequence " << s << ": " << Describe(crowd);
      }
    }
  }
}

TEST(PagedAttentionTest, ChunksAndSingleTokensAreThePromptsBits) {
  Random random(1313);
  for (const AttentionShape& shape : {MakeShape(2, 1, 64), MakeShape(1, 3, 32), MakeShape(1, 4, 64),
                                      MakeShape(1, 2, 128), MakeShape(1, 2, 80)}) {
    Problem prompt = RandomProblem(random, shape, {{262, 262}});
    PutOnTheEdge(&prompt);
    const size_t width = prompt.OutWidth();
    for (const PagedAttentionVersion* version : Candidates(shape)) {
      const std::vector<bf16> whole = Compute(prompt, version);
      for (const auto& [first, end] :
           {std::pair(0, 7), std::pair(7, 8), std::pair(30, 35), std::pair(62, 129),
            std::pair(255, 256), std::pair(256, 257), std::pair(251, 262)}) {
        const std::vector<bf16> chunk = Compute(Alone(prompt, 0, end - first, end), version);
        EXPECT_EQ(FirstDifference(chunk.data(), &whole[first * width], chunk.size()), "")
            << Name(version) << ", tokens " << first << " to " << end << ": " << Describe(prompt);
      }
    }
  }
}

TEST(PagedAttentionTest, OtherBlocksAndBlockSizesAreTheSameBits) {
  Random random(1314);
  for (const AttentionShape& shape : {MakeShape(2, 3, 64), MakeShape(1, 2, 128)}) {
    Problem problem = RandomProblem(random, shape, {{1, 300}, {40, 70}, {1, 6}});
    PutOnTheEdge(&problem);
    for (const PagedAttentionVersion* version : Candidates(shape)) {
      const std::vector<bf16> expected = Compute(problem, version);
      for (const int block_size : {16, 1, 3, 64, 512}) {
        Problem other = problem;
        other.block_size = block_size;
        other.num_blocks = 4;
        for (const Lengths& lengths : other.sequences) {
          other.num_blocks += BlocksOf(lengths.keys, block_size);
        }
        ShuffleBlocks(random, &other);
        EXPECT_EQ(FirstDifference(Compute(other, version), expected), "")
            << Name(version) << ", blocks of " << block_size;
      }
    }
  }
}

TEST(PagedAttentionTest, VersionsThreeAndFourAreTheSameBits) {
  Random random(1315);
  for (const AttentionShape& shape :
       {MakeShape(2, 4, 64), MakeShape(1, 3, 32), MakeShape(1, 5, 128)}) {
    Problem problem = RandomProblem(random, shape, {{70, 70}, {1, 600}, {3, 515}});
    PutOnTheEdge(&problem);
    EXPECT_EQ(FirstDifference(Compute(problem, &kPagedAttentionVersions[3]),
                              Compute(problem, &kPagedAttentionVersions[2])),
              "")
        << Describe(problem);
  }
}

// Two sequences that read the same blocks, as requests with one system prompt will.
TEST(PagedAttentionTest, SequencesMayShareBlocks) {
  Random random(1316);
  Problem problem = RandomProblem(random, MakeShape(2, 2, 64), {{1, 40}, {1, 52}});
  for (int j = 0; j < 32; ++j) {
    for (int i = 0; i < problem.KvWidth(); ++i) {
      problem.k[1][j * problem.KvWidth() + i] = problem.k[0][j * problem.KvWidth() + i];
      problem.v[1][j * problem.KvWidth() + i] = problem.v[0][j * problem.KvWidth() + i];
    }
  }
  problem.tables[1][0] = problem.tables[0][0];
  problem.tables[1][1] = problem.tables[0][1];
  ExpectMatchesReference(problem);
}

// More spans than are computed at a time, and one sequence's on both sides of the cut.
TEST(PagedAttentionTest, MoreSpansThanOneLaunchTakes) {
  Random random(1317);
  std::vector<Lengths> sequences(510, Lengths{1, 257});  // two spans each
  sequences.push_back({1, 1400});                        // six: numbers 1020 to 1025
  sequences.push_back({1, 30});
  const Problem problem = RandomProblem(random, MakeShape(1, 1, 32), sequences);
  const std::vector<double> expected = Reference(problem);
  for (const PagedAttentionVersion* version :
       {&kPagedAttentionVersions[2], &kPagedAttentionVersions[3]}) {
    EXPECT_EQ(FirstMismatch(Compute(problem, version), expected, kBf16Rounding, kAbsolute), "")
        << Name(version);
  }
}

// --- against lesson 07, over the same keys in one piece

TEST(PagedAttentionTest, AgreesWithLesson07) {
  Random random(1318);
  for (const AttentionShape& shape :
       {MakeShape(2, 4, 64), MakeShape(1, 3, 128), MakeShape(2, 2, 24)}) {
    const Problem problem = RandomProblem(random, shape, {{20, 20}, {1, 90}, {13, 60}}, 7);
    std::vector<bf16> k, v;
    std::vector<int> kv_offsets = {0};
    for (size_t s = 0; s < problem.sequences.size(); ++s) {
      k.insert(k.end(), problem.k[s].begin(), problem.k[s].end());
      v.insert(v.end(), problem.v[s].begin(), problem.v[s].end());
      kv_offsets.push_back(kv_offsets.back() + problem.sequences[s].keys);
    }
    const DeviceBuffer<bf16> device_q(problem.q), device_k(k), device_v(v);
    const DeviceBuffer<int> query_offsets(problem.QueryOffsets()), device_kv_offsets(kv_offsets);
    DeviceBuffer<bf16> output(static_cast<size_t>(problem.NumQueries()) * problem.OutWidth());
    AttentionBatch batch;
    batch.num_sequences = static_cast<int>(problem.sequences.size());
    batch.num_queries = problem.NumQueries();
    batch.max_query_len = 20;
    batch.max_kv_len = problem.MaxKeys();
    batch.query_offsets = query_offsets.data();
    batch.kv_offsets = device_kv_offsets.data();
    DeviceBuffer<char> workspace(
        AttentionWorkspaceBytes(shape, batch.num_queries, batch.max_kv_len));
    Attention(shape, batch,
              {device_q.data(), device_k.data(), device_v.data(), problem.q_stride,
               problem.KvWidth(), output.data()},
              workspace.data(), workspace.bytes(), nullptr);
    const std::vector<bf16> contiguous = output.ToHost();
    for (const PagedAttentionVersion* version : Candidates(shape)) {
      // Each is rounded once.
      EXPECT_EQ(FirstMismatch(Compute(problem, version), contiguous, 2 * kBf16Rounding, kAbsolute),
                "")
          << Name(version) << ": " << Describe(problem);
    }
  }
}

// --- storing

void CheckStore(Random& random, int num_tokens, int num_kv_heads, int head_dim, int block_size,
                int before, int after, int offset) {
  SCOPED_TRACE(StrCat(num_tokens, " tokens of ", num_kv_heads, " x ", head_dim, ", blocks of ",
                      block_size, ", k at ", before, ", ", after, " after v, offset ", offset));
  const int width = num_kv_heads * head_dim;
  const int num_blocks = num_tokens / block_size + 3;
  const int64_t stride = before + 2 * width + after;
  const std::vector<bf16> qkv = random.Bf16(offset + num_tokens * stride);
  std::vector<int> slots(num_blocks * block_size);
  std::iota(slots.begin(), slots.end(), 0);
  for (int t = 0; t < num_tokens; ++t) {
    std::swap(slots[t], slots[random.Integer(t, static_cast<int>(slots.size()) - 1)]);
  }
  slots.resize(num_tokens);

  const size_t size = offset + static_cast<size_t>(num_blocks) * block_size * width;
  std::vector<bf16> k_expected(size), v_expected(size);
  std::memset(static_cast<void*>(k_expected.data()), kPoison, size * sizeof(bf16));
  v_expected = k_expected;
  for (int t = 0; t < num_tokens; ++t) {
    for (int i = 0; i < width; ++i) {
      const size_t row =
          (static_cast<size_t>(slots[t] / block_size) * num_kv_heads + i / head_dim) * block_size +
          slots[t] % block_size;
      const size_t from = offset + t * stride + before + i;
      k_expected[offset + row * head_dim + i % head_dim] = qkv[from];
      v_expected[offset + row * head_dim + i % head_dim] = qkv[from + width];
    }
  }
  const DeviceBuffer<bf16> device_qkv(qkv);
  const DeviceBuffer<int> device_slots(slots);
  DeviceBuffer<bf16> k(size), v(size);
  k.Fill(kPoison);
  v.Fill(kPoison);
  StoreKvPagesRows rows;
  rows.k = device_qkv.data() + offset + before;
  rows.v = rows.k + width;
  rows.stride = stride;
  rows.slots = device_slots.data();
  rows.num_tokens = num_tokens;
  rows.num_kv_heads = num_kv_heads;
  rows.head_dim = head_dim;
  rows.pages = {k.data() + offset, v.data() + offset, num_blocks, block_size};
  StoreKvPages(rows, nullptr);
  EXPECT_EQ(FirstDifference(k.ToHost(), k_expected), "") << "K";
  EXPECT_EQ(FirstDifference(v.ToHost(), v_expected), "") << "V";
}

TEST(StoreKvPagesTest, PutsEveryRowInItsPlace) {
  Random random(1320);
  CheckStore(random, 1, 8, 64, 16, 2048, 0, 0);
  CheckStore(random, 700, 2, 128, 16, 512, 0, 0);
  for (int i = 0; i < 12; ++i) {
    CheckStore(random, random.Integer(1, 60), random.Integer(1, 4), 8 * random.Integer(1, 16),
               random.Integer(1, 40), 8 * random.Integer(0, 9), 8 * random.Integer(0, 2), 0);
  }
}

TEST(StoreKvPagesTest, TakesAnyWidthStrideAndAddress) {
  Random random(1321);
  CheckStore(random, 5, 2, 20, 4, 8, 0, 0);  // no multiple of 8
  CheckStore(random, 5, 2, 16, 4, 8, 0, 1);  // addresses no multiples of 16 bytes
  CheckStore(random, 5, 2, 16, 4, 4, 0, 0);  // k lies between them
  CheckStore(random, 5, 2, 16, 4, 8, 3, 0);  // so do all rows but the first
}

TEST(StoreKvPagesTest, RefusesSizesThatContradictEachOther) {
  StoreKvPagesRows rows;
  rows.num_kv_heads = 2;
  rows.head_dim = 8;
  rows.stride = 16;
  rows.pages.num_blocks = 4;
  rows.pages.block_size = 16;
  EXPECT_NO_THROW(StoreKvPages(rows, nullptr)) << "nothing to do";
  const auto refused = [&](const std::function<void(StoreKvPagesRows*)>& bend) {
    StoreKvPagesRows bent = rows;
    bend(&bent);
    EXPECT_THROW(StoreKvPages(bent, nullptr), Error);
  };
  refused([](StoreKvPagesRows* r) { r->num_tokens = -1; });
  refused([](StoreKvPagesRows* r) { r->stride = 15; });
  refused([](StoreKvPagesRows* r) { r->head_dim = 0; });
  refused([](StoreKvPagesRows* r) { r->pages.block_size = 0; });
  refused([](StoreKvPagesRows* r) { r->pages.num_blocks = 1 << 30; });
}

// --- beyond 31 bits

// The blocks that count begin 2^32 elements behind the start of the pool.
TEST(PagedAttentionTest, BlocksBeyondTwoToThe31) {
  Random random(1322);
  for (const int head_dim : {128, 24}) {
    const AttentionShape shape = MakeShape(2, 2, head_dim);
    const Problem problem = RandomProblem(random, shape, {{9, 50}, {1, 40}});
    const int first_block = static_cast<int>((int64_t{1} << 32) / (16 * problem.KvWidth()));
    const std::vector<double> expected = Reference(problem);
    for (const PagedAttentionVersion* version : Candidates(shape)) {
      EXPECT_EQ(FirstMismatch(Compute(problem, version, 0, first_block), expected, kBf16Rounding,
                              kAbsolute),
                "")
          << Name(version);
    }
  }
}

TEST(StoreKvPagesTest, BlocksBeyondTwoToThe31) {
  Random random(1324);
  for (const int head_dim : {64, 12}) {
    const AttentionShape shape = MakeShape(2, 1, head_dim);
    const int width = 2 * head_dim;
    const int first_block = static_cast<int>((int64_t{1} << 32) / (16 * width));
    const std::vector<bf16> kv = random.Bf16(2 * width);
    const DeviceBuffer<bf16> device_kv(kv);
    const DeviceBuffer<int> slot(std::vector<int>{first_block * 16 + 3});
    DeviceBuffer<bf16> k(16 * width), v(16 * width);
    k.Fill(kPoison);
    v.Fill(kPoison);
    StoreKvPagesRows rows;
    rows.k = device_kv.data();
    rows.v = rows.k + width;
    rows.stride = 2 * width;
    rows.slots = slot.data();
    rows.num_tokens = 1;
    rows.num_kv_heads = 2;
    rows.head_dim = head_dim;
    rows.pages = {PoolAround(k.data(), shape, 16, first_block),
                  PoolAround(v.data(), shape, 16, first_block), first_block + 1, 16};
    StoreKvPages(rows, nullptr);
    const std::vector<bf16> k_stored = k.ToHost(), v_stored = v.ToHost();
    for (int head = 0; head < 2; ++head) {
      const int at = (head * 16 + 3) * head_dim;
      EXPECT_EQ(FirstDifference(&k_stored[at], &kv[head * head_dim], head_dim), "");
      EXPECT_EQ(FirstDifference(&v_stored[at], &kv[width + head * head_dim], head_dim), "");
    }
  }
}

// --- calls that cannot be right

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PagedAttentionTest, RefusesShapesThatContradictThemselves) {
  Random random(1323);
  const Problem good = RandomProblem(random, MakeShape(2, 2, 64), {{1, 4}});
  const auto error = [&](const std::function<void(Problem*)>& bend,
                         const PagedAttentionVersion* version = nullptr) {
    Problem bent = good;
    bend(&bent);
    return ErrorOf([&] { Compute(bent, version); });
  };
  EXPECT_NE(error([](Problem* p) { p->shape.num_heads = 3; }).find("divisor"), std::string::npos);
  EXPECT_NE(error([](Problem* p) { p->q_stride = 8; }).find("overlap"), std::string::npos);
  EXPECT_NE(error([](Problem* p) { p->shape.head_dim = 40; }, &kPagedAttentionVersions[3])
                .find("use version 2"),
            std::string::npos);

  PagedAttentionVersion no_workspace = kPagedAttentionVersions[3];
  no_workspace.workspace_bytes = [](const AttentionShape&, int64_t, int) { return size_t{8}; };
  EXPECT_NE(ErrorOf([&] { Compute(good, &no_workspace); }).find("a workspace of 8 bytes"),
            std::string::npos);
}

// However large batches get, the workspace does not.
TEST(PagedAttentionTest, TheWorkspaceIsBounded) {
  const AttentionShape shape = MakeShape(8, 4, 64);
  const size_t huge = PagedAttentionWorkspaceBytes(shape, int64_t{256} * 512, 131072);
  EXPECT_EQ(huge, (1024 + 512) * size_t{32} * (64 + 2) * sizeof(float));
  EXPECT_EQ(PagedAttentionWorkspaceBytes(shape, 2, 512), 2 * size_t{32} * (64 + 2) * sizeof(float));
}

TEST(PagedWorkTest, SpansForTokensTilesForPrompts) {
  const AttentionShape shape = MakeShape(2, 3, 64);
  const std::vector<int> query_offsets = {0, 1, 13, 14}, kv_lens = {257, 40, 256};
  const std::vector<int> table_offsets = {0, 17, 20};
  PagedWork work;
  work.Make(shape, 3, query_offsets.data(), kv_lens.data(), table_offsets.data(), true);
  ASSERT_EQ(work.spans.size(), 3u);
  const int expected[][4] = {{0, 0, 257, 0}, {0, 0, 257, 1}, {13, 20, 256, 0}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(work.spans[i].query, expected[i][0]);
    EXPECT_EQ(work.spans[i].table, expected[i][1]);
    EXPECT_EQ(work.spans[i].visible, expected[i][2]);
    EXPECT_EQ(work.spans[i].span, expected[i][3]);
  }
  ASSERT_EQ(work.tiles.size(), 2u);  // 36 rows
  EXPECT_EQ(work.tiles[0].sequence, 1);
  EXPECT_EQ(work.tiles[0].first_row, 32);
  EXPECT_EQ(work.tiles[1].first_row, 0);
  work.Make(shape, 3, query_offsets.data(), kv_lens.data(), table_offsets.data(), false);
  EXPECT_EQ(work.spans.size(), 2u + 12 + 1);
  EXPECT_TRUE(work.tiles.empty());
}

}  // namespace
}  // namespace tinyvllm
