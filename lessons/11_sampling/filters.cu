#include "lessons/11_sampling/filters.h"

#include <cmath>

#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/11_sampling/philox.h"
#include "lessons/11_sampling/weights.cuh"

namespace tinyvllm {
namespace {

// tag::filter[]
// The lowest key that min_p, top_k and top_p leave. All three keep the tokens from the highest key
// down to some key, so that each only has to say how far down.
__device__ TokenKey FilterThreshold(const float* row, int vocab_size, float highest,
                                    const SlotParams& params, SelectScratch* scratch) {
  // min_p: exp((x - highest) / T) >= min_p is x >= highest + T log(min_p).
  TokenKey lowest = 1;
  if (params.min_p > 0) {
    const float floor = highest + params.temperature * logf(params.min_p);
    lowest = max(lowest, MakeKey(floor, kMaxVocabSize - 1));
  }

  if (params.top_k > 0 && params.top_k < vocab_size) {
    const auto One = [=](TokenKey key, float) -> Weight { return key >= lowest; };
    Weight count = 0;
    for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
      count += One(MakeKey(row[id], id), row[id]);
    }
    if (BlockTotal(count, scratch) > static_cast<Weight>(params.top_k)) {
      lowest = SelectFromTop(row, vocab_size, params.top_k, One, scratch);
    }
  }

  if (params.top_p < 1) {
    const auto Kept = [=](TokenKey key, float logit) -> Weight {
      return key >= lowest ? WeightOf(logit, highest, params.temperature) : 0;
    };
    Weight sum = 0;
    for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
      sum += Kept(MakeKey(row[id], id), row[id]);
    }
    const Weight total = BlockTotal(sum, scratch);
    const Weight target = static_cast<Weight>(ceil(params.top_p * static_cast<double>(total)));
    lowest = SelectFromTop(row, vocab_size, min(max(target, Weight{1}), total), Kept, scratch);
  }
  return lowest;
}
// end::filter[]

// tag::draw[]
// Lays the weights side by side along a ruler, in the order of the ids, puts a needle somewhere,
// and gives the id it falls on. Each thread sums a part of the row; the one whose part has the
// needle walks through it.
__device__ void Draw(const float* row, int vocab_size, float highest, TokenKey lowest,
                     const SlotParams& params, uint32_t position, Weight* total, int* token_id,
                     SelectScratch* scratch) {
  const auto Kept = [=](int id) -> Weight {
    return MakeKey(row[id], id) >= lowest ? WeightOf(row[id], highest, params.temperature) : 0;
  };
  const int part = (vocab_size + blockDim.x - 1) / blockDim.x;
  const int begin = min(vocab_size, static_cast<int>(threadIdx.x) * part);
  const int end = min(vocab_size, begin + part);
  Weight own = 0;
  for (int id = begin; id < end; ++id) own += Kept(id);
  const Weight up_to_end = BlockInclusiveSum(own, scratch->warps);
  if (threadIdx.x == blockDim.x - 1) scratch->result = up_to_end;
  __syncthreads();
  *total = scratch->result;

  // The upper half of bits * total is uniform in [0, total).
  const Weight needle = __umul64hi(RandomBits(params.seed, position), *total);
  Weight before = up_to_end - own;
  if (before <= needle && needle < up_to_end) {  // true for one thread
    int id = begin;
    while (before + Kept(id) <= needle) before += Kept(id++);
    *token_id = id;
  }
  __syncthreads();
}
// end::draw[]

// A block a row. PRECONDITION: a block of whole warps, a power of two of threads.
__global__ void ChooseKernel(const float* __restrict__ adjusted,  // (num_rows, vocab_size)
                             SlotArrays slots,                    //
                             const int* __restrict__ row_slots,   // (num_rows)
                             const int* __restrict__ positions,   // (num_rows)
                             int* __restrict__ token_ids,         // (num_rows)
                             float* __restrict__ probabilities,   // (num_rows, vocab_size) or null
                             int vocab_size) {
  __shared__ SelectScratch scratch;
  __shared__ int token_id;
  const int64_t offset = static_cast<int64_t>(blockIdx.x) * vocab_size;
  const float* row = adjusted + offset;
  const int64_t slot = row_slots[blockIdx.x];
  const SlotParams params = slots.params[slot];

  TokenKey best = kNoToken;
  for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
    best = max(best, MakeKey(row[id], id));
  }
  best = BlockMaxKey(best, scratch.warps);

  // What is drawn from: keys of `lowest` and more, of `total` weight. Greedy: the best alone.
  TokenKey lowest = best;
  Weight total = static_cast<Weight>(kUnitWeight);
  const float highest = best == kNoToken ? -INFINITY : row[IdOfKey(best)];
  if (best == kNoToken || params.temperature == 0) {
    if (threadIdx.x == 0) token_id = IdOfKey(best);
    __syncthreads();
  } else {
    lowest = FilterThreshold(row, vocab_size, highest, params, &scratch);
    Draw(row, vocab_size, highest, lowest, params, positions[blockIdx.x], &total, &token_id,
         &scratch);
  }

  if (threadIdx.x == 0) {
    token_ids[blockIdx.x] = token_id;
    if (params.tracks_history && token_id >= 0) ++slots.history[slot * vocab_size + token_id];
  }
  if (probabilities == nullptr) return;
  for (int id = threadIdx.x; id < vocab_size; id += blockDim.x) {
    const bool kept = best != kNoToken && MakeKey(row[id], id) >= lowest;
    const float temperature = params.temperature == 0 ? 1 : params.temperature;
    probabilities[offset + id] =
        kept ? static_cast<float>(WeightOf(row[id], highest, temperature)) / total : 0;
  }
}

}  // namespace

void ChooseTokens(const float* __restrict__ adjusted, SlotArrays slots,
                  const int* __restrict__ row_slots, const int* __restrict__ positions,
                  int* __restrict__ token_ids, float* __restrict__ probabilities, int num_rows,
                  int vocab_size, cudaStream_t stream) {
  if (num_rows == 0) return;
  const int threads = vocab_size < 512 ? 64 : vocab_size < 8192 ? 256 : 1024;
  ChooseKernel<<<num_rows, threads, 0, stream>>>(adjusted, slots, row_slots, positions, token_ids,
                                                 probabilities, vocab_size);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
