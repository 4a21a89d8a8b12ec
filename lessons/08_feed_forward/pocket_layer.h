// The feed-forward half of a layer of the bundled model, on a real prompt, and what Hugging Face
// transformers computes for it: for the demo and the checks.
#pragma once

#include <string>
#include <vector>

#include "common/cuda/bf16.h"

namespace tinyvllm {

struct PocketLayer {
  int num_tokens = 0;
  int hidden_size = 0;
  int intermediate_size = 0;

  // What goes in: the f32 run's activations, rounded once.
  std::vector<bf16> residual;        // (num_tokens, hidden_size), after attention
  std::vector<bf16> normed;          // (num_tokens, hidden_size), the same after its RMSNorm
  std::vector<bf16> gate_up_weight;  // (2 * intermediate_size, hidden_size)
  std::vector<bf16> down_weight;     // (hidden_size, intermediate_size)

  // What comes out, in f32 and, for comparison, in transformers' own bf16 run.
  struct Run {
    std::vector<float> activated;  // (num_tokens, intermediate_size)
    std::vector<float> update;     // (num_tokens, hidden_size)
    std::vector<float> output;     // (num_tokens, hidden_size)
  };
  Run f32, bf16_run;
};

// Layer 0 or 5, of models/pocket and tests/fixtures/pocket_sum.safetensors.
PocketLayer LoadPocketLayer(int layer);

}  // namespace tinyvllm
