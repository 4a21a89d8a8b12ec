#include "final/answer.h"

#include <memory>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "lessons/14_engine/text_output.h"

namespace tinyvllm {
namespace {

// A request that the engine works on.
struct Active {
  Answer answer;
  TextOutput text;
};

Answer Refused(size_t index, const std::string& where, const std::string& why) {
  Answer answer;
  answer.index = index;
  answer.finish_reason = "error";
  answer.error = where + ": " + EscapeControls(why);
  return answer;
}

class AnswerLoop {
 public:
  AnswerLoop(const std::vector<Request>& requests, const Tokenizer& tokenizer, Engine* engine,
             const AnswerEvents& events)
      : requests_(requests), tokenizer_(tokenizer), engine_(*engine), events_(events) {}

  // tag::loop[]
  void Run() {
    for (size_t i = 0; i < requests_.size(); ++i) Add(i);
    while (engine_.has_work()) {
      for (const EngineOutput& output : engine_.Step()) Take(output);
      if (events_.on_step && !events_.on_step()) return;
    }
  }
  // end::loop[]

 private:
  void Add(size_t index) {
    const Request& request = requests_[index];
    try {
      if (!request.error.empty()) throw Error(request.error);
      TextOutput text(tokenizer_, request.stop);
      const int id = engine_.Add(request.engine);
      Answer answer;
      answer.index = index;
      active_.emplace(id, Active{std::move(answer), std::move(text)});
      if (events_.on_added) events_.on_added(index, id);
    } catch (const Error& error) {
      Finish(Refused(index, request.where, error.what()));
    }
  }

  void Take(const EngineOutput& output) {
    const auto found = active_.find(output.request);
    if (found == active_.end()) return;  // its stop string came
    Active& active = found->second;
    Answer& answer = active.answer;
    for (const TokenLogprobs& token : output.prompt_logprobs) {
      answer.prompt_logprobs.push_back(token);
    }
    if (!output.error.empty()) {
      const size_t index = answer.index;
      Finish(Refused(index, requests_[index].where, output.error));
      active_.erase(found);
      return;
    }
    if (output.token_id >= 0) TakeToken(output, &active);
    const bool stopped = active.text.stopped();
    if (!output.finished && !stopped) return;
    if (!output.finished) engine_.Abort(output.request);
    Show(answer.index, active.text.Flush());
    answer.text = active.text.text();
    // Flush may complete a stop string with the last character.
    answer.finish_reason =
        active.text.stopped() ? "stop" : std::string(ToString(output.finish_reason));
    Finish(std::move(answer));
    active_.erase(found);
  }

  void TakeToken(const EngineOutput& output, Active* active) {
    Answer& answer = active->answer;
    answer.token_ids.push_back(output.token_id);
    if (requests_[answer.index].engine.sampling.logprobs >= 0) {
      answer.logprobs.push_back(output.logprobs);
    }
    Show(answer.index, active->text.Push(output.token_id));
  }

  void Show(size_t index, const std::string& text) {
    if (events_.on_text && !text.empty()) events_.on_text(index, text);
  }

  void Finish(Answer answer) {
    if (events_.on_finished) events_.on_finished(std::move(answer));
  }

  const std::vector<Request>& requests_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  const AnswerEvents& events_;
  std::unordered_map<int, Active> active_;  // by the engine's number
};

}  // namespace

void AnswerRequests(const std::vector<Request>& requests, const Tokenizer& tokenizer,
                    Engine* engine, const AnswerEvents& events) {
  AnswerLoop(requests, tokenizer, engine, events).Run();
}

}  // namespace tinyvllm
