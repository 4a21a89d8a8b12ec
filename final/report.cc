#include "final/report.h"

#include <nlohmann/json.hpp>

namespace tinyvllm {
namespace {

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

Json LogprobJson(const TokenLogprob& token) {
  Json top = Json::array();
  for (const auto& [id, logprob] : token.top) top.push_back({id, logprob});
  return {{"token_id", token.token_id}, {"logprob", token.logprob}, {"top", top}};
}

}  // namespace

std::string ToJson(const Request& request, const Answer& answer) {
  Json json;
  json["index"] = answer.index;
  json["prompt_token_ids"] = request.generation.prompt_token_ids;
  json["token_ids"] = answer.token_ids;
  json["text"] = answer.text;
  json["finish_reason"] = answer.finish_reason;
  if (!request.error.empty()) {
    json["error"] = request.error;
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (request.logprobs >= 0) {
    json["logprobs"] = Json::array();
    for (const TokenLogprob& token : answer.logprobs)
      json["logprobs"].push_back(LogprobJson(token));
  }
  if (request.prompt_logprobs >= 0) {
    json["prompt_logprobs"] = Json::array({nullptr});  // nothing comes before the first token
    for (const TokenLogprob& token : answer.prompt_logprobs) {
      json["prompt_logprobs"].push_back(LogprobJson(token));
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DecodeKnown(const Tokenizer& tokenizer, const std::vector<int>& ids) {
  std::vector<int> known;
  for (const int id : ids) {
    if (tokenizer.Contains(id)) known.push_back(id);
  }
  return tokenizer.Decode(known, /*skip_special_tokens=*/true);
}

}  // namespace tinyvllm
