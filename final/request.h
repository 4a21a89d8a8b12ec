// From what a user writes to what the engine takes.
#pragma once

#include <string>
#include <vector>

#include "final/options.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {

struct Request {
  std::string where;  // "prompts.jsonl:3" or "request 0", for messages
  std::string shown;  // the prompt, for a person
  EngineRequest engine;
  std::vector<std::string> stop;
  std::string error;  // why the request is refused; the others run on
};

// The requests of --prompt and --prompts, in this order. A line of the file that is wrong becomes a
// request with an error; a file that cannot be read throws Error.
std::vector<Request> ReadRequests(const Options& options, const Tokenizer& tokenizer);

}  // namespace tinyvllm
