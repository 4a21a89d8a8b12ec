#include "lessons/13_paged_attention/block_pool.h"

#include <limits>

#include "common/base/error.h"

namespace tinyvllm {

BlockPool::BlockPool(int num_blocks) {
  Check(num_blocks >= 1 && num_blocks < std::numeric_limits<int>::max(), "block pool: ", num_blocks,
        " blocks, expected at least 1");
  references_.assign(num_blocks, 0);
  next_.assign(num_blocks + 1, kNone);
  previous_.assign(num_blocks + 1, kNone);
  next_[end()] = previous_[end()] = end();
  for (int block = 0; block < num_blocks; ++block) LinkAtEnd(block);
}

// tag::pool[]
int BlockPool::Allocate() {
  Check(num_free_ > 0, "block pool: none of the ", num_blocks(), " blocks is free");
  const int block = next_[end()];
  Unlink(block);
  references_[block] = 1;
  return block;
}

void BlockPool::Retain(int block) {
  CheckBlock("retain", block);
  Check(references_[block] < std::numeric_limits<int>::max(), "block pool: block ", block,
        " has as many references as can be counted");
  if (references_[block] == 0) Unlink(block);
  ++references_[block];
}

void BlockPool::Release(int block) {
  CheckBlock("release", block);
  Check(references_[block] > 0, "block pool: release of block ", block, ", which is free already");
  --references_[block];
  if (references_[block] == 0) LinkAtEnd(block);
}

void BlockPool::Unlink(int block) {
  next_[previous_[block]] = next_[block];
  previous_[next_[block]] = previous_[block];
  next_[block] = previous_[block] = kNone;
  --num_free_;
}

void BlockPool::LinkAtEnd(int block) {
  const int last = previous_[end()];
  next_[last] = block;
  previous_[block] = last;
  next_[block] = end();
  previous_[end()] = block;
  ++num_free_;
}
// end::pool[]

int BlockPool::references(int block) const {
  CheckBlock("references", block);
  return references_[block];
}

void BlockPool::CheckInvariants() const {
  // From one end to the other, and back over each link: a ring that is entered anywhere but at its
  // end has a link whose way back leads elsewhere.
  int in_list = 0;
  for (int at = end(); next_[at] != end(); ++in_list) {
    const int next = next_[at];
    Check(next >= 0 && next < num_blocks(), "block pool: block ", at, " is followed by ", next,
          " in the free list");
    Check(previous_[next] == at, "block pool: block ", next, " comes after block ", at,
          " in the free list, but says it comes after ", previous_[next]);
    Check(references_[next] == 0, "block pool: block ", next, " is in the free list with ",
          references_[next], " references");
    at = next;
  }
  int unreferenced = 0;
  for (int block = 0; block < num_blocks(); ++block) {
    Check(references_[block] >= 0, "block pool: block ", block, " has ", references_[block],
          " references");
    if (references_[block] > 0) continue;
    ++unreferenced;
    Check(next_[block] != kNone, "block pool: block ", block,
          " is lost: nobody refers to it, and it is not in the free list");
  }
  Check(in_list == num_free_ && unreferenced == num_free_, "block pool: ", num_free_,
        " blocks are counted as free, ", in_list, " are in the free list, ", unreferenced,
        " have no references");
}

void BlockPool::CheckBlock(const char* call, int block) const {
  Check(block >= 0 && block < num_blocks(), "block pool: ", call, " of block ", block,
        ", expected 0 to ", num_blocks() - 1);
}

}  // namespace tinyvllm
