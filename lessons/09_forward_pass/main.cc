// The demo: the bundled model answers, and the time of a token grows with the text.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/09_forward_pass/recompute_generator.h"

namespace tinyvllm {
namespace {

constexpr int kMaxModelLen = 512;

void ShowBuffers(const ModelConfig& config, const PassLimits& limits) {
  TextTable table({"buffer", "shape", "role", "shares", "bytes"});
  for (const BufferPlan& buffer : PlanActivations(config, limits)) {
    table.AddRow({buffer.name, buffer.shape, buffer.role, buffer.slot, HumanBytes(buffer.bytes())});
  }
  std::cout << "What a pass of " << limits.max_tokens << " tokens writes:\n\n"
            << table.ToString() << "\n";
}

// The answer, piece by piece as it comes; returns each token's milliseconds.
std::vector<double> Answer(const std::string& question, int max_tokens, bool ignore_eos,
                           const Tokenizer& tokenizer, RecomputeGenerator* generator,
                           int* prompt_tokens) {
  using Clock = std::chrono::steady_clock;
  GenerationRequest request;
  request.prompt_token_ids = ChatPrompt(tokenizer, {{"user", question}});
  request.max_tokens = max_tokens;
  request.ignore_eos = ignore_eos;
  *prompt_tokens = static_cast<int>(request.prompt_token_ids.size());
  std::vector<double> milliseconds;
  StreamingDecoder decoder(tokenizer, /*skip_special_tokens=*/true);
  Clock::time_point last = Clock::now();
  generator->Generate({request}, [&](const GeneratedToken& token) {
    const Clock::time_point now = Clock::now();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
    if (!ignore_eos) std::cout << decoder.Push(token.token_id) << std::flush;
  });
  if (!ignore_eos) std::cout << decoder.Flush();
  return milliseconds;
}

std::string Bar(double share, int width) {
  std::string bar;
  for (int i = 0; i < static_cast<int>(share * width + 0.5); ++i) bar += "█";
  return bar;
}

void DrawTimes(const std::vector<double>& milliseconds, int prompt_tokens) {
  constexpr int kPerRow = 16;
  constexpr int kBarWidth = 40;
  std::vector<double> means;
  for (size_t begin = 0; begin + kPerRow <= milliseconds.size(); begin += kPerRow) {
    double sum = 0;
    for (int i = 0; i < kPerRow; ++i) sum += milliseconds[begin + i];
    means.push_back(sum / kPerRow);
  }
  double slowest = 0;
  for (const double mean : means) slowest = std::max(slowest, mean);
  std::cout << "  tokens in the sequence   ms a token\n";
  for (size_t row = 0; row < means.size(); ++row) {
    std::printf("  %10zu to %4zu    %10.1f  %s\n", prompt_tokens + row * kPerRow,
                prompt_tokens + (row + 1) * kPerRow - 1, means[row],
                Bar(means[row] / slowest, kBarWidth).c_str());
  }
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 09: the whole model, every token recomputed for every new one.");
  std::string question = "What is a KV cache?";
  int tokens = 128;
  command_line.app().add_option("--prompt", question, "what to ask")->capture_default_str();
  command_line.app()
      .add_option("--tokens", tokens, "tokens of the second part, which is timed")
      ->check(CLI::Range(16, 400))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  const std::string folder = DataPath("models/pocket");
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights(Checkpoint(folder), config);
  RecomputeGenerator generator(config, weights, kMaxModelLen);

  std::cout << "Lesson 09: a forward pass\n"
            << ToString(DescribeDevice()) << "\n\n"
            << config.num_hidden_layers << " layers, hidden_size " << config.hidden_size << ", "
            << config.num_attention_heads << " query and " << config.num_key_value_heads
            << " KV heads of " << config.head_dim << ", vocabulary " << config.vocab_size << "; "
            << HumanBytes(weights.bytes()) << " of weights.\n\n";
  PassLimits shown;
  shown.max_tokens = 64;
  shown.max_sequence_len = 64;
  shown.max_logit_rows = 1;
  ShowBuffers(config, shown);

  int prompt_tokens = 0;
  std::cout << "> " << question << "\n";
  Answer(question, 100, /*ignore_eos=*/false, tokenizer, &generator, &prompt_tokens);

  std::cout << "\n\nNow " << tokens
            << " tokens in a row. Each one sends the whole text through the "
            << "model again:\n\n";
  const std::vector<double> times =
      Answer(question, tokens, /*ignore_eos=*/true, tokenizer, &generator, &prompt_tokens);
  DrawTimes(times, prompt_tokens);
  std::cout << "\nThe work for token n is n tokens' work, so a text of n tokens costs about n²/2.\n"
            << "Almost all of it was done before: lesson 10 keeps it.\n\n"
            << "The page: docs/09_forward_pass.md. Your turn: write the loop in\n"
            << "lessons/09_forward_pass/exercise/forward_pass.cc, and check it with\n"
            << "  bazel test --//:exercise=09_forward_pass //tests:09_forward_pass_test\n"
            << "Next: bazel run //lessons/10_kv_cache\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
