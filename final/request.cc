#include "final/request.h"

#include <limits>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/quote.h"
#include "lessons/02_tokenizer/chat.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxPromptsBytes = size_t{1} << 30;

// A prompt as it is: special tokens written out in it count, and it begins with one begin-of-text,
// written in the text or put there by the tokenizer.
std::vector<int> RawPrompt(const Tokenizer& tokenizer, const std::string& text) {
  EncodeOptions options;
  options.parse_special_tokens = true;
  const std::vector<int> ids = tokenizer.Encode(text, options);
  options.add_special_tokens = true;
  const std::vector<int> framed = tokenizer.Encode(text, options);
  const bool would_repeat = !ids.empty() && framed.size() > ids.size() && framed[0] == ids[0];
  return would_repeat ? ids : framed;
}

std::vector<int> PromptIds(const Options& options, const Tokenizer& tokenizer,
                           const std::string& text) {
  Check(!text.empty(), "prompt: is empty; expected at least one character");
  if (options.raw || !HasChatTokens(tokenizer)) return RawPrompt(tokenizer, text);
  return ChatPrompt(tokenizer, {{"user", text}});
}

std::string StringField(const Json& object, const char* name) {
  const auto field = object.find(name);
  Check(field != object.end() && field->is_string(), name, ": expected a string");
  return *field;
}

int IntField(const Json& line, const char* name, int absent) {
  const auto field = line.find(name);
  if (field == line.end() || field->is_null()) return absent;
  Check(IsIntIn(*field, -1, std::numeric_limits<int>::max()), name, " is ", ShowJson(*field),
        ", expected a whole number");
  return *field;
}

bool BoolField(const Json& line, const char* name, bool absent) {
  const auto field = line.find(name);
  if (field == line.end() || field->is_null()) return absent;
  Check(field->is_boolean(), name, " is ", ShowJson(*field), ", expected true or false");
  return *field;
}

std::vector<ChatMessage> Messages(const Json& value) {
  Check(value.is_array() && !value.empty(), "messages: expected a list of at least one message");
  std::vector<ChatMessage> messages;
  for (const Json& message : value) {
    Check(message.is_object(), "messages: expected objects with role and content");
    messages.push_back({StringField(message, "role"), StringField(message, "content")});
  }
  return messages;
}

void RefuseUnknownFields(const Json& line) {
  static const char* const kKnown[] = {"prompt",     "messages", "prompt_token_ids", "max_tokens",
                                       "ignore_eos", "logprobs", "prompt_logprobs",  "temperature"};
  for (const auto& [name, value] : line.items()) {
    bool known = false;
    for (const char* candidate : kKnown) known = known || name == candidate;
    Check(known, Quote(name), ": is not a field of a request here; expected prompt, messages or ",
          "prompt_token_ids, and max_tokens, ignore_eos, logprobs or prompt_logprobs");
  }
  const Json temperature = line.value("temperature", Json());
  Check(temperature.is_null() || temperature == 0, "temperature is ", ShowJson(temperature),
        ", expected 0: decoding is greedy");
}

Request ParseLine(const std::string& text, const Options& options, const Tokenizer& tokenizer) {
  const Json line = ParseJson(text);
  Check(line.is_object(), "is ", line.type_name(), ", expected a JSON object");
  RefuseUnknownFields(line);
  const int sources =
      line.contains("prompt") + line.contains("messages") + line.contains("prompt_token_ids");
  Check(sources == 1, "expected exactly one of prompt, messages and prompt_token_ids");

  Request request;
  std::vector<int>& ids = request.generation.prompt_token_ids;
  if (line.contains("prompt")) {
    request.shown = StringField(line, "prompt");
    ids = PromptIds(options, tokenizer, request.shown);
  } else if (line.contains("messages")) {
    const std::vector<ChatMessage> messages = Messages(line["messages"]);
    request.shown = messages.back().content;
    ids = ChatPrompt(tokenizer, messages);
  } else {
    Check(line["prompt_token_ids"].is_array(), "prompt_token_ids: expected a list");
    for (const Json& id : line["prompt_token_ids"]) {
      Check(IsIntIn(id, 0, std::numeric_limits<int>::max()), "prompt_token_ids: ", ShowJson(id),
            " is not a token id");
      ids.push_back(id);
    }
    request.shown = StrCat(ids.size(), " token ids");
  }
  request.generation.max_tokens = IntField(line, "max_tokens", options.max_tokens);
  request.generation.ignore_eos = BoolField(line, "ignore_eos", options.ignore_eos);
  request.logprobs = IntField(line, "logprobs", options.logprobs);
  request.prompt_logprobs = IntField(line, "prompt_logprobs", options.prompt_logprobs);
  return request;
}

template <typename Parse>
Request OrError(const std::string& shown, const Parse& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    Request refused;
    refused.shown = shown;
    refused.error = error.what();
    return refused;
  }
}

}  // namespace

std::vector<Request> ReadRequests(const Options& options, const Tokenizer& tokenizer) {
  std::vector<Request> requests;
  for (const std::string& prompt : options.prompts) {
    Request parsed = OrError(prompt, [&] {
      Request request;
      request.shown = prompt;
      request.generation.prompt_token_ids = PromptIds(options, tokenizer, prompt);
      request.generation.max_tokens = options.max_tokens;
      request.generation.ignore_eos = options.ignore_eos;
      request.logprobs = options.logprobs;
      request.prompt_logprobs = options.prompt_logprobs;
      return request;
    });
    parsed.where = StrCat("request ", requests.size());
    requests.push_back(std::move(parsed));
  }
  if (options.prompts_file.empty()) return requests;

  const MappedFile file(options.prompts_file);
  Check(file.size() <= kMaxPromptsBytes, options.prompts_file, ": holds ", file.size(),
        " bytes, expected at most ", kMaxPromptsBytes);
  const std::string_view bytes = file.bytes();
  int number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string line(bytes.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Request request = OrError("", [&] { return ParseLine(line, options, tokenizer); });
    request.where = StrCat(options.prompts_file, ":", number);
    if (request.shown.empty()) request.shown = request.where;
    requests.push_back(std::move(request));
  }
  Check(!requests.empty(), options.prompts_file, ": holds no request; expected JSON lines");
  return requests;
}

}  // namespace tinyvllm
