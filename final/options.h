// The command line of `bazel run //final -- [flags]`. Flag names are vLLM's.
#pragma once

#include <string>
#include <vector>

namespace tinyvllm {

struct Options {
  std::string model;                 // --model: a checkpoint's folder; empty: the bundled model
  std::vector<std::string> prompts;  // --prompt, repeatable
  std::string prompts_file;          // --prompts: JSON lines
  bool raw = false;                  // --raw: prompts as they are, without the chat format
  int max_tokens = 256;              // --max-tokens
  bool ignore_eos = false;           // --ignore-eos
  int logprobs = -1;                 // --logprobs K; -1: none
  int prompt_logprobs = -1;          // --prompt-logprobs K; -1: none
  int max_model_len = 0;             // --max-model-len; 0: the model's, at most 4096
  bool json = false;                 // --json
};

// Throws Error for a bad command line. False when --help was asked for and printed.
bool ParseOptions(int argc, char** argv, Options* options);

}  // namespace tinyvllm
