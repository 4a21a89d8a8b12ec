#include "final/report.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace tinyvllm {
namespace {

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

Json LogprobJson(const TokenLogprobs& token, int token_id) {
  Json top = Json::array();
  for (const auto& [id, logprob] : token.top) {
    if (id >= 0) top.push_back({id, logprob});  // -1: the vocabulary has no further token
  }
  return {{"token_id", token_id}, {"logprob", token.logprob}, {"top", top}};
}

// One entry a token of `ids`, from number `first` on; null before it.
Json LogprobsJson(const std::vector<TokenLogprobs>& logprobs, const std::vector<int>& ids,
                  size_t first) {
  Json list = Json::array();
  for (size_t i = 0; i < first && i < ids.size(); ++i) list.push_back(nullptr);
  for (size_t i = 0; i < logprobs.size(); ++i) {
    list.push_back(LogprobJson(logprobs[i], ids.at(first + i)));
  }
  return list;
}

}  // namespace

std::string ToJson(const Request& request, const Answer& answer) {
  Json json;
  json["index"] = answer.index;
  json["prompt_token_ids"] = request.engine.prompt_token_ids;
  json["token_ids"] = answer.token_ids;
  json["text"] = answer.text;
  json["finish_reason"] = answer.finish_reason;
  if (!answer.error.empty()) {
    json["error"] = answer.error;
  } else {
    if (request.engine.sampling.logprobs >= 0) {
      json["logprobs"] = LogprobsJson(answer.logprobs, answer.token_ids, 0);
    }
    if (request.engine.prompt_logprobs >= 0) {  // nothing comes before the first token
      json["prompt_logprobs"] =
          LogprobsJson(answer.prompt_logprobs, request.engine.prompt_token_ids, 1);
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

AnswerPrinter::AnswerPrinter(const std::vector<Request>& requests, bool json, std::ostream* out)
    : requests_(requests),
      json_(json),
      out_(*out),
      waiting_(requests.size()),
      finished_(requests.size()) {
  BeginAnswer();
}

void AnswerPrinter::BeginAnswer() {
  if (next_ < requests_.size() && !json_) out_ << "\n> " << requests_[next_].shown << "\n";
  out_ << std::flush;
}

void AnswerPrinter::Text(size_t index, const std::string& text) {
  if (json_) return;
  if (index == next_) {
    out_ << text << std::flush;
  } else {
    waiting_[index] += text;
  }
}

void AnswerPrinter::Finished(const Answer& answer) {
  if (!answer.error.empty()) {
    failed_ = true;
    if (!json_) std::cerr << answer.error << "\n";
  }
  if (json_) waiting_[answer.index] = ToJson(requests_[answer.index], answer);
  finished_[answer.index] = true;
  for (; next_ < requests_.size(); BeginAnswer()) {
    out_ << waiting_[next_] << std::flush;
    waiting_[next_].clear();
    if (!finished_[next_]) return;
    out_ << "\n";
    ++next_;
  }
}

}  // namespace tinyvllm
