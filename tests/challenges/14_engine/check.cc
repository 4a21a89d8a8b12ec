// The challenge of lesson 14: with that order, a small cache computes each block once.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <set>
#include <vector>

#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/14_engine/challenge/prefix_order.h"

namespace tinyvllm {
namespace {

using Prompt = std::vector<int>;

int NothingCached(const Prompt&) { return 0; }

// The first n blocks of the prompt, for every n that it has.
std::vector<Prompt> Prefixes(const Prompt& prompt, int block_size) {
  std::vector<Prompt> prefixes;
  for (size_t end = block_size; end <= prompt.size(); end += block_size) {
    prefixes.emplace_back(prompt.begin(), prompt.begin() + end);
  }
  return prefixes;
}

// A cache of prefixes that forgets the one used least recently.
class Cache {
 public:
  Cache(size_t capacity, int block_size) : capacity_(capacity), block_size_(block_size) {}

  // Runs a prompt; returns how many of its blocks had to be computed.
  int Run(const Prompt& prompt) {
    int computed = 0;
    for (const Prompt& prefix : Prefixes(prompt, block_size_)) {
      const auto found = std::find(recent_.begin(), recent_.end(), prefix);
      computed += found == recent_.end();
      if (found != recent_.end()) recent_.erase(found);
      recent_.push_front(prefix);
      if (recent_.size() > capacity_) recent_.pop_back();
    }
    return computed;
  }

  int NumCached(const Prompt& prompt) const {
    int count = 0;
    for (const Prompt& prefix : Prefixes(prompt, block_size_)) {
      if (std::find(recent_.begin(), recent_.end(), prefix) == recent_.end()) break;
      ++count;
    }
    return count;
  }

 private:
  size_t capacity_;
  int block_size_;
  std::list<Prompt> recent_;  // the most recent first
};

TEST(PrefixOrderChallenge, ThoseThatBeginAlikeStandTogether) {
  const std::vector<Prompt> prompts = {
      {1, 1, 5, 5}, {2, 2, 6, 6}, {1, 1, 7}, {2, 2}, {1, 1, 5, 5, 8, 8}};
  EXPECT_TRUE(
      Guide("docs/14_engine.md#challenge")
          .Input("prompts", std::vector<std::string>{"0: 1 1 | 5 5", "1: 2 2 | 6 6", "2: 1 1 | 7",
                                                     "3: 2 2", "4: 1 1 | 5 5 | 8 8"})
          .Mistake("this is the order of arrival", {0, 1, 2, 3, 4})
          .Mistake("2 stands between 0 and 4, which are alike for longer", {0, 2, 4, 1, 3})
          .Compare([&] { return PrefixOrder(prompts, 2, NothingCached); },
                   std::vector<int64_t>{0, 4, 2, 1, 3}));
}

TEST(PrefixOrderChallenge, WhatIsCachedIsUsedFirst) {
  const std::vector<Prompt> prompts = {{1, 1}, {2, 2, 3, 3}, {1, 4}, {2, 2, 5, 5}};
  const auto cached = [](const Prompt& prompt) {
    return prompt[0] == 2 ? (prompt[2] == 5 ? 2 : 1) : 0;
  };
  EXPECT_EQ(PrefixOrder(prompts, 2, cached), (std::vector<size_t>{3, 1, 0, 2}));
}

TEST(PrefixOrderChallenge, NothingAndEmptyPromptsAreInOrder) {
  EXPECT_TRUE(PrefixOrder({}, 4, NothingCached).empty());
  EXPECT_EQ(PrefixOrder({{}, {1}, {}}, 4, NothingCached), (std::vector<size_t>{0, 1, 2}));
}

TEST(PrefixOrderChallenge, ASmallCacheComputesEachBlockOnce) {
  Random random(1);
  for (int round = 0; round < 30; ++round) {
    const int block_size = random.Integer(1, 4);
    std::vector<Prompt> prompts;
    std::set<Prompt> distinct;
    size_t longest = 1;
    for (int p = 0; p < 60; ++p) {
      // Two kinds of token, so that many begin alike.
      prompts.push_back(random.Integers(random.Integer(1, 8 * block_size), 0, 1));
      const std::vector<Prompt> prefixes = Prefixes(prompts.back(), block_size);
      distinct.insert(prefixes.begin(), prefixes.end());
      longest = std::max(longest, prefixes.size());
    }
    Cache cache(longest, block_size);
    // Something is in the cache already.
    for (const Prompt& prefix : Prefixes(prompts[random.Integer(0, 59)], block_size)) {
      cache.Run(prefix);
      distinct.erase(prefix);
    }
    std::vector<size_t> order = PrefixOrder(
        prompts, block_size, [&](const Prompt& prompt) { return cache.NumCached(prompt); });
    int computed = 0;
    for (size_t number : order) computed += cache.Run(prompts.at(number));
    EXPECT_EQ(computed, static_cast<int>(distinct.size())) << "blocks computed, of so many";
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), prompts.size());
    for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i) << "each prompt once";
  }
}

}  // namespace
}  // namespace tinyvllm
