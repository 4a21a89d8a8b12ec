// Byte-pair encoding: how the bytes of one word become pieces of the vocabulary.
//
//   Bpe bpe(/*ignore_merges=*/false);
//   bpe.AddPiece("h", 0); ...             // one piece for each of the 256 bytes, then longer ones
//   bpe.AddMerge("h", "e"); ...           // rules, the first one added is the first applied
//   bpe.EncodeWord(" hello", &ids);
//
// Start with one piece a byte. Among all neighbours that a rule joins, join those whose rule has
// the lowest rank (learned first), the leftmost when there are several; repeat until no rule
// applies. The order matters: the same rules in another order give other pieces, and a model that
// was trained on one segmentation does not know the other.
//
// Source: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword
// Units" (2016), section 3.2; on bytes: GPT-2, as in byte_level.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tinyvllm {

// The rules: which two pieces become which one, and how early.
class MergeTable {
 public:
  struct Rule {
    int rank;    // lower goes first
    int merged;  // the id of the joined piece
  };

  // Rules get ranks 0, 1, 2, ... in the order they are added. False when the pair has one already.
  bool Add(int left, int right, int merged);

  // The rule for two neighbours, or nullptr when they do not join.
  const Rule* Find(int left, int right) const {
    const Slot& slot = slots_[FindSlot(left, right)];
    return slot.left == kFree ? nullptr : &slot.rule;
  }

  int size() const { return size_; }

 private:
  // An open hash table: a pair lies in the slot that its hash names, or in the next free one after
  // it. One lookup is then mostly one access to memory, and merging does little else.
  static constexpr int kFree = -1;
  struct Slot {
    int left = kFree;
    int right = kFree;
    Rule rule = {};
  };

  // Where the pair is, or the free slot where it would be.
  size_t FindSlot(int left, int right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    // Multiplying by 2^64 / phi spreads neighbouring keys; the upper bits are the well mixed ones.
    size_t i = (key * 0x9E3779B97F4A7C15u) >> 32 & (slots_.size() - 1);
    while (slots_[i].left != kFree && (slots_[i].left != left || slots_[i].right != right)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return i;
  }
  void Grow();

  std::vector<Slot> slots_ = std::vector<Slot>(16);  // a power of two, at least half of them free
  int size_ = 0;
};

// One step: joins the leftmost pair of the lowest rank in `pieces` (ids). False, with `pieces`
// unchanged, when no rule applies.
bool MergeOnce(const MergeTable& merges, std::vector<int>* pieces);

// Joins until no rule applies. Every version gives the same pieces.
void MergeByScan(const MergeTable& merges, std::vector<int>* pieces);  // 1
void MergeByHeap(const MergeTable& merges, std::vector<int>* pieces);  // 2

// What the tokenizer calls: scanning for words, the heap for what is longer than a word.
void MergePieces(const MergeTable& merges, std::vector<int>* pieces);

struct MergeVersion {
  int number;
  const char* name;
  const char* idea;
  void (*merge)(const MergeTable& merges, std::vector<int>* pieces);
};
constexpr std::array<MergeVersion, 2> kMergeVersions = {{
    {1, "scan", "look at all pairs, join the best one, begin again", MergeByScan},
    {2, "heap", "keep the candidates sorted, look again only at a join's two neighbours",
     MergeByHeap},
}};

class Bpe {
 public:
  // With `ignore_merges` a word that is a piece as a whole is that piece, whatever the rules say.
  explicit Bpe(bool ignore_merges) : ignore_merges_(ignore_merges) { byte_ids_.fill(-1); }

  // Room for `count` pieces, to spare time when there are many.
  void ReservePieces(size_t count) { ids_.reserve(count); }
  // `bytes` must outlive this object. Throws Error when there is such a piece already.
  void AddPiece(std::string_view bytes, int id);
  // Throws Error when one of the two pieces or the joined one is unknown, or the rule is known.
  void AddMerge(std::string_view left, std::string_view right);
  // To be called when all is added: throws Error unless every byte has a piece, so that every text
  // can be encoded.
  void CheckComplete() const;

  // Appends the pieces of `word`.
  void EncodeWord(std::string_view word, std::vector<int>* ids) const;

  // One piece a byte: where merging starts.
  std::vector<int> BytePieces(std::string_view word) const;
  // The id of the piece with these bytes, or -1.
  int FindPiece(std::string_view bytes) const;
  const MergeTable& merges() const { return merges_; }

 private:
  bool ignore_merges_;
  std::unordered_map<std::string_view, int> ids_;
  std::array<int, 256> byte_ids_;
  MergeTable merges_;
};

}  // namespace tinyvllm
