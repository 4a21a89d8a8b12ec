// How probable a model found its tokens: log softmax of raw logits, of given tokens and of the most
// probable ones.
//
//   log p(i) = (x_i - highest) - log(sum over j of exp(x_j - highest))
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

// For each row with num_top[row] >= 0: the logprob of its token, and those of the num_top[row] most
// probable tokens in falling order, the lower id first among equals. Other rows are left alone. A
// token_id of -1 has logprob minus infinity; so has every token of a row without any number in it.
// Where a row has fewer tokens than asked for, the list ends in (-1, minus infinity).
void TopLogprobs(const float* __restrict__ logits,   // (num_rows, vocab_size)
                 const int* __restrict__ token_ids,  // (num_rows)
                 const int* __restrict__ num_top,    // (num_rows): 0 to max_top, or -1
                 float* __restrict__ logprobs,       // (num_rows)
                 int* __restrict__ top_ids,          // (num_rows, max_top)
                 float* __restrict__ top_logprobs,   // (num_rows, max_top)
                 int max_top,                        // 0 to kMaxLogprobs
                 int num_rows, int vocab_size, cudaStream_t stream);

}  // namespace tinyvllm
