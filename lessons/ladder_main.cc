// bazel run //lessons:progress -- --bench: what each lesson from 09 on bought, in tokens a second
// and in memory.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/cuda/device.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/ladder.h"
#include "lessons/ladder_report.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// Answers long and short in turn: where all are alike, it does not matter who shares a batch.
const std::vector<std::string> kPrompts = {
    "Tell me a short story about a robot and a lighthouse.", "What is 2+2?",
    "Tell me a short story about a fox and a bridge.",       "What is a KV cache?",
    "Tell me a short story about a pirate and a map.",       "Name a color.",
    "Tell me a short story about a princess and a clock.",   "What is the capital of France?",
    "Tell me a short story about a dragon and a garden.",    "What is a warp?",
    "Tell me a short story about a cat and a kite.",         "What is 17+25?",
    "Tell me a short story about a dog and a boat.",         "What is the opposite of hot?",
    "Tell me a short story about a wizard and a key.",       "What day comes after Monday?",
};

// The simulator takes up to half a second for a token that is computed with all before it, and the
// whole is to take less than a minute on two cores.
constexpr int kSimulatorMaxTokens = 64;
constexpr size_t kSimulatorSlowRequests = 4;
constexpr int kGpuMaxTokens = 160;
constexpr int kGpuRounds = 3;

struct Flags {
  std::string model;
  int max_tokens = IsSimulator() ? kSimulatorMaxTokens : kGpuMaxTokens;
  std::string svg;
  bool json = false;
};

std::vector<GenerationRequest> Requests(const Tokenizer& tokenizer, int max_tokens) {
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : kPrompts) {
    GenerationRequest request;
    request.prompt_token_ids = HasChatTokens(tokenizer) ? ChatPrompt(tokenizer, {{"user", prompt}})
                                                        : tokenizer.Encode(prompt);
    request.max_tokens = max_tokens;
    requests.push_back(request);
  }
  return requests;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  Check(file.good(), path, ": cannot be written");
}

int Run(int argc, char** argv) {
  CommandLine command_line(
      "Every generator of the course, with the same model and the same prompts.");
  Flags flags;
  CLI::App& app = command_line.app();
  app.add_option("--model", flags.model,
                 "folder of a Hugging Face checkpoint (default: models/pocket)")
      ->check(NotEmpty());
  app.add_option("--max-tokens", flags.max_tokens, "of an answer")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_option("--svg", flags.svg, "write the charts to this file")->check(NotEmpty());
  app.add_flag("--json", flags.json, "one JSON object in place of tables");
  if (!command_line.Parse(argc, argv)) return 0;
  if (!flags.svg.empty()) {  // it is written at the end: that is late for bad news
    const fs::path svg_folder = fs::absolute(flags.svg).parent_path();
    Check(fs::is_directory(svg_folder), "--svg: ", svg_folder.string(), " is not a folder");
  }

  const std::string folder = flags.model.empty() ? DataPath("models/pocket") : flags.model;
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights(Checkpoint(folder), config);
  LadderOptions options;
  options.max_model_len = std::min(options.max_model_len, config.max_position_embeddings);
  if (IsSimulator()) {
    options.slow_requests = kSimulatorSlowRequests;
  } else {
    options.rounds = kGpuRounds;
  }
  const std::string device = ToString(DescribeDevice());
  Ladder ladder = Climb(LadderRungs(), config, weights, Requests(tokenizer, flags.max_tokens),
                        options, std::cerr);
  ladder.model = flags.model.empty() ? "models/pocket" : flags.model;
  if (flags.json) {
    std::cout << LadderJson(ladder);
  } else {
    std::cout << "\n"
              << ladder.model << ", " << ladder.num_requests << " prompts, up to "
              << flags.max_tokens << " tokens each\n"
              << device << "\n\n"
              << LadderTable(ladder) << "\n"
              << LadderBars(ladder) << "\n"
              << LadderNotes(ladder);
  }
  if (!flags.svg.empty()) WriteFile(flags.svg, LadderSvg(ladder));
  // On a GPU, equally likely tokens may change places; the simulator has no such excuse.
  return ladder.same_tokens() || !ladder.simulated ? 0 : 1;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
