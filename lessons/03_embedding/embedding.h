// The embedding: every token id becomes a row of a table of vectors.
//
//   EmbeddingGather(token_ids, table, output, num_tokens, hidden_size, stream);
//
// output[t][i] = table[token_ids[t]][i], bit for bit. All pointers are device pointers; the work is
// queued on `stream`. Any num_tokens and any hidden_size; 0 of either is no work. Throws Error for
// a negative size and when CUDA refuses the launch.
//
// PRECONDITION: 0 <= token_ids[t] < vocab_size for every t. The ids lie on the device, so only the
// caller, who made them, can check them cheaply; the engine does so on the host. On the simulator
// under AddressSanitizer (--config=asan) a bad id is named.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "common/cuda/bf16.h"

namespace tinyvllm {

// What the engine calls: the fast version.
void EmbeddingGather(const int* token_ids /* (num_tokens) */,
                     const bf16* table /* (vocab_size, hidden_size) */,
                     bf16* output /* (num_tokens, hidden_size) */, int num_tokens, int hidden_size,
                     cudaStream_t stream);

// Its versions, from naive to fast. 2 falls back to 1, and 3 to 2, where hidden_size or an address
// does not fit their loads.
void EmbeddingGather1(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream);
void EmbeddingGather2(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream);
void EmbeddingGather3(const int* token_ids, const bf16* table, bf16* output, int num_tokens,
                      int hidden_size, cudaStream_t stream);

struct EmbeddingGatherVersion {
  int number;
  const char* name;
  const char* idea;
  decltype(&EmbeddingGather1) launch;
};

inline constexpr std::array<EmbeddingGatherVersion, 3> kEmbeddingGatherVersions = {{
    {1, "one element", "a block a token, its threads walk along the row", EmbeddingGather1},
    {2, "two elements", "a thread moves 4 bytes at once: half the instructions", EmbeddingGather2},
    {3, "eight elements", "a thread moves 16 bytes at once, the widest there is", EmbeddingGather3},
}};

}  // namespace tinyvllm
