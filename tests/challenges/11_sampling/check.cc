// The challenge of lesson 11: the distribution, by chi-square; the same draw in any company;
// greedy.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/11_sampling/challenge/gumbel.h"

namespace tinyvllm {
namespace {

struct Row {
  float temperature;
  uint64_t seed;
  uint32_t position;
};

// One row of logits a row of `rows`, or one for all of them.
std::vector<int> Sample(const std::vector<float>& logits, const std::vector<Row>& rows,
                        int vocab_size) {
  std::vector<float> all = logits, temperatures;
  std::vector<uint64_t> seeds;
  std::vector<uint32_t> positions;
  while (all.size() < rows.size() * vocab_size) all.insert(all.end(), logits.begin(), logits.end());
  for (const Row& row : rows) {
    temperatures.push_back(row.temperature);
    seeds.push_back(row.seed);
    positions.push_back(row.position);
  }
  const Stream stream;
  DeviceBuffer<float> d_logits(all), d_temperatures(temperatures);
  DeviceBuffer<uint64_t> d_seeds(seeds);
  DeviceBuffer<uint32_t> d_positions(positions);
  DeviceBuffer<int> ids(rows.size());
  ids.Fill(0xee);
  GumbelSample(d_logits.data(), d_temperatures.data(), d_seeds.data(), d_positions.data(),
               ids.data(), static_cast<int>(rows.size()), vocab_size, stream.get());
  stream.Synchronize();
  return ids.ToHost();
}

TEST(GumbelChallenge, TemperatureZeroIsGreedy) {
  EXPECT_TRUE(Guide("docs/11_sampling.md#challenge")
                  .Input("logits", {1, 3, -2, 3})
                  .Input("temperature", 0)
                  .Mistake("of equal logits the higher id was taken", 3)
                  .Compare(
                      [] {
                        return Sample({1, 3, -2, 3}, {{0, 1, 1}}, 4);
                      },
                      1));
  const std::vector<float> logits = Random(1).F32(5000);
  const int largest =
      static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(Sample(logits, {{0, 5, 5}, {1e-6f, 6, 6}}, 5000), (std::vector<int>{largest, largest}));
}

TEST(GumbelChallenge, MinusInfinityAndNanAreNeverChosen) {
  std::vector<Row> rows;
  for (uint32_t position = 0; position < 300; ++position) rows.push_back({100, 1, position});
  for (int id : Sample({-INFINITY, 0, NAN, 0}, rows, 4)) ASSERT_TRUE(id == 1 || id == 3) << id;
  EXPECT_EQ(Sample({-INFINITY, NAN}, {{1, 1, 1}, {0, 1, 1}}, 2), (std::vector<int>{-1, -1}));
}

// The statistic has 7 degrees of freedom; one draw in a million exceeds 40 by chance, and the seeds
// here are always the same.
TEST(GumbelChallenge, EveryIdComesWithItsProbability) {
  const std::vector<float> logits = {0, 1, -1, 2, 0.5, -2, 1.5, 0};
  constexpr int kDraws = 3000;
  for (float temperature : {0.5f, 1.0f, 3.0f}) {
    for (bool by_seed : {false, true}) {
      std::vector<Row> rows;
      for (uint32_t i = 0; i < kDraws; ++i) {
        rows.push_back({temperature, by_seed ? i : 9, by_seed ? 9 : i});
      }
      std::vector<int> counts(logits.size());
      for (int id : Sample(logits, rows, 8)) ++counts.at(id);
      double sum = 0, chi_square = 0;
      for (float logit : logits) sum += std::exp(logit / temperature);
      std::vector<double> expected;
      for (size_t id = 0; id < logits.size(); ++id) {
        expected.push_back(kDraws * std::exp(logits[id] / temperature) / sum);
        chi_square += std::pow(counts[id] - expected[id], 2) / expected[id];
      }
      EXPECT_LT(chi_square, 40) << "temperature " << temperature << ", counts "
                                << testing::PrintToString(counts) << ", expected "
                                << testing::PrintToString(expected)
                                << (by_seed ? ", over seeds" : ", over positions");
    }
  }
}

TEST(GumbelChallenge, ADrawDependsOnItsRequestAlone) {
  const int vocab_size = 1000;
  const std::vector<float> logits = Random(2).F32(vocab_size);
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 50; ++i) rows.push_back({2, i / 10, i % 10});
  const std::vector<int> together = Sample(logits, rows, vocab_size);
  for (size_t i : {0, 17, 49}) {
    EXPECT_EQ(Sample(logits, {rows[i]}, vocab_size)[0], together[i]) << "row " << i;
  }
  EXPECT_GT(std::set<int>(together.begin(), together.end()).size(), 25u)
      << "50 draws of 1,000 tokens are hardly ever the same";
}

TEST(GumbelChallenge, TheLargestVocabularyThereIs) {
  const int vocab_size = 128257;
  std::vector<float> logits(vocab_size, -1e4);
  logits[128256] = 0;
  EXPECT_EQ(Sample(logits, {{1, 3, 4}}, vocab_size)[0], 128256);
}

}  // namespace
}  // namespace tinyvllm
