#include "lessons/02_tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "lessons/02_tokenizer/byte_level.h"
#include "lessons/02_tokenizer/utf8.h"

namespace tinyvllm {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;  // the largest in use has 28 MB
constexpr size_t kMaxTextBytes = size_t{1} << 30;   // positions in a text fit an int

// What a token of this content adds to decoded text. Contents that use the alphabet are taken to
// be spelled in it; any other, such as an added token with a space, stands for itself.
std::string DecodedBytes(const std::string& content, bool* in_alphabet) {
  std::string bytes;
  *in_alphabet = AlphabetToBytes(content, &bytes);
  return *in_alphabet ? bytes : content;
}

// Moves the whole characters at the start of `pending` to `text`.
void MoveWholeCharacters(std::string* pending, std::string* text) {
  size_t done = 0;
  while (done < pending->size()) {
    const Utf8Char character = DecodeUtf8(*pending, done);
    if (character.status == Utf8Status::kTruncated) break;
    if (character.status == Utf8Status::kValid) {
      text->append(*pending, done, character.length);
    } else {
      text->append(kReplacementText);
    }
    done += character.length;
  }
  pending->erase(0, done);
}

}  // namespace

Tokenizer Tokenizer::FromFile(const std::string& path) {
  const MappedFile file(path);
  Check(file.size() <= kMaxFileBytes, path, ": holds ", file.size(),
        " bytes, expected a tokenizer.json of at most ", kMaxFileBytes);
  try {
    return FromJson(file.bytes());
  } catch (const Error& error) {
    throw Error(path, ": ", error.what());
  }
}

Tokenizer Tokenizer::FromJson(std::string_view json_text) {
  return Tokenizer(ParseTokenizerFile(json_text));
}

Tokenizer::Tokenizer(const TokenizerFile& file)
    : pre_tokenizer_(file.expression), bpe_(file.ignore_merges) {
  NamePieces(file);
  BuildBpe(file);
  for (const std::vector<int>* ids : {&file.template_before, &file.template_after}) {
    for (const int id : *ids) {
      Check(Contains(id), "post_processor: puts id ", id, " around the text, which names no token");
    }
  }
  template_before_ = file.template_before;
  template_after_ = file.template_after;
}

// Fills pieces_ and what finds added tokens. Hugging Face gives an added token that is spelled like
// a piece of the vocabulary that piece's id; any other needs an id of its own.
void Tokenizer::NamePieces(const TokenizerFile& file) {
  int highest = -1;
  for (const auto& [spelling, id] : file.vocabulary) highest = std::max(highest, id);
  for (const AddedToken& token : file.added_tokens) highest = std::max(highest, token.id);
  pieces_.resize(highest + 1);

  bool in_alphabet = false;
  std::vector<const std::string*> spellings(pieces_.size());
  for (const auto& [spelling, id] : file.vocabulary) {
    Check(!pieces_[id].named, "model.vocab: id ", id, " names two pieces");
    pieces_[id] = {DecodedBytes(spelling, &in_alphabet), /*named=*/true, /*special=*/false};
    spellings[id] = &spelling;
  }
  for (size_t i = 0; i < file.added_tokens.size(); ++i) {
    const AddedToken& token = file.added_tokens[i];
    Piece& piece = pieces_[token.id];
    Check(!piece.named || (spellings[token.id] != nullptr && *spellings[token.id] == token.content),
          "added_tokens[", i, "]: id ", token.id, " is taken by another token");
    Check(added_ids_.emplace(token.content, token.id).second, "added_tokens[", i, "]: id ",
          token.id, " has the content of an earlier one");
    piece = {DecodedBytes(token.content, &in_alphabet), /*named=*/true, token.special};
    matchers_[token.normalized].Add(token.content, token.id);
  }
}

// Gives the BPE the pieces that plain text can become: not the special ones.
void Tokenizer::BuildBpe(const TokenizerFile& file) {
  bpe_.ReservePieces(file.vocabulary.size());
  std::string bytes;
  for (const auto& [spelling, id] : file.vocabulary) {
    if (pieces_[id].special || !AlphabetToBytes(spelling, &bytes)) continue;
    bpe_.AddPiece(pieces_[id].bytes, id);
  }
  try {
    bpe_.CheckComplete();
  } catch (const Error& error) {
    throw Error("model.vocab: ", error.what());
  }
  std::string left, right;
  for (size_t i = 0; i < file.merges.size(); ++i) {
    try {
      const auto& [left_spelling, right_spelling] = file.merges[i];
      Check(AlphabetToBytes(left_spelling, &left) && AlphabetToBytes(right_spelling, &right),
            "is not spelled in the byte-level alphabet");
      bpe_.AddMerge(left, right);
    } catch (const Error& error) {
      throw Error("model.merges[", i, "]: ", error.what());
    }
  }
}

std::vector<int> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  Check(text.size() <= kMaxTextBytes, "the text has ", text.size(), " bytes, expected at most ",
        kMaxTextBytes);
  CheckUtf8(text);
  std::vector<int> ids;
  if (options.add_special_tokens) ids = template_before_;
  SeenWords seen;
  EncodeFrom(0, text, options.parse_special_tokens, &seen, &ids);
  if (options.add_special_tokens) {
    ids.insert(ids.end(), template_after_.begin(), template_after_.end());
  }
  return ids;
}

// Cuts out the tokens of one matcher and gives what lies between to the next. A special token that
// is not to be parsed is text like any other.
void Tokenizer::EncodeFrom(size_t matcher, std::string_view text, bool parse_special,
                           SeenWords* seen, std::vector<int>* ids) const {
  if (matcher == std::size(matchers_)) return EncodePlain(text, seen, ids);
  size_t done = 0;
  for (size_t start = 0; start < text.size();) {
    const AddedTokenMatcher::Match match = matchers_[matcher].Find(text, start);
    if (match.id < 0) break;
    start = match.end;
    if (pieces_[match.id].special && !parse_special) continue;
    EncodeFrom(matcher + 1, text.substr(done, match.begin - done), parse_special, seen, ids);
    ids->push_back(match.id);
    done = match.end;
  }
  EncodeFrom(matcher + 1, text.substr(done), parse_special, seen, ids);
}

// tag::encode_plain[]
void Tokenizer::EncodePlain(std::string_view text, SeenWords* seen, std::vector<int>* ids) const {
  // Text repeats its short words, so the ids of one met before are copied from where they are.
  constexpr size_t kLongestSeenWord = 32;
  for (const std::string_view word : pre_tokenizer_.Split(text)) {
    if (word.size() > kLongestSeenWord) {
      bpe_.EncodeWord(word, ids);
      continue;
    }
    const auto [entry, is_new] = seen->try_emplace(word, SeenWord{ids->size(), 0});
    SeenWord& place = entry->second;
    if (is_new) {
      bpe_.EncodeWord(word, ids);
      place.count = ids->size() - place.begin;
    } else {
      for (size_t i = 0; i < place.count; ++i) ids->push_back((*ids)[place.begin + i]);
    }
  }
}
// end::encode_plain[]

std::string Tokenizer::Decode(const std::vector<int>& ids, bool skip_special_tokens) const {
  StreamingDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const int id : ids) text += decoder.Push(id);
  return text + decoder.Flush();
}

bool Tokenizer::Contains(int id) const { return id >= 0 && id < vocab_size() && pieces_[id].named; }

const std::string& Tokenizer::PieceBytes(int id) const {
  Check(Contains(id), "token id ", id, " names nothing in a vocabulary of ", vocab_size());
  return pieces_[id].bytes;
}

std::optional<int> Tokenizer::SpecialTokenId(std::string_view content) const {
  const auto found = added_ids_.find(std::string(content));
  if (found == added_ids_.end() || !IsSpecial(found->second)) return std::nullopt;
  return found->second;
}

std::vector<int> Tokenizer::special_ids() const {
  std::vector<int> ids;
  for (int id = 0; id < vocab_size(); ++id) {
    if (IsSpecial(id)) ids.push_back(id);
  }
  return ids;
}

std::optional<int> Tokenizer::TokenId(std::string_view content) const {
  const auto found = added_ids_.find(std::string(content));
  if (found != added_ids_.end()) return found->second;
  const int id = bpe_.FindPiece(content);
  if (id < 0) return std::nullopt;
  return id;
}

// tag::streaming[]
std::string StreamingDecoder::Push(int id) {
  const std::string& bytes = tokenizer_->PieceBytes(id);
  std::string text;
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return text;
  pending_ += bytes;
  MoveWholeCharacters(&pending_, &text);
  return text;
}

std::string StreamingDecoder::Flush() {
  const bool half_a_character = !pending_.empty();
  pending_.clear();
  return half_a_character ? std::string(kReplacementText) : std::string();
}
// end::streaming[]

}  // namespace tinyvllm
