// The config.json of well-known model shapes, for programs that need a shape without its weights.
//
//   ModelPreset("llama3.2-1b")   // the text of its config.json
#pragma once

#include <string>
#include <vector>

namespace tinyvllm {

// "llama3.2-1b", "llama3.2-3b", "llama3.1-8b". Sources: the config.json of
// https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct, Llama-3.2-3B-Instruct and
// Llama-3.1-8B-Instruct.
const std::vector<std::string>& ModelPresetNames();

// Throws Error, listing the names, for an unknown one.
std::string ModelPreset(const std::string& name);

}  // namespace tinyvllm
