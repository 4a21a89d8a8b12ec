#include "tools/random_model/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "common/base/error.h"
#include "tools/random_model/random_word.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBytes = 256;
constexpr size_t kMaxSpecial = 256;

const std::vector<std::string> kNamed = {"<|begin_of_text|>",
                                         "<|end_of_text|>",
                                         "<|reserved_special_token_0|>",
                                         "<|reserved_special_token_1|>",
                                         "<|finetune_right_pad_id|>",
                                         "<|reserved_special_token_2|>",
                                         "<|start_header_id|>",
                                         "<|end_header_id|>",
                                         "<|eom_id|>",
                                         "<|eot_id|>",
                                         "<|python_tag|>"};

constexpr char kExpression[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string Utf8(unsigned code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// The printable characters that stand for the 256 bytes in a byte-level vocabulary, in the order of
// GPT-2's ids: bytes that are printable as they are, then the others, moved to 256 and on.
struct ByteAlphabet {
  std::vector<std::string> by_id;
  std::string of_byte[kBytes];

  ByteAlphabet() {
    std::vector<int> moved;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
      if (!printable) {
        moved.push_back(byte);
        continue;
      }
      of_byte[byte] = Utf8(byte);
      by_id.push_back(of_byte[byte]);
    }
    for (size_t i = 0; i < moved.size(); ++i) {
      of_byte[moved[i]] = Utf8(static_cast<unsigned>(256 + i));
      by_id.push_back(of_byte[moved[i]]);
    }
  }
};

struct Merge {
  std::string left, right;
};

// `count` merges, each of pieces that exist by then, each making a new one. Runs of spaces and line
// ends come first, then words. No piece holds a digit.
std::vector<Merge> MakeMerges(size_t count, const ByteAlphabet& alphabet) {
  const std::string space = alphabet.of_byte[' '];
  const std::string line = alphabet.of_byte['\n'];
  std::vector<Merge> merges = {
      {space, space}, {space + space, space + space}, {line, line}, {"t", "h"}, {space, "th"}};
  merges.resize(std::min(merges.size(), count));

  // Letters by their frequency in English text, so that common ones make more pieces.
  std::vector<std::string> inner;
  for (const char letter : std::string("etaoinshrdlucmfwypvbgkjqxz")) inner.push_back({letter});
  std::vector<std::string> starts = inner;  // what a word can begin with: a space before it or not
  starts.insert(starts.begin(), space);
  std::unordered_set<std::string> made;
  for (const Merge& merge : merges) made.insert(merge.left + merge.right);

  constexpr size_t kMaxPieceBytes = 14;
  uint64_t draws = 0;
  const auto pick = [&](const std::vector<std::string>& from) -> const std::string& {
    const double uniform = static_cast<double>(RandomWord(/*key=*/0, draws++) >> 11) * 0x1p-53;
    return from[static_cast<size_t>(uniform * uniform * from.size())];
  };
  while (merges.size() < count) {
    const std::string& left = pick(starts);
    const std::string& right = pick(inner);
    if (left.size() + right.size() > kMaxPieceBytes) continue;
    const std::string piece = left + right;
    if (!made.insert(piece).second) continue;
    merges.push_back({left, right});
    starts.push_back(piece);
    if (piece.compare(0, space.size(), space) != 0) inner.push_back(piece);
  }
  return merges;
}

Json AddedToken(size_t id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

SpecialTokens::SpecialTokens(size_t vocab_size) {
  const size_t count = std::clamp(vocab_size / 256, kNamed.size(), kMaxSpecial);
  Check(vocab_size >= kBytes + count, "--vocab-size: found ", vocab_size, ", expected at least ",
        kBytes + kNamed.size(), ": 256 bytes and Llama 3's special tokens");
  first_id_ = vocab_size - count;
  texts_ = kNamed;
  for (size_t reserved = 3; texts_.size() < count; ++reserved) {
    texts_.push_back(StrCat("<|reserved_special_token_", reserved, "|>"));
  }
}

size_t SpecialTokens::IdOf(const std::string& text) const {
  return first_id_ + (std::find(texts_.begin(), texts_.end(), text) - texts_.begin());
}

size_t SpecialTokens::begin_of_text() const { return IdOf("<|begin_of_text|>"); }

std::vector<size_t> SpecialTokens::end_tokens() const {
  return {IdOf("<|end_of_text|>"), IdOf("<|eom_id|>"), IdOf("<|eot_id|>")};
}

size_t SpecialTokens::pad() const { return IdOf("<|finetune_right_pad_id|>"); }

std::string MakeTokenizerJson(size_t vocab_size) {
  const SpecialTokens special(vocab_size);
  const ByteAlphabet alphabet;
  const std::vector<Merge> merges = MakeMerges(special.first_id() - kBytes, alphabet);

  Json added = Json::array();
  for (size_t i = 0; i < special.texts().size(); ++i) {
    added.push_back(AddedToken(special.first_id() + i, special.texts()[i]));
  }
  const std::string begin = special.texts()[0];
  const Json begin_piece = {{"SpecialToken", {{"id", begin}, {"type_id", 0}}}};
  const Json text_piece = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json second_begin = {{"SpecialToken", {{"id", begin}, {"type_id", 1}}}};
  const Json second_text = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", Json::array({{{"type", "Split"},
                                        {"pattern", {{"Regex", kExpression}}},
                                        {"behavior", "Isolated"},
                                        {"invert", false}},
                                       byte_level})}}},
      {"post_processor",
       {{"type", "Sequence"},
        {"processors",
         Json::array({byte_level,
                      {{"type", "TemplateProcessing"},
                       {"single", Json::array({begin_piece, text_piece})},
                       {"pair", Json::array({begin_piece, text_piece, second_begin, second_text})},
                       {"special_tokens",
                        {{begin,
                          {{"id", begin},
                           {"ids", Json::array({special.begin_of_text()})},
                           {"tokens", Json::array({begin})}}}}}}})}}},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", true},
        {"vocab", nullptr},
        {"merges", nullptr}}}};

  // An ordered object looks for an equal key at each insertion, so that 128,000 of them are written
  // as text.
  std::string vocab_text;
  size_t id = 0;
  const auto add_to_vocab = [&](const std::string& piece) {
    vocab_text += (id == 0 ? "" : ",\n") + Json(piece).dump() + ":" + std::to_string(id);
    ++id;
  };
  for (const std::string& byte : alphabet.by_id) add_to_vocab(byte);
  std::string merges_text;
  for (const Merge& merge : merges) {
    add_to_vocab(merge.left + merge.right);
    merges_text += (merges_text.empty() ? "" : ",\n") + Json(merge.left + " " + merge.right).dump();
  }
  std::string text = tokenizer.dump(1);
  const auto put = [&](const std::string& field, const std::string& value) {
    const std::string empty = "\"" + field + "\": null";
    text.replace(text.rfind(empty), empty.size(), "\"" + field + "\": " + value);
  };
  put("merges", "[\n" + merges_text + "]");
  put("vocab", "{\n" + vocab_text + "}");
  return text + "\n";
}

std::string MakeTokenizerConfigJson(size_t vocab_size, size_t model_max_length) {
  const SpecialTokens special(vocab_size);
  Json added = Json::object();
  for (size_t i = 0; i < special.texts().size(); ++i) {
    Json token = AddedToken(0, special.texts()[i]);
    token.erase("id");
    added[std::to_string(special.first_id() + i)] = token;
  }
  const Json config = {
      {"added_tokens_decoder", added},
      {"bos_token", "<|begin_of_text|>"},
      {"chat_template",
       "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + "
       "message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' "
       "}}{%- endfor %}{%- if add_generation_prompt %}{{- "
       "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"},
      {"clean_up_tokenization_spaces", false},
      {"eos_token", "<|eot_id|>"},
      {"model_input_names", {"input_ids", "attention_mask"}},
      {"model_max_length", model_max_length},
      {"pad_token", "<|finetune_right_pad_id|>"},
      {"tokenizer_class", "PreTrainedTokenizerFast"}};
  return config.dump(2) + "\n";
}

}  // namespace tinyvllm
