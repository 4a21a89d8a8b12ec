#include "lessons/11_sampling/challenge/gumbel.h"

#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/11_sampling/philox.h"
#include "lessons/11_sampling/token_key.cuh"

namespace tinyvllm {
namespace {

// exercise: Write the kernel. Philox turns a counter and a key into random bits: what belongs into
// the counter, what into the key? Which u must never be, and how do 32 random bits become a number
// that is neither? token_key.cuh has what finds the winner.

constexpr int kThreads = 256;

__global__ void GumbelKernel(const float* __restrict__ logits,
                             const float* __restrict__ temperatures,
                             const uint64_t* __restrict__ seeds,
                             const uint32_t* __restrict__ positions, int* __restrict__ token_ids,
                             int vocab_size) {
  __shared__ TokenKey scratch[kMaxWarpsPerBlock];
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * vocab_size;
  const float temperature = temperatures[blockIdx.x];
  const uint64_t seed = seeds[blockIdx.x];
  TokenKey best = kNoToken;
  for (int id = threadIdx.x; id < vocab_size; id += kThreads) {
    float score = row[id];
    if (temperature > 0) {
      const PhiloxWords words =
          Philox4x32({{positions[blockIdx.x], static_cast<uint32_t>(id), 0, 0}},
                     static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
      const float u = ((words.word[0] >> 9) + 0.5f) * 0x1p-23f;  // 2^-24 to 1 - 2^-24
      score = score / temperature - logf(-logf(u));
    }
    best = max(best, MakeKey(score, id));
  }
  best = BlockMaxKey(best, scratch);
  if (threadIdx.x == 0) token_ids[blockIdx.x] = IdOfKey(best);
}
// end exercise

}  // namespace

void GumbelSample(const float* logits, const float* temperatures, const uint64_t* seeds,
                  const uint32_t* positions, int* token_ids, int num_rows, int vocab_size,
                  cudaStream_t stream) {
  if (num_rows == 0) return;
  // exercise: Launch it, and check the launch.
  GumbelKernel<<<num_rows, kThreads, 0, stream>>>(logits, temperatures, seeds, positions, token_ids,
                                                  vocab_size);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace tinyvllm
