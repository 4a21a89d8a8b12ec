#include "lessons/11_sampling/argmax.h"

#include <algorithm>
#include <cstdint>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/11_sampling/token_key.cuh"

namespace tinyvllm {
namespace {

constexpr int kTreeThreads = 256;
constexpr int kMaxSplits = 64;  // blocks that share a row in version 3

void CheckArguments(int num_rows, int vocab_size) {
  Check(num_rows >= 0, "Argmax: num_rows is ", num_rows, ", expected 0 or more");
  Check(vocab_size >= 1 && vocab_size <= kMaxVocabSize, "Argmax: vocab_size is ", vocab_size,
        ", expected 1 to ", kMaxVocabSize);
}

// Version 1: a block a row, and a tree in shared memory, as lesson 04's first sum; but a pair of
// logit and id travels up the tree.
__global__ void ArgmaxTreeKernel(const float* __restrict__ logits,  // (num_rows, vocab_size)
                                 int* __restrict__ token_ids,       // (num_rows)
                                 int vocab_size) {
  __shared__ float best_logit[kTreeThreads];
  __shared__ int best_id[kTreeThreads];  // -1: nothing yet
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab_size;
  // Your turn: Find the id of the highest logit of `row`, the lowest id among equals. First let each
  // thread look at the elements threadIdx.x, threadIdx.x + kTreeThreads, ... and leave its best in
  // best_logit and best_id. Then halve the number of candidates, with a barrier after each step,
  // until thread 0 has the winner and writes it to token_ids[blockIdx.x]. A logit of minus infinity
  // or NaN (no comparison with NaN is true) is never chosen; if there is no other, the answer is
  // -1.
}

void ArgmaxTree(const float* __restrict__ logits, int* __restrict__ token_ids,
                TokenKey* __restrict__, int num_rows, int vocab_size, cudaStream_t stream) {
  CheckArguments(num_rows, vocab_size);
  if (num_rows == 0) return;
  ArgmaxTreeKernel<<<num_rows, kTreeThreads, 0, stream>>>(logits, token_ids, vocab_size);
  CUDA_CHECK_LAUNCH();
}

// Rows that begin at multiples of 16 bytes can be read four floats at a time.
bool FitsFloat4(const float* logits, int vocab_size) {
  return reinterpret_cast<uintptr_t>(logits) % sizeof(float4) == 0 && vocab_size % 4 == 0;
}

// The best key of the ids from `begin` to `end`. PRECONDITION of kVector: the row begins at a
// multiple of 16 bytes, and begin and end are multiples of 4.
template <bool kVector>
__device__ TokenKey BestKey(const float* __restrict__ row, int begin, int end) {
  TokenKey best = kNoToken;
  if (kVector) {
    for (int i = begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
      const float4 four = *reinterpret_cast<const float4*>(row + i);
      best = max(max(best, MakeKey(four.x, i)), MakeKey(four.y, i + 1));
      best = max(max(best, MakeKey(four.z, i + 2)), MakeKey(four.w, i + 3));
    }
  } else {
    for (int i = begin + threadIdx.x; i < end; i += blockDim.x)
      best = max(best, MakeKey(row[i], i));
  }
  return best;
}

// Version 2: one integer holds logit and id, so the maximum needs no comparison of pairs; shuffles
// in place of the tree, 16 bytes a load.
template <bool kVector>
__global__ void ArgmaxVectorKernel(const float* __restrict__ logits,  // (num_rows, vocab_size)
                                   int* __restrict__ token_ids,       // (num_rows)
                                   int vocab_size) {
  __shared__ TokenKey scratch[kMaxWarpsPerBlock];
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab_size;
  const TokenKey best = BlockMaxKey(BestKey<kVector>(row, 0, vocab_size), scratch);
  if (threadIdx.x == 0) token_ids[blockIdx.x] = IdOfKey(best);
}

void ArgmaxVector(const float* __restrict__ logits, int* __restrict__ token_ids,
                  TokenKey* __restrict__, int num_rows, int vocab_size, cudaStream_t stream) {
  CheckArguments(num_rows, vocab_size);
  if (num_rows == 0) return;
  const int threads = vocab_size < 8192 ? 256 : 1024;
  if (FitsFloat4(logits, vocab_size)) {
    ArgmaxVectorKernel<true><<<num_rows, threads, 0, stream>>>(logits, token_ids, vocab_size);
  } else {
    ArgmaxVectorKernel<false><<<num_rows, threads, 0, stream>>>(logits, token_ids, vocab_size);
  }
  CUDA_CHECK_LAUNCH();
}

// Version 3: one row of 128,256 logits is half a megabyte, which a single multiprocessor reads
// while the other 131 wait. So several blocks take a part of the row each, and a second kernel
// takes the best of their keys.
template <bool kVector>
__global__ void ArgmaxPartKernel(const float* __restrict__ logits,  // (num_rows, vocab_size)
                                 TokenKey* __restrict__ best_keys,  // (num_rows, num_parts)
                                 int vocab_size, int part_size) {
  __shared__ TokenKey scratch[kMaxWarpsPerBlock];
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab_size;
  const int begin = blockIdx.y * part_size;
  const int end = min(vocab_size, begin + part_size);
  const TokenKey best = BlockMaxKey(BestKey<kVector>(row, begin, end), scratch);
  if (threadIdx.x == 0) best_keys[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = best;
}

__global__ void ArgmaxMergeKernel(const TokenKey* __restrict__ best_keys,  // (num_rows, num_parts)
                                  int* __restrict__ token_ids,             // (num_rows)
                                  int num_parts) {
  __shared__ TokenKey scratch[kMaxWarpsPerBlock];
  const int part = threadIdx.x;
  TokenKey best = kNoToken;
  if (part < num_parts) best = best_keys[static_cast<int64_t>(blockIdx.x) * num_parts + part];
  best = BlockMaxKey(best, scratch);
  if (threadIdx.x == 0) token_ids[blockIdx.x] = IdOfKey(best);
}

void ArgmaxSplit(const float* __restrict__ logits, int* __restrict__ token_ids,
                 TokenKey* __restrict__ workspace, int num_rows, int vocab_size,
                 cudaStream_t stream) {
  CheckArguments(num_rows, vocab_size);
  // A part of less than 2,048 elements is over before a second launch has begun, and from 128 rows
  // on every multiprocessor has work without parts.
  constexpr int kMinPart = 2048, kEnoughBlocks = 128;
  const int parts = std::min(
      {kMaxSplits, vocab_size / kMinPart, (kEnoughBlocks + num_rows - 1) / std::max(1, num_rows)});
  if (parts <= 1) return ArgmaxVector(logits, token_ids, workspace, num_rows, vocab_size, stream);
  if (num_rows == 0) return;
  const int part_size = (vocab_size + 4 * parts - 1) / (4 * parts) * 4;
  const dim3 grid(num_rows, parts);
  if (FitsFloat4(logits, vocab_size)) {
    ArgmaxPartKernel<true><<<grid, 256, 0, stream>>>(logits, workspace, vocab_size, part_size);
  } else {
    ArgmaxPartKernel<false><<<grid, 256, 0, stream>>>(logits, workspace, vocab_size, part_size);
  }
  CUDA_CHECK_LAUNCH();
  ArgmaxMergeKernel<<<num_rows, kMaxSplits, 0, stream>>>(workspace, token_ids, parts);
  CUDA_CHECK_LAUNCH();
}

}  // namespace

size_t ArgmaxWorkspace(int num_rows) { return static_cast<size_t>(num_rows) * kMaxSplits; }

void Argmax(const float* __restrict__ logits, int* __restrict__ token_ids,
            TokenKey* __restrict__ workspace, int num_rows, int vocab_size, cudaStream_t stream) {
  // Your turn: This is what the engine calls. Let it run your version 1; when the checks pass, try
  // versions 2 and 3 here.
  ArgmaxTree(logits, token_ids, workspace, num_rows, vocab_size, stream);
}

const ArgmaxVersion kArgmaxVersions[3] = {
    {1, "tree", "a block a row; pairs of logit and id in a tree in shared memory", ArgmaxTree},
    {2, "vector", "logit and id in one integer; shuffles; 16 bytes a load", ArgmaxVector},
    {3, "split", "several blocks a row, and a second kernel for the best of theirs", ArgmaxSplit},
};

}  // namespace tinyvllm
