// A checkpoint of a few kilobytes with random weights, written to a temporary folder, for checks
// that bend one thing in it; and a checkpoint loaded.
//
//   const Model model(TinyCheckpoint(3, {{"head_dim", 64}}).Write("some_name"));
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/testing/random.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/header.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/weights.h"

namespace tinyvllm {

struct TinyCheckpoint {
  nlohmann::json config = {
      {"model_type", "llama"},  {"hidden_size", 32},        {"intermediate_size", 48},
      {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
      {"head_dim", 8},          {"vocab_size", 50},         {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-5},   {"rope_theta", 10000.0},    {"tie_word_embeddings", true},
      {"bos_token_id", 1},      {"eos_token_id", 2}};
  std::map<std::string, std::vector<float>> tensors;  // values that bf16 holds exactly
  std::map<std::string, std::vector<size_t>> shapes;

  explicit TinyCheckpoint(uint64_t seed = 1, bool tied = true)
      : TinyCheckpoint(seed, {{"tie_word_embeddings", tied}}) {}

  // With other fields of the configuration, and weights of the shapes that follow from them.
  TinyCheckpoint(uint64_t seed, const nlohmann::json& changes) {
    config.update(changes);
    Random random(seed);
    const LlamaShape shape = LlamaShapeFromConfig(config.dump(), "config");
    for (const TensorSpec& spec : LlamaTensors(shape, DType::kBF16)) {
      size_t count = 1;
      for (const size_t extent : spec.shape) count *= extent;
      const bool norm = spec.shape.size() == 1;
      std::vector<float> values;
      for (const bf16 value : random.Bf16(count, norm ? 0.1 : 0.2)) {
        values.push_back(__bfloat162float(__float2bfloat16(__bfloat162float(value) + norm)));
      }
      tensors[spec.name] = values;
      shapes[spec.name] = spec.shape;
    }
  }

  // Writes config.json and model.safetensors (weights as `dtype`: BF16, F16 or F32) into a new
  // folder and returns it.
  std::string Write(const std::string& name, DType dtype = DType::kBF16) const {
    const std::string folder = testing::TempDir() + name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << config.dump();
    std::vector<TensorSpec> specs;
    std::string bytes;
    for (const auto& [tensor, values] : tensors) {
      specs.push_back({tensor, dtype, shapes.at(tensor)});
      for (const float value : values) Append(value, dtype, &bytes);
    }
    std::ofstream(folder + "/model.safetensors", std::ios::binary) << FormatHeader(specs) << bytes;
    return folder;
  }

 private:
  static void Append(float value, DType dtype, std::string* bytes) {
    char raw[4];
    if (dtype == DType::kF32) {
      std::memcpy(raw, &value, 4);
    } else if (dtype == DType::kBF16) {
      const uint16_t bits = BF16FromF32(value);
      std::memcpy(raw, &bits, 2);
    } else {
      const uint16_t bits = F16FromSmallF32(value);
      std::memcpy(raw, &bits, 2);
    }
    bytes->append(raw, DTypeBytes(dtype));
  }

  // Exact for what this file makes: bf16 values of magnitude 2^-14 to 2; smaller ones become zero.
  static uint16_t F16FromSmallF32(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t sign = (bits >> 16) & 0x8000;
    const int exponent = static_cast<int>((bits >> 23) & 0xff) - 127 + 15;
    if (exponent <= 0) return sign;
    return static_cast<uint16_t>(sign | exponent << 10 | ((bits >> 13) & 0x3ff));
  }
};

struct Model {
  explicit Model(const std::string& folder)
      : config(ModelConfig::FromFolder(folder)), weights(Checkpoint(folder), config) {}
  const ModelConfig config;
  const Weights weights;
};

}  // namespace tinyvllm
