// The command line of `bazel run //final -- [flags]`. Flag names are vLLM's.
#pragma once

#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {

struct Options {
  std::string model;                 // --model: a checkpoint's folder; empty: the bundled model
  std::vector<std::string> prompts;  // --prompt, repeatable
  std::string prompts_file;          // --prompts: JSON lines
  bool raw = false;                  // --raw: prompts as they are, without the chat format

  // What a request is asked for unless its line of --prompts says otherwise. No prompt in it.
  EngineRequest request;
  std::vector<std::string> stop;  // --stop, repeatable

  EngineConfig engine;
  bool json = false;  // --json
  bool plan = false;  // --plan: print the memory plan, and end
  std::string trace;  // --trace FILE; empty: none

  // Whether the flag was given: the demonstration and the plan have defaults of their own.
  bool max_num_seqs_given = false;
  bool max_num_batched_tokens_given = false;
  bool max_model_len_given = false;
};

// Throws Error for a bad command line. False when --help was asked for and printed.
bool ParseOptions(int argc, char** argv, Options* options);

// The check of a seed. CLI11 takes the largest number for all that are larger.
CLI::Validator Seed();

// The flags that size the engine, for every program that runs one.
void AddEngineFlags(CLI::App* app, EngineConfig* config);

}  // namespace tinyvllm
