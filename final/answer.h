// Requests in, answers out: the loop around the engine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "final/request.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {

struct Answer {
  size_t index = 0;            // of the request
  std::vector<int> token_ids;  // without the end token; up to the one that completed a stop string
  std::string text;            // without the stop string
  std::string finish_reason;   // "stop", "length" or "error"
  std::vector<TokenLogprobs> logprobs;         // one a token, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // one a prompt token but the first, if asked for
  std::string error;                           // with finish_reason "error": what, where, why
};

struct AnswerEvents {
  // Each request that the engine has taken, and the number that it has there.
  std::function<void(size_t index, int number)> on_added;
  // Text of a request that may be shown now; whole characters, nothing of a stop string.
  std::function<void(size_t index, const std::string& text)> on_text;
  // Each request once, refused ones included.
  std::function<void(Answer answer)> on_finished;
  // After each step of the engine. False ends it all: nobody reads the answers any more.
  std::function<bool()> on_step;
};

// Adds all requests to the engine and steps it until every one has its answer. A request that the
// engine refuses is answered with its error; the others run on.
void AnswerRequests(const std::vector<Request>& requests, const Tokenizer& tokenizer,
                    Engine* engine, const AnswerEvents& events);

}  // namespace tinyvllm
