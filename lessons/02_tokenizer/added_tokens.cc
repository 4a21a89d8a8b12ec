#include "lessons/02_tokenizer/added_tokens.h"

namespace tinyvllm {

void AddedTokenMatcher::Add(std::string_view content, int id) {
  starts_token_[static_cast<uint8_t>(content[0])] = true;
  int node = 0;
  for (const char byte : content) {
    const int fresh = static_cast<int>(id_of_node_.size());
    const auto [edge, is_new] = next_node_.try_emplace(Edge(node, byte), fresh);
    if (is_new) id_of_node_.push_back(-1);
    node = edge->second;
  }
  id_of_node_[node] = id;
}

AddedTokenMatcher::Match AddedTokenMatcher::Find(std::string_view text, size_t start) const {
  for (size_t begin = start; begin < text.size(); ++begin) {
    if (!starts_token_[static_cast<uint8_t>(text[begin])]) continue;
    Match longest;
    int node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = next_node_.find(Edge(node, text[i]));
      if (edge == next_node_.end()) break;
      node = edge->second;
      if (id_of_node_[node] >= 0) longest = {begin, i + 1, id_of_node_[node]};
    }
    if (longest.id >= 0) return longest;
  }
  return {};
}

}  // namespace tinyvllm
