// The memory of an engine, planned from the configuration alone: a plain plan, in which every
// tensor has a buffer of its own, beside the plan of this engine, and what each change saves.
#pragma once

#include <string>
#include <vector>

#include "lessons/09_forward_pass/model_config.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {

struct PlannedBuffer {
  std::string name;
  std::string shape;
  size_t bytes = 0;
  bool on_host = false;
};

// What an engine without lessons 09 to 14 takes beside weights and cache: bf16 throughout, scores
// and logits of every token of one prompt at a time, the choice of the next token on the host, then
// decode steps of `batch` sequences.
std::vector<PlannedBuffer> PlainPlan(const ModelConfig& config, int longest_prompt, int batch);

// All of `final --plan`: tables for a person.
std::string DescribePlan(const ModelConfig& config, const std::string& model_name,
                         const EngineConfig& engine);

// "125.25 MiB": binary units, at most two decimals.
std::string BinaryBytes(size_t bytes);

}  // namespace tinyvllm
