#include "lessons/08_feed_forward/challenge/geglu.h"

#include <cstdint>

#include "common/cuda/check.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

// Your turn: Write the kernels, one for whole vectors and one for the rest. First put tanh in terms
// of exp, on paper, until no two numbers are left that nearly cancel.

}  // namespace

void GeGlu(const bf16* gate_up, bf16* output, int num_tokens, int intermediate_size,
           cudaStream_t stream) {
  if (num_tokens == 0 || intermediate_size == 0) return;
  // Your turn: Launch the one that fits (FitsBf16x8 tells), and check the launch.
}

}  // namespace tinyvllm
