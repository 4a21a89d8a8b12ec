// The challenge of lesson 02: where the merges come from. Byte-pair encoding is learned from
// counts.
//
//   LearnMerges({{"low", 5}, {"lower", 2}}, 2);   // {{"l", "o"}, {"lo", "w"}}
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tinyvllm {

struct WordCount {
  std::string word;  // of bytes
  int64_t count;     // how often it occurs in the text; at least 1
};

// The pieces that are joined, left and right.
using Merge = std::pair<std::string, std::string>;

// Every word begins as its bytes. Then, again and again, the pair of neighbours that occurs most
// often in all words, each as often as its word, becomes one piece, everywhere at once, in each
// word from the left to the right. Of pairs that occur equally often, the smaller in the order of
// std::pair is taken. Ends after num_merges, or when no pair occurs twice.
//
// No test knows how long you take. But try it with the 200,000 most frequent words of a language:
// who counts all pairs anew for each merge, waits for days.
std::vector<Merge> LearnMerges(const std::vector<WordCount>& words, int num_merges);

}  // namespace tinyvllm
