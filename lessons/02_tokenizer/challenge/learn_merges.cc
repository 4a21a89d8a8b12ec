#include "lessons/02_tokenizer/challenge/learn_merges.h"

#include <map>
#include <set>

namespace tinyvllm {

// Your turn: Count the pairs once. A merge changes the counts of its neighbours alone, in the words
// that have it: keep track of which those are.
std::vector<Merge> LearnMerges(const std::vector<WordCount>&, int) { return {}; }

}  // namespace tinyvllm
