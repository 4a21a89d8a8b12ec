// The Llama 3 chat format: a conversation as the ids that the model was trained to continue.
//
//   std::vector<int> ids = ChatPrompt(tokenizer, {{"user", "What is 2+2?"}});
//
//   <|begin_of_text|><|start_header_id|>user<|end_header_id|>
//
//   What is 2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>
//
//   (here the model goes on)
//
// The special tokens are placed as ids. Everything a user wrote is encoded as plain text: a message
// that holds the text "<|eot_id|>" holds ten characters, not the end of the turn.
//
// Source: the Llama 3 model card, "Prompt format", and its chat_template.
#pragma once

#include <string>
#include <vector>

#include "lessons/02_tokenizer/tokenizer.h"

namespace tinyvllm {

struct ChatMessage {
  std::string role;     // "system", "user" or "assistant"
  std::string content;  // white space around it does not count, as in Llama 3's template
};

// Whether the tokenizer has the special tokens that ChatPrompt needs.
bool HasChatTokens(const Tokenizer& tokenizer);

// The ids of the conversation, up to where the assistant's next answer starts. There is one
// begin-of-text, and no system message unless one is given. Throws Error when there is no message,
// for an unknown role, for content that is not UTF-8, and when HasChatTokens is false.
std::vector<int> ChatPrompt(const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace tinyvllm
