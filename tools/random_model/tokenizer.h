// A working tokenizer of any size: byte-level BPE with Llama 3's expression and special tokens. Its
// pieces are made up (letters in English frequencies, joined at random), always the same for the
// same size; every text encodes, and decodes to itself.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tinyvllm {

// The last ids of the vocabulary, in the order of Llama 3's: 256 of them in a vocabulary of 65,536
// or more, one in 256 in a smaller one, but never fewer than the named ones.
class SpecialTokens {
 public:
  // Throws Error for a vocabulary too small for 256 bytes and the named special tokens.
  explicit SpecialTokens(size_t vocab_size);

  size_t first_id() const { return first_id_; }
  const std::vector<std::string>& texts() const { return texts_; }

  size_t begin_of_text() const;
  std::vector<size_t> end_tokens() const;  // end of text, of message, of turn
  size_t pad() const;

 private:
  size_t IdOf(const std::string& text) const;

  size_t first_id_;
  std::vector<std::string> texts_;
};

// The text of tokenizer.json, with exactly `vocab_size` entries.
std::string MakeTokenizerJson(size_t vocab_size);

// The text of tokenizer_config.json, with Llama 3's chat format.
std::string MakeTokenizerConfigJson(size_t vocab_size, size_t model_max_length);

}  // namespace tinyvllm
