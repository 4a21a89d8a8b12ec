// Sums and maxima over a warp and over a block. RMSNorm, softmax and sampling all rest on them.
//
// In a kernel:
//   __shared__ float scratch[kMaxWarpsPerBlock];
//   float sum = 0;
//   for (int i = threadIdx.x; i < size; i += blockDim.x) sum += row[i];
//   sum = BlockSum(sum, scratch);   // every thread of the block now has the total
//
// The order of the additions depends on the block's size alone, so the same row gives the same bits
// in whatever company it is computed.
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/warp.h"

namespace tinyvllm {

struct SumOp {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct MaxOp {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// tag::warp[]
// Combines the values of a warp's lanes; every lane gets the result. After the first step a lane
// holds the result of 2 lanes, then of 4, of 8, until all hold that of the whole warp: each asks
// the lane whose number differs from its own in one bit. PRECONDITION: every lane of a full warp
// calls it.
template <typename Op>
__device__ float WarpReduce(float value, Op op) {
  for (int bit = kWarpSize / 2; bit > 0; bit /= 2) {
    value = op(value, __shfl_xor_sync(kFullWarpMask, value, bit));
  }
  return value;
}
// end::warp[]

// As WarpReduce over the first `lanes` lanes of a warp, for the last warp of a block whose size is
// not a multiple of the warp. Lane 0 gets the result.
// PRECONDITION: exactly the lanes 0 to lanes - 1 call it.
template <typename Op>
__device__ float PartialWarpReduce(float value, int lanes, Op op) {
  const int lane = threadIdx.x % kWarpSize;
  const WarpMask mask = (WarpMask{1} << lanes) - 1;
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const bool has_partner = lane + distance < lanes;
    const float other = __shfl_sync(mask, value, has_partner ? lane + distance : lane);
    if (has_partner) value = op(value, other);
  }
  return value;
}

// tag::block[]
// Combines the values of all threads of a block; every thread gets the same bits. Each warp leaves
// its result in `scratch`, and after one barrier every thread folds these few in the same order.
// PRECONDITION: every thread of a one-dimensional block of any size calls it. `scratch`: shared,
// kMaxWarpsPerBlock floats, free for use again on return.
template <typename Op>
__device__ float BlockReduce(float value, float* scratch, Op op) {
  const int warp = threadIdx.x / kWarpSize;
  const int num_warps = (blockDim.x + kWarpSize - 1) / kWarpSize;
  const int lanes = min(kWarpSize, static_cast<int>(blockDim.x) - warp * kWarpSize);
  value = lanes == kWarpSize ? WarpReduce(value, op) : PartialWarpReduce(value, lanes, op);
  if (threadIdx.x % kWarpSize == 0) scratch[warp] = value;
  __syncthreads();
  float result = scratch[0];
  for (int w = 1; w < num_warps; ++w) result = op(result, scratch[w]);
  __syncthreads();  // nobody may write scratch again while another thread still reads it
  return result;
}
// end::block[]

inline __device__ float WarpSum(float value) { return WarpReduce(value, SumOp()); }

// A NaN loses against any number, as with fmaxf.
inline __device__ float WarpMax(float value) { return WarpReduce(value, MaxOp()); }

inline __device__ float BlockSum(float value, float* scratch) {
  return BlockReduce(value, scratch, SumOp());
}

inline __device__ float BlockMax(float value, float* scratch) {
  return BlockReduce(value, scratch, MaxOp());
}

}  // namespace tinyvllm
