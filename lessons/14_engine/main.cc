// The demo: the engine at work, drawn step by step, with a prefix that is shared and a request that
// is put off; what prefix caching saves; what chunks do for those who wait for the next word; and
// what the scheduler itself costs.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

struct Bundled {
  const std::string folder = DataPath("models/pocket");
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights{Checkpoint(folder), config};
};

// --- the timeline

// What a request did in one step.
enum class Cell { kAbsent, kWaits, kPrefill, kDecode, kPutOff };

struct Shown {
  std::string question;
  int prompt_tokens = 0;
  std::vector<Cell> cells;  // of each step
  int put_off = 0;
  int found = 0;     // tokens in the prefix cache
  int computed = 0;  // tokens
  std::vector<int> token_ids;
};

struct Timeline {
  std::vector<Shown> requests;
  std::vector<int> tokens, blocks;  // of each step
  EngineStats stats;
  double milliseconds = 0;
};

// Adds a request a step, so that they meet each other.
Timeline RunTimeline(const Bundled& model, const std::vector<std::string>& questions,
                     const EngineConfig& config, int max_tokens) {
  Engine engine(model.config, model.weights, config);
  Timeline timeline;
  const Clock::time_point start = Clock::now();
  for (size_t step = 0; step < questions.size() || engine.has_work(); ++step) {
    if (step < questions.size()) {
      EngineRequest request;
      request.prompt_token_ids = ChatPrompt(model.tokenizer, {{"user", questions[step]}});
      request.max_tokens = max_tokens;
      engine.Add(request);
      Shown shown;
      shown.question = questions[step];
      shown.prompt_tokens = static_cast<int>(request.prompt_token_ids.size());
      timeline.requests.push_back(shown);
    }
    for (const EngineOutput& output : engine.Step()) {
      Check(output.error.empty(), output.error);
      if (output.token_id >= 0) {
        timeline.requests[output.request].token_ids.push_back(output.token_id);
      }
    }
    const StepRecord& record = engine.last_step();
    for (Shown& shown : timeline.requests) shown.cells.resize(step + 1, Cell::kAbsent);
    for (size_t i = 0; i < timeline.requests.size(); ++i) {
      const bool lives = engine.scheduler().Has(static_cast<int>(i));
      if (lives) timeline.requests[i].cells[step] = Cell::kWaits;
    }
    for (size_t i = 0; i < record.admitted.size(); ++i) {
      timeline.requests[record.admitted[i]].found += record.cached_tokens[i];
    }
    int tokens = 0;
    for (const ScheduledSequence& part : record.sequences) {
      Shown& shown = timeline.requests[part.request];
      const bool decodes = part.num_tokens == 1 && part.first_position >= shown.prompt_tokens;
      shown.cells[step] = decodes ? Cell::kDecode : Cell::kPrefill;
      shown.computed += part.num_tokens;
      tokens += part.num_tokens;
    }
    for (const int request : record.preempted) {
      timeline.requests[request].cells[step] = Cell::kPutOff;
      ++timeline.requests[request].put_off;
    }
    timeline.tokens.push_back(tokens);
    timeline.blocks.push_back(engine.num_blocks() - record.num_free_blocks);
  }
  timeline.milliseconds = MillisecondsSince(start);
  timeline.stats = engine.stats();
  return timeline;
}

const char* ToText(Cell cell) {
  switch (cell) {
    case Cell::kWaits:
      return "·";
    case Cell::kPrefill:
      return "█";
    case Cell::kDecode:
      return "─";
    case Cell::kPutOff:
      return "×";
    case Cell::kAbsent:
      break;
  }
  return " ";
}

std::string Bars(const std::vector<int>& values, int full) {
  static const char* const kEighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const int value : values) {
    text += kEighths[std::min(8, (8 * value + full - 1) / full)];
  }
  return text;
}

void Draw(const Timeline& timeline, const EngineConfig& config) {
  std::string ruler;
  for (size_t step = 0; step < timeline.tokens.size(); step += 10) {
    ruler += StrCat("│", step);
    ruler.resize(ruler.size() + 9 - std::to_string(step).size(), ' ');
  }
  std::cout << "  step        " << ruler << "\n";
  for (size_t i = 0; i < timeline.requests.size(); ++i) {
    std::cout << "  request " << i << "   ";
    for (const Cell cell : timeline.requests[i].cells) std::cout << ToText(cell);
    std::cout << "\n";
  }
  std::cout << "  tokens      " << Bars(timeline.tokens, config.max_num_batched_tokens) << "  of "
            << config.max_num_batched_tokens << "\n"
            << "  blocks      " << Bars(timeline.blocks, config.num_gpu_blocks_override) << "  of "
            << config.num_gpu_blocks_override << "\n\n"
            << "  █ prompt   ─ a token   · waits   × put off: its blocks went to an older one\n\n";
}

void ShowTable(const Timeline& timeline, const Tokenizer& tokenizer) {
  TextTable table({"request", "prompt", "found", "computed", "answer", "put off"});
  for (size_t i = 0; i < timeline.requests.size(); ++i) {
    const Shown& shown = timeline.requests[i];
    table.AddRow({std::to_string(i), std::to_string(shown.prompt_tokens),
                  std::to_string(shown.found), std::to_string(shown.computed),
                  std::to_string(shown.token_ids.size()), std::to_string(shown.put_off)});
  }
  std::cout << table.ToString() << "\n";
  for (size_t i = 0; i < timeline.requests.size(); ++i) {
    const Shown& shown = timeline.requests[i];
    std::cout << "  " << i << "  > " << shown.question << "\n     "
              << tokenizer.Decode(shown.token_ids, /*skip_special_tokens=*/true) << "\n";
  }
}

// --- what prefix caching saves

void ShowSavings(const Timeline& with, const Timeline& without) {
  TextTable table({"prefix caching", "tokens computed", "found", "steps", "most blocks", "ms"});
  for (const auto& [name, timeline] : {std::pair("off", &without), std::pair("on", &with)}) {
    table.AddRow(
        {name, std::to_string(timeline->stats.computed_tokens),
         std::to_string(timeline->stats.cached_tokens), std::to_string(timeline->stats.steps),
         std::to_string(timeline->stats.peak_used_blocks), Fixed(timeline->milliseconds, 0)});
  }
  std::cout << table.ToString();
  bool same = true;
  for (size_t i = 0; i < with.requests.size(); ++i) {
    same = same && with.requests[i].token_ids == without.requests[i].token_ids;
  }
  std::cout << (same ? "All answers are the same.\n"
                     : "Answers differ where two tokens are almost equally likely.\n");
}

// --- a long prompt arrives

// The milliseconds between the tokens of a request that decodes, while a long prompt arrives.
std::vector<double> Gaps(const Bundled& model, int budget, int long_prompt) {
  constexpr int kTokens = 24, kArrival = 8;
  EngineConfig config;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = budget;
  config.max_model_len = long_prompt + 64;
  Engine engine(model.config, model.weights, config);
  EngineRequest request;
  request.prompt_token_ids = ChatPrompt(model.tokenizer, {{"user", "Tell me a story."}});
  request.max_tokens = kTokens;
  request.ignore_eos = true;
  engine.Add(request);
  std::vector<double> gaps;
  Clock::time_point last = Clock::now();
  while (gaps.size() < kTokens) {
    if (gaps.size() == kArrival) {
      EngineRequest arrival;
      for (int i = 0; i < long_prompt; ++i) arrival.prompt_token_ids.push_back(100 + i % 900);
      arrival.max_tokens = 1;
      engine.Add(arrival);
    }
    for (const EngineOutput& output : engine.Step()) {
      if (output.request != 0 || output.token_id < 0) continue;
      gaps.push_back(MillisecondsSince(last));
      last = Clock::now();
    }
    if (!engine.has_work()) break;
  }
  gaps.erase(gaps.begin());  // its own prompt
  return gaps;
}

void ShowGaps(const Bundled& model) {
  constexpr int kLongPrompt = 384;
  Heading(StrCat("3. A request decodes, and a prompt of ", kLongPrompt, " tokens arrives"));
  TextTable table(
      {"budget", "chunks", "longest gap, ms", "shortest, ms", "ms from token to token"});
  std::vector<std::pair<int, std::vector<double>>> all;
  double longest = 0;
  for (const int budget : {512, 64, 16}) {
    all.emplace_back(budget, Gaps(model, budget, kLongPrompt));
    longest =
        std::max(longest, *std::max_element(all.back().second.begin(), all.back().second.end()));
  }
  for (const auto& [budget, gaps] : all) {
    std::vector<int> heights;
    for (const double gap : gaps) heights.push_back(static_cast<int>(1000 * gap / longest));
    std::vector<double> sorted = gaps;
    std::sort(sorted.begin(), sorted.end());
    table.AddRow({std::to_string(budget), std::to_string((kLongPrompt + budget - 2) / (budget - 1)),
                  Fixed(sorted.back(), 1), Fixed(sorted.front(), 1), Bars(heights, 1000)});
  }
  std::cout << table.ToString()
            << "A small budget makes the waits short, and the long prompt late: it is a choice.\n";
}

// --- what planning costs

void ShowPlanning() {
  Heading("4. What the host does in a step: planning, and taking the tokens");
  TextTable table({"requests that decode", "us a step, median", "ns a request"});
  for (const int count : {1, 16, 64, 256}) {
    SchedulerConfig config;
    config.max_model_len = 4096;
    config.num_blocks = 65536;
    Scheduler scheduler(config);
    for (int i = 0; i < count; ++i) scheduler.Add(std::vector<int>(8, i), 4000);
    constexpr int kSteps = 400;
    const auto step = [&] {
      for (const ScheduledSequence& part : scheduler.Next().sequences) {
        if (part.samples) scheduler.Append(part.request, part.first_position);
      }
    };
    std::vector<double> times;  // us
    for (int i = 0; i < kSteps; ++i) {
      const Clock::time_point start = Clock::now();
      step();
      times.push_back(1000 * MillisecondsSince(start));
    }
    std::sort(times.begin(), times.end());
    const double us = times[kSteps / 2];
    table.AddRow({std::to_string(count), Fixed(us, 1), Fixed(1000 * us / count, 0)});
  }
  std::cout << table.ToString();
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 14: what runs next, for many requests in little memory.");
  int blocks = 18, budget = 24, max_tokens = 40;
  command_line.app()
      .add_option("--num-gpu-blocks-override", blocks, "blocks of 8 tokens in the pool")
      ->check(CLI::Range(8, 1000))
      ->capture_default_str();
  command_line.app()
      .add_option("--max-num-batched-tokens", budget, "tokens of a step")
      ->check(CLI::Range(4, 512))
      ->capture_default_str();
  command_line.app()
      .add_option("--max-tokens", max_tokens, "of an answer")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  const Bundled model;
  std::cout << "Lesson 14: the engine\n" << ToString(DescribeDevice()) << "\n";

  const std::string shared = "Tell me a short story about a robot and ";
  const std::vector<std::string> questions = {shared + "a lighthouse.", "What is a KV cache?",
                                              shared + "a garden.", shared + "a lighthouse.",
                                              "What is 17+25?"};
  EngineConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = budget;
  config.max_model_len = 512;
  config.block_size = 8;
  config.num_gpu_blocks_override = blocks;
  Heading(StrCat("1. ", questions.size(), " requests, four slots, a budget of ", budget,
                 " tokens a step, a pool of ", blocks, " blocks of ", config.block_size));
  const Timeline with = RunTimeline(model, questions, config, max_tokens);
  Draw(with, config);
  ShowTable(with, model.tokenizer);

  Heading("2. The same without prefix caching");
  config.enable_prefix_caching = false;
  const Timeline without = RunTimeline(model, questions, config, max_tokens);
  ShowSavings(with, without);

  ShowGaps(model);
  ShowPlanning();
  if (IsSimulator()) {
    std::cout
        << "(Part 4 is the host's own time. The times of parts 2 and 3 are those of a CPU that "
           "plays a GPU.)\n";
  }
  std::cout << "\nThe page: docs/14_engine.md. Your turn: plan a step in\n"
               "lessons/14_engine/exercise/scheduler.cc, and check it with\n"
               "  bazel test --//:exercise=14_engine //tests:14_engine_test\n"
               "Next: bazel run //final\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
