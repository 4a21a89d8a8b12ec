// Greedy choice: the token with the highest logit of each row, the lowest id among equals.
//
//   DeviceBuffer<TokenKey> workspace(ArgmaxWorkspace(num_rows));
//   Argmax(logits, token_ids, workspace.data(), num_rows, vocab_size, stream);
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace tinyvllm {

// A logit and its token in one integer; token_key.cuh tells how.
using TokenKey = unsigned long long;

constexpr int kMaxVocabSize = 1 << 23;

// Keys of working memory for rows of any vocabulary.
size_t ArgmaxWorkspace(int num_rows);

// Minus infinity and NaN are never chosen; a row of nothing else gives -1. Any num_rows >= 0,
// 1 <= vocab_size <= kMaxVocabSize, else Error. Exact: the versions agree to the bit.
void Argmax(const float* __restrict__ logits,  // (num_rows, vocab_size)
            int* __restrict__ token_ids,       // (num_rows)
            TokenKey* __restrict__ workspace,  // (ArgmaxWorkspace(num_rows))
            int num_rows, int vocab_size, cudaStream_t stream);

// The same by each version of the lesson, from naive to fast.
struct ArgmaxVersion {
  int number;
  const char* name;
  const char* idea;  // the one that this version adds
  decltype(&Argmax) launch;
};
extern const ArgmaxVersion kArgmaxVersions[3];

}  // namespace tinyvllm
