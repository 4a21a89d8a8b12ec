// The challenge of lesson 03: the way back that training takes. Gathering reads a row for each
// token; its gradient adds to a row for each token, and two tokens may want the same row.
//
//   EmbeddingGradient(token_ids.data(), d_output.data(), d_table.data(), num_tokens, hidden_size,
//                     stream);
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

// d_table[v][i] += the sum of d_output[t][i] over all t with token_ids[t] = v. To the last bit: the
// row as it was, plus the first such t, plus the second, and so on. An f32 sum depends on its
// order, so atomicAdd, whose order is anyone's guess, will not do. Rows of tokens that do not occur
// are not touched. All pointers are device memory.
void EmbeddingGradient(const int* token_ids,   // (num_tokens)
                       const float* d_output,  // (num_tokens, hidden_size)
                       float* d_table,         // (vocab_size, hidden_size), updated
                       int num_tokens, int hidden_size, cudaStream_t stream);

}  // namespace tinyvllm
