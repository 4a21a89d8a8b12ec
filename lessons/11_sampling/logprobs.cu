#include "lessons/11_sampling/logprobs.h"

#include <cmath>
#include <cstdint>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/11_sampling/sampling_params.h"
#include "lessons/11_sampling/weights.cuh"

namespace tinyvllm {
namespace {

// A block a row. PRECONDITION: a block of whole warps, a power of two of threads, kMaxLogprobs or
// more.
__global__ void TopLogprobsKernel(const float* __restrict__ logits,   // (num_rows, vocab_size)
                                  const int* __restrict__ token_ids,  // (num_rows)
                                  const int* __restrict__ num_top,    // (num_rows)
                                  float* __restrict__ logprobs,       // (num_rows)
                                  int* __restrict__ top_ids,          // (num_rows, max_top)
                                  float* __restrict__ top_logprobs,   // (num_rows, max_top)
                                  int max_top, int vocab_size) {
  __shared__ SelectScratch scratch;
  __shared__ TokenKey top_keys[kMaxLogprobs];
  __shared__ int num_found;
  const int wanted = num_top[blockIdx.x];
  if (wanted < 0) return;  // the whole block
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab_size;

  TokenKey best = kNoToken;
  Weight count = 0;
  for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
    const TokenKey key = MakeKey(row[id], id);
    best = max(best, key);
    count += key != kNoToken;
  }
  best = BlockMaxKey(best, scratch.warps);
  count = BlockTotal(count, &scratch);
  const float highest = best == kNoToken ? -INFINITY : row[IdOfKey(best)];
  Weight sum = 0;
  for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
    if (best != kNoToken) sum += WeightOf(row[id], highest, 1);
  }
  const float log_sum = logf(static_cast<float>(BlockTotal(sum, &scratch)) / kUnitWeight);
  const auto Logprob = [=](int id) -> float {
    if (id < 0 || MakeKey(row[id], id) == kNoToken) return -INFINITY;
    return (row[id] == highest ? 0 : row[id] - highest) - log_sum;
  };
  if (threadIdx.x == 0) {
    logprobs[blockIdx.x] = Logprob(token_ids[blockIdx.x]);
    num_found = 0;
  }

  // The keys of the best are found as top_k finds them, then put in order by counting, for each,
  // how many are higher.
  const int found = min(static_cast<Weight>(wanted), count);
  __syncthreads();
  if (found > 0) {
    const auto One = [](TokenKey key, float) -> Weight { return key != kNoToken; };
    const TokenKey lowest = SelectFromTop(row, vocab_size, found, One, &scratch);
    for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
      const TokenKey key = MakeKey(row[id], id);
      if (key >= lowest) top_keys[atomicAdd(&num_found, 1)] = key;
    }
  }
  __syncthreads();
  const int64_t top = static_cast<int64_t>(blockIdx.x) * max_top;
  const int i = threadIdx.x;
  if (i < found) {
    int rank = 0;
    for (int j = 0; j < found; ++j) rank += top_keys[j] > top_keys[i];
    const int id = IdOfKey(top_keys[i]);
    top_ids[top + rank] = id;
    top_logprobs[top + rank] = Logprob(id);
  } else if (i < wanted) {
    top_ids[top + i] = -1;
    top_logprobs[top + i] = -INFINITY;
  }
}

}  // namespace

void TopLogprobs(const float* __restrict__ logits, const int* __restrict__ token_ids,
                 const int* __restrict__ num_top, float* __restrict__ logprobs,
                 int* __restrict__ top_ids, float* __restrict__ top_logprobs, int max_top,
                 int num_rows, int vocab_size, cudaStream_t stream) {
  Check(max_top >= 0 && max_top <= kMaxLogprobs, "TopLogprobs: max_top is ", max_top,
        ", expected 0 to ", kMaxLogprobs);
  if (num_rows == 0) return;
  const int threads = vocab_size < 8192 ? 256 : 1024;
  TopLogprobsKernel<<<num_rows, threads, 0, stream>>>(logits, token_ids, num_top, logprobs, top_ids,
                                                      top_logprobs, max_top, vocab_size);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
