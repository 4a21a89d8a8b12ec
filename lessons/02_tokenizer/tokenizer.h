// The tokenizer: text to ids and back, exactly as Hugging Face's tokenizers library does from the
// same tokenizer.json.
//
//   const Tokenizer tokenizer = Tokenizer::FromFile("models/pocket/tokenizer.json");
//   std::vector<int> ids = tokenizer.Encode("Hello world");
//   tokenizer.Decode(ids) == "Hello world"
//
// Encoding goes through four stages, each in a file of its own: added tokens are cut out of the
// text (added_tokens.h), the rest is cut into words (pre_tokenizer.h), the bytes of each word are
// joined to pieces (bpe.h), and a template puts ids such as begin-of-text around it all.
//
// One difference is meant: text that is not parsed for special tokens never becomes one, whatever
// the vocabulary holds.
//
// The object is immutable: many threads may encode and decode with it at once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lessons/02_tokenizer/added_tokens.h"
#include "lessons/02_tokenizer/bpe.h"
#include "lessons/02_tokenizer/pre_tokenizer.h"
#include "lessons/02_tokenizer/tokenizer_file.h"

namespace tinyvllm {

struct EncodeOptions {
  // Put the ids of the file's template (begin-of-text) around the text.
  bool add_special_tokens = false;
  // Let texts such as "<|eot_id|>" become their special ids. Only for text that you wrote
  // yourself: with it, a user could end his own turn and speak as the assistant.
  bool parse_special_tokens = false;
};

class Tokenizer {
 public:
  // Throws Error when the file is missing, is no tokenizer.json, or asks for what this library
  // does not do.
  static Tokenizer FromFile(const std::string& path);
  // The same from the text of such a file.
  static Tokenizer FromJson(std::string_view json_text);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // Throws Error when `text` is not UTF-8.
  std::vector<int> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The text of any ids. Bytes that are not UTF-8 come out as U+FFFD: half a character when a
  // sequence was cut inside one. Throws Error for an id that names nothing.
  std::string Decode(const std::vector<int>& ids, bool skip_special_tokens = false) const;

  // The highest id that names something, plus one.
  int vocab_size() const { return static_cast<int>(pieces_.size()); }
  // Whether `id` names a piece or an added token: below vocab_size() there may be gaps.
  bool Contains(int id) const;
  // The bytes that `id` adds to a decoded text. Throws Error for an id that names nothing.
  const std::string& PieceBytes(int id) const;

  // The id of a special token such as "<|eot_id|>".
  std::optional<int> SpecialTokenId(std::string_view content) const;
  bool IsSpecial(int id) const { return Contains(id) && pieces_[id].special; }
  // In rising order.
  std::vector<int> special_ids() const;
  // The id of an added token by its content, or of a piece by its bytes (" the").
  std::optional<int> TokenId(std::string_view content) const;

  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
  const Bpe& bpe() const { return bpe_; }

 private:
  struct Piece {
    std::string bytes;
    bool named = false;    // false: a gap in the ids
    bool special = false;  // never comes from plain text
  };
  // Words met before in this text, and where their ids are in the result.
  struct SeenWord {
    size_t begin;
    size_t count;
  };
  using SeenWords = std::unordered_map<std::string_view, SeenWord>;

  explicit Tokenizer(const TokenizerFile& file);
  void NamePieces(const TokenizerFile& file);
  void BuildBpe(const TokenizerFile& file);
  void EncodeFrom(size_t matcher, std::string_view text, bool parse_special, SeenWords* seen,
                  std::vector<int>* ids) const;
  void EncodePlain(std::string_view text, SeenWords* seen, std::vector<int>* ids) const;

  std::vector<Piece> pieces_;  // by id
  std::unordered_map<std::string, int> added_ids_;
  // Those that are not "normalized" first, as Hugging Face has it.
  AddedTokenMatcher matchers_[2];
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;  // its pieces are views into pieces_, which never changes
  std::vector<int> template_before_;
  std::vector<int> template_after_;
};

// Text from ids that come one at a time, as a model makes them. A character whose bytes lie in two
// pieces or more is held back until it is whole, so no half of one is ever shown.
//
//   StreamingDecoder decoder(tokenizer);
//   for (int id : ids) std::cout << decoder.Push(id);
//   std::cout << decoder.Flush();
//
// All that it returns, joined, is Decode(ids).
class StreamingDecoder {
 public:
  // `tokenizer` must outlive this object.
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // The text that `id` completes; empty while a character is incomplete. Throws Error for an id
  // that names nothing.
  std::string Push(int id);
  // At the end: what is held back can no longer be completed and comes out as U+FFFD.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;  // the first bytes of a character, at most three
};

}  // namespace tinyvllm
