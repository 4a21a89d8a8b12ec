// What standard output shows: text as it comes, or one JSON object a finished request.
#pragma once

#include <string>
#include <vector>

#include "final/logprobs.h"
#include "final/request.h"
#include "lessons/02_tokenizer/tokenizer.h"

namespace tinyvllm {

struct Answer {
  int index = 0;  // of the request
  std::vector<int> token_ids;
  std::string text;
  std::string finish_reason;                  // "stop", "length" or "error"
  std::vector<TokenLogprob> logprobs;         // one a token, if asked for
  std::vector<TokenLogprob> prompt_logprobs;  // one a prompt token but the first, if asked for
};

// The line, without its end.
std::string ToJson(const Request& request, const Answer& answer);

// The text of the ids that the tokenizer knows; a vocabulary may be padded beyond it.
std::string DecodeKnown(const Tokenizer& tokenizer, const std::vector<int>& ids);

}  // namespace tinyvllm
