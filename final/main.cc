// The engine's front door: reads the command line, loads the model, answers the requests.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/model_presets.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "final/answer.h"
#include "final/learner.h"
#include "final/options.h"
#include "final/plan.h"
#include "final/report.h"
#include "final/request.h"
#include "final/trace.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/weights.h"
#include "lessons/12_continuous_batching/timeline.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {
namespace {

constexpr const char* kBundledModel = "models/pocket";
constexpr const char* kPlannedModel = "llama3.2-1b";  // of --plan without --model

// Four requests through two slots.
const std::vector<std::string> kDemoPrompts = {
    "What is 2+2?",
    "Name a color.",
    "What is a KV cache?",
    "Tell me a short story about a robot and a lighthouse.",
};
constexpr int kDemoSlots = 2;

// From then on a failure may be that of a learner's code.
bool lessons_have_begun = false;

class Seconds {
 public:
  double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int PrintPlan(const Options& options) {
  constexpr int kLongestPrompt = 512, kBatch = 2;
  EngineConfig engine = options.engine;
  if (!options.max_num_seqs_given) engine.max_num_seqs = kBatch;
  if (!options.max_model_len_given) engine.max_model_len = kLongestPrompt;
  if (!options.max_num_batched_tokens_given) {
    engine.max_num_batched_tokens = std::max(engine.max_model_len, engine.max_num_seqs);
  }
  const bool preset = options.model.empty();
  const ModelConfig config = preset
                                 ? ModelConfig::FromJson(ModelPreset(kPlannedModel), kPlannedModel)
                                 : ModelConfig::FromFolder(options.model);
  std::cout << DescribePlan(config, preset ? kPlannedModel : options.model, engine);
  return 0;
}

// The step in the words of lesson 12, which can draw it.
Step ToStep(const StepRecord& record) {
  Step step;
  for (const ScheduledSequence& sequence : record.sequences) {
    SlotWork work;
    work.slot = sequence.slot;
    work.request = sequence.request;
    work.first_position = sequence.first_position;
    work.num_tokens = sequence.num_tokens;
    work.is_prefill = sequence.num_tokens > 1 || !sequence.samples;
    work.chooses_token = sequence.samples;
    step.push_back(work);
  }
  return step;
}

void PrintDemoSummary(const std::vector<Step>& steps, const Engine& engine, double seconds) {
  constexpr int kColumns = 72;
  const int num_steps = static_cast<int>(steps.size());
  const int steps_per_column = std::max(1, (num_steps + kColumns - 1) / kColumns);
  const EngineStats& stats = engine.stats();
  std::cout << "\nFour requests in " << kDemoSlots << " slots, " << num_steps
            << " steps; a column is " << steps_per_column
            << (steps_per_column == 1 ? " step" : " steps") << ", a capital a prompt\n\n"
            << DrawTimeline(steps, kDemoSlots, steps_per_column) << "\n"
            << stats.generated_tokens << " tokens, " << Fixed(stats.generated_tokens / seconds, 0)
            << " tokens/s; KV cache: at most " << stats.peak_used_blocks << " of "
            << engine.num_blocks() << " blocks of " << engine.config().block_size << " tokens\n\n"
            << "Ask something yourself:   ./bazelw run //final -- --prompt \"What is 17+25?\"\n"
            << "Draw instead of choosing: ./bazelw run //final -- --temperature 0.8 --seed 1 "
               "--prompt \"Tell me a story about a fox.\"\n"
            << "See the memory:           ./bazelw run //final -- --plan\n"
            << "Read how it works:        docs/README.md\n";
}

int Run(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, &options)) return 0;
  if (options.plan) return PrintPlan(options);
  const bool demo = options.prompts.empty() && options.prompts_file.empty();
  if (demo) options.prompts = kDemoPrompts;
  if (demo && !options.max_num_seqs_given) options.engine.max_num_seqs = kDemoSlots;
  options.engine.trace = !options.trace.empty();
  options.engine.earlier = StagesOf(LearnersLessons());

  // Cheap checks first: the folder, the configuration and the tokenizer, then the weights.
  const bool bundled = options.model.empty();
  const std::string folder = bundled ? DataPath(kBundledModel) : options.model;
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const std::vector<Request> requests = ReadRequests(options, tokenizer);
  std::optional<TraceWriter> trace;
  if (options.engine.trace) trace.emplace(options.trace);

  const Seconds loading;
  std::cerr << DescribeLearnersCode(LearnersLessons()) << ToString(DescribeDevice()) << "\n";
  lessons_have_begun = true;
  const Checkpoint checkpoint(folder);
  const Weights weights(checkpoint, config);
  Engine engine(config, weights, options.engine);
  std::cerr << (bundled ? kBundledModel : folder) << ": " << HumanBytes(weights.bytes())
            << " of weights and " << engine.num_blocks() << " KV cache blocks of "
            << engine.config().block_size << " tokens, ready in " << Fixed(loading(), 1) << " s\n";

  AnswerPrinter printer(requests, options.json, &std::cout);
  std::vector<Step> steps;  // of the demonstration
  std::optional<Progress> progress;
  if (options.json && isatty(STDOUT_FILENO) == 0) progress.emplace("answering", requests.size());
  AnswerEvents events;
  events.on_added = [&](size_t index, int number) {
    if (trace) trace->Name(number, StrCat("request ", index));
  };
  events.on_text = [&](size_t index, const std::string& text) { printer.Text(index, text); };
  events.on_finished = [&](const Answer& answer) {
    printer.Finished(answer);
    if (progress) progress->Advance();
  };
  events.on_step = [&] {
    if (trace) trace->Add(engine);
    if (demo) steps.push_back(ToStep(engine.last_step()));
    return std::cout.good();  // else nobody reads it
  };
  const Seconds generating;
  AnswerRequests(requests, tokenizer, &engine, events);
  const double seconds = generating();
  if (trace) trace->Close();
  progress.reset();

  const EngineStats& stats = engine.stats();
  std::cerr << "\n"
            << stats.generated_tokens << " tokens in " << Fixed(seconds, 1) << " s, " << stats.steps
            << " steps\n";
  if (trace) std::cerr << "trace: " << options.trace << ", to be opened in ui.perfetto.dev\n";
  if (demo && !options.json) PrintDemoSummary(steps, engine, seconds);
  return printer.failed() ? 1 : 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) {
  const int status = tinyvllm::RunMain(argc, argv, tinyvllm::Run);
  if (status != 0 && tinyvllm::lessons_have_begun) {
    std::cerr << tinyvllm::WhereToLook(tinyvllm::LearnersLessons());
  }
  return status;
}
