// Which blocks of the pool hold which tokens, so that a prompt that begins like an earlier one need
// not be computed from its beginning.
//
//   PrefixCache cache(num_blocks, /*block_size=*/4);
//   // "the cat sat on | the mat and | ..." lies in blocks 7 and 2.
//   Prefix prefix = cache.Insert(Prefix(), tokens, 7);
//   prefix = cache.Insert(prefix, tokens + 4, 2);
//   // Later, a prompt that begins alike:
//   prefix = Prefix();
//   int block = cache.Find(&prefix, prompt);       // 7
//   block = cache.Find(&prefix, prompt + 4);       // 2, or -1 where it differs
//   // Before block 2 is written anew:
//   cache.Forget(2);
//
// The keys and values of a token depend on all tokens before it, so a block may be used again only
// where the whole text up to its end is the same. Each block's hash is chained over that of the
// block before it, and so stands for the whole text; vLLM finds blocks like this. A hash can
// collide, and then one user would read another's words. So nothing is believed that is not
// compared: an entry keeps its tokens, and the number of the prefix before them.
//
// All memory is taken in the constructor, and every call takes the same few steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tinyvllm {

// A text of whole blocks, from its first token on. Two texts that are not equal never have the same
// number, nor has one that was forgotten and comes again.
struct Prefix {
  uint64_t number = 0;                  // 0: the empty text
  uint64_t hash = 0x243f6a8885a308d3u;  // any but 0, which zeros would leave as it is
};

class PrefixCache {
 public:
  // `hash_mask` weakens the hash, for checks: with 0, all collide.
  PrefixCache(int num_blocks, int block_size, uint64_t hash_mask = ~uint64_t{0});

  // The block that holds the block_size tokens as they follow `prefix`, which then becomes longer
  // by them; or -1, and prefix stays.
  int Find(Prefix* prefix, const int* tokens) const;

  // Says that `block` holds these tokens after `prefix`; returns the longer prefix. Where another
  // block is known to hold them already, that one stays the known one.
  // PRECONDITION: nothing is known of `block`.
  Prefix Insert(const Prefix& prefix, const int* tokens, int block);

  // Its content is about to change. Nothing happens where nothing is known of it.
  void Forget(int block);

  bool Knows(int block) const { return entries_[block].number != 0; }
  int num_known() const { return num_known_; }

 private:
  static constexpr int kNone = -1;

  struct Entry {
    uint64_t number = 0;  // of the prefix that ends with this block; 0: nothing is known of it
    uint64_t parent = 0;  // number of the prefix before it
    uint64_t hash = 0;
    int next = kNone;  // the next block in the same bucket
  };

  uint64_t Hash(const Prefix& prefix, const int* tokens) const;
  int& Bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  int FindHashed(const Prefix& prefix, const int* tokens, uint64_t hash) const;

  const int block_size_;
  const uint64_t hash_mask_;
  std::vector<Entry> entries_;  // (num_blocks)
  std::vector<int> tokens_;     // (num_blocks, block_size)
  std::vector<int> buckets_;    // a power of two of them: the first block of each
  uint64_t last_number_ = 0;
  int num_known_ = 0;
};

}  // namespace tinyvllm
