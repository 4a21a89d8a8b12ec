#include "lessons/02_tokenizer/byte_level.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "lessons/02_tokenizer/utf8.h"

namespace tinyvllm {
namespace {

// tag::alphabet[]
bool PrintsAsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character_of_byte;
  std::array<int, 512> byte_of_character;  // -1 for a character outside the alphabet

  Alphabet() {
    byte_of_character.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      character_of_byte[byte] = PrintsAsItself(byte) ? byte : next++;
      byte_of_character[character_of_byte[byte]] = byte;
    }
  }
};
// end::alphabet[]

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string BytesToAlphabet(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    AppendUtf8(TheAlphabet().character_of_byte[static_cast<uint8_t>(byte)], &spelling);
  }
  return spelling;
}

bool AlphabetToBytes(std::string_view spelling, std::string* bytes) {
  const auto& byte_of_character = TheAlphabet().byte_of_character;
  bytes->clear();
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Char character = DecodeUtf8(spelling, i);
    if (character.code_point >= byte_of_character.size()) return false;
    const int byte = byte_of_character[character.code_point];
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
    i += character.length;
  }
  return true;
}

}  // namespace tinyvllm
