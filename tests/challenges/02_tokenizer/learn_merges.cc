#include "lessons/02_tokenizer/challenge/learn_merges.h"

#include <map>
#include <set>

namespace tinyvllm {

// exercise: Count the pairs once. A merge changes the counts of its neighbours alone, in the words
// that have it: keep track of which those are.
// starter: std::vector<Merge> LearnMerges(const std::vector<WordCount>&, int) { return {}; }
namespace {

class Learner {
 public:
  explicit Learner(const std::vector<WordCount>& words) {
    for (const WordCount& word : words) {
      counts_.push_back(word.count);
      pieces_.emplace_back();
      for (char byte : word.word) pieces_.back().emplace_back(1, byte);
      AddPairs(pieces_.size() - 1, 1);
    }
  }

  std::vector<Merge> Learn(int num_merges) {
    std::vector<Merge> merges;
    while (static_cast<int>(merges.size()) < num_merges && !by_count_.empty()) {
      const auto [minus_count, best] = *by_count_.begin();
      if (minus_count > -2) break;
      merges.push_back(best);
      const std::set<size_t> words = words_of_[best];  // a copy: it changes meanwhile
      for (size_t word : words) Apply(best, word);
    }
    return merges;
  }

 private:
  // Adds `sign` times the word's pairs to the counts.
  void AddPairs(size_t word, int sign) {
    for (size_t i = 0; i + 1 < pieces_[word].size(); ++i) {
      const Merge pair(pieces_[word][i], pieces_[word][i + 1]);
      int64_t& count = pair_counts_[pair];
      by_count_.erase({-count, pair});
      count += sign * counts_[word];
      if (count > 0) by_count_.insert({-count, pair});
      if (sign > 0) {
        words_of_[pair].insert(word);
      } else {
        words_of_[pair].erase(word);
      }
    }
  }

  void Apply(const Merge& merge, size_t word) {
    AddPairs(word, -1);
    std::vector<std::string> joined;
    for (size_t i = 0; i < pieces_[word].size(); ++i) {
      std::string piece = pieces_[word][i];
      if (i + 1 < pieces_[word].size() && piece == merge.first &&
          pieces_[word][i + 1] == merge.second) {
        piece += pieces_[word][++i];
      }
      joined.push_back(piece);
    }
    pieces_[word] = joined;
    AddPairs(word, 1);
  }

  std::vector<int64_t> counts_;                   // (words)
  std::vector<std::vector<std::string>> pieces_;  // (words), as merged so far
  std::map<Merge, int64_t> pair_counts_;
  std::set<std::pair<int64_t, Merge>> by_count_;  // minus the count: the most frequent is first
  std::map<Merge, std::set<size_t>> words_of_;    // in which words a pair occurs
};

}  // namespace

std::vector<Merge> LearnMerges(const std::vector<WordCount>& words, int num_merges) {
  return Learner(words).Learn(num_merges);
}
// end exercise

}  // namespace tinyvllm
