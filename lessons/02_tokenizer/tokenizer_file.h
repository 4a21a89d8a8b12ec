// tokenizer.json: the parts of it that a tokenizer of the Llama 3 family needs, checked.
//
// Read are: added_tokens; pre_tokenizer (a Sequence of Split and ByteLevel, or ByteLevel alone);
// model (BPE on bytes); post_processor (TemplateProcessing, ByteLevel, or a Sequence of them);
// decoder (ByteLevel). Whatever else would change the ids (a normalizer, dropout, byte_fallback,
// ...) is refused by name, so that a tokenizer either gives the right ids or none.
//
// Source: the file format of Hugging Face's tokenizers library.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinyvllm {

// Ids at or above this are refused: they index tables.
constexpr int kMaxTokenId = 1 << 21;

struct AddedToken {
  int id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  // matched after those that are not
};

struct TokenizerFile {
  std::string expression;                               // of the pre-tokenizer
  bool ignore_merges = false;                           // see bpe.h
  std::vector<std::pair<std::string, int>> vocabulary;  // spelling (byte_level.h), id
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added_tokens;
  std::vector<int> template_before;  // ids that the post-processor puts around the text
  std::vector<int> template_after;
};

// Throws Error, one line that names the field, for anything but a tokenizer that this library
// encodes exactly.
TokenizerFile ParseTokenizerFile(std::string_view json_text);

}  // namespace tinyvllm
