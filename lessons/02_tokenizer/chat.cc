#include "lessons/02_tokenizer/chat.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "common/base/error.h"
#include "lessons/02_tokenizer/utf8.h"

namespace tinyvllm {
namespace {

constexpr std::string_view kBeginOfText = "<|begin_of_text|>";
constexpr std::string_view kStartHeader = "<|start_header_id|>";
constexpr std::string_view kEndHeader = "<|end_header_id|>";
constexpr std::string_view kEndOfTurn = "<|eot_id|>";

// What Python's str.strip() takes for white space, which is what "| trim" in a chat template does.
bool IsPythonSpace(char32_t c) {
  constexpr std::array<char32_t, 10> kOthers = {0x20,   0x85,   0xA0,   0x1680, 0x2028,
                                                0x2029, 0x202F, 0x205F, 0x3000, 0x1F};
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || (c >= 0x2000 && c <= 0x200A) ||
         std::find(kOthers.begin(), kOthers.end(), c) != kOthers.end();
}

std::string_view Trim(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char character = DecodeUtf8(text, i);
    if (!IsPythonSpace(character.code_point)) {
      begin = std::min(begin, i);
      end = i + character.length;
    }
    i += character.length;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

int RequireSpecial(const Tokenizer& tokenizer, std::string_view content) {
  const std::optional<int> id = tokenizer.SpecialTokenId(content);
  Check(id.has_value(), "the tokenizer has no special token ", content,
        ", so it cannot write a chat; use the prompt as it is (--raw)");
  return *id;
}

}  // namespace

bool HasChatTokens(const Tokenizer& tokenizer) {
  for (const std::string_view content : {kBeginOfText, kStartHeader, kEndHeader, kEndOfTurn}) {
    if (!tokenizer.SpecialTokenId(content)) return false;
  }
  return true;
}

// tag::chat[]
std::vector<int> ChatPrompt(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) {
  Check(!messages.empty(), "the chat has no message, expected at least one");
  const int start_header = RequireSpecial(tokenizer, kStartHeader);
  const int end_header = RequireSpecial(tokenizer, kEndHeader);
  const int end_of_turn = RequireSpecial(tokenizer, kEndOfTurn);

  std::vector<int> ids = {RequireSpecial(tokenizer, kBeginOfText)};
  const auto append_text = [&](std::string_view text) {
    const std::vector<int> text_ids = tokenizer.Encode(text);  // plain: no special token is parsed
    ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  };
  // tag::turn[]
  // The line break and the text are encoded as one, since an expression may cut across them.
  const auto append_turn = [&](std::string_view role, std::string_view text) {
    ids.push_back(start_header);
    append_text(role);
    ids.push_back(end_header);
    append_text(std::string("\n\n").append(text));
  };
  // end::turn[]
  for (const ChatMessage& message : messages) {
    Check(message.role == "system" || message.role == "user" || message.role == "assistant",
          "the chat has a message of role '", message.role.substr(0, 40),
          "', expected system, user or assistant");
    CheckUtf8(message.content);
    append_turn(message.role, Trim(message.content));
    ids.push_back(end_of_turn);
  }
  append_turn("assistant", "");
  return ids;
}
// end::chat[]

}  // namespace tinyvllm
