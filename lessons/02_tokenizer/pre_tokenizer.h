// The pre-tokenizer: cuts text into words before any piece is made, by a regular expression that
// tokenizer.json carries. Pieces never reach across the cut, so "dog", "dog." and "dog!" share the
// piece "dog".
//
//   const PreTokenizer pre_tokenizer(kLlama3Expression);
//   pre_tokenizer.Split("3333+777 dogs")  // "333" "3" "+" "777" " dogs"
//
// Matches become words, and so does the text between two matches ("isolated" in tokenizer.json):
// joined together, the words are the text, byte for byte.
//
// The expression runs in PCRE2 with Unicode properties, compiled to machine code where PCRE2 can.
// An expression that would take for ever ends in an Error by PCRE2's match and heap limits.
// The object is immutable: many threads may split with it at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tinyvllm {

// Of Llama 3: contractions; a word with at most one character before it (often the space); digits
// in threes from the left; punctuation; line ends; other white space, but for the last one before
// a word.
constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Of GPT-2: what a "ByteLevel" pre-tokenizer with use_regex means.
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  // Throws Error when the expression does not compile.
  explicit PreTokenizer(std::string_view expression);

  // The words of `text`; they are views into it. Throws Error when it is not UTF-8, and when the
  // expression reaches a limit.
  std::vector<std::string_view> Split(std::string_view text) const;

  const std::string& expression() const { return expression_; }

 private:
  std::string expression_;
  std::shared_ptr<const void> code_;  // pcre2_code, kept out of this header
};

}  // namespace tinyvllm
