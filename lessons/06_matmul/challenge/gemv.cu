#include "lessons/06_matmul/challenge/gemv.h"

#include <cstdint>

#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

// Your turn: Write the kernel. What must a block know before its threads can start on a row of the
// weights, and for how many rows can it be used? Which threads share out one row?

}  // namespace

void Gemv(const bf16* input, const bf16* weight, float* output, int in_features, int out_features,
          cudaStream_t stream) {
  if (out_features == 0) return;
  // Your turn: Launch it, and check the launch.
}

}  // namespace tinyvllm
