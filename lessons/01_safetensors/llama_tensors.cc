#include "lessons/01_safetensors/llama_tensors.h"

#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

size_t PositiveInteger(const nlohmann::json& config, const char* field, const std::string& path) {
  const auto value = config.find(field);
  if (value == config.end() || !value->is_number_unsigned() || *value == 0) {
    throw Error(path, ": ", field, " is ", value == config.end() ? "missing" : value->dump(),
                ", expected a positive integer");
  }
  return value->get<size_t>();
}

}  // namespace

LlamaShape LlamaShapeFromConfig(const std::string& config_json, const std::string& path) {
  const nlohmann::json config =
      nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw Error(path, ": is not valid JSON, expected an object");
  LlamaShape shape;
  shape.hidden_size = PositiveInteger(config, "hidden_size", path);
  shape.intermediate_size = PositiveInteger(config, "intermediate_size", path);
  shape.num_hidden_layers = PositiveInteger(config, "num_hidden_layers", path);
  shape.num_attention_heads = PositiveInteger(config, "num_attention_heads", path);
  shape.num_key_value_heads = PositiveInteger(config, "num_key_value_heads", path);
  shape.vocab_size = PositiveInteger(config, "vocab_size", path);
  const bool has_head_dim = config.contains("head_dim") && !config["head_dim"].is_null();
  shape.head_dim = has_head_dim ? PositiveInteger(config, "head_dim", path)
                                : shape.hidden_size / shape.num_attention_heads;
  const auto tied = config.find("tie_word_embeddings");
  shape.tie_word_embeddings = tied != config.end() && tied->is_boolean() && tied->get<bool>();
  return shape;
}

// tag::llama_tensors[]
std::vector<TensorSpec> LlamaTensors(const LlamaShape& shape, DType dtype) {
  const size_t hidden = shape.hidden_size;
  const size_t inner = shape.intermediate_size;
  const size_t q_width = shape.num_attention_heads * shape.head_dim;
  const size_t kv_width = shape.num_key_value_heads * shape.head_dim;
  std::vector<TensorSpec> tensors;
  const auto add = [&](const std::string& name, std::vector<size_t> extents) {
    tensors.push_back({name + ".weight", dtype, std::move(extents)});
  };
  add("model.embed_tokens", {shape.vocab_size, hidden});
  for (size_t layer = 0; layer < shape.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm", {hidden});
    add(prefix + "self_attn.q_proj", {q_width, hidden});
    add(prefix + "self_attn.k_proj", {kv_width, hidden});
    add(prefix + "self_attn.v_proj", {kv_width, hidden});
    add(prefix + "self_attn.o_proj", {hidden, q_width});
    add(prefix + "post_attention_layernorm", {hidden});
    add(prefix + "mlp.gate_proj", {inner, hidden});
    add(prefix + "mlp.up_proj", {inner, hidden});
    add(prefix + "mlp.down_proj", {hidden, inner});
  }
  add("model.norm", {hidden});
  if (!shape.tie_word_embeddings) add("lm_head", {shape.vocab_size, hidden});
  return tensors;
}
// end::llama_tensors[]

}  // namespace tinyvllm
