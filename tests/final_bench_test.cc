// Checks of //final:bench from outside: what it counts, what it measures, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/base/data_path.h"
#include "common/testing/run_command.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

Outcome Bench(const std::string& arguments) {
  return RunCommand(DataPath("final/bench") + " " + arguments);
}

Json BenchJson(const std::string& arguments) {
  const Outcome outcome = Bench(arguments + " --json");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  return Json::parse(outcome.output);
}

// What follows from other figures of the same run, and what a time can only be.
void ExpectConsistent(const Json& json) {
  const auto value = [&](const char* name) { return json.at(name).get<double>(); };
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); };
  EXPECT_GT(value("elapsed_time"), 0);
  EXPECT_TRUE(
      near(value("output_tokens_per_second") * value("elapsed_time"), value("output_tokens")))
      << json;
  EXPECT_TRUE(near(value("total_tokens_per_second") * value("elapsed_time"),
                   value("output_tokens") + value("prompt_tokens")))
      << json;
  EXPECT_GT(value("device_read_gb_per_second"), 0);
  EXPECT_GT(value("share_of_read_bandwidth"), 0);
  EXPECT_TRUE(near(value("share_of_read_bandwidth") * value("device_read_gb_per_second"),
                   value("decode_read_gb_per_second")))
      << json;
}

TEST(Bench, LatencyCountsWhatItHasRun) {
  const Json json = BenchJson(
      "latency --batch-size 2 --input-len 8 --output-len 4 --num-iters 3 --num-iters-warmup 1");
  EXPECT_EQ(json["benchmark"], "latency");
  EXPECT_EQ(json["batch_size"], 2);
  EXPECT_EQ(json["input_len"], 8);
  EXPECT_EQ(json["output_len"], 4);
  EXPECT_EQ(json["latencies"].size(), 3u) << "the first run does not count";
  EXPECT_EQ(json["prompt_tokens"], 3 * 2 * 8);
  EXPECT_EQ(json["output_tokens"], 3 * 2 * 4);
  EXPECT_EQ(json["decode_steps"], 3 * 3) << "the first token of an answer is the prompt's";
  EXPECT_EQ(json["sequences_per_decode_step"], 2.0);
  EXPECT_GT(json["time_to_first_token"], 0.0);
  EXPECT_LT(json["time_to_first_token"], json["median_latency"]);
  ExpectConsistent(json);
  // A step of two sequences reads the weights of 13.9 MB once.
  EXPECT_GT(json["decode_read_gb_per_second"].get<double>() * json["decode_step_ms"].get<double>(),
            0.5 * 13.9);
}

TEST(Bench, ThroughputDrawsLengthsFromItsSeed) {
  const std::string lengths =
      "throughput --num-prompts 7 --input-len 4 --input-len-max 12 --output-len 2 "
      "--output-len-max 9 --max-num-seqs 3 ";
  const Json json = BenchJson(lengths + "--seed 1");
  EXPECT_EQ(json["benchmark"], "throughput");
  EXPECT_EQ(json["num_requests"], 7);
  EXPECT_GE(json["prompt_tokens"], 7 * 4);
  EXPECT_LE(json["prompt_tokens"], 7 * 12);
  EXPECT_GE(json["output_tokens"], 7 * 2);
  EXPECT_LE(json["output_tokens"], 7 * 9);
  EXPECT_LE(json["sequences_per_decode_step"], 3.0);
  EXPECT_GT(json["requests_per_second"], 0.0);
  EXPECT_EQ(json["preemptions"], 0);
  EXPECT_GT(json["peak_used_blocks"], 0);
  EXPECT_LE(json["peak_used_blocks"], json["num_blocks"]);
  ExpectConsistent(json);

  const Json again = BenchJson(lengths + "--seed 1"), other = BenchJson(lengths + "--seed 2");
  for (const char* count : {"prompt_tokens", "output_tokens", "steps"}) {
    EXPECT_EQ(again[count], json[count]) << count;
  }
  EXPECT_NE(Json({other["prompt_tokens"], other["output_tokens"]}),
            Json({json["prompt_tokens"], json["output_tokens"]}));
  // Without --input-len-max and --output-len-max all are of one length.
  const Json equal = BenchJson("throughput --num-prompts 3 --input-len 5 --output-len 3");
  EXPECT_EQ(equal["prompt_tokens"], 3 * 5);
  EXPECT_EQ(equal["output_tokens"], 3 * 3);
}

TEST(Bench, PrintsATableForAPerson) {
  const Outcome outcome =
      Bench("latency --batch-size 1 --input-len 4 --output-len 3 --num-iters 1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* part : {"time to first token", "output tokens/s", "decode step, median",
                           "the device can read", "share"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
  // Without a step that only decodes there is nothing to be said of one.
  const Outcome prefill =
      Bench("latency --batch-size 1 --input-len 4 --output-len 1 --num-iters 1");
  EXPECT_EQ(prefill.status, 0) << prefill.errors;
  EXPECT_EQ(prefill.output.find("share"), std::string::npos) << prefill.output;
}

TEST(Bench, RefusesWhatMakesNoSense) {
  for (const auto& [arguments, part] : std::vector<std::pair<const char*, const char*>>{
           {"", "subcommand"},
           {"sideways", "subcommand"},
           {"latency --batch-size 0", "--batch-size"},
           {"latency --input-len 0", "--input-len"},
           {"latency --output-len -3", "--output-len"},
           {"latency --seed -1", "--seed"},
           {"latency --seed 18446744073709551616", "--seed"},
           {"latency --num-prompts 3", "--num-prompts"},
           {"throughput --input-len 9 --input-len-max 8", "--input-len-max is 8"},
           {"throughput --output-len 9 --output-len-max 8", "--output-len-max is 8"},
           {"latency --input-len 4096", "--max-model-len"},
           {"latency --input-len 100 --num-gpu-blocks-override 2", "--num-gpu-blocks-override"},
           {"latency --model /no/such/folder", "/no/such/folder"}}) {
    const Outcome outcome = Bench(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << outcome.errors;
  }
}

}  // namespace
}  // namespace tinyvllm
