// Text that came out of a file, made fit for a one-line message: in quotes, control characters
// escaped, cut when long.
//
//   throw Error(path, ": tensor ", Quote(name), " is missing");
#pragma once

#include <string>
#include <string_view>

namespace tinyvllm {

// Control characters as \x0a, so that the text is one line and moves no terminal's cursor.
inline std::string EscapeControls(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      escaped += "\\x";
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
    } else {
      escaped += c;
    }
  }
  return escaped;
}

inline std::string Quote(std::string_view text, size_t max_bytes = 120) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, max_bytes)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  if (text.size() > max_bytes) quoted += "...";
  return EscapeControls(quoted) + '"';
}

}  // namespace tinyvllm
