#include "lessons/02_tokenizer/bpe.h"

#include <queue>
#include <string>

#include "common/base/error.h"
#include "lessons/02_tokenizer/byte_level.h"

namespace tinyvllm {

bool MergeTable::Add(int left, int right, int merged) {
  if (2 * static_cast<size_t>(size_ + 1) > slots_.size()) Grow();
  Slot& slot = slots_[FindSlot(left, right)];
  if (slot.left != kFree) return false;
  slot = {left, right, {size_++, merged}};
  return true;
}

void MergeTable::Grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.left != kFree) slots_[FindSlot(slot.left, slot.right)] = slot;
  }
}

// tag::merge_once[]
bool MergeOnce(const MergeTable& merges, std::vector<int>* pieces) {
  // exercise: Join one pair of neighbours. Ask merges.Find(left, right) for each pair, keep the
  // rule of the lowest rank (the leftmost pair where ranks are equal), write its `merged` id in the
  // place of the two, and return true; return false when no pair has a rule.
  // starter: return false;
  const MergeTable::Rule* best = nullptr;
  size_t best_position = 0;
  for (size_t i = 0; i + 1 < pieces->size(); ++i) {
    const MergeTable::Rule* rule = merges.Find((*pieces)[i], (*pieces)[i + 1]);
    if (rule != nullptr && (best == nullptr || rule->rank < best->rank)) {
      best = rule;
      best_position = i;
    }
  }
  if (best == nullptr) return false;
  (*pieces)[best_position] = best->merged;
  pieces->erase(pieces->begin() + best_position + 1);
  return true;
  // end exercise
}
// end::merge_once[]

void MergeByScan(const MergeTable& merges, std::vector<int>* pieces) {
  for (size_t count = pieces->size(); MergeOnce(merges, pieces); --count) {
    Check(pieces->size() + 1 == count, "MergeOnce returned true but did not join two pieces");
  }
}

// tag::heap[]
namespace {

// A piece in a doubly linked list: joining two is then three assignments, wherever they stand.
struct Node {
  int id;  // -1 once it has been joined to its left neighbour
  int previous;
  int next;  // -1 at the ends
};

struct Candidate {
  int rank;
  int position;  // of the left piece
  int merged;

  // std::priority_queue has its largest element on top; ours is to be the first to join.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

void MergeByHeap(const MergeTable& merges, std::vector<int>* pieces) {
  const int count = static_cast<int>(pieces->size());
  std::vector<Node> nodes(count);
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int left) {
    if (left < 0 || nodes[left].next < 0) return;
    const MergeTable::Rule* rule = merges.Find(nodes[left].id, nodes[nodes[left].next].id);
    if (rule != nullptr) candidates.push({rule->rank, left, rule->merged});
  };
  for (int i = 0; i < count; ++i) nodes[i] = {(*pieces)[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int i = 0; i < count; ++i) consider(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    // Older joins may have changed or swallowed this pair since it was noted: then its rule is no
    // longer the one we would find now, and the candidate is stale.
    Node& left = nodes[best.position];
    if (left.id < 0 || left.next < 0) continue;
    Node& right = nodes[left.next];
    const MergeTable::Rule* rule = merges.Find(left.id, right.id);
    if (rule == nullptr || rule->rank != best.rank) continue;

    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) nodes[left.next].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }

  pieces->clear();
  for (int i = count > 0 ? 0 : -1; i >= 0; i = nodes[i].next) pieces->push_back(nodes[i].id);
}
// end::heap[]

void MergePieces(const MergeTable& merges, std::vector<int>* pieces) {
  // n steps over n pairs against n log n with a heap to build: they meet at about this length.
  constexpr size_t kLongestScan = 24;
  if (pieces->size() <= kLongestScan) {
    MergeByScan(merges, pieces);
  } else {
    MergeByHeap(merges, pieces);
  }
}

void Bpe::AddPiece(std::string_view bytes, int id) {
  const auto [place, is_new] = ids_.try_emplace(bytes, id);
  Check(is_new, "the piece of id ", id, " has the bytes of id ", place->second);
  if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
}

void Bpe::AddMerge(std::string_view left, std::string_view right) {
  const auto find = [&](std::string_view bytes) {
    const int id = FindPiece(bytes);
    if (id < 0) {
      throw Error("names '", BytesToAlphabet(bytes), "', which is no piece of the vocabulary");
    }
    return id;
  };
  const int left_id = find(left), right_id = find(right);
  const int merged = find(std::string(left).append(right));
  if (!merges_.Add(left_id, right_id, merged)) {
    throw Error("joins '", BytesToAlphabet(left), "' and '", BytesToAlphabet(right),
                "', as an earlier one does");
  }
}

void Bpe::CheckComplete() const {
  for (int byte = 0; byte < 256; ++byte) {
    Check(byte_ids_[byte] >= 0, "has no piece for byte ", byte, ", expected one for each byte");
  }
}

void Bpe::EncodeWord(std::string_view word, std::vector<int>* ids) const {
  if (ignore_merges_) {
    const int id = FindPiece(word);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  std::vector<int> pieces = BytePieces(word);
  MergePieces(merges_, &pieces);
  ids->insert(ids->end(), pieces.begin(), pieces.end());
}

std::vector<int> Bpe::BytePieces(std::string_view word) const {
  std::vector<int> pieces;
  pieces.reserve(word.size());
  for (const char byte : word) pieces.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  return pieces;
}

int Bpe::FindPiece(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace tinyvllm
