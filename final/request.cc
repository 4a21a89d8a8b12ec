#include "final/request.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <set>

#include "common/base/error.h"
#include "common/base/json.h"
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

// The fields of one line. Each Read leaves the value as it is where the field is absent or null.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  bool Has(const char* name) const { return Find(name) != nullptr; }

  void Read(const char* name, int* value) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(IsIntIn(*field, -1, std::numeric_limits<int>::max()), name, " is ", ShowJson(*field),
          ", expected a whole number from -1 to 2^31 - 1");
    *value = *field;
  }

  void Read(const char* name, uint64_t* value) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(field->is_number_unsigned(), name, " is ", ShowJson(*field),
          ", expected a whole number from 0 to 2^64 - 1");
    *value = *field;
  }

  void Read(const char* name, float* value) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(field->is_number(), name, " is ", ShowJson(*field), ", expected a number");
    *value = *field;
  }

  void Read(const char* name, bool* value) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(field->is_boolean(), name, " is ", ShowJson(*field), ", expected true or false");
    *value = *field;
  }

  void Read(const char* name, std::vector<int>* ids) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(field->is_array(), name, " is ", ShowJson(*field), ", expected a list of token ids");
    ids->clear();
    for (const Json& id : *field) {
      Check(IsIntIn(id, 0, std::numeric_limits<int>::max()), name, ": ", ShowJson(id),
            " is not a token id");
      ids->push_back(id);
    }
  }

  // One text, or a list of them.
  void Read(const char* name, std::vector<std::string>* texts) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    texts->clear();
    for (const Json& text : field->is_array() ? *field : Json::array({*field})) {
      Check(text.is_string() && !text.get_ref<const std::string&>().empty(), name, " is ",
            ShowJson(*field), ", expected a text that is not empty, or a list of such");
      texts->push_back(text);
    }
  }

  // OpenAI's logit_bias: an object from token id to what is added to its logit.
  void Read(const char* name, std::vector<std::pair<int, float>>* biases) const {
    const Json* field = Find(name);
    if (field == nullptr) return;
    Check(field->is_object(), name, " is ", ShowJson(*field),
          ", expected an object from token id to number");
    biases->clear();
    for (const auto& [key, bias] : field->items()) {
      int id = 0;
      const char* end = key.data() + key.size();
      const auto [stop, error] = std::from_chars(key.data(), end, id);
      Check(error == std::errc() && stop == end, name, ": ", Quote(key), " is not a token id");
      Check(bias.is_number(), name, " of token ", id, " is ", ShowJson(bias),
            ", expected a number");
      biases->emplace_back(id, bias);
    }
  }

 private:
  const Json* Find(const char* name) const {
    const auto field = line_.find(name);
    return field == line_.end() || field->is_null() ? nullptr : &*field;
  }

  const Json& line_;
};

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
  static const std::set<std::string> kKnown = {
      "prompt",
      "messages",
      "prompt_token_ids",
      "max_tokens",
      "temperature",
      "top_k",
      "top_p",
      "min_p",
      "repetition_penalty",
      "seed",
      "presence_penalty",
      "frequency_penalty",
      "stop",
      "stop_token_ids",
      "ignore_eos",
      "logprobs",
      "prompt_logprobs",
      "logit_bias",
      "bad_token_ids",
      "allowed_token_ids",
  };
  for (const auto& [name, value] : line.items()) {
    Check(kKnown.count(name) > 0, Quote(name), ": is not a field of a request; expected prompt, ",
          "messages or prompt_token_ids, and sampling fields such as max_tokens, temperature, ",
          "stop; docs/final.md lists them all");
  }
}

void ReadSampling(const Fields& fields, Request* request) {
  fields.Read("stop", &request->stop);
  EngineRequest& engine = request->engine;
  fields.Read("max_tokens", &engine.max_tokens);
  fields.Read("ignore_eos", &engine.ignore_eos);
  fields.Read("stop_token_ids", &engine.stop_token_ids);
  fields.Read("prompt_logprobs", &engine.prompt_logprobs);
  SamplingParams& sampling = engine.sampling;
  fields.Read("temperature", &sampling.temperature);
  fields.Read("top_k", &sampling.top_k);
  fields.Read("top_p", &sampling.top_p);
  fields.Read("min_p", &sampling.min_p);
  fields.Read("repetition_penalty", &sampling.repetition_penalty);
  fields.Read("presence_penalty", &sampling.presence_penalty);
  fields.Read("frequency_penalty", &sampling.frequency_penalty);
  fields.Read("seed", &sampling.seed);
  fields.Read("logprobs", &sampling.logprobs);
  fields.Read("logit_bias", &sampling.logit_bias);
  fields.Read("allowed_token_ids", &sampling.allowed_token_ids);
  fields.Read("bad_token_ids", &sampling.bad_token_ids);
}

// What all requests have in common, before they say otherwise.
Request DefaultRequest(const Options& options) {
  Request request;
  request.engine = options.request;
  request.stop = options.stop;
  return request;
}

Request ParseLine(const std::string& text, const Options& options, const Tokenizer& tokenizer) {
  const Json line = ParseJson(text, RepeatedKeys::kRefused);
  Check(line.is_object(), "is ", line.type_name(), ", expected a JSON object");
  RefuseUnknownFields(line);
  const Fields fields(line);
  const int sources =
      fields.Has("prompt") + fields.Has("messages") + fields.Has("prompt_token_ids");
  Check(sources == 1, "expected exactly one of prompt, messages and prompt_token_ids");

  Request request = DefaultRequest(options);
  std::vector<int>& ids = request.engine.prompt_token_ids;
  if (fields.Has("prompt")) {
    request.shown = StringField(line, "prompt");
    ids = PromptIds(options, tokenizer, request.shown);
  } else if (fields.Has("messages")) {
    const std::vector<ChatMessage> messages = Messages(line["messages"]);
    request.shown = messages.back().content;
    ids = ChatPrompt(tokenizer, messages);
  } else {
    fields.Read("prompt_token_ids", &ids);
    request.shown = StrCat(ids.size(), " token ids");
  }
  ReadSampling(fields, &request);
  return request;
}

// The whole of a file, a pipe, or of standard input where `path` is "-".
std::string ReadLines(const std::string& path) {
  std::ifstream file;
  errno = 0;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? std::cin : file;
  std::string text, part(size_t{1} << 20, '\0');
  while (in.read(part.data(), part.size()) || in.gcount() > 0) {
    text.append(part, 0, in.gcount());
    Check(text.size() <= kMaxPromptsBytes, path, ": holds more than ", kMaxPromptsBytes,
          " bytes; split it");
  }
  Check(in.eof() && !in.bad(), path,
        ": cannot be read: ", errno == 0 ? "unknown reason" : std::strerror(errno));
  return text;
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
      Request request = DefaultRequest(options);
      request.shown = prompt;
      request.engine.prompt_token_ids = PromptIds(options, tokenizer, prompt);
      return request;
    });
    parsed.where = StrCat("request ", requests.size());
    requests.push_back(std::move(parsed));
  }
  if (options.prompts_file.empty()) return requests;

  const std::string bytes = ReadLines(options.prompts_file);
  const std::string file = options.prompts_file == "-" ? "standard input" : options.prompts_file;
  int number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string line = bytes.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Request request = OrError("", [&] { return ParseLine(line, options, tokenizer); });
    request.where = StrCat(file, ":", number);
    if (request.shown.empty()) request.shown = request.where;
    requests.push_back(std::move(request));
  }
  Check(!requests.empty(), file, ": holds no request; expected JSON lines");
  return requests;
}

}  // namespace tinyvllm
