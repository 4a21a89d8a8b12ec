// The challenge of lesson 13: one prompt, several answers. Their sequences are alike up to the end
// of the prompt, and pages let them share what is alike: a block is copied only when one of them is
// about to write to it.
//
//   std::vector<int> second = Fork(&pool, first);          // shares every block
//   if (auto copy = PrepareAppend(&pool, &second, length, block_size)) {
//     ... copy the keys and values of block copy->from to block copy->to, in all layers ...
//   }
//   // now token number `length` of the second may be written
//
// Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention,
// SOSP 2023, section 4.4.
#pragma once

#include <optional>
#include <vector>

#include "lessons/13_paged_attention/block_pool.h"

namespace tinyvllm {

// A block whose content must be copied before the next write.
struct BlockCopy {
  int from;
  int to;
};

// The block table of a sequence that goes on where this one stands. No block is taken.
std::vector<int> Fork(BlockPool* pool, const std::vector<int>& blocks);

// Makes room for one more token behind the `length` that the table's blocks hold, in a block that
// no other sequence reads: a new one where the last is full, the last one itself where it is this
// sequence's alone, and else a new one in its place, with a copy to be made. Throws Error, and
// leaves pool and table as they were, when no block is free, and when the table has not the blocks
// that `length` tokens take.
std::optional<BlockCopy> PrepareAppend(BlockPool* pool, std::vector<int>* blocks, int length,
                                       int block_size);

// The sequence has ended: lets go of its blocks. The last one first, so that of blocks that nobody
// reads any more, those of the beginning of a text are kept longest (lesson 14 finds them again).
void Free(BlockPool* pool, std::vector<int>* blocks);

}  // namespace tinyvllm
