#include "lessons/03_embedding/challenge/embedding_gradient.h"

#include <algorithm>
#include <cstdint>

#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

// exercise: Write the kernel. Two blocks must never add to the same row. Which of the tokens with
// the same id could be the one that takes care of their row?

// A block a token. The first of its kind adds up all of them; the others leave.
__global__ void EmbeddingGradientKernel(const int* __restrict__ token_ids,
                                        const float* __restrict__ d_output, float* d_table,
                                        int num_tokens, int hidden_size) {
  const int token = blockIdx.x, id = token_ids[token];
  int is_earlier = 0;
  for (int t = threadIdx.x; t < token; t += blockDim.x) is_earlier |= token_ids[t] == id;
  if (__syncthreads_or(is_earlier)) return;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    float sum = d_table[static_cast<int64_t>(id) * hidden_size + i];
    for (int t = token; t < num_tokens; ++t) {
      if (token_ids[t] == id) sum += d_output[static_cast<int64_t>(t) * hidden_size + i];
    }
    d_table[static_cast<int64_t>(id) * hidden_size + i] = sum;
  }
}
// end exercise

}  // namespace

void EmbeddingGradient(const int* token_ids, const float* d_output, float* d_table, int num_tokens,
                       int hidden_size, cudaStream_t stream) {
  if (num_tokens == 0 || hidden_size == 0) return;
  // exercise: Launch it, and check the launch.
  EmbeddingGradientKernel<<<num_tokens, std::min(hidden_size, 256), 0, stream>>>(
      token_ids, d_output, d_table, num_tokens, hidden_size);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
