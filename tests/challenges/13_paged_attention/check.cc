// The challenge of lesson 13: every sequence reads its own text, no block is held that need not be,
// and none is copied in vain.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/base/error.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/13_paged_attention/challenge/fork.h"

namespace tinyvllm {
namespace {

constexpr int kBlockSize = 4;

// A pool whose blocks hold tokens, and sequences that write through their tables.
struct Memory {
  explicit Memory(int num_blocks)
      : pool(num_blocks), content(num_blocks, std::vector<int>(kBlockSize, -1)) {}

  struct Sequence {
    std::vector<int> blocks;
    std::vector<int> text;  // what it should read
  };

  void Append(Sequence* sequence, int token) {
    const int length = static_cast<int>(sequence->text.size());
    if (const auto copy = PrepareAppend(&pool, &sequence->blocks, length, kBlockSize)) {
      content.at(copy->to) = content.at(copy->from);
      ++num_copies;
    }
    content.at(BlockOf(*sequence, length)).at(length % kBlockSize) = token;
    sequence->text.push_back(token);
  }

  std::vector<int> Read(const Sequence& sequence) const {
    std::vector<int> text;
    for (size_t i = 0; i < sequence.text.size(); ++i) {
      text.push_back(content.at(BlockOf(sequence, i)).at(i % kBlockSize));
    }
    return text;
  }

  static int BlockOf(const Sequence& sequence, size_t token) {
    const size_t index = token / kBlockSize;
    Check(
        index < sequence.blocks.size(), "token ", token, " belongs into the table's block number ",
        index, ", and the table has ", sequence.blocks.size(),
        ": PrepareAppend, in lessons/13_paged_attention/challenge/fork.cc, makes room for a token, "
        "and Fork keeps what is there");
    return sequence.blocks[index];
  }

  BlockPool pool;
  std::vector<std::vector<int>> content;  // (blocks, block_size)
  int num_copies = 0;
};

TEST(ForkChallenge, TwoAnswersToSixTokens) {
  Memory memory(8);
  Memory::Sequence first;
  for (int token = 10; token < 16; ++token) memory.Append(&first, token);
  Memory::Sequence second = {Fork(&memory.pool, first.blocks), first.text};
  EXPECT_EQ(memory.pool.num_free(), 6) << "a fork takes no block";
  memory.Append(&second, 99);
  memory.Append(&first, 16);
  EXPECT_TRUE(Guide("docs/13_paged_attention.md#challenge")
                  .Input("first's tokens", first.text)
                  .Input("second's tokens", second.text)
                  .Mistake("the second writes where the first reads: a shared block must be copied "
                           "before it is written",
                           {10, 11, 12, 13, 14, 15, 16})
                  .Compare([&] { return memory.Read(second); }, second.text));
  EXPECT_EQ(memory.Read(first), first.text);
  EXPECT_EQ(memory.num_copies, 1) << "after the copy the first has its last block alone";
  EXPECT_EQ(first.blocks[0], second.blocks[0]) << "the full block stays shared";
  EXPECT_EQ(memory.pool.num_free(), 5);
}

TEST(ForkChallenge, AFullBlockIsNotCopied) {
  Memory memory(8);
  Memory::Sequence first;
  for (int token = 0; token < 4; ++token) memory.Append(&first, token);
  Memory::Sequence second = {Fork(&memory.pool, first.blocks), first.text};
  memory.Append(&second, 4);
  EXPECT_EQ(memory.num_copies, 0);
  EXPECT_EQ(first.blocks.size(), 1u);
  EXPECT_EQ(second.blocks.size(), 2u);
}

TEST(ForkChallenge, AFailureChangesNothing) {
  Memory memory(2);
  Memory::Sequence first;
  for (int token = 0; token < 6; ++token) memory.Append(&first, token);
  Memory::Sequence second = {Fork(&memory.pool, first.blocks), first.text};
  const std::vector<int> before = second.blocks;
  EXPECT_THROW(PrepareAppend(&memory.pool, &second.blocks, 6, kBlockSize), Error);  // none is free
  EXPECT_EQ(second.blocks, before);
  EXPECT_EQ(memory.pool.references(before[1]), 2);
  EXPECT_THROW(PrepareAppend(&memory.pool, &second.blocks, 9, kBlockSize), Error);  // 3 blocks
  EXPECT_THROW(PrepareAppend(&memory.pool, &second.blocks, 4, kBlockSize), Error);  // 1 block
  EXPECT_EQ(second.blocks, before);
  memory.pool.CheckInvariants();
}

TEST(ForkChallenge, FreesTheEndFirst) {
  Memory memory(3);
  Memory::Sequence sequence;
  for (int token = 0; token < 12; ++token) memory.Append(&sequence, token);
  std::vector<int> blocks = sequence.blocks;
  Free(&memory.pool, &sequence.blocks);
  EXPECT_TRUE(sequence.blocks.empty());
  ASSERT_EQ(memory.pool.num_free(), 3);
  // The pool gives out the block that has been free the longest.
  for (int i = 2; i >= 0; --i) EXPECT_EQ(memory.pool.Allocate(), blocks[i]);
}

TEST(ForkChallenge, AnyFamilyOfSequences) {
  Random random(1);
  Memory memory(400);
  std::vector<Memory::Sequence> sequences(1);
  int token = 0;
  for (int round = 0; round < 3000; ++round) {
    const int which = random.Integer(0, static_cast<int>(sequences.size()) - 1);
    const int what = random.Integer(0, 19);
    if (what == 0 && sequences.size() < 12) {
      Memory::Sequence child = {Fork(&memory.pool, sequences[which].blocks), sequences[which].text};
      sequences.push_back(child);
    } else if (what == 1 && sequences.size() > 1) {
      Free(&memory.pool, &sequences[which].blocks);
      sequences.erase(sequences.begin() + which);
    } else if (sequences[which].text.size() < 100) {
      memory.Append(&sequences[which], token++);
    }
    std::set<int> used;
    for (const Memory::Sequence& sequence : sequences) {
      ASSERT_EQ(memory.Read(sequence), sequence.text) << "round " << round;
      used.insert(sequence.blocks.begin(), sequence.blocks.end());
    }
    ASSERT_EQ(memory.pool.num_blocks() - memory.pool.num_free(), static_cast<int>(used.size()))
        << "blocks that nobody reads are held, or the other way round";
  }
  memory.pool.CheckInvariants();
  for (Memory::Sequence& sequence : sequences) Free(&memory.pool, &sequence.blocks);
  EXPECT_EQ(memory.pool.num_free(), 400);
}

}  // namespace
}  // namespace tinyvllm
