#include "lessons/03_embedding/embedding.h"

#include <algorithm>
#include <cstdint>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

constexpr int kMaxThreadsPerBlock = 1024;  // CUDA's limit

// Version 1: one block a token. Its threads take elements 0, 1, 2, ... of the row, and where the
// row is longer than the block, they go on with the next blockDim.x elements.
__global__ void OneElementKernel(const int* __restrict__ token_ids,  // (num_tokens)
                                 const bf16* __restrict__ table,     // (vocab_size, hidden_size)
                                 bf16* __restrict__ output,          // (num_tokens, hidden_size)
                                 int hidden_size) {
  // Your turn: Copy one row. This block's token is number blockIdx.x. Find where its row begins in
  // the table and in the output (as size_t: a table can have more than 2^31 elements), and let the
  // block's threads share the row's hidden_size elements, which may be more than blockDim.x.
}

// Version 2: the same walk in steps of two elements, 4 bytes a load.
// PRECONDITION: hidden_size is even; table and output lie at multiples of 4 bytes.
__global__ void TwoElementsKernel(const int* __restrict__ token_ids,  // (num_tokens)
                                  const bf16* __restrict__ table,     // (vocab_size, hidden_size)
                                  bf16* __restrict__ output,          // (num_tokens, hidden_size)
                                  int hidden_size) {
  // Your turn: Later, if you like: version 1 with __nv_bfloat162, two bf16, in place of a bf16.
  // Until then its launcher runs version 1.
}

// Version 3: the same walk in steps of eight elements, 16 bytes a load.
// PRECONDITION: hidden_size is a multiple of 8; table and output lie at multiples of 16 bytes.
__global__ void EightElementsKernel(const int* __restrict__ token_ids,  // (num_tokens)
                                    const bf16* __restrict__ table,     // (vocab_size, hidden_size)
                                    bf16* __restrict__ output,          // (num_tokens, hidden_size)
                                    int hidden_size) {
  // Your turn: The same with LoadBf16x8 and StoreBf16x8 of bf16x8.cuh, which move eight elements.
  // This is the kernel that the engine runs.
}

void CheckSizes(int num_tokens, int hidden_size) {
  Check(num_tokens >= 0, "EmbeddingGather: num_tokens is ", num_tokens, ", expected 0 or more");
  Check(hidden_size >= 0, "EmbeddingGather: hidden_size is ", hidden_size, ", expected 0 or more");
}

// As many threads as a row has pieces of work, in whole warps, within CUDA's limit.
int ThreadsFor(int pieces) {
  const int warps = pieces / kWarpSize + (pieces % kWarpSize != 0 ? 1 : 0);
  return std::min(warps, kMaxThreadsPerBlock / kWarpSize) * kWarpSize;
}

bool FitsPairs(int hidden_size, const bf16* table, const bf16* output) {
  const auto bits = reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(output);
  return hidden_size % 2 == 0 && bits % sizeof(__nv_bfloat162) == 0;
}

}  // namespace

// Tokens are counted by grid.x, which goes to 2^31 - 1; grid.y and grid.z end at 65,535.
void EmbeddingGather1(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream) {
  CheckSizes(num_tokens, hidden_size);
  if (num_tokens == 0 || hidden_size == 0) return;  // a grid of no blocks is an error in CUDA
  OneElementKernel<<<num_tokens, ThreadsFor(hidden_size), 0, stream>>>(token_ids, table, output,
                                                                       hidden_size);
  CUDA_CHECK_LAUNCH();
}

void EmbeddingGather2(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream) {
  // Your turn: Later, with version 2: its launch, as in EmbeddingGather3.
  EmbeddingGather1(token_ids, table, output, num_tokens, hidden_size, stream);
}

void EmbeddingGather3(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream) {
  if (!FitsBf16x8(hidden_size, table, output)) {
    return EmbeddingGather2(token_ids, table, output, num_tokens, hidden_size, stream);
  }
  CheckSizes(num_tokens, hidden_size);
  if (num_tokens == 0 || hidden_size == 0) return;
  EightElementsKernel<<<num_tokens, ThreadsFor(hidden_size / Bf16x8::kSize), 0, stream>>>(
      token_ids, table, output, hidden_size);
  CUDA_CHECK_LAUNCH();
}

void EmbeddingGather(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                     int hidden_size, cudaStream_t stream) {
  EmbeddingGather3(token_ids, table, output, num_tokens, hidden_size, stream);
}

}  // namespace tinyvllm
