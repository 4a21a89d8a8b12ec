// Text that came out of a file, made fit for a one-line message: in quotes, control characters
// escaped, cut when long.
//
//   throw Error(path, ": tensor ", Quote(name), " is missing");
#pragma once

#include <string>
#include <string_view>

namespace tinyvllm {

inline std::string Quote(std::string_view text, size_t max_bytes = 120) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, max_bytes)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    } else {
      quoted += c;
    }
  }
  if (text.size() > max_bytes) quoted += "...";
  return quoted + '"';
}

}  // namespace tinyvllm
