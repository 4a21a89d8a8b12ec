#include "lessons/14_engine/engine_generator.h"

#include "common/base/error.h"

namespace tinyvllm {

// tag::generate[]
std::vector<Generation> EngineGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  std::vector<int> numbers;  // of the requests, rising
  std::vector<Generation> generations(requests.size());
  try {
    for (const GenerationRequest& request : requests) {
      EngineRequest asked;
      asked.prompt_token_ids = request.prompt_token_ids;
      asked.max_tokens = request.max_tokens;
      asked.ignore_eos = request.ignore_eos;
      numbers.push_back(engine_.Add(asked));
    }
    while (engine_.has_work()) {
      for (const EngineOutput& output : engine_.Step()) {
        const size_t index = output.request - numbers.front();
        Check(output.error.empty(), "request ", index, ": ", output.error);
        if (output.token_id >= 0) {
          generations[index].token_ids.push_back(output.token_id);
          if (on_token) on_token({index, output.token_id, nullptr});
        }
        if (output.finished) generations[index].finish_reason = output.finish_reason;
      }
    }
  } catch (...) {
    for (const int number : numbers) engine_.Abort(number);
    throw;
  }
  return generations;
}
// end::generate[]

}  // namespace tinyvllm
