#include "lessons/13_paged_attention/challenge/fork.h"

#include "common/base/error.h"

namespace tinyvllm {

// exercise: Three short functions. Draw two sequences of 6 tokens in blocks of 4 that share both
// blocks, and say who may write where. BlockPool throws before it changes anything: let it do so
// before you change anything, too.
// starter: std::vector<int> Fork(BlockPool*, const std::vector<int>& blocks) { return blocks; }
// starter: std::optional<BlockCopy> PrepareAppend(BlockPool*, std::vector<int>*, int, int) {
// starter:   return std::nullopt;
// starter: }
// starter: void Free(BlockPool*, std::vector<int>*) {}
std::vector<int> Fork(BlockPool* pool, const std::vector<int>& blocks) {
  for (int block : blocks) pool->Retain(block);
  return blocks;
}

std::optional<BlockCopy> PrepareAppend(BlockPool* pool, std::vector<int>* blocks, int length,
                                       int block_size) {
  const int needed = (length + block_size - 1) / block_size;
  Check(static_cast<int>(blocks->size()) == needed, "block table: ", blocks->size(), " blocks for ",
        length, " tokens in blocks of ", block_size, ", expected ", needed);
  if (length % block_size == 0) {
    blocks->push_back(pool->Allocate());
    return std::nullopt;
  }
  const int last = blocks->back();
  if (pool->references(last) == 1) return std::nullopt;
  const BlockCopy copy = {last, pool->Allocate()};
  pool->Release(last);
  blocks->back() = copy.to;
  return copy;
}

void Free(BlockPool* pool, std::vector<int>* blocks) {
  while (!blocks->empty()) {
    pool->Release(blocks->back());
    blocks->pop_back();
  }
}
// end exercise

}  // namespace tinyvllm
