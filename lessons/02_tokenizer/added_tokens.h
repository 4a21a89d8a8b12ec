// Added tokens: texts such as <|eot_id|> that stand for one id as a whole and are found before the
// text is cut into words.
//
//   AddedTokenMatcher matcher;
//   matcher.Add("<|eot_id|>", 128009);
//   matcher.Find("Hi.<|eot_id|>", 0)  // begin 3, end 13, id 128009
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tinyvllm {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int id = -1;  // -1: no match
  };

  // `content` must not be empty.
  void Add(std::string_view content, int id);

  // The first match at or after `start`, the longest where several begin at one place.
  Match Find(std::string_view text, size_t start) const;

  bool empty() const { return id_of_node_.size() == 1; }

 private:
  // A trie: each node is the text on the way to it from node 0, and may end a token.
  static uint64_t Edge(int node, char byte) {
    return uint64_t{static_cast<uint32_t>(node)} << 8 | static_cast<uint8_t>(byte);
  }
  std::unordered_map<uint64_t, int> next_node_;
  std::vector<int> id_of_node_ = {-1};
  bool starts_token_[256] = {};  // which bytes leave node 0: most text is skipped by this alone
};

}  // namespace tinyvllm
