// What a checkpoint's config.json says of the model. The only place that holds a dimension: no
// kernel and no other struct repeats one.
//
//   const ModelConfig config = ModelConfig::FromFolder("models/pocket");
//
// Field names are Hugging Face's. The architecture is Llama's (Touvron et al. 2023,
// arXiv:2302.13971; grouped queries and RoPE scaling as in Llama 3, arXiv:2407.21783).
#pragma once

#include <string>
#include <vector>

#include "lessons/05_rope/rope.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {

struct ModelConfig {
  int hidden_size = 0;          // width of the residual stream
  int intermediate_size = 0;    // width inside the feed-forward block
  int num_hidden_layers = 0;    // transformer blocks
  int num_attention_heads = 0;  // query heads
  int num_key_value_heads = 0;  // heads of K and V; each serves heads / kv_heads query heads
  int head_dim = 0;             // width of a head; need not be hidden_size / heads
  int vocab_size = 0;
  int max_position_embeddings = 0;   // longest sequence, prompt and answer together
  float rms_norm_eps = 0;            // added to the mean square
  bool tie_word_embeddings = false;  // the output projection is the embedding table
  RopeConfig rope;                   // rope_theta and rope_scaling, or rope_parameters
  int bos_token_id = -1;             // -1: none
  std::vector<int> eos_token_ids;  // a sequence ends with any of them; generation_config's if given

  int q_size() const { return num_attention_heads * head_dim; }
  int kv_size() const { return num_key_value_heads * head_dim; }
  int qkv_size() const { return q_size() + 2 * kv_size(); }  // a row of the fused projection

  // Reads config.json and, where it exists, generation_config.json. Throws Error for a file that is
  // missing or malformed, a field that contradicts another, and, by name, for whatever the
  // architecture has and this engine has not: other model types, activations and RoPE types,
  // biases, sliding windows, quantised weights.
  static ModelConfig FromFolder(const std::string& folder);
  // The same from the text of a config.json; `path` names it in messages.
  static ModelConfig FromJson(const std::string& json_text, const std::string& path);
};

// The sizes that lesson 07's kernels ask for; scale is 1 / sqrt(head_dim).
AttentionShape AttentionShapeOf(const ModelConfig& config);

}  // namespace tinyvllm
