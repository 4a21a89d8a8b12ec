// Checks of lesson 11: argmax, every transformation against f64, the distributions of what is
// drawn, and that a row's token depends on nothing but that row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/expect_error.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/11_sampling/argmax.h"
#include "lessons/11_sampling/philox.h"
#include "lessons/11_sampling/sampler.h"

namespace tinyvllm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Logits as a model gives them, and, with `step`, rounded so that many are equal.
std::vector<float> Logits(Random& random, size_t size, double scale = 3, float step = 0) {
  std::vector<float> logits = random.F32(size, scale);
  if (step > 0) {
    for (float& logit : logits) logit = std::round(logit / step) * step;
  }
  return logits;
}

// --- First steps: version 1, the exercise, on rows that one can look through.

using Row = std::vector<float>;

constexpr int kUnwritten = static_cast<int>(0xfefefefe);

// What version 1 writes for these rows, all of one length; NaN where it writes nothing.
std::vector<double> TreeIds(const std::vector<Row>& rows) {
  std::vector<float> logits;
  for (const Row& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  logits.insert(logits.end(), 64, kInfinity);  // would win if it were read
  const Stream stream;
  const DeviceBuffer<float> input(logits);
  DeviceBuffer<int> token_ids(rows.size());
  token_ids.Fill(0xfe);
  kArgmaxVersions[0].launch(input.data(), token_ids.data(), nullptr, rows.size(), rows[0].size(),
                            stream.get());
  stream.Synchronize();
  std::vector<double> ids;
  for (int id : token_ids.ToHost()) ids.push_back(id == kUnwritten ? NAN : id);
  return ids;
}

// The tree on the host, with the rules that a kernel may have.
struct Candidate {
  float logit = -kInfinity;
  int id = -1;
};

using Takes = std::function<bool(const Candidate& other, const Candidate& mine)>;

bool Higher(const Candidate& other, const Candidate& mine) { return other.logit > mine.logit; }

bool Better(const Candidate& other, const Candidate& mine) {
  return other.id >= 0 &&
         (Higher(other, mine) || (other.logit == mine.logit && other.id < mine.id));
}

struct TreeRules {
  Takes walk = Higher, tree = Better;
  Candidate begin = {};
  bool loops = true;            // in the walk
  int last_active = 1;          // pairs in the last step of the tree
  bool thread_numbers = false;  // in place of ids
};

int TreeReference(const Row& row, const TreeRules& rules = {}) {
  constexpr int kThreads = 256;
  std::vector<Candidate> best(kThreads, rules.begin);
  for (int i = 0; i < static_cast<int>(row.size()); ++i) {
    if (!rules.loops && i >= kThreads) break;
    const Candidate next = {row[i], rules.thread_numbers ? i % kThreads : i};
    if (rules.walk(next, best[i % kThreads])) best[i % kThreads] = next;
  }
  for (int active = kThreads / 2; active >= rules.last_active; active /= 2) {
    for (int t = 0; t < active; ++t) {
      if (rules.tree(best[t + active], best[t])) best[t] = best[t + active];
    }
  }
  return best[0].id;
}

std::vector<int> TreeReferences(const std::vector<Row>& rows, const TreeRules& rules = {}) {
  std::vector<int> ids;
  for (const Row& row : rows) ids.push_back(TreeReference(row, rules));
  return ids;
}

constexpr char kArgmaxSection[] = "docs/11_sampling.md#argmax";

Guide TreeGuide(const std::vector<Row>& rows) {
  const auto With = [&](auto change) {
    TreeRules rules;
    change(&rules);
    return TreeReferences(rows, rules);
  };
  const std::vector<int> expected = TreeReferences(rows);
  std::vector<int> first_row(rows.size(), expected[0]), flat, logits;
  for (size_t r = 0; r < rows.size(); ++r) {
    flat.push_back(expected[r] < 0 ? -1 : r * rows[0].size() + expected[r]);
    logits.push_back(expected[r] < 0 ? -1 : static_cast<int>(rows[r][expected[r]]));
  }
  const Takes never = [](const Candidate&, const Candidate&) { return false; };
  const Takes as_high = [](const Candidate& other, const Candidate& mine) {
    return other.logit >= mine.logit;
  };
  return Guide(kArgmaxSection)
      .Start(
          "write the body of ArgmaxTreeKernel in lessons/11_sampling/exercise/argmax.cu; begin "
          "with one thread's walk over its elements, from minus infinity and the id -1, and let "
          "thread 0 write its best id",
          std::vector<double>(rows.size(), NAN))
      .Mistake(
          "the answer is the best of thread 0 alone: the tree that brings it the others' is "
          "missing, or takes over their logits without their ids",
          With([&](TreeRules* rules) { rules->tree = never; }))
      .Mistake(
          "every row got the answer of the first: a block's row begins at vocab_size times its "
          "number, as `row` says",
          first_row)
      .Mistake("the id was counted over all rows; it counts within its own", flat)
      .Mistake("the highest logit was written; what is asked for is its id", logits)
      .Mistake(
          "the search begins at 0, or at another number that some row lies below: begin at minus "
          "infinity, with the id -1",
          With([](TreeRules* rules) {
            rules->begin = {0, -1};
          }))
      .Mistake("the search begins at 0; begin at minus infinity, with the id -1",
               With([](TreeRules* rules) {
                 rules->begin = {0, 0};
               }))
      .Mistake("the lowest logit was sought, not the highest", With([](TreeRules* rules) {
                 rules->begin = {kInfinity, -1};
                 rules->walk = [](const Candidate& other, const Candidate& mine) {
                   return other.logit < mine.logit;
                 };
                 rules->tree = [](const Candidate& other, const Candidate& mine) {
                   return other.id >= 0 && other.logit < mine.logit;
                 };
               }))
      .Mistake(
          "each thread looked at one element: a row is longer than the block, so the walk goes "
          "on with the element kTreeThreads further",
          With([](TreeRules* rules) { rules->loops = false; }))
      .Mistake("the number of the thread was kept; keep the id of the element",
               With([](TreeRules* rules) { rules->thread_numbers = true; }))
      .Mistake("the tree stops one step early: the last step is that of one pair",
               With([](TreeRules* rules) { rules->last_active = 2; }))
      .Mistake(
          "of two equal logits in the tree the one that came first was kept, or the one nearer "
          "to thread 0: at a tie ask which id is lower",
          With([](TreeRules* rules) { rules->tree = Higher; }))
      .Mistake(
          "of two equal logits in the tree the other one was always taken: at a tie ask which "
          "id is lower",
          With([&](TreeRules* rules) { rules->tree = as_high; }))
      .Mistake(
          "in a thread's own walk a later equal was taken: there the ids only rise, so that "
          "`greater` is the whole rule",
          With([&](TreeRules* rules) { rules->walk = as_high; }))
      .Mistake(
          "at a tie the higher id was taken; it is the lower that wins", With([](TreeRules* rules) {
            rules->tree = [](const Candidate& other, const Candidate& mine) {
              return other.id >= 0 &&
                     (Higher(other, mine) || (other.logit == mine.logit && other.id > mine.id));
            };
          }))
      .WhenOrderMatters(
          "one thread reads a candidate that another has not written yet, so a barrier "
          "is missing (before the tree's first step, and after each); or token_ids is "
          "written by more than thread 0, or by all blocks at one place",
          kArgmaxSection);
}

testing::AssertionResult CheckShortRows() {
  const std::vector<Row> rows = {{1, 4, 2, 3}, {-3, -5, -1, -2}, {0.5f, 2, 1, 8}};
  std::vector<float> flat;
  for (const Row& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return TreeGuide(rows)
      .Input("logits", flat, 4)
      .Compare([&] { return TreeIds(rows); }, TreeReferences(rows));
}

TEST(ArgmaxFirstSteps, Version1ThreeRowsOfFour) { EXPECT_TRUE(CheckShortRows()); }

testing::AssertionResult CheckLongRows() {
  const auto High = [](const std::vector<int>& ids) {
    Row row(300, 1);
    for (int id : ids) row[id] = 7;
    return row;
  };
  const std::vector<Row> rows = {High({280}), High({131, 259}), High({3, 259}), High({10, 20}),
                                 High({5, 133})};
  return TreeGuide(rows)
      .Input("logits",
             "five rows of 300, which are all 1, but 7 at the ids 280; 131 and 259; 3 and "
             "259; 10 and 20; 5 and 133")
      .Compare([&] { return TreeIds(rows); }, TreeReferences(rows));
}

TEST(ArgmaxFirstSteps, Version1RowsLongerThanTheBlockWithTies) { EXPECT_TRUE(CheckLongRows()); }

testing::AssertionResult CheckNobody() {
  const std::vector<Row> rows = {{kNan, -kInfinity, kLowest, kNan},
                                 {-kInfinity, kNan, -kInfinity, -kInfinity},
                                 {1, kInfinity, kNan, kInfinity}};
  std::vector<float> flat;
  for (const Row& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  Guide guide = TreeGuide(rows);
  guide.Input("logits", flat, 4);
  for (int id = 0; id < 4; ++id) {
    guide.Mistake(
        "minus infinity was chosen where there is nothing else: let it never win, and the "
        "answer be -1",
        {2, static_cast<double>(id), 1});
  }
  return guide
      .Otherwise(
          "NaN and minus infinity are never chosen: every comparison with NaN is false, so "
          "ask whether a logit is greater than the best, not whether it is not lower")
      .Compare([&] { return TreeIds(rows); }, TreeReferences(rows));
}

TEST(ArgmaxFirstSteps, Version1NeitherNanNorMinusInfinity) { EXPECT_TRUE(CheckNobody()); }

// --- Argmax

using ArgmaxLaunch = decltype(&Argmax);

class ArgmaxTest : public testing::TestWithParam<int> {
 protected:
  ArgmaxLaunch launch() const {
    return GetParam() == 0 ? Argmax : kArgmaxVersions[GetParam() - 1].launch;
  }

  // The rows begin `offset` floats after an aligned address.
  std::vector<int> Compute(const std::vector<float>& logits, int vocab_size, int offset = 0) const {
    const int num_rows = static_cast<int>(logits.size()) / vocab_size;
    std::vector<float> shifted(offset, kInfinity);  // would win if it were read
    shifted.insert(shifted.end(), logits.begin(), logits.end());
    shifted.insert(shifted.end(), 64, kInfinity);
    const Stream stream;
    const DeviceBuffer<float> input(shifted);
    DeviceBuffer<int> token_ids(num_rows + 1);
    DeviceBuffer<TokenKey> workspace(ArgmaxWorkspace(num_rows));
    token_ids.Fill(0xff);
    workspace.Fill(0xff);
    launch()(input.data() + offset, token_ids.data(), workspace.data(), num_rows, vocab_size,
             stream.get());
    stream.Synchronize();
    std::vector<int> result = token_ids.ToHost();
    EXPECT_EQ(result.back(), -1) << "written behind the rows";
    result.pop_back();
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(, ArgmaxTest, testing::Values(0, 1, 2, 3), [](const auto& version) {
  return version.param == 0 ? std::string("Engine") : StrCat("Version", version.param);
});

std::vector<int> ArgmaxReference(const std::vector<float>& logits, int vocab_size) {
  std::vector<int> result;
  for (size_t row = 0; row < logits.size(); row += vocab_size) {
    int best = -1;
    for (int id = 0; id < vocab_size; ++id) {
      const float logit = logits[row + id];
      if (logit > -kInfinity && (best < 0 || logit > logits[row + best])) best = id;
    }
    result.push_back(best);
  }
  return result;
}

TEST_P(ArgmaxTest, FindsTheHighest) {
  Random random(1);
  for (const int vocab_size : {1, 2, 3, 31, 205, 1000, 4096, 4099, 32000, 128256}) {
    for (const int num_rows : {1, 2, vocab_size < 1000 ? 131 : 3}) {
      const std::vector<float> logits = Logits(random, static_cast<size_t>(num_rows) * vocab_size);
      for (const int offset : {0, 1}) {
        ASSERT_EQ(Compute(logits, vocab_size, offset), ArgmaxReference(logits, vocab_size))
            << num_rows << " rows of " << vocab_size << ", offset " << offset;
      }
    }
  }
}

TEST_P(ArgmaxTest, TakesTheLowerIdOfEquals) {
  Random random(2);
  for (const int vocab_size : {2, 31, 205, 4096, 20000}) {
    const std::vector<float> logits = Logits(random, 5 * vocab_size, 1, 1.0f);
    EXPECT_EQ(Compute(logits, vocab_size), ArgmaxReference(logits, vocab_size)) << vocab_size;
    EXPECT_EQ(Compute(std::vector<float>(vocab_size, -2.5f), vocab_size), std::vector<int>{0});
  }
  EXPECT_EQ(Compute({-1, -0.0f, 0.0f}, 3), std::vector<int>{1});
  EXPECT_EQ(Compute({-1, 0.0f, -0.0f}, 3), std::vector<int>{1});
}

TEST_P(ArgmaxTest, NeverChoosesMinusInfinityOrNan) {
  EXPECT_EQ(Compute({kNan, -kInfinity, -1e38f, kNan}, 4), std::vector<int>{2});
  EXPECT_EQ(Compute({1, kInfinity, kNan, kInfinity}, 4), std::vector<int>{1});
  EXPECT_EQ(Compute({-kInfinity, kNan, 5, 6}, 2), (std::vector<int>{-1, 1}));
  EXPECT_EQ(Compute(std::vector<float>(10000, -kInfinity), 10000), std::vector<int>{-1});
  Random random(3);
  for (const int vocab_size : {31, 205, 10000}) {
    std::vector<float> logits = Logits(random, 4 * vocab_size);
    for (float& logit : logits) {
      if (random.Uniform() < 0.5) logit = random.Uniform() < 0.5 ? kNan : -kInfinity;
    }
    EXPECT_EQ(Compute(logits, vocab_size), ArgmaxReference(logits, vocab_size)) << vocab_size;
  }
}

TEST_P(ArgmaxTest, FindsTheWinnerWhereverItIs) {
  for (const int vocab_size : {205, 10007}) {
    for (const int winner : {0, 1, vocab_size / 2, vocab_size - 2, vocab_size - 1}) {
      std::vector<float> logits(vocab_size, -7);
      logits[winner] = -6.5f;
      EXPECT_EQ(Compute(logits, vocab_size), std::vector<int>{winner});
    }
  }
}

TEST_P(ArgmaxTest, RefusesWhatHasNoResult) {
  launch()(nullptr, nullptr, nullptr, 0, 100, nullptr);  // no rows: no work
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, -1, 100, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, 1, 0, nullptr), Error);
  EXPECT_THROW(launch()(nullptr, nullptr, nullptr, 1, kMaxVocabSize + 1, nullptr), Error);
}

// --- Philox

// The known answers that the authors publish with their library Random123 (tests/kat_vectors).
TEST(PhiloxTest, GivesTheKnownAnswers) {
  const auto Expect = [](PhiloxWords counter, uint32_t key0, uint32_t key1, PhiloxWords expected) {
    const PhiloxWords words = Philox4x32(counter, key0, key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], expected.word[i]) << "word " << i;
  };
  const uint32_t ones = 0xffffffff;
  Expect({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  Expect({{ones, ones, ones, ones}}, ones, ones,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  Expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(PhiloxTest, UsesEveryBitOfSeedAndPosition) {
  const uint64_t bits = RandomBits(5, 9);
  EXPECT_EQ(bits, RandomBits(5, 9));
  for (int i = 0; i < 64; ++i) EXPECT_NE(bits, RandomBits(5 ^ uint64_t{1} << i, 9));
  for (int i = 0; i < 32; ++i) EXPECT_NE(bits, RandomBits(5, 9 ^ uint32_t{1} << i));
}

// --- The sampler against f64

struct Request {
  SamplingParams params;
  std::vector<int> prompt;
  std::vector<int> generated;
};

// A step of the sampler: what it chose and what it drew from.
struct Step {
  std::vector<int> token_ids;
  std::vector<float> probabilities;  // (rows, vocab_size)
  std::vector<TokenLogprobs> logprobs;
};

// One row of logits a request, at position 100 + its index.
Step SampleOnce(const std::vector<float>& logits, const std::vector<Request>& requests) {
  const int num_rows = static_cast<int>(requests.size());
  const int vocab_size = static_cast<int>(logits.size()) / num_rows;
  const Stream stream;
  Sampler sampler({num_rows, num_rows, vocab_size, 64}, stream.get());
  const DeviceBuffer<float> input(logits);
  DeviceBuffer<float> probabilities(logits.size());
  probabilities.Fill(0xff);
  std::vector<SampleRow> rows;
  for (int i = 0; i < num_rows; ++i) {
    sampler.SetRequest(i, requests[i].params, requests[i].prompt, requests[i].generated);
    rows.push_back({i, 100 + i});
  }
  sampler.Sample(input.data(), rows, probabilities.data());
  sampler.Wait();
  Step step;
  step.probabilities = probabilities.ToHost();
  for (int i = 0; i < num_rows; ++i) {
    step.token_ids.push_back(sampler.token_id(i));
    step.logprobs.push_back(requests[i].params.logprobs >= 0 ? sampler.Logprobs(i)
                                                             : TokenLogprobs());
  }
  return step;
}

// Steps 1 and 2, each operation rounded to f32 as the kernel's are, so that order and ties agree.
std::vector<float> AdjustReference(std::vector<float> logits, const Request& request) {
  const SamplingParams& params = request.params;
  const auto Has = [](const std::vector<int>& ids, int id) {
    return std::count(ids.begin(), ids.end(), id);
  };
  for (const auto& [id, bias] : params.logit_bias) logits[id] += bias;
  for (int id = 0; id < static_cast<int>(logits.size()); ++id) {
    float& logit = logits[id];
    const int count = Has(request.generated, id);
    if (count > 0 || Has(request.prompt, id)) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (count > 0) {
      logit -= params.frequency_penalty * count;
      logit -= params.presence_penalty;
    }
    if (Has(params.bad_token_ids, id)) logit = -kInfinity;
    const bool allowed = params.allowed_token_ids.empty() || Has(params.allowed_token_ids, id);
    if (!allowed || std::isnan(logit)) logit = -kInfinity;
  }
  return logits;
}

enum class Fate { kOut, kIn, kEither };

// Steps 3 and 4 in f64, by sorting. What f32 may decide either way, because it lies within
// rounding of a threshold, is said to be so.
std::vector<Fate> FilterReference(const std::vector<float>& adjusted, const SamplingParams& params,
                                  std::vector<double>* weights) {
  const int vocab_size = static_cast<int>(adjusted.size());
  std::vector<int> order(vocab_size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return adjusted[a] > adjusted[b]; });
  const double highest = adjusted[order[0]];
  std::vector<Fate> fates(vocab_size, Fate::kOut);
  weights->assign(vocab_size, 0);
  int left = 0;
  double total = 0;
  for (const int id : order) {
    if (adjusted[id] == -kInfinity) break;
    const double distance =
        adjusted[id] == highest ? 0 : (adjusted[id] - highest) / params.temperature;
    const double margin = 1e-5 / params.temperature + 1e-5;
    const double floor = params.min_p > 0 ? std::log(params.min_p) : -kInfinity;
    if (distance < floor - margin || (params.top_k > 0 && left == params.top_k)) break;
    (*weights)[id] = std::exp(distance);
    fates[id] = distance < floor + margin && distance != 0 ? Fate::kEither : Fate::kIn;
    total += (*weights)[id];
    ++left;
  }
  if (params.top_p == 1) return fates;
  double before = 0;
  for (const int id : order) {
    if (fates[id] == Fate::kOut) break;
    const double share = before / total;
    before += (*weights)[id];
    if (share > params.top_p + 1e-6) {
      fates[id] = Fate::kOut;
    } else if (share > params.top_p - 1e-6) {
      fates[id] = Fate::kEither;
    }
  }
  return fates;
}

void ExpectRow(const float* probabilities, int token_id, const std::vector<float>& logits,
               const Request& request) {
  const std::vector<float> adjusted = AdjustReference(logits, request);
  std::vector<double> weights;
  const std::vector<Fate> fates = FilterReference(adjusted, request.params, &weights);
  double total = 0;
  for (size_t id = 0; id < fates.size(); ++id) {
    if (fates[id] == Fate::kIn) {
      ASSERT_TRUE(probabilities[id] > 0 || weights[id] < 1e-11) << id;
    } else if (fates[id] == Fate::kOut) {
      ASSERT_EQ(probabilities[id], 0) << id;
    }
    if (probabilities[id] > 0) total += weights[id];
  }
  for (size_t id = 0; id < fates.size(); ++id) {
    if (probabilities[id] == 0) continue;
    // expf and the division before it lose a few units of f32, times the distance from the top.
    ASSERT_NEAR(probabilities[id], weights[id] / total, 1e-5 * weights[id] / total + 2e-12) << id;
  }
  ASSERT_GE(token_id, 0);
  EXPECT_GT(probabilities[token_id], 0);
}

Request RandomRequest(Random& random, int vocab_size) {
  Request request;
  SamplingParams& params = request.params;
  params.temperature = static_cast<float>(0.2 + 1.8 * random.Uniform());
  if (random.Integer(0, 1)) params.top_k = random.Integer(1, vocab_size + 2);
  if (random.Integer(0, 1)) params.top_p = static_cast<float>(0.05 + 0.95 * random.Uniform());
  if (random.Integer(0, 2) == 0) params.min_p = static_cast<float>(0.3 * random.Uniform());
  if (random.Integer(0, 1)) {
    params.repetition_penalty = static_cast<float>(0.5 + 1.5 * random.Uniform());
    // Products with counts are exact in f32, so that it does not matter who fuses them.
    params.presence_penalty = random.Integer(-8, 8) / 4.0f;
    params.frequency_penalty = random.Integer(-8, 8) / 4.0f;
  }
  params.seed = random.Bits();
  request.prompt = random.Integers(random.Integer(0, 20), 0, vocab_size - 1);
  request.generated = random.Integers(random.Integer(0, 20), 0, vocab_size - 1);
  if (vocab_size > 4 && random.Integer(0, 1)) {
    const int id = random.Integer(0, vocab_size - 2);
    params.logit_bias = {{id, 3.5f}, {id + 1, -4.0f}};
    params.bad_token_ids = random.Integers(2, 0, 1);
  }
  if (vocab_size > 4 && random.Integer(0, 2) == 0) {
    params.allowed_token_ids = random.Integers(vocab_size / 2, 0, vocab_size - 1);
    params.allowed_token_ids.push_back(3);  // is never banned
  }
  return request;
}

TEST(SamplerTest, EveryTransformationAgreesWithF64) {
  Random random(4);
  for (const int vocab_size : {1, 2, 3, 31, 205, 4096}) {
    for (const float step : {0.0f, 0.5f}) {
      std::vector<Request> requests;
      for (int i = 0; i < (vocab_size < 4096 ? 60 : 12); ++i) {
        requests.push_back(RandomRequest(random, vocab_size));
      }
      const std::vector<float> logits = Logits(random, requests.size() * vocab_size, 3, step);
      const Step result = SampleOnce(logits, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto row = logits.begin() + i * vocab_size;
        SCOPED_TRACE(StrCat("row ", i, ", vocabulary ", vocab_size, ", step ", step));
        ExpectRow(&result.probabilities[i * vocab_size], result.token_ids[i],
                  {row, row + vocab_size}, requests[i]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(SamplerTest, TheVocabularyOfLlama3AgreesWithF64) {
  constexpr int kVocabSize = 128256;
  Random random(5);
  std::vector<Request> requests(5);
  for (Request& request : requests) request.params.temperature = 0.9f;
  requests[0].params.top_p = 0.9f;
  requests[1].params.top_k = 50;
  requests[2].params.min_p = 0.05f;
  requests[3].params = requests[0].params;
  requests[3].params.top_k = 1000;
  requests[3].params.repetition_penalty = 1.25f;
  requests[3].prompt = random.Integers(30, 0, kVocabSize - 1);
  const std::vector<float> logits = Logits(random, requests.size() * kVocabSize, 3);
  const Step result = SampleOnce(logits, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto row = logits.begin() + i * kVocabSize;
    SCOPED_TRACE(i);
    ExpectRow(&result.probabilities[i * kVocabSize], result.token_ids[i], {row, row + kVocabSize},
              requests[i]);
  }
}

std::vector<int> Kept(const float* probabilities, int vocab_size) {
  std::vector<int> ids;
  for (int id = 0; id < vocab_size; ++id) {
    if (probabilities[id] != 0) ids.push_back(id);
  }
  return ids;
}

// Worked by hand: weights 4, 2, 2, 1, 1 of 10 are probabilities 0.4, 0.2, 0.2, 0.1, 0.1.
TEST(SamplerTest, KeepsWhatTheDefinitionsSay) {
  const std::vector<float> row = {0, std::log(2.0f), std::log(4.0f), std::log(2.0f), 0};
  const auto KeptWith = [&](const std::function<void(SamplingParams&)>& set) {
    Request request;
    request.params.temperature = 1;
    set(request.params);
    return Kept(SampleOnce(row, {request}).probabilities.data(), 5);
  };
  using Ids = std::vector<int>;
  EXPECT_EQ(KeptWith([](SamplingParams&) {}), (Ids{0, 1, 2, 3, 4}));
  // The lower id of equals stays.
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = 1; }), (Ids{2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = 2; }), (Ids{1, 2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = 4; }), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = -1; }), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = 1000; }), (Ids{0, 1, 2, 3, 4}));
  // The token that crosses the threshold belongs to the nucleus.
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 1e-9f; }), (Ids{2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 0.39f; }), (Ids{2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 0.41f; }), (Ids{1, 2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 0.79f; }), (Ids{1, 2, 3}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 0.81f; }), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.min_p = 0.49f; }), (Ids{1, 2, 3}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.min_p = 0.51f; }), (Ids{2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.min_p = 1; }), (Ids{2}));
  // top_p is of what top_k leaves: of 4, 2 the first is two thirds.
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_k = 2, p.top_p = 0.65f; }), (Ids{2}));
  EXPECT_EQ(KeptWith([](SamplingParams& p) { p.top_p = 0.65f; }), (Ids{1, 2, 3}));
}

// Case 12: "Paris Paris Paris" as a prompt, then "Paris" generated twice.
TEST(SamplerTest, PresenceLooksAtTheAnswerAloneRepetitionAtThePromptToo) {
  constexpr int kParis = 2, kRome = 3;
  const std::vector<float> row = {0, -1, 2, -0.5f};
  const auto Logit = [&](const Request& request, int id) {
    const Step step = SampleOnce(row, {request});
    return std::log(step.probabilities[id] / step.probabilities[0]);  // token 0 has logit 0
  };
  Request request;
  request.params.temperature = 1;
  request.prompt = {kParis, kParis, kParis};

  request.params.presence_penalty = 1.5f;
  EXPECT_NEAR(Logit(request, kParis), 2, 1e-5);
  request.params.frequency_penalty = 0.25f;
  EXPECT_NEAR(Logit(request, kParis), 2, 1e-5);
  request.params.repetition_penalty = 2;
  EXPECT_NEAR(Logit(request, kParis), 1, 1e-5);  // once, however often it is there
  request.prompt = {kRome};
  EXPECT_NEAR(Logit(request, kRome), -1, 1e-5);  // a negative logit moves down too
  EXPECT_NEAR(Logit(request, 1), -1, 1e-5);      // never seen: untouched
  request.prompt = {kParis, kParis, kParis};

  request.generated = {kParis, kParis};
  EXPECT_NEAR(Logit(request, kParis), 1 - 2 * 0.25 - 1.5, 1e-5);
}

// What is generated counts from the next step on, as if it had been given at the start.
TEST(SamplerTest, CountsWhatItGenerates) {
  const std::vector<float> row = {1, 1.25f, 0.5f, -1, 1.125f, 0.875f};
  SamplingParams params;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  const Stream stream;
  Sampler sampler({2, 2, 6, 64}, stream.get());
  const DeviceBuffer<float> logits(row);
  sampler.SetRequest(1, params, {1, 1, 1});
  Request request = {params, {1, 1, 1}, {}};
  for (int i = 0; i < 12; ++i) {
    sampler.Sample(logits.data(), {{1, 3 + i}});
    sampler.Wait();
    ASSERT_EQ(sampler.token_id(0), ArgmaxReference(AdjustReference(row, request), 6)[0]) << i;
    request.generated.push_back(sampler.token_id(0));
  }
}

TEST(SamplerTest, ARequestThatComesBackGoesOnAsBefore) {
  constexpr int kVocabSize = 50, kTokens = 16, kPrompt = 5;
  Random random(6);
  const std::vector<float> all = Logits(random, kTokens * kVocabSize, 2);
  const DeviceBuffer<float> logits(all);
  Request request;
  request.params.temperature = 1.1f;
  request.params.frequency_penalty = 1.5f;
  request.params.repetition_penalty = 1.5f;
  request.params.top_p = 0.9f;
  request.params.seed = 99;
  request.prompt = random.Integers(kPrompt, 0, kVocabSize - 1);
  const auto Run = [&](int put_off_after) {
    const Stream stream;
    Sampler sampler({3, 1, kVocabSize, 64}, stream.get());
    int slot = 0;
    std::vector<int> generated;
    sampler.SetRequest(slot, request.params, request.prompt);
    for (int i = 0; i < kTokens; ++i) {
      if (i == put_off_after) {
        slot = 2;
        sampler.SetRequest(slot, request.params, request.prompt, generated);
      }
      sampler.Sample(logits.data() + i * kVocabSize, {{slot, kPrompt + i}});
      sampler.Wait();
      generated.push_back(sampler.token_id(0));
    }
    return generated;
  };
  const std::vector<int> undisturbed = Run(-1);
  EXPECT_EQ(Run(1), undisturbed);
  EXPECT_EQ(Run(9), undisturbed);
}

TEST(SamplerTest, ASlotForgetsTheRequestBefore) {
  Request heavy;
  heavy.params.temperature = 1;
  heavy.params.logit_bias = {{0, 50.0f}};
  heavy.params.bad_token_ids = {1};
  heavy.params.presence_penalty = 2;
  heavy.params.top_k = 1;
  heavy.params.logprobs = 2;
  Request light;
  light.params.temperature = 1;
  light.params.frequency_penalty = 1;
  const std::vector<float> row = {0, 1, 2, 3};
  const Stream stream;
  Sampler sampler({1, 1, 4, 8}, stream.get());
  const DeviceBuffer<float> logits(row);
  DeviceBuffer<float> probabilities(4);
  sampler.SetRequest(0, heavy.params, {2, 2}, {2, 3});
  sampler.Sample(logits.data(), {{0, 4}});
  sampler.SetRequest(0, light.params, {});
  sampler.Sample(logits.data(), {{0, 0}}, probabilities.data());
  sampler.Wait();
  EXPECT_EQ(probabilities.ToHost(), SampleOnce(row, {light}).probabilities);
}

// Case 11.
TEST(SamplerTest, AVerySmallTemperatureIsGreedy) {
  constexpr int kVocabSize = 205;
  Random random(7);
  const std::vector<float> row = Logits(random, kVocabSize, 4, 0.25f);  // has ties
  const int best = ArgmaxReference(row, kVocabSize)[0];
  for (const float temperature : {0.0f, 1e-4f, 1e-5f, 1e-30f, 1e-45f}) {
    for (int i = 0; i < 20; ++i) {
      Request request;
      request.params.temperature = temperature;
      request.params.top_p = 0.9f;
      request.params.min_p = 0.1f;
      request.params.top_k = 40;
      request.params.seed = i;
      const Step step = SampleOnce(row, {request});
      ASSERT_EQ(step.token_ids[0], best) << temperature;
      ASSERT_EQ(step.probabilities[best], 1);
    }
  }
}

TEST(SamplerTest, HugeLogitsAndTemperaturesStayNumbers) {
  for (const float temperature : {1e-3f, 1.0f, 1e4f, 3e38f}) {
    for (const float scale : {1.0f, 1e4f, 1e30f, 3e38f}) {
      Request request;
      request.params.temperature = temperature;
      request.params.top_p = 0.99f;
      request.params.min_p = 1e-30f;
      const std::vector<float> row = {-scale, scale, 0, scale, -kInfinity, kNan};
      const Step step = SampleOnce(row, {request});
      SCOPED_TRACE(StrCat("temperature ", temperature, ", scale ", scale));
      double sum = 0;
      for (const float p : step.probabilities) sum += p;
      EXPECT_NEAR(sum, 1, 1e-6);
      EXPECT_EQ(step.probabilities[1], step.probabilities[3]);
      EXPECT_EQ(step.probabilities[4], 0);
      EXPECT_EQ(step.probabilities[5], 0);
      EXPECT_GE(step.token_ids[0], 0);
      EXPECT_LT(step.token_ids[0], 4);
    }
  }
}

TEST(SamplerTest, PlusInfinityTakesAllAndAnEmptyRowSaysSo) {
  Request random_request, greedy, filtered;
  random_request.params.temperature = 1;
  filtered.params.temperature = 0.5f;
  filtered.params.top_p = 0.6f;
  filtered.params.top_k = 3;
  filtered.params.min_p = 0.2f;
  for (const Request& request : {random_request, greedy, filtered}) {
    const Step step = SampleOnce({kInfinity, 1, -kInfinity, kNan, kInfinity, 3,  // row 0
                                  kNan, -kInfinity, -kInfinity, -kInfinity, kNan, kNan, kNan,
                                  -kInfinity, 2, kNan, -kInfinity, kNan},
                                 {request, request, request});
    EXPECT_TRUE(step.token_ids[0] == 0 || step.token_ids[0] == 4) << step.token_ids[0];
    EXPECT_EQ(step.probabilities[1] + step.probabilities[5], 0);
    EXPECT_EQ(step.token_ids[1], -1);
    EXPECT_EQ(std::vector<float>(&step.probabilities[6], &step.probabilities[12]),
              std::vector<float>(6, 0));
    EXPECT_EQ(step.token_ids[2], 2);
  }
  // A ban of the only token that has a number: no error of the batch, but of the row.
  greedy.params.bad_token_ids = {0};
  EXPECT_EQ(SampleOnce({1, -kInfinity}, {greedy}).token_ids[0], -1);
}

TEST(SamplerTest, ARowDoesNotDependOnItsNeighbours) {
  for (const int vocab_size : {205, 10000}) {
    Random random(8);
    std::vector<Request> requests;
    for (int i = 0; i < 9; ++i) requests.push_back(RandomRequest(random, vocab_size));
    requests[4].params = SamplingParams();  // greedy among random ones
    for (Request& request : requests) request.params.logprobs = 3;
    const std::vector<float> logits = Logits(random, requests.size() * vocab_size);
    const Step together = SampleOnce(logits, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const Stream stream;
      Sampler sampler({1, 1, vocab_size, 64}, stream.get());
      const auto row = logits.begin() + i * vocab_size;
      const DeviceBuffer<float> input(std::vector<float>(row, row + vocab_size));
      DeviceBuffer<float> probabilities(vocab_size);
      sampler.SetRequest(0, requests[i].params, requests[i].prompt, requests[i].generated);
      const int position = 100 + static_cast<int>(i);
      sampler.Sample(input.data(), {{0, position}}, probabilities.data());
      sampler.Wait();
      EXPECT_EQ(sampler.token_id(0), together.token_ids[i]);
      EXPECT_EQ(sampler.Logprobs(0).logprob, together.logprobs[i].logprob);
      EXPECT_EQ(sampler.Logprobs(0).top, together.logprobs[i].top);
      const std::vector<float> alone = probabilities.ToHost();
      EXPECT_EQ(std::memcmp(alone.data(), &together.probabilities[i * vocab_size], vocab_size * 4),
                0);
    }
  }
}

// --- Distributions

// Tokens drawn from one row of logits, one a position, `launches` times 2,048 of them.
std::vector<int> DrawMany(const std::vector<float>& row, const SamplingParams& params,
                          int launches) {
  constexpr int kRows = 2048;
  const int vocab_size = static_cast<int>(row.size());
  std::vector<float> repeated;
  for (int i = 0; i < kRows; ++i) repeated.insert(repeated.end(), row.begin(), row.end());
  const Stream stream;
  Sampler sampler({1, kRows, vocab_size, 1}, stream.get());
  sampler.SetRequest(0, params, {});
  const DeviceBuffer<float> logits(repeated);
  std::vector<int> token_ids;
  for (int launch = 0; launch < launches; ++launch) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < kRows; ++i) rows.push_back({0, launch * kRows + i});
    sampler.Sample(logits.data(), rows);
    sampler.Wait();
    for (int i = 0; i < kRows; ++i) token_ids.push_back(sampler.token_id(i));
  }
  return token_ids;
}

// Pearson's sum over the cells that can occur, less what it is at most with all but one in a
// million of honest samples: above 0, the sample is not from the distribution. The quantile is
// Wilson and Hilferty's (1931), z = 4.75. Infinite when an impossible token occurs.
double ChiSquareExcess(const std::vector<int>& samples, const std::vector<double>& distribution) {
  std::vector<double> counts(distribution.size());
  for (const int sample : samples) ++counts.at(sample);
  double sum = 0;
  int cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = distribution[i] * samples.size();
    if (expected == 0) {
      if (counts[i] > 0) return kInfinity;
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (cells == 1) return sum;
  const double degrees = cells - 1;
  return sum - degrees * std::pow(1 - 2 / (9 * degrees) + 4.75 * std::sqrt(2 / (9 * degrees)), 3);
}

std::vector<double> Distribution(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<double> weights;
  const std::vector<Fate> fates =
      FilterReference(AdjustReference(row, {params, {}, {}}), params, &weights);
  double total = 0;
  for (size_t id = 0; id < weights.size(); ++id) {
    EXPECT_NE(fates[id], Fate::kEither) << "choose parameters off the thresholds";
    if (fates[id] == Fate::kOut) weights[id] = 0;
    total += weights[id];
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

TEST(DistributionTest, TokensComeAsOftenAsTheyShould) {
  // Probabilities from 0.3 down to 0.01 at temperature 1, so that every cell expects 80 or more.
  const std::vector<float> row = {1.0f, -0.7f, 2.2f, 0.1f, 1.6f, -1.1f, 0.4f, 2.0f, -0.2f, 1.3f};
  std::vector<SamplingParams> all(7);
  for (SamplingParams& params : all) params.temperature = 1;
  all[1].temperature = 0.7f;
  all[2].temperature = 2;
  all[3].top_k = 4;
  all[4].top_p = 0.8f;
  all[5].min_p = 0.17f;
  all[6].logit_bias = {{5, 3.0f}};
  all[6].bad_token_ids = {2};
  all[6].top_k = 6;
  all[6].top_p = 0.9f;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].seed = 1000 + i;
    const std::vector<int> samples = DrawMany(row, all[i], 4);
    EXPECT_LT(ChiSquareExcess(samples, Distribution(row, all[i])), 0) << "parameters " << i;
    // The same samples do not pass for those of a warmer distribution.
    SamplingParams other = all[i];
    other.temperature *= 1.5f;
    EXPECT_GT(ChiSquareExcess(samples, Distribution(row, other)), 0) << "parameters " << i;
  }
}

TEST(DistributionTest, NeighbouringPositionsAndSeedsAreIndependent) {
  const std::vector<float> row(4, 0.0f);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 17;
  const std::vector<int> first = DrawMany(row, params, 4);
  params.seed = 18;
  const std::vector<int> second = DrawMany(row, params, 4);
  std::vector<int> successors, across;
  for (size_t i = 0; i + 1 < first.size(); i += 2)
    successors.push_back(4 * first[i] + first[i + 1]);
  for (size_t i = 0; i < first.size(); ++i) across.push_back(4 * first[i] + second[i]);
  const std::vector<double> uniform(16, 1.0 / 16);
  EXPECT_LT(ChiSquareExcess(successors, uniform), 0);
  EXPECT_LT(ChiSquareExcess(across, uniform), 0);
}

TEST(DistributionTest, TheSameSeedGivesTheSameTokensAnotherOthers) {
  Random random(9);
  const std::vector<float> row = Logits(random, 100, 1);
  SamplingParams params;
  params.temperature = 1;
  params.seed = 0x123456789abcdef0;
  const std::vector<int> tokens = DrawMany(row, params, 1);
  EXPECT_EQ(DrawMany(row, params, 1), tokens);
  params.seed ^= uint64_t{1} << 63;
  EXPECT_NE(DrawMany(row, params, 1), tokens);
}

// --- Logprobs

TEST(LogprobsTest, AgreeWithF64WhateverThePenalties) {
  Random random(10);
  for (const int vocab_size : {1, 2, 31, 205, 4096, 128256}) {
    for (const float step : {0.0f, 0.5f}) {
      Request request;
      request.params.temperature = 1;
      request.params.top_k = 5;
      request.params.repetition_penalty = 2;
      request.params.logit_bias = {{0, 5.0f}};
      request.params.logprobs = 20;
      request.prompt = {vocab_size - 1};
      const std::vector<float> row = Logits(random, vocab_size, 4, step);
      const Step result = SampleOnce(row, {request});
      double sum = 0;
      for (const float logit : row) sum += std::exp(double{logit});
      std::vector<int> order(vocab_size);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
      const TokenLogprobs& logprobs = result.logprobs[0];
      // Two roundings of numbers up to 40 in f32.
      EXPECT_NEAR(logprobs.logprob, row[result.token_ids[0]] - std::log(sum), 5e-6);
      ASSERT_EQ(logprobs.top.size(), std::min<size_t>(20, vocab_size));
      for (size_t i = 0; i < logprobs.top.size(); ++i) {
        EXPECT_EQ(logprobs.top[i].first, order[i]) << i << " of " << vocab_size;
        EXPECT_NEAR(logprobs.top[i].second, row[order[i]] - std::log(sum), 5e-6);
      }
    }
  }
}

TEST(LogprobsTest, OnlyForRowsThatAskAndOnlyOfTokensThatCanBe) {
  std::vector<Request> requests(4);
  requests[1].params.logprobs = 0;
  requests[2].params.logprobs = kMaxLogprobs;
  requests[3].params.logprobs = 2;
  const Step step = SampleOnce({1, 2, 3,  // row 0
                                1, 2, 1,  //
                                -kInfinity, 7, kNan, -kInfinity, kNan, -kInfinity},
                               requests);
  EXPECT_TRUE(step.logprobs[1].top.empty());
  EXPECT_NEAR(step.logprobs[1].logprob, -std::log(1 + 2 * std::exp(-1.0)), 1e-6);
  ASSERT_EQ(step.logprobs[2].top.size(), 1u);
  EXPECT_EQ(step.logprobs[2].top[0], (std::pair<int, float>(1, 0.0f)));
  EXPECT_EQ(step.token_ids[3], -1);
  EXPECT_TRUE(step.logprobs[3].top.empty());
  EXPECT_EQ(step.logprobs[3].logprob, -kInfinity);
}

// --- What is refused

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SamplingParamsTest, NamesWhatIsWrong) {
  const auto Message = [](const std::function<void(SamplingParams&)>& set) {
    return MessageOf([&] {
      SamplingParams params;
      set(params);
      params.Validate(100);
    });
  };
  const auto Expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' without " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  EXPECT_EQ(Message([](SamplingParams&) {}), "");
  for (const float bad : {-0.1f, kNan, kInfinity}) {
    Expect(Message([&](SamplingParams& p) { p.temperature = bad; }), "temperature is ");
    Expect(Message([&](SamplingParams& p) { p.top_p = bad; }), "top_p is ");
    Expect(Message([&](SamplingParams& p) { p.min_p = bad; }), "min_p is ");
    Expect(Message([&](SamplingParams& p) { p.repetition_penalty = bad; }), "repetition_penalty");
    Expect(Message([&](SamplingParams& p) { p.presence_penalty = 30 * bad; }), "presence_penalty");
    Expect(Message([&](SamplingParams& p) { p.frequency_penalty = 30 * bad; }), "frequency_pen");
    Expect(Message([&](SamplingParams& p) { p.logit_bias = {{1, 2000 * bad}}; }), "logit_bias is ");
  }
  Expect(Message([](SamplingParams& p) { p.top_p = 0; }), "top_p is 0, expected more than 0");
  Expect(Message([](SamplingParams& p) { p.top_p = 1.001f; }), "top_p is 1.001");
  Expect(Message([](SamplingParams& p) { p.repetition_penalty = 0; }), "repetition_penalty is 0");
  Expect(Message([](SamplingParams& p) { p.top_k = -2; }), "top_k is -2");
  Expect(Message([](SamplingParams& p) { p.logprobs = -2; }), "logprobs is -2");
  Expect(Message([](SamplingParams& p) { p.logprobs = kMaxLogprobs + 1; }), "logprobs is 129");
  Expect(Message([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }), "token id 100");
  Expect(Message([](SamplingParams& p) { p.logit_bias = {{7, 1.0f}, {7, 2.0f}}; }), "7 twice");
  Expect(Message([](SamplingParams& p) { p.logit_bias.resize(kMaxLogitBiases + 1); }), "1025");
  Expect(Message([](SamplingParams& p) { p.bad_token_ids = {-1}; }), "bad_token_ids: token id -1");
  Expect(Message([](SamplingParams& p) { p.allowed_token_ids = {100}; }), "allowed_token_ids: ");
  Expect(Message([](SamplingParams& p) { p.allowed_token_ids = p.bad_token_ids = {5}; }),
         "leave no token");
}

TEST(SamplerTest, KeepsToItsLimits) {
  const Stream stream;
  EXPECT_THROW(Sampler({0, 1, 10, 8}, stream.get()), Error);
  EXPECT_THROW(Sampler({1, 1, kMaxVocabSize + 1, 8}, stream.get()), Error);
  EXPECT_ERROR(Sampler({1 << 30, 1 << 30, 100000, 8}, stream.get()), "1073741824 requests",
               "--max-num-seqs");
  Sampler sampler({2, 2, 3, 8}, stream.get());
  const DeviceBuffer<float> logits(std::vector<float>{1, 2, 3, 6, 5, 4});
  SamplingParams params;
  params.presence_penalty = 1;
  EXPECT_THROW(sampler.SetRequest(2, params, {}), Error);
  EXPECT_THROW(sampler.SetRequest(-1, params, {}), Error);
  EXPECT_THROW(sampler.SetRequest(0, params, {3}), Error);
  EXPECT_THROW(sampler.SetRequest(0, params, {}, {-1}), Error);
  EXPECT_THROW(sampler.SetRequest(0, params, {0, 1, 2, 0, 1}, {2, 0, 1, 2}), Error);
  EXPECT_THROW(sampler.Sample(logits.data(), {{0, 0}}), Error) << "a slot without a request";
  sampler.SetRequest(0, params, {0, 1, 2, 0, 1, 2, 0, 1});
  EXPECT_THROW(sampler.Sample(logits.data(), {{0, 0}, {0, 1}}), Error);
  EXPECT_THROW(sampler.Sample(logits.data(), {{2, 0}}), Error);
  EXPECT_THROW(sampler.Sample(logits.data(), {{0, -1}}), Error);
  EXPECT_THROW(sampler.Sample(logits.data(), {{0, 0}, {0, 1}, {0, 2}}), Error);
  // A refusal leaves the slot as it was, and the next step works.
  params.temperature = -1;
  EXPECT_THROW(sampler.SetRequest(0, params, {}), Error);
  sampler.SetRequest(1, SamplingParams(), {});
  sampler.Sample(logits.data(), {});
  sampler.Sample(logits.data(), {{1, 0}, {0, 0}});
  sampler.Wait();
  EXPECT_EQ(sampler.token_id(0), 2);
  EXPECT_EQ(sampler.token_id(1), 0);
}

}  // namespace
}  // namespace tinyvllm
