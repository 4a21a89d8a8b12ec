// Writes a Hugging Face checkpoint of any Llama shape with random weights: for tests of shapes that
// nobody has trained, and for measurements, where only the shape counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lessons/01_safetensors/dtype.h"

namespace tinyvllm {

struct RandomModelOptions {
  std::string preset = "llama3.2-1b";
  std::map<std::string, std::string> overrides;  // field of config.json to JSON text
  DType dtype = DType::kBF16;
  uint64_t seed = 0;
  int shards = 1;
  bool header_only = false;
  std::string out;
};

// Nothing when --help was asked for and printed. Throws Error for bad flags.
std::optional<RandomModelOptions> ParseRandomModelOptions(int argc, char** argv);

// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the weights
// (one file, or shards and their index) into options.out. Throws Error for options that make no
// model, and for a folder that holds something else than an earlier random model.
void WriteRandomModel(const RandomModelOptions& options);

}  // namespace tinyvllm
