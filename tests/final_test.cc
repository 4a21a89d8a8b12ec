// Checks of final from outside: what a user types, what comes back, and the exit status.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/mapped_file.h"
#include "final/logprobs.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

struct Outcome {
  int status = -1;
  std::string output;  // standard output
  std::string errors;  // standard error
};

// `arguments` as a shell reads them.
Outcome Final(const std::string& arguments) {
  const std::string errors = testing::TempDir() + "errors";
  const std::string command = DataPath("final/final") + " " + arguments + " 2>" + errors;
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> chunk;
  for (size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) {
    outcome.output.append(chunk.data(), n);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  outcome.errors = ReadTextFile(errors);
  return outcome;
}

std::string TempFile(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::vector<Json> JsonLines(const std::string& text) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(Json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Final, AnswersAQuestion) {
  const Outcome outcome = Final("--prompt 'What is 2+2?'");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_TRUE(Contains(outcome.output, "> What is 2+2?\n")) << outcome.output;
  EXPECT_TRUE(Contains(outcome.output, "4")) << outcome.output;
}

TEST(Final, JsonHasTheContractsFields) {
  const Outcome outcome = Final(
      "--json --logprobs 3 --prompt-logprobs 2 --prompt 'What is 2+2?' --prompt 'Name a color.'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<Json> lines = JsonLines(outcome.output);
  ASSERT_EQ(lines.size(), 2u) << outcome.output;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    EXPECT_EQ(line["index"], i);
    EXPECT_EQ(line["finish_reason"], "stop");
    EXPECT_FALSE(line["text"].get<std::string>().empty());
    const size_t tokens = line["token_ids"].size();
    ASSERT_EQ(line["logprobs"].size(), tokens);
    for (size_t t = 0; t < tokens; ++t) {
      const Json& logprob = line["logprobs"][t];
      EXPECT_EQ(logprob["token_id"], line["token_ids"][t]);
      ASSERT_EQ(logprob["top"].size(), 3u);
      EXPECT_EQ(logprob["top"][0][0], line["token_ids"][t]) << "greedy picks the likeliest";
      EXPECT_EQ(logprob["top"][0][1], logprob["logprob"]);
      EXPECT_LE(logprob["logprob"], 0.0);
    }
    const Json& prompt = line["prompt_logprobs"];
    ASSERT_EQ(prompt.size(), line["prompt_token_ids"].size());
    EXPECT_TRUE(prompt[0].is_null());
    for (size_t t = 1; t < prompt.size(); ++t) {
      EXPECT_EQ(prompt[t]["token_id"], line["prompt_token_ids"][t]);
      EXPECT_EQ(prompt[t]["top"].size(), 2u);
    }
  }
}

TEST(Final, MaxTokensEndsWithLength) {
  const Outcome outcome = Final("--json --max-tokens 1 --prompt 'What is 2+2?'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json line = JsonLines(outcome.output).at(0);
  EXPECT_EQ(line["finish_reason"], "length");
  EXPECT_EQ(line["token_ids"].size(), 1u);
}

TEST(Final, IgnoreEosGoesOn) {
  const Outcome outcome = Final("--json --ignore-eos --max-tokens 24 --prompt 'Name a color.'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json line = JsonLines(outcome.output).at(0);
  EXPECT_EQ(line["finish_reason"], "length");
  EXPECT_EQ(line["token_ids"].size(), 24u);
}

TEST(Final, PromptsFromAFileInEveryForm) {
  const std::string path = TempFile("prompts.jsonl",
                                    R"({"prompt": "What is 2+2?", "max_tokens": 3}

{"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 3, "temperature": 0}
{"prompt_token_ids": [1, 2, 3], "max_tokens": 2, "ignore_eos": true}
)");
  const Outcome outcome = Final("--json --prompts " + path);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<Json> lines = JsonLines(outcome.output);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["prompt_token_ids"], lines[1]["prompt_token_ids"]);
  EXPECT_EQ(lines[0]["token_ids"], lines[1]["token_ids"]);
  EXPECT_EQ(lines[2]["prompt_token_ids"], Json({1, 2, 3}));
  EXPECT_EQ(lines[2]["token_ids"].size(), 2u);
}

TEST(Final, ARefusedRequestDoesNotHarmTheOthers) {
  const std::string path = TempFile("mixed.jsonl",
                                    "{\"prompt\": \"What is 2+2?\", \"max_tokens\": 2}\n"
                                    "{\"prompt\": \"\"}\n"
                                    "{\"prompt\": 5}\n"
                                    "[1]\n"
                                    "{\"prompt\": \"x\n"
                                    "{\"prompt_token_ids\": [99999999]}\n"
                                    "{\"prompt\": \"x\", \"max_tokens\": 0}\n"
                                    "{\"prompt\": \"x\", \"temperature\": 1}\n"
                                    "{\"prompt\": \"\\ud800\"}\n"
                                    "{\"prompt\": \"Name a color.\", \"max_tokens\": 2}\n");
  const Outcome outcome = Final("--json --prompts " + path);
  EXPECT_EQ(outcome.status, 1);
  const std::vector<Json> lines = JsonLines(outcome.output);
  ASSERT_EQ(lines.size(), 10u) << outcome.output;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool good = i == 0 || i == 9;
    EXPECT_EQ(lines[i]["index"], i);
    EXPECT_EQ(lines[i]["finish_reason"] == "error", !good) << lines[i];
    EXPECT_EQ(lines[i].contains("error"), !good) << lines[i];
    EXPECT_EQ(lines[i]["token_ids"].size(), good ? 2u : 0u);
  }
  EXPECT_TRUE(Contains(lines[1]["error"], "mixed.jsonl:2: prompt: is empty")) << lines[1];
  EXPECT_TRUE(Contains(lines[5]["error"], "99999999")) << lines[5];
  EXPECT_TRUE(Contains(lines[7]["error"], "temperature is 1")) << lines[7];
}

TEST(Final, APromptLongerThanTheModelIsRefused) {
  const Outcome outcome = Final("--max-model-len 8 --prompt 'What is 2+2?'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(Contains(outcome.errors, "--max-model-len")) << outcome.errors;
}

TEST(Final, ABadCommandLineIsOneLineAndStatusTwo) {
  for (const std::string& arguments :
       {std::string("--no-such-flag"), std::string("--max-tokens many --prompt x"),
        std::string("--model /no/such/folder --prompt x"), std::string("--prompts /no/such/file"),
        std::string("--max-model-len 100000000 --prompt x"),
        "--prompts " + TempFile("empty.jsonl", "\n")}) {
    const Outcome outcome = Final(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << ": " << outcome.errors;
    EXPECT_EQ(outcome.output, "") << arguments;
    EXPECT_LE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 3) << outcome.errors;
  }
}

TEST(Final, AWrongValueOfAFlagIsRefusedBeforeTheModelIsRead) {
  for (const char* arguments :
       {"--max-tokens 0", "--max-tokens -1", "--max-tokens ''", "--max-tokens 1.5",
        "--max-model-len 0", "--logprobs -5", "--prompt-logprobs -1", "--prompts ''", "--model ''",
        "--max-tokens 1 --max-tokens 2", "--prompt x y", "'--no-such\nflag'"}) {
    const Outcome outcome = Final(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
    EXPECT_LT(outcome.errors.size(), 200u) << outcome.errors;
  }
}

TEST(Final, APromptInBracketsIsOnePrompt) {
  const Outcome outcome = Final("--json --max-tokens 1 --prompt '[a,b]' --prompt=-5");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(JsonLines(outcome.output).size(), 2u) << outcome.output;
}

TEST(Final, ARawPromptBeginsWithOneBeginOfText) {
  const Outcome outcome =
      Final("--json --raw --max-tokens 1 --prompt hi --prompt '<|begin_of_text|>hi'");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<Json> lines = JsonLines(outcome.output);
  EXPECT_EQ(lines.at(0)["prompt_token_ids"], lines.at(1)["prompt_token_ids"]);
  EXPECT_EQ(lines[0]["prompt_token_ids"].size(), 2u) << lines[0];
}

TEST(Final, HostileRequestsAreRefusedInAShortLine) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  const std::string path =
      TempFile("hostile.jsonl",
               "{\"prompt\": \"x\", \"max_tokens\": " + deep + "}\n" +
                   "{\"prompt\": \"x\", \"max_tokens\": \"" + std::string(1 << 20, 'a') + "\"}\n" +
                   "{\"prompt\": \"x\", \"max_tokens\": 18446744073709551615}\n"
                   "{\"prompt\": \"x\", \"a\\nb\": 1}\n"
                   "{\"prompt\": \"\xff\"}\n"
                   "{\"prompt\": \"" +
                   std::string(1 << 20, 'a') + "}\n" +
                   "{\"prompt_token_ids\": [18446744073709551615]}\n"
                   "{\"prompt\": \"x\", \"max_tokens\": 2147483647, \"temperature\": null, "
                   "\"prompt_logprobs\": null, \"prompt_token_ids\": [1]}\n"
                   "{\"prompt\": \"Name a color.\", \"max_tokens\": 2147483647, "
                   "\"temperature\": null}\r\n");
  const Outcome outcome = Final("--json --prompts " + path);
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  const std::vector<Json> lines = JsonLines(outcome.output);
  ASSERT_EQ(lines.size(), 9u);
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(lines[i].contains("error")) << i;
    const std::string error = lines[i]["error"];
    EXPECT_TRUE(Contains(error, "hostile.jsonl:" + std::to_string(i + 1) + ": ")) << error;
    EXPECT_LT(error.size(), 500u) << i;
    EXPECT_FALSE(Contains(error, "\n")) << error;
  }
  EXPECT_EQ(lines[8]["finish_reason"], "stop") << lines[8];
}

TEST(Final, AFullOutputIsAnError) {
  struct stat full;  // a bare chroot may lack the device
  if (stat("/dev/full", &full) != 0 || !S_ISCHR(full.st_mode)) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = Final("--prompt 'Name a color.' >/dev/full");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(Contains(outcome.errors, "standard output: No space left")) << outcome.errors;
}

TEST(Final, NamesTheBundledModelShortly) {
  const Outcome outcome = Final("--prompt x --max-tokens 1");
  EXPECT_TRUE(Contains(outcome.errors, "\nmodels/pocket: ")) << outcome.errors;
}

TEST(Final, HelpListsTheFlags) {
  const Outcome outcome = Final("--help");
  EXPECT_EQ(outcome.status, 0);
  for (const char* flag : {"--model", "--prompt", "--prompts", "--max-tokens", "--raw", "--json"}) {
    EXPECT_TRUE(Contains(outcome.output, flag)) << flag;
  }
}

TEST(LogprobOf, IsTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits = {1.0f, 3.0f, 3.0f, -2.0f};
  const TokenLogprob result = LogprobOf(logits.data(), 4, 0, 3);
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(-2.0);
  EXPECT_NEAR(result.logprob, 1 - std::log(sum), 1e-12);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].first, 1) << "the lower id comes first among equals";
  EXPECT_EQ(result.top[1].first, 2);
  EXPECT_EQ(result.top[2].first, 0);
  EXPECT_EQ(LogprobOf(logits.data(), 4, 0, 100).top.size(), 4u);
  EXPECT_NEAR(LogprobOf(std::vector<float>{6e4f, -6e4f}.data(), 2, 1, 0).logprob, -1.2e5, 1e-6);
}

}  // namespace
}  // namespace tinyvllm
