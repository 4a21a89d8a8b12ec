// Checks of lesson 13's block pool, against a plain model of it: a list and a map.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/testing/random.h"
#include "lessons/13_paged_attention/block_pool.h"

namespace tinyvllm {
namespace {

template <typename Call>
void ExpectError(Call call, const std::vector<std::string>& parts) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
    return;
  }
  ADD_FAILURE() << "no Error was thrown";
}

TEST(BlockPool, GivesEveryBlockOnceThenNone) {
  BlockPool pool(3);
  EXPECT_EQ(pool.num_blocks(), 3);
  EXPECT_EQ(pool.num_free(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.references(i), 0);
    EXPECT_EQ(pool.Allocate(), i);
    EXPECT_EQ(pool.references(i), 1);
    EXPECT_EQ(pool.num_free(), 2 - i);
    pool.CheckInvariants();
  }
  ExpectError([&] { pool.Allocate(); }, {"3 blocks", "free"});
  EXPECT_EQ(pool.num_free(), 0);
  pool.CheckInvariants();
}

TEST(BlockPool, TakesTheBlockThatHasBeenFreeTheLongest) {
  BlockPool pool(4);
  for (int i = 0; i < 4; ++i) pool.Allocate();
  for (const int block : {2, 0, 3, 1}) pool.Release(block);
  for (const int block : {2, 0, 3, 1}) EXPECT_EQ(pool.Allocate(), block);
}

TEST(BlockPool, ABlockIsFreeOnceTheLastReferenceIsGone) {
  BlockPool pool(2);
  const int block = pool.Allocate();
  pool.Retain(block);
  pool.Retain(block);
  EXPECT_EQ(pool.references(block), 3);
  pool.Release(block);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 1);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.Allocate(), 1) << "block 0 was free for a shorter time";
}

TEST(BlockPool, AFreeBlockCanBeTakenBackFromAnywhereInTheList) {
  for (int taken = 0; taken < 5; ++taken) {
    BlockPool pool(5);
    pool.Retain(taken);
    EXPECT_EQ(pool.references(taken), 1);
    EXPECT_EQ(pool.num_free(), 4);
    pool.CheckInvariants();
    for (int i = 0; i < 5; ++i) {
      if (i != taken) {
        EXPECT_EQ(pool.Allocate(), i);
      }
    }
    ExpectError([&] { pool.Allocate(); }, {"free"});
    pool.CheckInvariants();
  }
}

TEST(BlockPool, RefusesWhatWouldBreakIt) {
  ExpectError([] { BlockPool(0); }, {"0 blocks", "at least 1"});
  ExpectError([] { BlockPool(-7); }, {"-7 blocks"});
  BlockPool pool(3);
  const int block = pool.Allocate();
  for (const int unknown : {-1, 3, std::numeric_limits<int>::max()}) {
    ExpectError([&] { pool.Retain(unknown); }, {"retain", StrCat(unknown), "0 to 2"});
    ExpectError([&] { pool.Release(unknown); }, {"release", StrCat(unknown), "0 to 2"});
    ExpectError([&] { pool.references(unknown); }, {StrCat(unknown), "0 to 2"});
  }
  pool.Release(block);
  ExpectError([&] { pool.Release(block); }, {"release of block 0", "free already"});
  EXPECT_EQ(pool.num_free(), 3);
  pool.CheckInvariants();
}

// Hundreds of random calls on pools of every small size; the pool must do what the model does, to
// the order of the free list, and hold its own invariants throughout.
TEST(BlockPool, DoesWhatAPlainListWouldDo) {
  Random random(1);
  for (int num_blocks = 1; num_blocks <= 24; ++num_blocks) {
    BlockPool pool(num_blocks);
    std::deque<int> free;
    std::vector<int> references(num_blocks, 0);
    for (int i = 0; i < num_blocks; ++i) free.push_back(i);
    for (int step = 0; step < 600; ++step) {
      const int block = random.Integer(0, num_blocks - 1);
      const int call = random.Integer(0, 4);
      if (call < 2 && !free.empty()) {
        ASSERT_EQ(pool.Allocate(), free.front());
        references[free.front()] = 1;
        free.pop_front();
      } else if (call == 2) {
        pool.Retain(block);
        if (references[block]++ == 0) free.erase(std::find(free.begin(), free.end(), block));
      } else if (references[block] > 0) {
        pool.Release(block);
        if (--references[block] == 0) free.push_back(block);
      }
      ASSERT_EQ(pool.num_free(), static_cast<int>(free.size()));
      ASSERT_EQ(pool.references(block), references[block]);
      pool.CheckInvariants();
    }
  }
}

}  // namespace
}  // namespace tinyvllm
