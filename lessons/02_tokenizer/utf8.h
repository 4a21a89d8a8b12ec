// UTF-8, one character at a time: the encoding of text as bytes that every tokenizer stands on.
//
//   for (size_t i = 0; i < text.size();) {
//     const Utf8Char character = DecodeUtf8(text, i);
//     i += character.length;
//   }
//
// A code point takes one to four bytes. The first byte says how many; all others are 10xxxxxx:
//
//   U+0000 .. U+007F       0xxxxxxx
//   U+0080 .. U+07FF       110xxxxx 10xxxxxx
//   U+0800 .. U+FFFF       1110xxxx 10xxxxxx 10xxxxxx
//   U+10000 .. U+10FFFF    11110xxx 10xxxxxx 10xxxxxx 10xxxxxx
//
// Source: The Unicode Standard, section 3.9, table 3-7 (which byte sequences are well formed) and
// "U+FFFD Substitution of Maximal Subparts" (how much of a broken one counts as one error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace tinyvllm {

// What stands for bytes that are not UTF-8, as code point and as text.
constexpr char32_t kReplacementCharacter = 0xFFFD;
constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

enum class Utf8Status {
  kValid,
  kInvalid,    // `length` bytes that no further byte can mend
  kTruncated,  // the text ends inside a character that is well formed so far
};

struct Utf8Char {
  char32_t code_point = kReplacementCharacter;
  int length = 1;  // in bytes, at least 1: where it ends, the next character starts
  Utf8Status status = Utf8Status::kInvalid;
};

// The character that starts at `text[offset]`; `offset` must lie inside the text.
inline Utf8Char DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(offset);
  if (first < 0x80) return {first, 1, Utf8Status::kValid};
  // 0x80..0xC1 and 0xF5..0xFF start no character: continuation bytes, two-byte spellings of ASCII,
  // and code points above U+10FFFF.
  if (first < 0xC2 || first > 0xF4) return {};
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range shuts out longer spellings than needed, the surrogates
  // U+D800..U+DFFF, and what lies above U+10FFFF.
  uint8_t lowest = 0x80, highest = 0xBF;
  if (first == 0xE0) lowest = 0xA0;
  if (first == 0xED) highest = 0x9F;
  if (first == 0xF0) lowest = 0x90;
  if (first == 0xF4) highest = 0x8F;
  char32_t code_point = first & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return {kReplacementCharacter, i, Utf8Status::kTruncated};
    const uint8_t next = byte(offset + i);
    if (next < lowest || next > highest) return {kReplacementCharacter, i, Utf8Status::kInvalid};
    code_point = code_point << 6 | (next & 0x3F);
    lowest = 0x80, highest = 0xBF;
  }
  return {code_point, length, Utf8Status::kValid};
}

// Where the first byte that is not UTF-8 lies, or npos when the whole text is well formed.
inline size_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text, i);
    if (character.status != Utf8Status::kValid) return i;
    i += character.length;
  }
  return std::string_view::npos;
}

// Throws Error, with the place, unless the whole text is well formed.
inline void CheckUtf8(std::string_view text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == std::string_view::npos) return;
  throw Error("the text is not UTF-8: byte ", int{static_cast<uint8_t>(text[invalid])},
              " at offset ", invalid, " of ", text.size(), " starts no whole character");
}

// Appends the UTF-8 of a code point up to U+10FFFF that is no surrogate.
inline void AppendUtf8(char32_t code_point, std::string* text) {
  const auto append = [&](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    append(code_point);
    return;
  }
  const int continuations = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  const char32_t length_mark = 0xFF00 >> (continuations + 1) & 0xFF;
  append(length_mark | code_point >> (6 * continuations));
  for (int i = continuations - 1; i >= 0; --i) append(0x80 | (code_point >> (6 * i) & 0x3F));
}

}  // namespace tinyvllm
