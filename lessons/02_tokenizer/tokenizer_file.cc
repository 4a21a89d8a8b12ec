#include "lessons/02_tokenizer/tokenizer_file.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/json.h"
#include "lessons/02_tokenizer/pre_tokenizer.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAddedTokenBytes = 1024;

// A value inside the file together with where it is, for messages: {value, "model.vocab"}.
struct Field {
  const Json& value;
  std::string where;

  bool Has(const char* name) const {
    return value.is_object() && value.contains(name) && !value[name].is_null();
  }
  Field At(const char* name) const {
    const std::string inner = where.empty() ? name : where + "." + name;
    Check(value.is_object(), where.empty() ? "the file" : where, ": is ", ShowJson(value),
          ", expected an object");
    Check(value.contains(name), inner, ": is missing");
    return {value[name], inner};
  }
  Field At(size_t index) const { return {value[index], StrCat(where, "[", index, "]")}; }

  const Json& Array() const {
    Check(value.is_array(), where, ": is ", ShowJson(value), ", expected an array");
    return value;
  }
  const Json& Object() const {
    Check(value.is_object(), where, ": is ", ShowJson(value), ", expected an object");
    return value;
  }
  const std::string& String() const {
    Check(value.is_string(), where, ": is ", ShowJson(value), ", expected a string");
    return value.get_ref<const std::string&>();
  }
  int Id() const { return ToId(value, where); }
  bool Bool() const {
    Check(value.is_boolean(), where, ": is ", ShowJson(value), ", expected true or false");
    return value.get<bool>();
  }
  bool BoolOr(const char* name, bool fallback) const {
    return Has(name) ? At(name).Bool() : fallback;
  }
  // For what this library does not do: the field may be absent, null, false or empty.
  void RefuseUnlessOff(const char* name) const {
    if (!Has(name)) return;
    const Json& setting = value[name];
    const bool off = setting == false || setting == "";
    Check(off, At(name).where, ": is ", ShowJson(setting),
          ", which is not supported; expected it to be unset");
  }

  template <typename Where>
  static int ToId(const Json& value, const Where& where) {
    Check(value.is_number_unsigned() && value.get<uint64_t>() < kMaxTokenId, where, ": is ",
          ShowJson(value), ", expected an id from 0 to ", kMaxTokenId - 1);
    return value.get<int>();
  }
};

std::vector<AddedToken> ReadAddedTokens(const Field& file) {
  std::vector<AddedToken> tokens;
  if (!file.Has("added_tokens")) return tokens;
  const Field list = file.At("added_tokens");
  for (size_t i = 0; i < list.Array().size(); ++i) {
    const Field entry = list.At(i);
    AddedToken token;
    token.id = entry.At("id").Id();
    token.content = entry.At("content").String();
    token.special = entry.BoolOr("special", false);
    token.normalized = entry.BoolOr("normalized", !token.special);
    Check(!token.content.empty() && token.content.size() <= kMaxAddedTokenBytes, entry.where,
          ".content: has ", token.content.size(), " bytes, expected 1 to ", kMaxAddedTokenBytes);
    for (const char* name : {"lstrip", "rstrip", "single_word"}) entry.RefuseUnlessOff(name);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The expression of a Split.
std::string ReadSplit(const Field& split) {
  const Field pattern = split.At("pattern");
  Check(pattern.Object().contains("Regex"), pattern.where,
        ": is not a Regex, the one kind that is supported");
  Check(split.At("behavior").String() == "Isolated", split.where, ".behavior: is ",
        ShowJson(split.At("behavior").value), ", which is not supported; expected \"Isolated\"");
  split.RefuseUnlessOff("invert");
  return pattern.At("Regex").String();
}

std::string ReadPreTokenizer(const Field& pre_tokenizer) {
  std::string expression;
  bool byte_level = false;
  const auto read_part = [&](const Field& part) {
    const std::string& type = part.At("type").String();
    Check(!byte_level, part.where, ": follows ByteLevel, which must be the last");
    if (type == "Split") {
      Check(expression.empty(), part.where, ": is a second Split, expected one");
      expression = ReadSplit(part);
      Check(!expression.empty(), part.where, ".pattern.Regex: is empty");
    } else if (type == "ByteLevel") {
      byte_level = true;
      part.RefuseUnlessOff("add_prefix_space");
      if (part.BoolOr("use_regex", true)) {
        Check(expression.empty(), part.where,
              ".use_regex: is true after a Split, which is not supported; expected false");
        expression = kGpt2Expression;
      }
    } else {
      throw Error(part.where, ".type: is ", ShowJson(type),
                  ", which is not supported; expected Split or ByteLevel");
    }
  };
  if (pre_tokenizer.At("type").String() == "Sequence") {
    const Field parts = pre_tokenizer.At("pretokenizers");
    for (size_t i = 0; i < parts.Array().size(); ++i) read_part(parts.At(i));
  } else {
    read_part(pre_tokenizer);
  }
  Check(byte_level, pre_tokenizer.where, ": has no ByteLevel, expected one");
  Check(!expression.empty(), pre_tokenizer.where, ": has no expression, expected a Split");
  return expression;
}

void ReadTemplate(const Field& processor, TokenizerFile* result) {
  const Field single = processor.At("single");
  bool after_text = false;
  for (size_t i = 0; i < single.Array().size(); ++i) {
    const Field item = single.At(i);
    if (item.Object().contains("Sequence")) {
      Check(!after_text, item.where, ": is a second Sequence, expected one");
      after_text = true;
      continue;
    }
    const std::string& name = item.At("SpecialToken").At("id").String();
    const Field ids = processor.At("special_tokens").At(name.c_str()).At("ids");
    for (size_t k = 0; k < ids.Array().size(); ++k) {
      (after_text ? result->template_after : result->template_before).push_back(ids.At(k).Id());
    }
  }
  Check(after_text, single.where, ": has no Sequence, so the text would be lost");
}

void ReadPostProcessor(const Field& post_processor, TokenizerFile* result) {
  bool has_template = false;
  const auto read_part = [&](const Field& part) {
    const std::string& type = part.At("type").String();
    if (type == "ByteLevel") return;  // it moves offsets only, never an id
    Check(type == "TemplateProcessing", part.where, ".type: is ", ShowJson(type),
          ", which is not supported; expected TemplateProcessing or ByteLevel");
    Check(!has_template, part.where, ": is a second TemplateProcessing, expected one");
    has_template = true;
    ReadTemplate(part, result);
  };
  if (post_processor.At("type").String() == "Sequence") {
    const Field parts = post_processor.At("processors");
    for (size_t i = 0; i < parts.Array().size(); ++i) read_part(parts.At(i));
  } else {
    read_part(post_processor);
  }
}

// A merge is written "a b", or ["a", "b"] by newer versions.
std::pair<std::string, std::string> ReadMerge(const Field& merges, size_t index) {
  const Json& merge = merges.value[index];
  if (merge.is_string()) {
    const std::string& both = merge.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space != std::string::npos && both.find(' ', space + 1) == std::string::npos) {
      return {both.substr(0, space), both.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  throw Error(merges.where, "[", index, "]: is ", ShowJson(merge),
              ", expected \"left right\" or [\"left\", \"right\"]");
}

void ReadModel(const Field& model, TokenizerFile* result) {
  if (model.Has("type")) {
    Check(model.value["type"] == "BPE", model.where, ".type: is ", ShowJson(model.value["type"]),
          ", which is not supported; expected \"BPE\"");
  }
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                           "byte_fallback", "unk_token", "fuse_unk"}) {
    model.RefuseUnlessOff(name);
  }
  result->ignore_merges = model.BoolOr("ignore_merges", false);

  const Field vocabulary = model.At("vocab");
  result->vocabulary.reserve(vocabulary.Object().size());
  for (const auto& [spelling, id] : vocabulary.value.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) {
      Field::ToId(id, StrCat(vocabulary.where, "[", ShowJson(spelling), "]"));
    }
    result->vocabulary.emplace_back(spelling, id.get<int>());
  }
  const Field merges = model.At("merges");
  result->merges.reserve(merges.Array().size());
  for (size_t i = 0; i < merges.value.size(); ++i) result->merges.push_back(ReadMerge(merges, i));
}

}  // namespace

TokenizerFile ParseTokenizerFile(std::string_view json_text) {
  const Json json = ParseJson(json_text);
  const Field file{json, ""};
  for (const char* name : {"normalizer", "truncation", "padding"}) {
    if (!file.Has(name)) continue;
    throw Error(name, ": is set, which is not supported; expected null");
  }
  TokenizerFile result;
  ReadModel(file.At("model"), &result);
  result.expression = ReadPreTokenizer(file.At("pre_tokenizer"));
  result.added_tokens = ReadAddedTokens(file);
  if (file.Has("post_processor")) ReadPostProcessor(file.At("post_processor"), &result);
  const Field decoder = file.At("decoder").At("type");
  Check(decoder.String() == "ByteLevel", decoder.where, ": is ", ShowJson(decoder.value),
        ", which is not supported; expected \"ByteLevel\"");
  return result;
}

}  // namespace tinyvllm
