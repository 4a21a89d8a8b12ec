// The model's weights on the device: one allocation, and a pointer by name to every matrix in it.
//
//   const Weights weights(Checkpoint("models/pocket"), config);
//   weights.layers[3].qkv_proj   // (qkv_size, hidden_size), bf16
//
// Every matrix is (out_features, in_features), row-major, as Hugging Face stores it. The rows of q,
// k and v follow each other without a gap, and so do those of gate and up: each group is one matrix
// product.
#pragma once

#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/09_forward_pass/model_config.h"

namespace tinyvllm {

struct LayerWeights {
  const bf16* input_layernorm;           // (hidden_size)
  const bf16* qkv_proj;                  // (qkv_size, hidden_size): q, k, v
  const bf16* o_proj;                    // (hidden_size, q_size)
  const bf16* post_attention_layernorm;  // (hidden_size)
  const bf16* gate_up_proj;              // (2 * intermediate_size, hidden_size): gate, up
  const bf16* down_proj;                 // (hidden_size, intermediate_size)
};

class Weights {
 public:
  // Uploads the whole checkpoint, converted to bf16 where it is f16 or f32, with progress on
  // standard error. Throws Error when a tensor is missing, has another shape than the configuration
  // leads to, or has no place in this architecture; and when the device has too little memory.
  Weights(const Checkpoint& checkpoint, const ModelConfig& config);

  const bf16* embed_tokens;  // (vocab_size, hidden_size)
  const bf16* norm;          // (hidden_size)
  const bf16* lm_head;       // (vocab_size, hidden_size); embed_tokens itself when tied
  std::vector<LayerWeights> layers;

  size_t bytes() const { return arena_.bytes(); }

 private:
  DeviceBuffer<char> arena_;
};

}  // namespace tinyvllm
