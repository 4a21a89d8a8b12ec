// The demo: four prompts through two slots, as static batches and with slots that are refilled at
// once, both drawn as timelines; then what the rule is worth for many requests.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "lessons/12_continuous_batching/batch_generator.h"
#include "lessons/12_continuous_batching/timeline.h"

namespace tinyvllm {
namespace {

constexpr int kColumns = 70;  // of a timeline, at most

// Those of final, the longest answer first.
const std::vector<std::string> kPrompts = {
    "Tell me a short story about a robot and a lighthouse.",
    "What is 2+2?",
    "Name a color.",
    "What is a KV cache?",
};

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

std::string Percent(double share) { return Fixed(100 * share, 0) + " %"; }

struct TimedRun {
  std::vector<Generation> generations;
  double seconds = std::numeric_limits<double>::infinity();  // of the fastest round
};

// All of them in turn, several times over, so that a busy machine is fair to each.
std::vector<TimedRun> Time(const std::vector<GenerationRequest>& requests,
                           const std::vector<Generator*>& generators) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 3;
  std::vector<TimedRun> runs(generators.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < generators.size(); ++i) {
      const Clock::time_point start = Clock::now();
      runs[i].generations = generators[i]->Generate(requests);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      runs[i].seconds = std::min(runs[i].seconds, seconds);
    }
  }
  return runs;
}

bool SameTokens(const std::vector<Generation>& a, const std::vector<Generation>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Generation& left, const Generation& right) {
                      return left.token_ids == right.token_ids;
                    });
}

// An end-of-text token is chosen, too.
int ChosenTokens(const Generation& generation) {
  return static_cast<int>(generation.token_ids.size()) +
         (generation.finish_reason == FinishReason::kStop);
}

void ShowAnswers(const std::vector<std::string>& prompts, const Tokenizer& tokenizer,
                 const std::vector<Generation>& generations) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Generation& answer = generations[i];
    const bool cut = answer.finish_reason == FinishReason::kLength;
    std::cout << "  " << static_cast<char>('a' + i % 26) << "  > " << prompts[i] << "\n     "
              << tokenizer.Decode(answer.token_ids, /*skip_special_tokens=*/true)
              << (cut ? " ..." : "") << "\n     (" << ChosenTokens(answer) << " tokens"
              << (cut ? ", cut there" : ", the end token included") << ")\n";
  }
}

void Draw(const BatchGenerator& generator, int steps_per_column) {
  const int num_slots = generator.options().num_slots;
  std::cout << "\n"
            << generator.name() << ": " << generator.steps().size() << " steps, slots "
            << Percent(SlotUtilisation(generator.steps(), num_slots)) << " in use\n\n"
            << DrawTimeline(generator.steps(), num_slots, steps_per_column);
}

void DrawBoth(const BatchGenerator& batches, const BatchGenerator& continuous) {
  const size_t longest = std::max(batches.steps().size(), continuous.steps().size());
  const int steps_per_column = static_cast<int>((longest + kColumns - 1) / kColumns);
  Draw(batches, steps_per_column);
  Draw(continuous, steps_per_column);
  std::cout << "\nA letter is a request, a capital its prompt, · a slot that waits.";
  if (steps_per_column > 1) std::cout << " A column is " << steps_per_column << " steps.";
  std::cout << "\n\n";
}

// What lesson 10 does with them, one after the other.
std::vector<Step> StepsAlone(const std::vector<GenerationRequest>& requests,
                             const std::vector<Generation>& answers, int chunk) {
  std::vector<RequestLengths> lengths;
  for (size_t i = 0; i < requests.size(); ++i) {
    lengths.push_back(
        {static_cast<int>(requests[i].prompt_token_ids.size()), ChosenTokens(answers[i])});
  }
  return PlanSteps(lengths, 1, chunk, Refill::kAtOnce);
}

std::vector<std::string> Row(const Generator& generator, const std::vector<Step>& steps,
                             int num_slots, const TimedRun& run) {
  double tokens = 0;
  for (const Generation& answer : run.generations) tokens += answer.token_ids.size();
  return {generator.name(),
          std::to_string(steps.size()),
          Percent(SlotUtilisation(steps, num_slots)),
          Fixed(1000 * run.seconds, 0),
          Fixed(1000 * run.seconds / steps.size(), 2),
          Fixed(tokens / run.seconds, 0)};
}

void ShowPrompts(const std::vector<std::string>& prompts, int max_tokens,
                 const BatchOptions& options) {
  const std::string folder = DataPath("models/pocket");
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights(Checkpoint(folder), config);
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : prompts) {
    GenerationRequest request;
    request.prompt_token_ids = ChatPrompt(tokenizer, {{"user", prompt}});
    request.max_tokens = max_tokens;
    requests.push_back(request);
  }
  KvCacheGenerator alone(config, weights, options.max_model_len, options.gemm, options.chunk);
  StaticBatchGenerator batches(config, weights, options);
  ContinuousBatchGenerator continuous(config, weights, options);
  const std::vector<TimedRun> runs = Time(requests, {&alone, &batches, &continuous});

  Heading(StrCat("1. ", prompts.size(), " prompts, ", options.num_slots, " slots"));
  const std::vector<Generation>& answers = runs[0].generations;
  ShowAnswers(prompts, tokenizer, answers);
  DrawBoth(batches, continuous);
  TextTable table({"generator", "steps", "slots in use", "ms", "ms a step", "tokens/s"});
  table.AddRow(Row(alone, StepsAlone(requests, answers, options.chunk), 1, runs[0]));
  table.AddRow(Row(batches, batches.steps(), options.num_slots, runs[1]));
  table.AddRow(Row(continuous, continuous.steps(), options.num_slots, runs[2]));
  std::cout << table.ToString();
  const size_t before = batches.steps().size(), saved = before - continuous.steps().size();
  std::cout << "Continuous batching saves " << saved << " of the " << before
            << " steps of static batches, " << Percent(static_cast<double>(saved) / before) << ".\n"
            << (SameTokens(answers, runs[1].generations) && SameTokens(answers, runs[2].generations)
                    ? "The texts are the same all three ways.\n"
                    : "The texts part: cuBLAS sums in another order for another batch.\n");
  if (IsSimulator()) {
    std::cout << "(The times are those of a CPU that plays a GPU: it works for each token, so a "
                 "fuller step\ntakes longer. A GPU waits for the weights, which it reads once a "
                 "step: there, steps are time.)\n";
  }
}

// What the rule is worth depends on how much lengths differ. Nothing is computed here: it is all
// bookkeeping.
void ShowManyRequests() {
  constexpr int kRequests = 512;
  constexpr int kMean = 64;
  constexpr int kPrompt = 32;
  Heading(StrCat("2. ", kRequests, " requests with answers of ", kMean, " tokens in the mean"));
  Random random(12);
  std::vector<RequestLengths> same, even, exponential;
  for (int i = 0; i < kRequests; ++i) {
    same.push_back({kPrompt, kMean});
    even.push_back({kPrompt, random.Integer(1, 2 * kMean - 1)});
    const double length = -kMean * std::log(1 - random.Uniform());
    exponential.push_back({kPrompt, std::max(1, static_cast<int>(length + 0.5))});
  }
  TextTable table(
      {"answers", "slots", "static steps", "in use", "continuous steps", "in use", "saved"});
  const auto add = [&](const std::string& name, const std::vector<RequestLengths>& requests) {
    for (const int num_slots : {2, 8, 32}) {
      const std::vector<Step> batches =
          PlanSteps(requests, num_slots, kPrompt, Refill::kWhenAllAreFree);
      const std::vector<Step> continuous = PlanSteps(requests, num_slots, kPrompt, Refill::kAtOnce);
      table.AddRow({name, std::to_string(num_slots), std::to_string(batches.size()),
                    Percent(SlotUtilisation(batches, num_slots)), std::to_string(continuous.size()),
                    Percent(SlotUtilisation(continuous, num_slots)),
                    Percent(1 - static_cast<double>(continuous.size()) / batches.size())});
    }
  };
  add(StrCat("all ", kMean), same);
  add(StrCat("1 to ", 2 * kMean - 1, ", evenly"), even);
  add("many short, few long", exponential);
  std::cout << table.ToString();
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 12: a slot that becomes free takes the next request at once.");
  std::vector<std::string> prompts;
  BatchOptions options;
  int max_tokens = 40;
  CLI::App& app = command_line.app();
  app.add_option("--prompt", prompts, "a prompt in place of the four; repeatable")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--slots", options.num_slots, "sequences at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--max-tokens", max_tokens, "longest answer, in tokens")
      ->check(CLI::Range(1, 400))
      ->capture_default_str();
  app.add_option("--chunk", options.chunk, "tokens of a prompt that go through in one step")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "Lesson 12: continuous batching\n" << ToString(DescribeDevice()) << "\n";
  ShowPrompts(prompts.empty() ? kPrompts : prompts, max_tokens, options);
  ShowManyRequests();
  std::cout << "\nThe page: docs/12_continuous_batching.md. Your turn: fill the slots in\n"
               "lessons/12_continuous_batching/exercise/slots.cc, and check it with\n"
               "  bazel test --//:exercise=12_continuous_batching "
               "//tests:12_continuous_batching_test\n"
               "Next: bazel run //lessons/13_paged_attention\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
