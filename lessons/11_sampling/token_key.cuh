// A token's logit and id in one integer that sorts as sampling wants it: the higher logit first,
// and among equal logits the lower id. Maxima, the best k, and the most probable share of a row are
// then questions about integers, which have one exact answer whatever the order of the work.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "common/cuda/warp.h"
#include "lessons/11_sampling/argmax.h"

namespace tinyvllm {

constexpr int kIdBits = 23;
static_assert(1 << kIdBits == kMaxVocabSize, "an id must fit its part of the key");
constexpr int kKeyBits = 32 + kIdBits;  // 55: five digits of 11 bits

// No token has this key; it is what MakeKey gives for a logit that can never be chosen.
constexpr TokenKey kNoToken = 0;

// tag::key[]
// A float's bits, read as an integer, sort like the number while it is positive, and backwards when
// it is negative: turning over all bits of negative numbers, and the sign of the others, makes
// the integers sort like the numbers throughout. Below stands the id, counted down.
inline __device__ TokenKey MakeKey(float logit, int id) {
  if (!(logit > -INFINITY)) return kNoToken;  // minus infinity, or not a number
  if (logit == 0) logit = 0;                  // of +0 and -0, neither is the higher
  const unsigned bits = __float_as_uint(logit);
  const unsigned sortable = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<TokenKey>(sortable) << kIdBits | (kMaxVocabSize - 1 - id);
}

inline __device__ int IdOfKey(TokenKey key) {
  return key == kNoToken ? -1 : kMaxVocabSize - 1 - static_cast<int>(key & (kMaxVocabSize - 1));
}
// end::key[]

// The highest of a block's keys; every thread gets it.
// PRECONDITION: every thread of a block of whole warps calls it. `scratch`: shared,
// kMaxWarpsPerBlock keys, free for use again on return.
inline __device__ TokenKey BlockMaxKey(TokenKey key, TokenKey* scratch) {
  for (int bit = kWarpSize / 2; bit > 0; bit /= 2) {
    key = max(key, __shfl_xor_sync(kFullWarpMask, key, bit));
  }
  if (threadIdx.x % kWarpSize == 0) scratch[threadIdx.x / kWarpSize] = key;
  __syncthreads();
  const int num_warps = blockDim.x / kWarpSize;
  for (int w = 0; w < num_warps; ++w) key = max(key, scratch[w]);
  __syncthreads();  // nobody may write scratch again while another thread still reads it
  return key;
}

}  // namespace tinyvllm
