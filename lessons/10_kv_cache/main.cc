// The demo: the same text with and without the cache, the time of a token against the text's length
// for both, and what the cache costs in memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/model_presets.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/device.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/09_forward_pass/recompute_generator.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"

namespace tinyvllm {
namespace {

constexpr int kMaxModelLen = 512;

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

struct TimedRun {
  std::vector<int> token_ids;
  std::vector<double> milliseconds;  // of each token; the first one's is the prefill's
  double total = 0;
};

// When `decoder` is given, prints the text as it comes.
TimedRun Generate(const GenerationRequest& request, Generator* generator,
                  StreamingDecoder* decoder) {
  using Clock = std::chrono::steady_clock;
  TimedRun run;
  Clock::time_point last = Clock::now();
  generator->Generate({request}, [&](const GeneratedToken& token) {
    const Clock::time_point now = Clock::now();
    run.milliseconds.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    run.total += run.milliseconds.back();
    last = now;
    run.token_ids.push_back(token.token_id);
    if (decoder != nullptr) std::cout << decoder->Push(token.token_id) << std::flush;
  });
  if (decoder != nullptr) std::cout << decoder->Flush();
  return run;
}

// The same tokens? On a GPU the two may part where two tokens are nearly equally likely.
std::string Compare(const std::vector<int>& without, const std::vector<int>& with) {
  const size_t shorter = std::min(without.size(), with.size());
  const size_t same =
      std::mismatch(with.begin(), with.begin() + shorter, without.begin()).first - with.begin();
  if (same == without.size() && same == with.size()) {
    return StrCat("All ", same, " tokens are the same.");
  }
  return StrCat("The first ", same, " tokens are the same, of ", without.size(), " and ",
                with.size(), ".");
}

std::string Repeat(const char* piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

// Two bars in one: the dark part is the time with the cache, the whole the time without.
void DrawTimes(const TimedRun& without, const TimedRun& with, int prompt_tokens) {
  constexpr int kPerRow = 16;
  constexpr int kBarWidth = 44;
  const auto mean = [](const TimedRun& run, size_t row) {
    double sum = 0;
    // The first token's time is the whole prompt's; it is shown apart.
    for (int i = 0; i < kPerRow; ++i) sum += run.milliseconds[1 + row * kPerRow + i];
    return sum / kPerRow;
  };
  const size_t rows =
      (std::min(without.milliseconds.size(), with.milliseconds.size()) - 1) / kPerRow;
  double slowest = 0;
  for (size_t row = 0; row < rows; ++row) {
    slowest = std::max({slowest, mean(without, row), mean(with, row)});
  }
  std::cout << "  tokens in the       ms a token\n"
            << "  sequence          cache    none    █ with the cache   ░ everything recomputed\n";
  for (size_t row = 0; row < rows; ++row) {
    const double dark = mean(with, row), light = mean(without, row);
    const int dark_width = std::max(1, static_cast<int>(dark / slowest * kBarWidth + 0.5));
    const int light_width = static_cast<int>(light / slowest * kBarWidth + 0.5) - dark_width;
    std::printf("  %4zu to %4zu    %8.2f%8.1f    %s%s\n", prompt_tokens + 1 + row * kPerRow,
                prompt_tokens + (row + 1) * kPerRow, dark, light, Repeat("█", dark_width).c_str(),
                Repeat("░", std::max(0, light_width)).c_str());
  }
  std::cout << std::flush;
}

// What every token kept costs, and what a GPU's memory comes to in tokens.
void ShowMemory(const ModelConfig& pocket) {
  Heading("3. What the cache costs: 2 (K and V) x layers x KV heads x head_dim x 2 bytes a token");
  TextTable table({"model", "layers", "KV heads", "head_dim", "bytes a token", "4,096 tokens",
                   "131,072 tokens"});
  const auto add = [&](const std::string& name, const ModelConfig& config) {
    const double bytes = static_cast<double>(ContiguousKvCache::BytesPerToken(config));
    table.AddRow({name, std::to_string(config.num_hidden_layers),
                  std::to_string(config.num_key_value_heads), std::to_string(config.head_dim),
                  Fixed(bytes / 1024, 0) + " KiB", Fixed(bytes * 4096 / (1 << 20), 0) + " MiB",
                  Fixed(bytes * 131072 / (1 << 30), 1) + " GiB"});
  };
  add("pocket", pocket);
  for (const std::string& name : ModelPresetNames()) {
    const LlamaShape shape = LlamaShapeFromConfig(ModelPreset(name), name);
    ModelConfig config;
    config.num_hidden_layers = shape.num_hidden_layers;
    config.num_key_value_heads = shape.num_key_value_heads;
    config.head_dim = shape.head_dim;
    add(name, config);
  }
  std::cout << table.ToString();
}

void ShowVersions() {
  const bool simulated = IsSimulator();
  const int num_tokens = simulated ? 256 : 16384;
  constexpr int kKvSize = 512;
  constexpr int kStride = 2048 + 2 * kKvSize;  // a row of the fused qkv matrix of a 1B model
  Heading(StrCat("4. The store: ", num_tokens, " rows of K and of V, ", kKvSize, " wide"));
  std::vector<int> zeros(num_tokens, 0), positions(num_tokens);
  for (int t = 0; t < num_tokens; ++t) positions[t] = t;
  const DeviceBuffer<int> device_slots(zeros), device_positions(positions);
  DeviceBuffer<bf16> qkv(static_cast<size_t>(num_tokens) * kStride);
  DeviceBuffer<bf16> k_cache(static_cast<size_t>(num_tokens) * kKvSize);
  DeviceBuffer<bf16> v_cache(k_cache.size());
  qkv.Fill(0x3f);
  StoreKvRows rows;
  rows.k = qkv.data() + 2048;
  rows.v = rows.k + kKvSize;
  rows.stride = kStride;
  rows.slots = device_slots.data();
  rows.positions = device_positions.data();
  rows.num_tokens = num_tokens;
  rows.kv_size = kKvSize;
  rows.max_len = num_tokens;
  rows.k_cache = k_cache.data();
  rows.v_cache = v_cache.data();

  Benchmark benchmark;
  std::vector<std::string> header = {"version", "a thread moves", "idea"};
  if (simulated) {
    header.push_back("CPU ms");
  } else {
    header.insert(header.end(), {"us", "GB/s", "of a copy's"});
  }
  TextTable table(header);
  for (const StoreKvVersion& version : kStoreKvVersions) {
    const double milliseconds = benchmark.MedianMilliseconds(
        [&] { version.launch(rows, benchmark.stream()); }, simulated ? 5 : 30);
    std::vector<std::string> row = {std::to_string(version.number), version.name, version.idea};
    if (simulated) {
      row.push_back(Fixed(milliseconds, 2));
    } else {
      const double bytes = 2.0 * (k_cache.bytes() + v_cache.bytes());  // read, and written
      const double speed = GigabytesPerSecond(bytes, milliseconds);
      row.push_back(Fixed(1000 * milliseconds, 1));
      row.push_back(Fixed(speed, 0));
      row.push_back(Fixed(100 * speed / benchmark.CopyGigabytesPerSecond(), 0) + " %");
    }
    table.AddRow(row);
  }
  std::cout << table.ToString();
  if (simulated) {
    std::cout
        << "CPU ms: how long this CPU took to play the GPU. On a GPU this demo prints GB/s.\n";
  }
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 10: keys and values are kept, and only new tokens computed.");
  std::string question = "What is a KV cache?";
  int tokens = 129;
  command_line.app().add_option("--prompt", question, "what to ask")->capture_default_str();
  command_line.app()
      .add_option("--tokens", tokens, "tokens of the second part, which is timed")
      ->check(CLI::Range(17, 400))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  const std::string folder = DataPath("models/pocket");
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights(Checkpoint(folder), config);
  RecomputeGenerator recompute(config, weights, kMaxModelLen);
  KvCacheGenerator cached(config, weights, kMaxModelLen);
  std::cout << "Lesson 10: the KV cache\n" << ToString(DescribeDevice()) << "\n";

  Heading("1. The same text, twice");
  GenerationRequest request;
  request.prompt_token_ids = ChatPrompt(tokenizer, {{"user", question}});
  request.max_tokens = 100;
  std::vector<TimedRun> answers;
  for (Generator* generator :
       {static_cast<Generator*>(&recompute), static_cast<Generator*>(&cached)}) {
    StreamingDecoder decoder(tokenizer, /*skip_special_tokens=*/true);
    std::cout << generator->name() << ":\n  > " << question << "\n  ";
    answers.push_back(Generate(request, generator, &decoder));
    std::cout << "\n  (" << Fixed(answers.back().total, 0) << " ms)\n";
  }
  std::cout << Compare(answers[0].token_ids, answers[1].token_ids) << "\n";

  const int prompt_tokens = static_cast<int>(request.prompt_token_ids.size());
  Heading(
      StrCat("2. The time of a token: ", tokens, " in a row after a prompt of ", prompt_tokens));
  request.max_tokens = tokens;
  request.ignore_eos = true;
  const TimedRun without = Generate(request, &recompute, nullptr);
  const TimedRun with = Generate(request, &cached, nullptr);
  DrawTimes(without, with, prompt_tokens);
  std::cout << "\nPrefill, the whole prompt at once: " << Fixed(with.milliseconds[0], 1) << " ms, "
            << Fixed(with.milliseconds[0] / prompt_tokens, 2)
            << " ms a token. Then one token a pass.\nIn all " << Fixed(with.total / 1000, 2)
            << " s instead of " << Fixed(without.total / 1000, 2) << " s. "
            << Compare(without.token_ids, with.token_ids) << "\n";
  if (IsSimulator()) {
    std::cout
        << "(Times of a CPU that plays a GPU: only the shape of the curves means something.)\n";
  }

  ShowMemory(config);
  ShowVersions();
  std::cout << "\nThe page: docs/10_kv_cache.md. Your turn: write the store in\n"
               "lessons/10_kv_cache/exercise/kv_cache.cu, and check it with\n"
               "  bazel test --//:exercise=10_kv_cache //tests:10_kv_cache_test\n"
               "Next: bazel run //lessons/11_sampling\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
