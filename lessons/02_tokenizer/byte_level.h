// The byte-level alphabet: 256 printable characters, one for each byte, in which tokenizer.json
// spells its pieces.
//
//   BytesToAlphabet(" the") == "Ġthe"
//   AlphabetToBytes("Ġthe", &bytes)  // true; bytes == " the"
//
// JSON holds text, and a piece may be half a character (the first two bytes of an emoji), which is
// no text. So GPT-2 wrote each byte as a visible character: bytes that print as themselves in
// Latin-1 (! to ~, ¡ to ¬, ® to ÿ) stay, and the 68 others (space, control characters, ...) become
// U+0100, U+0101, ... in order. Space, byte 32, is the 33rd of those: U+0120, Ġ.
//
// The tokenizer turns pieces back into bytes when it loads the file and never meets the alphabet
// again.
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019),
// section 2.2, and its encoder's bytes_to_unicode.
#pragma once

#include <string>
#include <string_view>

namespace tinyvllm {

// The spelling of any bytes; for showing pieces.
std::string BytesToAlphabet(std::string_view bytes);

// Writes the bytes that `spelling` stands for. False, and `bytes` unspecified, when a character of
// it is outside the alphabet.
bool AlphabetToBytes(std::string_view spelling, std::string* bytes);

}  // namespace tinyvllm
