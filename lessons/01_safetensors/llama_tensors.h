// The tensors of a Llama checkpoint, from the model's sizes: what Hugging Face names them and how
// large they are. A layer has nine, and around the layers there are the embedding table, the last
// norm and, unless it is tied to the embedding table, the output projection.
//
//   LlamaTensors(shape, DType::kBF16).size()   // 146 for 16 layers with tied embeddings
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lessons/01_safetensors/header.h"

namespace tinyvllm {

struct LlamaShape {
  size_t hidden_size;          // width of the residual stream
  size_t intermediate_size;    // width inside the feed-forward
  size_t num_hidden_layers;    // decoder layers
  size_t num_attention_heads;  // query heads
  size_t num_key_value_heads;  // key and value heads, shared by groups of query heads
  size_t head_dim;             // width of one head
  size_t vocab_size;           // rows of the embedding table
  bool tie_word_embeddings;    // the output projection is the embedding table
};

// Reads the sizes out of the text of a config.json. Throws Error naming the field that is missing
// or not a positive integer. `path` is for messages.
LlamaShape LlamaShapeFromConfig(const std::string& config_json, const std::string& path);

// In model order.
std::vector<TensorSpec> LlamaTensors(const LlamaShape& shape, DType dtype);

}  // namespace tinyvllm
