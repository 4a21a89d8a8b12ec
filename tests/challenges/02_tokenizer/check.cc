// The challenge of lesson 02: each merge is the most frequent pair at its time. The check counts
// all pairs anew for each merge, which is right and slow.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/02_tokenizer/challenge/learn_merges.h"

namespace tinyvllm {
namespace {

std::vector<std::string> Texts(const std::vector<Merge>& merges) {
  std::vector<std::string> texts;
  for (const Merge& merge : merges) texts.push_back(merge.first + " " + merge.second);
  return texts;
}

// The example of Sennrich, Haddow and Birch, 2016, section 3.2, with the order of pairs for ties.
TEST(LearnMergesChallenge, LowLowerNewestWidest) {
  const std::vector<WordCount> words = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
  EXPECT_TRUE(Guide("docs/02_tokenizer.md#challenge")
                  .Input("words", std::vector<std::string>{"low", "lower", "newest", "widest"})
                  .Input("counts", {5, 2, 6, 3})
                  .Compare([&] { return Texts(LearnMerges(words, 4)); },
                           std::vector<std::string>{"e s", "es t", "l o", "lo w"}));
}

TEST(LearnMergesChallenge, NeighboursOverlapButDoNotShare) {
  // "aaaa" has the pair three times, and two of them become "aa aa".
  EXPECT_EQ(Texts(LearnMerges({{"aaaa", 1}}, 5)), (std::vector<std::string>{"a a"}));
  EXPECT_EQ(Texts(LearnMerges({{"aaaa", 2}}, 5)), (std::vector<std::string>{"a a", "aa aa"}));
}

TEST(LearnMergesChallenge, EndsWhereNothingOccursTwice) {
  EXPECT_TRUE(LearnMerges({{"abc", 1}, {"bd", 1}}, 10).empty());
  EXPECT_TRUE(LearnMerges({}, 10).empty());
  EXPECT_TRUE(LearnMerges({{"aaaa", 9}}, 0).empty());
}

using Pieces = std::vector<std::string>;

std::map<Merge, int64_t> CountPairs(const std::vector<WordCount>& words,
                                    const std::vector<Pieces>& pieces) {
  std::map<Merge, int64_t> counts;
  for (size_t w = 0; w < words.size(); ++w) {
    for (size_t i = 0; i + 1 < pieces[w].size(); ++i) {
      counts[{pieces[w][i], pieces[w][i + 1]}] += words[w].count;
    }
  }
  return counts;
}

// The count of the most frequent pair, and the least of those that have it.
std::pair<int64_t, Merge> Best(const std::map<Merge, int64_t>& counts) {
  std::pair<int64_t, Merge> best = {0, {}};
  for (const auto& [pair, count] : counts) {
    if (count > best.first) best = {count, pair};
  }
  return best;
}

TEST(LearnMergesChallenge, EachIsTheMostFrequentAtItsTime) {
  Random random(1);
  std::vector<WordCount> words;
  for (int w = 0; w < 300; ++w) {
    std::string word;
    for (int i = random.Integer(1, 12); i > 0; --i) word += "aaabbcde\xff"[random.Integer(0, 8)];
    words.push_back({word, random.Integer(1, 5)});
  }
  const std::vector<Merge> merges = LearnMerges(words, 150);
  std::vector<Pieces> pieces(words.size());
  for (size_t w = 0; w < words.size(); ++w) {
    for (char byte : words[w].word) pieces[w].emplace_back(1, byte);
  }
  for (size_t m = 0; m < merges.size(); ++m) {
    const auto [count, best] = Best(CountPairs(words, pieces));
    ASSERT_EQ(Texts({merges[m]}), Texts({best})) << "merge " << m << ", which occurs " << count;
    ASSERT_GE(count, 2);
    for (Pieces& word : pieces) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (Merge(word[i], word[i + 1]) != best) continue;
        word[i] += word[i + 1];
        word.erase(word.begin() + i + 1);
      }
    }
  }
  EXPECT_EQ(merges.size(), 150u);
}

}  // namespace
}  // namespace tinyvllm
