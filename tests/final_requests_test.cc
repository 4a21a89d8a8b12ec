// Checks of how final's command line and its lines of JSON become requests.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/testing/expect_error.h"
#include "final/options.h"
#include "final/request.h"

namespace tinyvllm {
namespace {

Options Parsed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "final");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  Options options;
  EXPECT_TRUE(ParseOptions(static_cast<int>(argv.size()), argv.data(), &options));
  return options;
}

const Tokenizer& PocketTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::FromFile(DataPath("models/pocket/tokenizer.json"));
  return tokenizer;
}

std::vector<Request> Requests(Options options, const std::string& lines) {
  options.prompts_file = testing::TempDir() + "lines.jsonl";
  std::ofstream(options.prompts_file, std::ios::binary) << lines;
  return ReadRequests(options, PocketTokenizer());
}

Request OnlyRequest(const Options& options, const std::string& line) {
  const std::vector<Request> requests = Requests(options, line);
  EXPECT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests.at(0).error, "") << line;
  return requests.at(0);
}

// All that can be asked of a request, with the value that a flag and a field give it.
struct Asked {
  std::string flag;   // empty: there is none
  std::string field;  // in a line, with its value
  std::function<std::string(const Request&)> value;
  std::string expected, by_default;
};

std::string Text(double value) {
  std::ostringstream out;
  out << static_cast<float>(value);
  return out.str();
}

std::string Ids(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += StrCat(id, " ");
  return text;
}

const std::vector<Asked>& AllThatCanBeAsked() {
  using R = const Request&;
  static const std::vector<Asked> all = {
      {"--max-tokens=7", R"("max_tokens": 7)", [](R r) { return StrCat(r.engine.max_tokens); }, "7",
       "256"},
      {"--temperature=0.5", R"("temperature": 0.5)",
       [](R r) { return Text(r.engine.sampling.temperature); }, "0.5", "0"},
      {"--top-k=3", R"("top_k": 3)", [](R r) { return StrCat(r.engine.sampling.top_k); }, "3", "0"},
      {"--top-p=0.25", R"("top_p": 0.25)", [](R r) { return Text(r.engine.sampling.top_p); },
       "0.25", "1"},
      {"--min-p=0.125", R"("min_p": 0.125)", [](R r) { return Text(r.engine.sampling.min_p); },
       "0.125", "0"},
      {"--repetition-penalty=1.5", R"("repetition_penalty": 1.5)",
       [](R r) { return Text(r.engine.sampling.repetition_penalty); }, "1.5", "1"},
      {"--presence-penalty=-1.25", R"("presence_penalty": -1.25)",
       [](R r) { return Text(r.engine.sampling.presence_penalty); }, "-1.25", "0"},
      {"--frequency-penalty=2", R"("frequency_penalty": 2)",
       [](R r) { return Text(r.engine.sampling.frequency_penalty); }, "2", "0"},
      {"--seed=18446744073709551615", R"("seed": 18446744073709551615)",
       [](R r) { return StrCat(r.engine.sampling.seed); }, "18446744073709551615", "0"},
      {"--logprobs=4", R"("logprobs": 4)", [](R r) { return StrCat(r.engine.sampling.logprobs); },
       "4", "-1"},
      {"--prompt-logprobs=0", R"("prompt_logprobs": 0)",
       [](R r) { return StrCat(r.engine.prompt_logprobs); }, "0", "-1"},
      {"--ignore-eos", R"("ignore_eos": true)", [](R r) { return StrCat(r.engine.ignore_eos); },
       "1", "0"},
      {"--stop=[a, b]", R"("stop": "[a, b]")",
       [](R r) { return r.stop.empty() ? "none" : StrCat(r.stop.size(), " ", r.stop[0]); },
       "1 [a, b]", "none"},
      {"", R"("stop_token_ids": [5, 6])", [](R r) { return Ids(r.engine.stop_token_ids); }, "5 6 ",
       ""},
      {"", R"("allowed_token_ids": [7])",
       [](R r) { return Ids(r.engine.sampling.allowed_token_ids); }, "7 ", ""},
      {"", R"("bad_token_ids": [8, 9])", [](R r) { return Ids(r.engine.sampling.bad_token_ids); },
       "8 9 ", ""},
      {"", R"("logit_bias": {"10": -100})",
       [](R r) {
         std::string text;
         for (const auto& [id, bias] : r.engine.sampling.logit_bias) text += StrCat(id, ":", bias);
         return text;
       },
       "10:-100", ""},
  };
  return all;
}

// Each on its own: what is asked for arrives where it belongs, and nowhere else.
TEST(Requests, EveryFieldArrivesAndTakesThePlaceOfTheFlag) {
  for (const Asked& asked : AllThatCanBeAsked()) {
    SCOPED_TRACE(asked.field);
    const Request request = OnlyRequest(Options(), R"({"prompt": "x", )" + asked.field + "}");
    for (const Asked& other : AllThatCanBeAsked()) {
      EXPECT_EQ(other.value(request), &other == &asked ? asked.expected : other.by_default)
          << other.field;
    }
    if (asked.flag.empty()) continue;
    const Options options = Parsed({asked.flag});
    const Request by_flag = OnlyRequest(options, R"({"prompt": "x"})");
    for (const Asked& other : AllThatCanBeAsked()) {
      EXPECT_EQ(other.value(by_flag), &other == &asked ? asked.expected : other.by_default)
          << asked.flag << " changes " << other.field;
    }
    const std::string name = asked.field.substr(0, asked.field.find(':'));
    EXPECT_EQ(asked.value(OnlyRequest(options, R"({"prompt": "x", )" + name + ": null}")),
              asked.expected)
        << "null leaves what the flag says";
  }
  // A field goes before the flag.
  EXPECT_EQ(OnlyRequest(Parsed({"--max-tokens=3", "--ignore-eos", "--stop=a"}),
                        R"({"prompt": "x", "max_tokens": 9, "ignore_eos": false, "stop": []})")
                .engine.max_tokens,
            9);
  const Request request =
      OnlyRequest(Parsed({"--ignore-eos", "--stop=a", "--stop=b"}),
                  R"({"prompt": "x", "ignore_eos": false, "stop": ["c", "d", "e"]})");
  EXPECT_FALSE(request.engine.ignore_eos);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"c", "d", "e"}));
}

TEST(Requests, EveryFlagOfTheEngineArrives) {
  const Options usual = Parsed({});
  EXPECT_TRUE(usual.engine.enable_prefix_caching);
  EXPECT_FALSE(usual.engine.batch_invariant);
  EXPECT_FALSE(usual.engine.async_scheduling);
  EXPECT_FALSE(usual.max_num_seqs_given);
  const Options options =
      Parsed({"--max-num-seqs=3", "--max-num-batched-tokens=77", "--max-model-len=99",
              "--block-size=8", "--num-gpu-blocks-override=55", "--gpu-memory-utilization=0.5",
              "--no-enable-prefix-caching", "--batch-invariant", "--async-scheduling",
              "--enforce-eager", "--json", "--trace=t.json", "--model=folder", "--raw", "--plan"});
  EXPECT_EQ(options.engine.max_num_seqs, 3);
  EXPECT_EQ(options.engine.max_num_batched_tokens, 77);
  EXPECT_EQ(options.engine.max_model_len, 99);
  EXPECT_EQ(options.engine.block_size, 8);
  EXPECT_EQ(options.engine.num_gpu_blocks_override, 55);
  EXPECT_EQ(options.engine.gpu_memory_utilization, 0.5);
  EXPECT_FALSE(options.engine.enable_prefix_caching);
  EXPECT_TRUE(options.engine.batch_invariant);
  EXPECT_TRUE(options.engine.async_scheduling);
  EXPECT_TRUE(options.json && options.raw && options.plan && options.max_num_seqs_given &&
              options.max_num_batched_tokens_given && options.max_model_len_given);
  EXPECT_EQ(options.trace, "t.json");
  EXPECT_EQ(options.model, "folder");
  EXPECT_TRUE(Parsed({"--enable-prefix-caching"}).engine.enable_prefix_caching);
}

TEST(Requests, ASeedIsAnyNumberOf64Bits) {
  EXPECT_EQ(Parsed({"--seed=0"}).request.sampling.seed, 0u);
  for (const char* seed : {"--seed=18446744073709551616", "--seed=1e3", "--seed=-1", "--seed=010",
                           "--seed=1.5", "--seed=x"}) {
    EXPECT_ERROR(Parsed({seed}), "--seed", "2^64 - 1");
  }
}

TEST(Requests, ALineThatIsWrongSaysWhatIsWrongWithIt) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {R"({"prompt": "x", "prompt": "y"})", "\"prompt\" is there twice"},
      {R"({"prompt": "x", "seed": 1, "seed": 1})", "\"seed\" is there twice"},
      {R"({"prompt": "x", "logit_bias": {"5": 1, "5": 2}})", "\"5\" is there twice"},
      {R"({"messages": [{"role": "user", "role": "user", "content": "x"}]})",
       "\"role\" is there twice"},
      {R"({"prompt": null})", "exactly one of prompt, messages and prompt_token_ids"},
      {R"({"prompt": "x", "messages": [{"role": "user", "content": "x"}]})", "exactly one"},
      {R"({"max_tokens": 5})", "exactly one"},
      {R"({"messages": []})", "at least one message"},
      {R"({"messages": [{"role": "user"}]})", "content: expected a string"},
      {R"({"messages": [{"role": "root", "content": "x"}]})", "role 'root'"},
      {R"({"prompt": "x", "temperature": NaN})", "is not JSON"},
      {R"({"prompt": "x", "temperature": Infinity})", "is not JSON"},
      {R"({"prompt": "x", "temperature": 1e400})", "is not JSON"},
      {R"({"prompt": "x", "max_tokens": 1e2})", "max_tokens is 100.0"},
      {R"({"prompt": "x", "max_tokens": true})", "max_tokens is true"},
      {R"({"prompt": "x", "max_tokens": -2})", "max_tokens is -2, expected a whole number from -1"},
      {R"({"prompt": "x", "seed": 18446744073709551616})", "seed is 1.8446744073709552e+19"},
      {R"({"prompt": "x", "ignore_eos": 1})", "ignore_eos is 1"},
      {R"({"prompt": "x", "stop_token_ids": 5})", "stop_token_ids is 5"},
      {R"({"prompt": "x", "logit_bias": {"+1": 1}})", "\"+1\" is not a token id"},
      {R"({"prompt": "x", "Prompt": "y"})", "\"Prompt\": is not a field"},
      {R"({"prompt": "x"} {"prompt": "y"})", "is not JSON at byte"},
      {R"(null)", "is null"},
      {R"({"prompt": "x")", "is not JSON"},
  };
  std::string text = "{\"prompt\": \"first\"}\n";
  for (const auto& [line, error] : lines) text += line + "\n";
  text += R"({"prompt": null, "messages": null, "prompt_token_ids": [1, 2]})";
  const std::vector<Request> requests = Requests(Options(), text);
  ASSERT_EQ(requests.size(), lines.size() + 2);
  EXPECT_EQ(requests.front().error, "");
  for (size_t i = 0; i < lines.size(); ++i) {
    const Request& request = requests[i + 1];
    EXPECT_NE(request.error.find(lines[i].second), std::string::npos)
        << lines[i].first << ": " << request.error;
    EXPECT_EQ(request.where, StrCat(testing::TempDir(), "lines.jsonl:", i + 2));
  }
  EXPECT_EQ(requests.back().error, "");
  EXPECT_EQ(requests.back().engine.prompt_token_ids, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace tinyvllm
