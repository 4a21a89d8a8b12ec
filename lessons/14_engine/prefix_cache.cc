#include "lessons/14_engine/prefix_cache.h"

#include <algorithm>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

// Twice as many buckets as blocks, so that most hold one or none.
size_t NumBuckets(int num_blocks) {
  size_t count = 1;
  while (count < size_t{2} * num_blocks) count *= 2;
  return count;
}

}  // namespace

PrefixCache::PrefixCache(int num_blocks, int block_size, uint64_t hash_mask)
    : block_size_(block_size),
      hash_mask_(hash_mask),
      entries_(num_blocks),
      tokens_(size_t{1} * num_blocks * block_size),
      buckets_(NumBuckets(num_blocks), kNone) {}

// tag::find[]
// Chained: the hash of the text before these tokens goes into theirs.
uint64_t PrefixCache::Hash(const Prefix& prefix, const int* tokens) const {
  uint64_t hash = prefix.hash;
  for (int i = 0; i < block_size_; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash & hash_mask_;
}

// The hash says where to look; the tokens and the prefix before them say whether it is the one.
int PrefixCache::FindHashed(const Prefix& prefix, const int* tokens, uint64_t hash) const {
  for (int block = buckets_[hash & (buckets_.size() - 1)]; block != kNone;
       block = entries_[block].next) {
    const Entry& entry = entries_[block];
    if (entry.hash == hash && entry.parent == prefix.number &&
        std::equal(tokens, tokens + block_size_,
                   tokens_.data() + size_t{1} * block * block_size_)) {
      return block;
    }
  }
  return kNone;
}

int PrefixCache::Find(Prefix* prefix, const int* tokens) const {
  const int block = FindHashed(*prefix, tokens, Hash(*prefix, tokens));
  if (block != kNone) *prefix = {entries_[block].number, entries_[block].hash};
  return block;
}
// end::find[]

Prefix PrefixCache::Insert(const Prefix& prefix, const int* tokens, int block) {
  Check(!Knows(block), "prefix cache: block ", block, " is known already; forget it first");
  const uint64_t hash = Hash(prefix, tokens);
  const int known = FindHashed(prefix, tokens, hash);
  if (known != kNone) return {entries_[known].number, hash};
  int& bucket = Bucket(hash);
  entries_[block] = {++last_number_, prefix.number, hash, bucket};
  bucket = block;
  std::copy(tokens, tokens + block_size_, tokens_.begin() + size_t{1} * block * block_size_);
  ++num_known_;
  return {entries_[block].number, hash};
}

void PrefixCache::Forget(int block) {
  if (!Knows(block)) return;
  int* link = &Bucket(entries_[block].hash);
  while (*link != block) link = &entries_[*link].next;
  *link = entries_[block].next;
  entries_[block] = Entry();
  --num_known_;
}

}  // namespace tinyvllm
