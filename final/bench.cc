// How fast the engine is, and how much of what the device can do that is.
//
//   bazel run //final:bench -- latency --model DIR --batch-size 1 --input-len 32 --output-len 128
//   bazel run //final:bench -- throughput --model DIR --num-prompts 1000 --input-len 64
//       --input-len-max 1024 --output-len 64 --output-len-max 512
//
// Prompts are random tokens, so that no two have a prefix in common; end tokens are ignored, so
// that every answer has the length asked for.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "common/cuda/read_bandwidth.h"
#include "common/testing/random.h"
#include "final/options.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/weights.h"
#include "lessons/13_paged_attention/paged_kv_cache.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string model;
  int input_len = 32;
  int output_len = 128;
  int input_len_max = 0;   // 0: as input_len
  int output_len_max = 0;  // 0: as output_len
  int batch_size = 8;
  int num_iters = 5;
  int num_iters_warmup = 1;
  int num_prompts = 100;
  uint64_t seed = 0;
  bool json = false;
  EngineConfig engine;
};

// A decode step: one token for each of so many sequences.
struct DecodeStep {
  double seconds;
  int sequences;
  int64_t kv_tokens;  // that the sequences have in the cache, and attention reads
};

struct Run {
  double seconds = 0;
  double first_tokens_seconds = 0;  // until every request has its first token
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<DecodeStep> decode_steps;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {
    const std::string folder = options.model.empty() ? DataPath("models/pocket") : options.model;
    config_ = ModelConfig::FromFolder(folder);
    device_ = DescribeDevice();
    std::cerr << ToString(device_) << "\n";
    read_gbs_ = MeasureReading();
    const Checkpoint checkpoint(folder);
    weights_ = std::make_unique<Weights>(checkpoint, config_);
    engine_ = std::make_unique<Engine>(config_, *weights_, options.engine);
    random_ = std::make_unique<Random>(options.seed);
  }

  Json Latency();
  Json Throughput();

 private:
  static double MeasureReading() {
    Benchmark benchmark;
    return ReadGigabytesPerSecond(&benchmark);
  }

  EngineRequest RandomRequest(int input_len, int output_len) {
    EngineRequest request;
    for (int i = 0; i < input_len; ++i) {
      request.prompt_token_ids.push_back(random_->Integer(0, config_.vocab_size - 1));
    }
    request.max_tokens = output_len;
    request.ignore_eos = true;
    request.sampling.seed = random_->Bits();
    return request;
  }

  Run Generate(const std::vector<EngineRequest>& requests, Progress* progress);
  double StepBytes(const DecodeStep& step) const;
  Json Common(const Run& run) const;

  const BenchOptions options_;
  ModelConfig config_;
  DeviceReport device_;
  double read_gbs_ = 0;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Random> random_;
};

Run Bench::Generate(const std::vector<EngineRequest>& requests, Progress* progress) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Run run;
  const Clock::time_point begin = Clock::now();
  const int first_id = engine_->Add(requests[0]);
  for (size_t i = 1; i < requests.size(); ++i) engine_->Add(requests[i]);
  std::vector<bool> has_token(requests.size());
  size_t without_token = requests.size();
  while (engine_->has_work()) {
    const Clock::time_point step_begin = Clock::now();
    const std::vector<EngineOutput>& outputs = engine_->Step();
    DecodeStep step{seconds_since(step_begin), 0, 0};
    bool decode = true;
    for (const ScheduledSequence& sequence : engine_->last_step().sequences) {
      decode = decode && sequence.num_tokens == 1 && sequence.samples;
      ++step.sequences;
      step.kv_tokens += sequence.first_position + 1;
    }
    if (decode && step.sequences > 0) run.decode_steps.push_back(step);
    for (const EngineOutput& output : outputs) {
      Check(output.error.empty(), "request ", output.request, ": ", output.error);
      const size_t index = output.request - first_id;
      if (output.token_id >= 0) ++run.output_tokens;
      if (!has_token[index]) {
        has_token[index] = true;
        if (--without_token == 0) run.first_tokens_seconds = seconds_since(begin);
      }
      if (output.finished && progress != nullptr) progress->Advance();
    }
  }
  run.seconds = seconds_since(begin);
  for (const EngineRequest& request : requests)
    run.prompt_tokens += request.prompt_token_ids.size();
  return run;
}

// What a decode step cannot do without reading: every weight that takes part in it, and the keys
// and values of its sequences.
double Bench::StepBytes(const DecodeStep& step) const {
  double weights = static_cast<double>(weights_->bytes());
  if (!config_.tie_word_embeddings) {  // a few rows of the embedding alone
    weights -= 2.0 * config_.vocab_size * config_.hidden_size;
  }
  const double kv_token = PagedKvCache::BytesPerBlock(config_, 1);
  return weights + kv_token * static_cast<double>(step.kv_tokens);
}

Json Bench::Common(const Run& run) const {
  std::vector<double> milliseconds, gbs;
  double sequences = 0;
  for (const DecodeStep& step : run.decode_steps) {
    milliseconds.push_back(step.seconds * 1e3);
    gbs.push_back(StepBytes(step) / step.seconds * 1e-9);
    sequences += step.sequences;
  }
  Json json;
  json["device"] = device_.name;
  json["elapsed_time"] = run.seconds;
  json["prompt_tokens"] = run.prompt_tokens;
  json["output_tokens"] = run.output_tokens;
  json["output_tokens_per_second"] = run.output_tokens / run.seconds;
  json["total_tokens_per_second"] = (run.prompt_tokens + run.output_tokens) / run.seconds;
  json["decode_steps"] = run.decode_steps.size();
  json["sequences_per_decode_step"] =
      run.decode_steps.empty() ? 0 : sequences / run.decode_steps.size();
  json["decode_step_ms"] = Median(milliseconds);
  json["decode_read_gb_per_second"] = Median(gbs);
  json["device_read_gb_per_second"] = read_gbs_;
  json["share_of_read_bandwidth"] = Median(gbs) / read_gbs_;
  return json;
}

Json Bench::Latency() {
  std::vector<double> latencies, first, steps;
  Run all;
  Progress progress("latency", options_.num_iters_warmup + options_.num_iters);
  for (int i = -options_.num_iters_warmup; i < options_.num_iters; ++i) {
    std::vector<EngineRequest> requests;
    for (int b = 0; b < options_.batch_size; ++b) {
      requests.push_back(RandomRequest(options_.input_len, options_.output_len));
    }
    const Run run = Generate(requests, nullptr);
    progress.Advance();
    if (i < 0) continue;
    latencies.push_back(run.seconds);
    first.push_back(run.first_tokens_seconds);
    all.seconds += run.seconds;
    all.prompt_tokens += run.prompt_tokens;
    all.output_tokens += run.output_tokens;
    all.decode_steps.insert(all.decode_steps.end(), run.decode_steps.begin(),
                            run.decode_steps.end());
  }
  Json json;
  json["benchmark"] = "latency";
  json["batch_size"] = options_.batch_size;
  json["input_len"] = options_.input_len;
  json["output_len"] = options_.output_len;
  json["avg_latency"] = std::accumulate(latencies.begin(), latencies.end(), 0.0) / latencies.size();
  json["median_latency"] = Median(latencies);
  json["time_to_first_token"] = Median(first);
  json["prompt_tokens_per_second"] =
      options_.batch_size * static_cast<double>(options_.input_len) / Median(first);
  json["latencies"] = latencies;
  json.update(Common(all));
  return json;
}

Json Bench::Throughput() {
  const int input_max = std::max(options_.input_len, options_.input_len_max);
  const int output_max = std::max(options_.output_len, options_.output_len_max);
  // A few requests first: what is slow at the first launch does not count.
  std::vector<EngineRequest> warm_up;
  for (int i = 0; i < std::min(4, options_.num_prompts); ++i) {
    warm_up.push_back(RandomRequest(options_.input_len, std::min(8, options_.output_len)));
  }
  Generate(warm_up, nullptr);
  const EngineStats before = engine_->stats();

  std::vector<EngineRequest> requests;
  for (int i = 0; i < options_.num_prompts; ++i) {
    const int input_len = random_->Integer(options_.input_len, input_max);
    requests.push_back(RandomRequest(input_len, random_->Integer(options_.output_len, output_max)));
  }
  Progress progress("throughput", options_.num_prompts);
  const Run run = Generate(requests, &progress);
  Json json;
  json["benchmark"] = "throughput";
  json["num_requests"] = options_.num_prompts;
  json["requests_per_second"] = options_.num_prompts / run.seconds;
  json["steps"] = engine_->stats().steps - before.steps;
  json["preemptions"] = engine_->stats().preemptions - before.preemptions;
  json["num_blocks"] = engine_->num_blocks();
  json["peak_used_blocks"] = engine_->stats().peak_used_blocks;
  json.update(Common(run));
  return json;
}

std::string Number(const Json& json, const char* name, int decimals, double scale = 1) {
  return Fixed(json[name].get<double>() * scale, decimals);
}

void Print(const Json& json) {
  TextTable table({"what", "value"});
  if (json["benchmark"] == "latency") {
    table.AddRow({"latency, median", Number(json, "median_latency", 3) + " s"});
    table.AddRow({"time to first token", Number(json, "time_to_first_token", 1, 1e3) + " ms"});
    table.AddRow({"prompt tokens/s", Number(json, "prompt_tokens_per_second", 0)});
  } else {
    table.AddRow({"requests/s", Number(json, "requests_per_second", 2)});
    table.AddRow({"steps", Number(json, "steps", 0)});
    table.AddRow({"preemptions", Number(json, "preemptions", 0)});
  }
  table.AddRow({"output tokens/s", Number(json, "output_tokens_per_second", 0)});
  table.AddRow({"prompt and output tokens/s", Number(json, "total_tokens_per_second", 0)});
  if (json["decode_steps"] > 0) {
    table.AddRow({"decode step, median", Number(json, "decode_step_ms", 3) + " ms"});
    table.AddRow({"sequences in it", Number(json, "sequences_per_decode_step", 1)});
    table.AddRow({"it reads", Number(json, "decode_read_gb_per_second", 0) + " GB/s"});
    table.AddRow({"the device can read", Number(json, "device_read_gb_per_second", 0) + " GB/s"});
    table.AddRow({"share", Number(json, "share_of_read_bandwidth", 1, 100) + " %"});
  }
  std::cout << table.ToString();
  if (IsSimulator()) {
    std::cout << "\nThese are times of a CPU that plays a GPU. On an NVIDIA GPU: --config=cuda\n";
  }
}

void AddCommonFlags(CLI::App* app, BenchOptions* options) {
  app->add_option("--model", options->model,
                  "folder of a Hugging Face checkpoint (default: models/pocket)")
      ->check(NotEmpty());
  app->add_option("--input-len", options->input_len, "tokens of a prompt")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--output-len", options->output_len, "tokens of an answer")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--seed", options->seed, "of prompts and lengths")
      ->check(Seed())
      ->capture_default_str();
  app->add_flag("--json", options->json, "one JSON object on standard output");
  AddEngineFlags(app, &options->engine);
}

// `max`: 0 where it was not given.
void CheckLengths(const char* of, int length, int max) {
  Check(max == 0 || max >= length, "--", of, "-len-max is ", max, ", expected at least --", of,
        "-len, ", length);
}

int RunBench(int argc, char** argv) {
  BenchOptions options;
  CommandLine command_line("Measures the engine.");
  CLI::App& app = command_line.app();
  app.require_subcommand(1);

  CLI::App* latency = app.add_subcommand("latency", "one batch of equal requests, again and again");
  AddCommonFlags(latency, &options);
  latency->add_option("--batch-size", options.batch_size, "requests at a time")
      ->check(AtLeast(1))
      ->capture_default_str();
  latency->add_option("--num-iters", options.num_iters, "runs that count")
      ->check(AtLeast(1))
      ->capture_default_str();
  latency->add_option("--num-iters-warmup", options.num_iters_warmup, "runs before them")
      ->check(AtLeast(0))
      ->capture_default_str();

  CLI::App* throughput = app.add_subcommand("throughput", "many requests, all there at the start");
  AddCommonFlags(throughput, &options);
  throughput->add_option("--num-prompts", options.num_prompts, "requests")
      ->check(AtLeast(1))
      ->capture_default_str();
  throughput
      ->add_option("--input-len-max", options.input_len_max,
                   "lengths are drawn from --input-len to this")
      ->check(AtLeast(1));
  throughput
      ->add_option("--output-len-max", options.output_len_max,
                   "lengths are drawn from --output-len to this")
      ->check(AtLeast(1));
  if (!command_line.Parse(argc, argv)) return 0;
  CheckLengths("input", options.input_len, options.input_len_max);
  CheckLengths("output", options.output_len, options.output_len_max);

  Bench bench(options);
  const Json json = latency->parsed() ? bench.Latency() : bench.Throughput();
  if (options.json) {
    std::cout << json.dump() << "\n";
  } else {
    Print(json);
  }
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::RunBench); }
