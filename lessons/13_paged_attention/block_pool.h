// Which blocks of the KV cache are free, and how many sequences hold each of the others.
//
//   BlockPool pool(4);
//   const int block = pool.Allocate();   // 0: one reference
//   pool.Retain(block);                  // a second sequence reads the same block
//   pool.Release(block);
//   pool.Release(block);                 // nobody holds it: it joins the end of the free list
//
// The free list is a queue: Allocate takes the block that has been free the longest, so what a
// block held stays readable as long as possible. Lesson 14 lives on that: a block that is found
// again in time is taken out of the middle of the list by Retain and need not be computed anew.
//
// The list is doubly linked and lies in arrays, so that every call takes the same few steps, and
// nothing is allocated after the constructor. (The allocator of blocks is that of Kwon et al.,
// Efficient Memory Management for LLM Serving with PagedAttention, 2023, section 4.)
#pragma once

#include <vector>

namespace tinyvllm {

class BlockPool {
 public:
  // Blocks 0 to num_blocks - 1, all free, block 0 first. Throws Error for fewer than one.
  explicit BlockPool(int num_blocks);

  // Takes the block that has been free the longest; it has one reference then. Throws Error when
  // none is free.
  int Allocate();

  // One more reference. A free block is taken out of the free list, whole, as it was left.
  void Retain(int block);

  // One reference less; with the last one gone, the block joins the end of the free list. Throws
  // Error for a block that is free already.
  void Release(int block);

  int num_blocks() const { return static_cast<int>(references_.size()); }
  int num_free() const { return num_free_; }
  int references(int block) const;

  // Throws Error, naming what is broken, unless the free list and the references agree: each block
  // is either in the list, once, or referenced. Takes num_blocks steps; for checks.
  void CheckInvariants() const;

 private:
  static constexpr int kNone = -1;  // the link of a block that is not in the free list

  // The links are a ring that begins and ends at an extra place, number num_blocks: there is no
  // first and no last block to treat apart.
  int end() const { return num_blocks(); }
  void Unlink(int block);
  void LinkAtEnd(int block);
  void CheckBlock(const char* call, int block) const;

  std::vector<int> references_;  // (num_blocks)
  std::vector<int> next_;        // (num_blocks + 1)
  std::vector<int> previous_;    // (num_blocks + 1)
  int num_free_ = 0;
};

}  // namespace tinyvllm
