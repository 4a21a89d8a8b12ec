// The configuration of a random model: a preset, with any of its fields overridden.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lessons/01_safetensors/llama_tensors.h"

namespace tinyvllm {

// "pocket" and those of common/base/model_presets.h.
std::vector<std::string> RandomModelPresets();

// Fields of config.json that a flag may override, by their Hugging Face names.
std::vector<std::string> OverridableFields();

// The config.json of `preset` with `overrides` (field to JSON text) put in, and the ids of the
// special tokens where they belong in a vocabulary of that size. Throws Error, naming the flag, for
// a value of the wrong type and for sizes that no model can have.
nlohmann::ordered_json MakeConfig(const std::string& preset,
                                  const std::map<std::string, std::string>& overrides);

// The standard deviation of the weights, and whatever else the tensors need.
struct WeightConfig {
  LlamaShape shape;
  double initializer_range;
};
WeightConfig WeightConfigOf(const nlohmann::ordered_json& config);

}  // namespace tinyvllm
