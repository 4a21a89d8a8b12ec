// Checks of final from outside: what a user types, what comes back, and the exit status.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/mapped_file.h"
#include "common/base/model_presets.h"
#include "common/testing/run_command.h"
#include "final/plan.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

// `arguments` as a shell reads them.
Outcome Final(const std::string& arguments) {
  return RunCommand(DataPath("final/final") + " " + arguments);
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
                                    "{\"prompt\": \"x\", \"temperature\": -1}\n"
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
  EXPECT_TRUE(Contains(lines[7]["error"], "temperature is -1")) << lines[7];
}

TEST(Final, PromptsFromStandardInputAndFromAPipe) {
  const std::string path = TempFile("piped.jsonl",
                                    "{\"prompt\": \"Name a color.\", \"max_tokens\": 2}\n"
                                    "{\"prompt\": 5}\n");
  const Outcome by_name = Final("--json --prompts " + path);
  const Outcome by_input = Final("--json --prompts - <" + path);
  const Outcome by_pipe =
      RunCommand("cat " + path + " | " + DataPath("final/final") + " --json --prompts /dev/stdin");
  for (const Outcome& outcome : {by_name, by_input, by_pipe}) {
    EXPECT_EQ(outcome.status, 1) << outcome.errors;
    const std::vector<Json> lines = JsonLines(outcome.output);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], JsonLines(by_name.output)[0]);
  }
  EXPECT_TRUE(Contains(by_input.output, "standard input:2: prompt: expected a string"));
  for (const char* nothing : {"- </dev/null", "/dev/null"}) {
    const Outcome outcome = Final(std::string("--prompts ") + nothing);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(Contains(outcome.errors, "holds no request")) << outcome.errors;
  }
  EXPECT_TRUE(Contains(Final("--prompts " + testing::TempDir()).errors, "cannot be read"));
}

// The front of a pipeline, whose end has seen enough.
TEST(Final, AClosedPipeEndsTheRun) {
  const std::string endless = DataPath("final/final") +
                              " --prompt 'Tell me a short story about a fox.' --ignore-eos "
                              "--max-tokens 100000";
  const std::string status = testing::TempDir() + "status";
  const std::string into_head = "; echo $? >" + status + ") | head -c 1";
  // Killed by the signal, as any program; or, where it is ignored, with a word on why.
  std::signal(SIGPIPE, SIG_DFL);
  RunCommand("(" + endless + into_head);
  EXPECT_EQ(ReadTextFile(status), "141\n");
  RunCommand("(trap '' PIPE; " + endless + into_head);
  EXPECT_EQ(ReadTextFile(status), "2\n");
}

TEST(Final, AModelFolderThatLacksAFileIsNamed) {
  const std::string folder = testing::TempDir() + "partial";
  const std::string whole = DataPath("models/pocket");
  const std::vector<std::pair<std::string, std::string>> files = {
      {"config.json", "config.json: cannot be opened"},
      {"tokenizer.json", "tokenizer.json: cannot be opened"},
      {"model.safetensors", "holds no weights"}};
  for (const auto& [lacking, message] : files) {
    RunCommand("rm -rf " + folder + " && mkdir " + folder);
    for (const auto& [file, unused] : files) {
      if (file != lacking) RunCommand("ln -s " + whole + "/" + file + " " + folder);
    }
    const Outcome outcome = Final("--prompt x --model " + folder);
    EXPECT_EQ(outcome.status, 2) << lacking;
    EXPECT_EQ(outcome.output, "") << lacking;
    EXPECT_TRUE(Contains(outcome.errors, message)) << outcome.errors;
  }
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

// --- sampling, as its flags and fields ask

// The objects of a file of requests, and everything else that the command line says.
std::vector<Json> Answers(const std::string& lines, const std::string& flags = "", int status = 0) {
  const Outcome outcome =
      Final("--json --prompts " + TempFile("requests.jsonl", lines) + " " + flags);
  EXPECT_EQ(outcome.status, status) << outcome.errors;
  return JsonLines(outcome.output);
}

TEST(Final, AStopStringIsCutExactly) {
  const Json whole = Answers(R"({"prompt": "What is a KV cache?"})").at(0);
  const std::string text = whole["text"];
  ASSERT_GT(text.size(), 20u);
  // Wherever it begins, in the middle of a token or over several of them.
  for (size_t begin = 1; begin + 6 < text.size() && begin < 24; begin += 3) {
    const std::string stop = text.substr(begin, 6);
    Json request = {{"prompt", "What is a KV cache?"}, {"stop", stop}};
    const Json cut = Answers(request.dump()).at(0);
    EXPECT_EQ(cut["text"], text.substr(0, text.find(stop))) << stop;
    EXPECT_EQ(cut["finish_reason"], "stop");
    EXPECT_LT(cut["token_ids"].size(), whole["token_ids"].size());
  }
  const Outcome flag =
      Final("--prompt 'What is a KV cache?' --stop '" + text.substr(9, 4) + "' --stop zzzz");
  EXPECT_TRUE(Contains(flag.output, text.substr(0, 9) + "\n")) << flag.output;
  EXPECT_FALSE(Contains(flag.output, text.substr(9, 4))) << flag.output;
}

TEST(Final, SeedsRepeatAndDiffer) {
  const std::string line = R"({"prompt": "Tell me a short story about a fox.", "max_tokens": 40, )"
                           R"("temperature": 1.5, "seed": )";
  const std::vector<Json> lines = Answers(line + "1}\n" + line + "1}\n" + line + "2}\n");
  EXPECT_EQ(lines.at(0)["token_ids"], lines.at(1)["token_ids"]);
  EXPECT_NE(lines.at(0)["token_ids"], lines.at(2)["token_ids"]);
  const std::vector<Json> flag =
      Answers(R"({"prompt": "Tell me a short story about a fox.", "max_tokens": 40})",
              "--temperature 1.5 --seed 2");
  EXPECT_EQ(flag.at(0)["token_ids"], lines[2]["token_ids"]);
}

TEST(Final, AVerySmallTemperatureIsGreedy) {
  std::string requests = R"({"prompt": "Name a color."})";
  for (const char* temperature : {"1e-4", "1e-30", "1e-45", "1e-60", "-0.0"}) {
    requests += std::string("\n{\"prompt\": \"Name a color.\", \"seed\": 5, \"temperature\": ") +
                temperature + "}";
  }
  const std::vector<Json> lines = Answers(requests);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_FALSE(lines[0]["text"].get<std::string>().empty());
  for (const Json& line : lines) EXPECT_EQ(line["token_ids"], lines[0]["token_ids"]) << line;
}

TEST(Final, ATopKThatLeavesOutNobodyChangesNothing) {
  std::string requests;
  for (const char* top_k : {"0", "-1", "4096", "4097", "2147483647"}) {
    requests += std::string("{\"prompt\": \"Name a color.\", \"seed\": 5, \"temperature\": 2, ") +
                "\"ignore_eos\": true, \"max_tokens\": 12, \"top_k\": " + top_k + "}\n";
  }
  const std::vector<Json> lines = Answers(requests);
  ASSERT_EQ(lines.size(), 5u);
  for (const Json& line : lines) EXPECT_EQ(line["token_ids"], lines[0]["token_ids"]) << line;
}

TEST(Final, BiasAllowedAndBannedTokens) {
  const std::vector<Json> lines = Answers(
      R"({"prompt": "Name a color.", "max_tokens": 3, "logit_bias": {"65": 100}}
{"prompt": "Name a color.", "max_tokens": 3, "allowed_token_ids": [66]}
{"prompt": "Name a color.", "max_tokens": 1}
)");
  EXPECT_EQ(lines.at(0)["token_ids"], Json({65, 65, 65}));
  EXPECT_EQ(lines.at(1)["token_ids"], Json({66, 66, 66}));
  const int first = lines.at(2)["token_ids"][0];
  Json banned = {{"prompt", "Name a color."}, {"max_tokens", 1}, {"bad_token_ids", {first}}};
  EXPECT_NE(Answers(banned.dump()).at(0)["token_ids"][0], first);
  Json stop = {{"prompt", "Name a color."}, {"stop_token_ids", {first}}};
  const Json stopped = Answers(stop.dump()).at(0);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["token_ids"].size(), 0u) << "an end token is not shown";
}

// The bundled model has three: what ends a text, a message and a turn.
TEST(Final, EveryEndTokenEndsAnAnswerAndIsNotShown) {
  const Json config = Json::parse(ReadTextFile(DataPath("models/pocket/generation_config.json")));
  const std::vector<int> end_tokens = config["eos_token_id"];
  ASSERT_EQ(end_tokens.size(), 3u);
  std::string requests;
  for (const int token : end_tokens) {
    Json request = {{"prompt", "Name a color."}, {"max_tokens", 2}, {"allowed_token_ids", {token}}};
    requests += request.dump() + "\n";
    request["ignore_eos"] = true;
    requests += request.dump() + "\n";
    request["stop_token_ids"] = {token};
    requests += request.dump() + "\n";
  }
  const std::vector<Json> lines = Answers(requests);
  ASSERT_EQ(lines.size(), 9u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const int token = end_tokens[i / 3];
    const bool goes_on = i % 3 == 1;
    EXPECT_EQ(lines[i]["finish_reason"], goes_on ? "length" : "stop") << lines[i];
    EXPECT_EQ(lines[i]["token_ids"], goes_on ? Json({token, token}) : Json::array()) << lines[i];
    EXPECT_EQ(lines[i]["text"], "") << "a special token has no text";
  }
}

TEST(Final, TheModelsLengthEndsAnAnswer) {
  const std::string request = R"({"prompt": "Name a color.", "ignore_eos": true})";
  const int prompt = static_cast<int>(Answers(request).at(0)["prompt_token_ids"].size());
  for (const int room : {1, 2, 16, 17}) {
    const Json line = Answers(request, "--max-model-len " + std::to_string(prompt + room)).at(0);
    EXPECT_EQ(line["finish_reason"], "length");
    EXPECT_EQ(line["token_ids"].size(), room);
  }
  EXPECT_EQ(Answers(request, "--max-model-len " + std::to_string(prompt), 1).at(0)["finish_reason"],
            "error");
}

// Tokens may hold any bytes; a text never does.
TEST(Final, TheTextIsUtf8WhateverTheTokens) {
  const Json vocabulary =
      Json::parse(ReadTextFile(DataPath("models/pocket/tokenizer.json")))["model"]["vocab"];
  const int lead = vocabulary["\u00e4"];  // byte E4 begins a character of three bytes
  const int tail = vocabulary["\u00b8"];  // byte B8 goes on with one
  for (const std::vector<int>& ids : {std::vector<int>{lead}, {tail}, {lead, tail}}) {
    const Json request = {{"prompt", "Name a color."},
                          {"max_tokens", 9},
                          {"temperature", 2},
                          {"allowed_token_ids", ids}};
    const Json line = Answers(request.dump()).at(0);
    EXPECT_EQ(line["token_ids"].size(), 9u);
    EXPECT_FALSE(line["text"].get<std::string>().empty());
    const Outcome shown = Final("--prompts " + TempFile("bytes.jsonl", request.dump()));
    EXPECT_TRUE(Contains(shown.output, line["text"].get<std::string>() + "\n")) << shown.output;
    EXPECT_NO_THROW(Json(shown.output).dump()) << "not UTF-8";
  }
}

TEST(Final, AWrongFieldIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {R"("temperature": -1)", "temperature is -1"},
      {R"("temperature": "hot")", "temperature is \"hot\""},
      {R"("top_p": 0)", "top_p is 0"},
      {R"("top_k": -2)", "top_k is -2"},
      {R"("min_p": 2)", "min_p is 2"},
      {R"("seed": -1)", "seed is -1"},
      {R"("stop": "")", "stop is \"\""},
      {R"("stop": [1])", "stop is [1]"},
      {R"("stop_token_ids": [99999999])", "stop_token_ids"},
      {R"("logit_bias": {"99999999": 1})", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("allowed_token_ids": [-1])", "allowed_token_ids"},
      {R"("logprobs": 1000)", "logprobs is 1000"},
      {R"("prompt_logprobs": 129)", "prompt_logprobs is 129"},
      {R"("stop_token_ids": [-1])", "stop_token_ids: -1"},
      {R"("logit_bias": {"5": 101})", "logit_bias is 101"},
      {R"("temperature": 1e300)", "temperature is inf"},
      {R"("repetition_penalty": 0)", "repetition_penalty is 0"},
      {R"("allowed_token_ids": [5], "bad_token_ids": [5])", "leave no token to choose"},
      {R"("presence_penalty": 3)", "presence_penalty is 3"},
      {R"("best_of": 3)", "best_of"},
  };
  std::string requests;
  for (const auto& [field, message] : fields) requests += R"({"prompt": "x", )" + field + "}\n";
  requests += R"({"prompt": "Name a color."})";
  const std::vector<Json> lines = Answers(requests, "", 1);
  ASSERT_EQ(lines.size(), fields.size() + 1);
  for (size_t i = 0; i < fields.size(); ++i) {
    ASSERT_TRUE(lines[i].contains("error")) << fields[i].first;
    EXPECT_TRUE(Contains(lines[i]["error"], fields[i].second)) << lines[i]["error"];
  }
  EXPECT_EQ(lines.back()["finish_reason"], "stop");
  for (const char* flag : {"--temperature -1", "--temperature nan", "--top-p 0", "--min-p 2",
                           "--logprobs 1000", "--seed -1", "--top-k 1.5", "--stop ''"}) {
    EXPECT_EQ(Final(std::string(flag) + " --prompt x").status, 2) << flag;
  }
}

// --- the engine behind it

TEST(Final, TheSameAnswersHoweverTheyAreBatched) {
  std::string requests;
  for (int i = 0; i < 12; ++i) {
    Json request = {{"prompt", i % 3 == 0 ? "What is a KV cache?" : "Name a color."},
                    {"max_tokens", 5 + 7 * (i % 4)},
                    {"ignore_eos", true},
                    {"seed", i},
                    {"temperature", i % 2 == 0 ? 0.0 : 1.2}};
    requests += request.dump() + "\n";
  }
  const std::vector<Json> alone = Answers(requests, "--max-num-seqs 1");
  for (const char* flags :
       {"", "--max-num-seqs 5", "--max-num-batched-tokens 16 --max-num-seqs 3",
        "--num-gpu-blocks-override 5 --max-num-seqs 6", "--no-enable-prefix-caching --block-size 4",
        "--batch-invariant", "--async-scheduling --num-gpu-blocks-override 5 --max-num-seqs 6"}) {
    const std::vector<Json> lines = Answers(requests, flags);
    ASSERT_EQ(lines.size(), alone.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["index"], i);
      EXPECT_EQ(lines[i]["token_ids"], alone[i]["token_ids"]) << flags << ": request " << i;
    }
  }
}

TEST(Final, APromptThatTheWholePoolCannotHoldIsRefusedAndTheNextOneRuns) {
  const std::vector<Json> lines = Answers(
      R"({"prompt": "one two three four five six seven eight nine ten eleven twelve thirteen"}
{"prompt": "Name a color."})",
      "--num-gpu-blocks-override 2 --block-size 10", 1);
  EXPECT_TRUE(Contains(lines.at(0)["error"], "requests.jsonl:1: ")) << lines[0];
  EXPECT_EQ(lines.at(1)["finish_reason"], "stop") << lines[1];
}

TEST(Final, ARequestThatOutgrowsThePoolEndsWithLength) {
  const Json line = Answers(R"({"prompt": "Name a color.", "ignore_eos": true, "max_tokens": 200})",
                            "--num-gpu-blocks-override 2 --block-size 16")
                        .at(0);
  EXPECT_EQ(line["finish_reason"], "length");
  EXPECT_GT(line["token_ids"].size(), 2u);
  EXPECT_LT(line["token_ids"].size(), 40u);
}

TEST(Final, PromptLogprobsAreTheSameWithTheirPrefixCached) {
  const std::string request = R"({"prompt": "What is a KV cache?", "prompt_logprobs": 2})";
  const std::vector<Json> lines =
      Answers(request + "\n" + request + "\n", "--max-num-seqs 1 --block-size 4");
  EXPECT_EQ(lines.at(0)["prompt_logprobs"], lines.at(1)["prompt_logprobs"]);
  ASSERT_EQ(lines[0]["prompt_logprobs"].size(), lines[0]["prompt_token_ids"].size());
  const std::vector<Json> chunks = Answers(request, "--max-num-seqs 1 --max-num-batched-tokens 3");
  EXPECT_EQ(chunks.at(0)["prompt_logprobs"], lines[0]["prompt_logprobs"]);
}

// Chrome's format: a list of events, each span with a begin and a length.
TEST(Final, TheTraceHasHostDeviceAndSlots) {
  const std::string path = testing::TempDir() + "trace.json";
  // The one that is refused keeps its number to itself.
  const Outcome outcome = Final("--trace " + path +
                                " --max-num-seqs 2 --prompt 'Name a color.' --prompt '' "
                                "--prompt 'What is 2+2?'");
  ASSERT_EQ(outcome.status, 1) << outcome.errors;
  std::map<std::string, int> spans;
  std::map<std::pair<int, int>, double> row_end;
  for (const Json& event : Json::parse(ReadTextFile(path))) {
    if (event["ph"] != "X") continue;
    ++spans[event["name"]];
    EXPECT_GE(event["dur"], 0.0) << event;
    double& end = row_end[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>() + 0.2, end) << "spans of a row overlap: " << event;
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  for (const char* name : {"schedule", "run", "wait", "postprocess", "forward pass", "sample",
                           "request 0", "request 2"}) {
    EXPECT_GT(spans[name], 0) << name;
  }
  EXPECT_EQ(spans.size(), 8u);
  EXPECT_EQ(Final("--trace /no/such/folder/t.json --prompt x").status, 2);
}

TEST(Final, TheDemonstrationShowsATimeline) {
  const Outcome outcome = Final("");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* part : {"> What is 2+2?\n", "slot 0", "slot 1", "tokens/s", "blocks"}) {
    EXPECT_TRUE(Contains(outcome.output, part)) << part;
  }
}

// --- the memory plan

// Llama 3.2 1B, prompts of up to 512 tokens, two at a time: the figures that a plain engine needs.
TEST(Plan, ThePlainPlanOfLlama1B) {
  const ModelConfig config = ModelConfig::FromJson(ModelPreset("llama3.2-1b"), "llama3.2-1b");
  const std::vector<PlannedBuffer> plan = PlainPlan(config, 512, 2);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"gpu_input_tokens", "2 KiB"},
      {"input_embeddings", "2 MiB"},
      {"hidden_state", "2 MiB"},
      {"rms_norms", "2 MiB"},
      {"buf_2048_1", "2 MiB"},
      {"buf_2048_2", "2 MiB"},
      {"k_proj_temp_buf", "512 KiB"},
      {"v_proj_temp_buf", "512 KiB"},
      {"prefill_attn_scores", "16 MiB"},
      {"gate", "8 MiB"},
      {"up", "8 MiB"},
      {"embed_proj", "125.25 MiB"},
      {"embed_proj (copy)", "125.25 MiB"},
      {"gpu_last_tokens", "8 B"},
      {"k_proj_batched_buffer", "2 KiB"},
      {"v_proj_batched_buffer", "2 KiB"},
  };
  ASSERT_EQ(plan.size(), expected.size());
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].name, expected[i].first);
    EXPECT_EQ(BinaryBytes(plan[i].bytes), expected[i].second) << plan[i].name;
    EXPECT_EQ(plan[i].on_host, plan[i].name == "embed_proj (copy)");
  }
}

TEST(Plan, ThePlainPlanFollowsItsArguments) {
  ModelConfig config;
  config.hidden_size = 6;
  config.intermediate_size = 10;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 100;
  std::map<std::string, size_t> bytes;
  for (const PlannedBuffer& buffer : PlainPlan(config, 3, 5)) bytes[buffer.name] = buffer.bytes;
  EXPECT_EQ(bytes["gpu_input_tokens"], 12u);
  EXPECT_EQ(bytes["hidden_state"], 36u);
  EXPECT_EQ(bytes["buf_32_1"], 192u);
  EXPECT_EQ(bytes["buf_6_2"], 36u);
  EXPECT_EQ(bytes["k_proj_temp_buf"], 96u);
  EXPECT_EQ(bytes["prefill_attn_scores"], 72u);
  EXPECT_EQ(bytes["gate"], 60u);
  EXPECT_EQ(bytes["embed_proj"], 600u);
  EXPECT_EQ(bytes["gpu_last_tokens"], 20u);
  EXPECT_EQ(bytes["k_proj_batched_buffer"], 160u);
}

TEST(Plan, PrintsBothPlansAndThePool) {
  const Outcome outcome = Final("--plan");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* part : {"125.25 MiB", "prefill_attn_scores", "hidden_state", "saved",
                           "2 GiB hold 65536 of them", "2 GiB hold 4096 blocks, or 65536 tokens"}) {
    EXPECT_TRUE(Contains(outcome.output, part)) << part << "\n" << outcome.output;
  }
  const Outcome other =
      Final("--plan --max-model-len 100 --max-num-seqs 3 --model " + DataPath("models/pocket"));
  EXPECT_EQ(other.status, 0) << other.errors;
  EXPECT_TRUE(Contains(other.output, "100 tokens, 3 sequences")) << other.output;
}

// What the changes on the device save, one by one, is what they save together.
TEST(Plan, TheSavingsAddUp) {
  for (const char* sizes : {"", " --max-model-len 4096 --max-num-seqs 16"}) {
    const std::string plan = Final(std::string("--plan") + sizes).output;
    std::istringstream lines(plan.substr(plan.find("What each change saves")));
    double sum = 0, all = 0;
    int rows = 0;
    for (std::string line; std::getline(lines, line) && !Contains(line, "The KV cache");) {
      if (!Contains(line, "iB") || Contains(line, "on the device") || Contains(line, "host"))
        continue;
      std::istringstream cell(line.substr(line.find_last_of(' ', line.find_last_of(' ') - 1)));
      double value = 0;
      std::string unit;
      cell >> value >> unit;
      value *= unit == "GiB" ? 1024 : unit == "KiB" ? 1.0 / 1024 : 1;
      (Contains(line, "all device buffers") ? all : sum) += value;
      ++rows;
    }
    EXPECT_EQ(rows, 5) << plan;
    EXPECT_GT(all, 100);
    EXPECT_NEAR(sum, all, all > 1024 ? 6 : 0.05) << plan;  // as far as decimals say
  }
}

TEST(Plan, BinaryBytes) {
  EXPECT_EQ(BinaryBytes(0), "0 B");
  EXPECT_EQ(BinaryBytes(1023), "1023 B");
  EXPECT_EQ(BinaryBytes(1536), "1.5 KiB");
  EXPECT_EQ(BinaryBytes(size_t{3} << 40), "3072 GiB");
}

}  // namespace
}  // namespace tinyvllm
