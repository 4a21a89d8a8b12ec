// Probabilities as whole numbers, sums over a block, and the search that top-k and top-p share.
//
// A token's weight is exp((logit - highest) / temperature) in units of 2^-40: the most probable
// token weighs 2^40. Whole numbers add up to the same sum in any order, so that a row's tokens do
// not depend on the number of threads, on their order, or on the other rows.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "common/cuda/warp.h"
#include "lessons/11_sampling/token_key.cuh"

namespace tinyvllm {

using Weight = unsigned long long;

// With the 2^23 tokens of the largest vocabulary a row still sums to less than 2^64.
constexpr float kUnitWeight = 0x1p40f;

// tag::weight[]
// PRECONDITION: highest is a number or plus infinity, temperature > 0. Weights below 2^-40 of the
// highest become 0: such a token is never drawn. When the highest is plus infinity, only its
// equals weigh anything. Subtracting first keeps exp from overflowing, however small the
// temperature.
inline __device__ Weight WeightOf(float logit, float highest, float temperature) {
  if (logit == highest) return static_cast<Weight>(kUnitWeight);
  if (!(logit > -INFINITY)) return 0;
  return static_cast<Weight>(expf((logit - highest) / temperature) * kUnitWeight);
}
// end::weight[]

// The sum over this thread and those before it. PRECONDITION: every thread of a block of whole
// warps calls it. `scratch`: shared, kMaxWarpsPerBlock weights, free for use again on return.
inline __device__ Weight BlockInclusiveSum(Weight value, Weight* scratch) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const Weight other = __shfl_up_sync(kFullWarpMask, value, distance);
    if (lane >= distance) value += other;
  }
  if (lane == kWarpSize - 1) scratch[warp] = value;
  __syncthreads();
  for (int w = 0; w < warp; ++w) value += scratch[w];
  __syncthreads();
  return value;
}

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
static_assert(kKeyBits % kDigitBits == 0, "a key is made of whole digits");

// What the functions below share in a block.
struct SelectScratch {
  Weight bins[kDigits];  // weight of each value of the digit at hand
  Weight warps[kMaxWarpsPerBlock];
  Weight result;  // from one thread to all
  int digit;      // likewise
};

// The sum over the block, for every thread.
inline __device__ Weight BlockTotal(Weight value, SelectScratch* scratch) {
  const Weight up_to_here = BlockInclusiveSum(value, scratch->warps);
  if (threadIdx.x == blockDim.x - 1) scratch->result = up_to_here;
  __syncthreads();
  const Weight total = scratch->result;
  __syncthreads();
  return total;
}

// tag::select[]
// The highest key K for which the tokens with keys of K and more weigh `target` or more together.
// Key by key this would need a sort. Digit by digit it needs five looks at the row: add up the
// weights by the uppermost digit, go down the digits until the target is reached, and look at the
// tokens with that digit alone, by their next digit.
// `measure(key, logit)` is a token's weight. PRECONDITION: 1 <= target <= the sum of all; every
// thread of a block of whole warps, at most kDigits threads and a divisor of it, calls it.
template <typename Measure>
__device__ TokenKey SelectFromTop(const float* row, int vocab_size, Weight target, Measure measure,
                                  SelectScratch* scratch) {
  TokenKey found = 0;  // the digits that are known
  for (int shift = kKeyBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int digit = threadIdx.x; digit < kDigits; digit += blockDim.x) scratch->bins[digit] = 0;
    __syncthreads();
    for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
      const TokenKey key = MakeKey(row[id], id);
      if (key >> shift >> kDigitBits != found) continue;
      const Weight weight = measure(key, row[id]);
      if (weight > 0) atomicAdd(&scratch->bins[(key >> shift) % kDigits], weight);
    }
    __syncthreads();

    // Each thread takes some neighbouring digits, thread 0 the uppermost.
    const int digits_per_thread = kDigits / blockDim.x;
    const int uppermost = kDigits - 1 - threadIdx.x * digits_per_thread;
    Weight own = 0;
    for (int i = 0; i < digits_per_thread; ++i) own += scratch->bins[uppermost - i];
    const Weight with_own = BlockInclusiveSum(own, scratch->warps);
    Weight above = with_own - own;
    if (above < target && target <= with_own) {  // true for one thread
      int digit = uppermost;
      while (above + scratch->bins[digit] < target) above += scratch->bins[digit--];
      scratch->digit = digit;
      scratch->result = above;
    }
    __syncthreads();
    found = found << kDigitBits | scratch->digit;
    target -= scratch->result;
    __syncthreads();
  }
  return found;
}
// end::select[]

}  // namespace tinyvllm
