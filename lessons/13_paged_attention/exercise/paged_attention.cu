#include "lessons/13_paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

constexpr int kElements = Bf16x8::kSize;
constexpr float kLog2E = 1.4426950408889634f;  // e^x = 2^(x log2 e), and 2^x is an instruction

// a * b + c, by name: left to the compiler, whether a product is fused with the sum could differ
// from kernel to kernel, and then so would the bits. (On the simulator neither is, which is faster
// there than calling a fused one.)
__device__ float MultiplyAdd(float a, float b, float c) {
#ifdef TINYVLLM_SIMULATOR
  return a * b + c;
#else
  return __fmaf_rn(a, b, c);
#endif
}

// --- where things lie

// The row of head_dim elements, counted from the start of the pool, that holds `key` of a sequence.
__device__ int64_t PageRow(const KvPages& pages, int num_kv_heads, int kv_head, const int* table,
                           int key) {
  const int64_t block = table[key / pages.block_size];
  return (block * num_kv_heads + kv_head) * pages.block_size + key % pages.block_size;
}

// The sequence that a query of the flat batch belongs to.
__device__ int SequenceOfQuery(const PagedAttentionBatch& batch, int64_t query) {
  int low = 0, high = batch.num_sequences - 1;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (batch.query_offsets[middle] <= query) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Lesson 07's mask: how many keys query i of q_len may see.
__host__ __device__ int VisibleKeys(int i, int q_len, int kv_len) {
  const int visible = i + 1 + kv_len - q_len;
  return visible > 0 ? visible : 0;
}

// One row of the output, and the keys it is made of.
struct Row {
  int64_t query;
  int head;
  int kv_head;
  int visible;
  const int* table;

  __device__ Row(const AttentionShape& shape, const PagedAttentionBatch& batch, int64_t row)
      : query(row / shape.num_heads),
        head(static_cast<int>(row % shape.num_heads)),
        kv_head(head / (shape.num_heads / shape.num_kv_heads)) {
    const int s = SequenceOfQuery(batch, query);
    const int first = batch.query_offsets[s];
    visible = VisibleKeys(static_cast<int>(query) - first, batch.query_offsets[s + 1] - first,
                          batch.kv_lens[s]);
    table = batch.block_tables + batch.table_offsets[s];
  }
};

// --- storing

constexpr int kStoreThreads = 256;

// A thread moves kWidth elements of K, and the same of V.
// PRECONDITION of kWidth 8: head_dim and stride are multiples of 8; all pointers of 16 bytes.
template <int kWidth>
__global__ void StoreKernel(StoreKvPagesRows rows) {
  const KvPages& pages = rows.pages;
  const int row_threads = rows.num_kv_heads * rows.head_dim / kWidth;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = index / row_threads;
  if (token >= rows.num_tokens) return;
  const int element = static_cast<int>(index % row_threads) * kWidth;
  const int kv_head = element / rows.head_dim;

  const int slot = rows.slots[token];
  const int64_t block = slot / pages.block_size;
  const int64_t page_row =
      (block * rows.num_kv_heads + kv_head) * pages.block_size + slot % pages.block_size;
  const int64_t from = token * rows.stride + element;
  const int64_t to = page_row * rows.head_dim + element % rows.head_dim;
  if constexpr (kWidth == kElements) {
    StoreBf16x8(pages.k + to, LoadBf16x8(rows.k + from));
    StoreBf16x8(pages.v + to, LoadBf16x8(rows.v + from));
  } else {
    pages.k[to] = rows.k[from];
    pages.v[to] = rows.v[from];
  }
}

// --- version 1: the formula, with a detour over the table for every key

constexpr int kNaiveThreads = 128;
constexpr int kNaiveStrips = 512;  // rows computed at a time, each with its scores in the workspace

// One block a row: a query in one head.
__global__ void NaiveKernel(AttentionShape shape, PagedAttentionBatch batch,
                            PagedAttentionTensors tensors, float* __restrict__ workspace) {
  __shared__ float scratch[kMaxWarpsPerBlock];
  const int head_dim = shape.head_dim;
  float* scores = workspace + static_cast<int64_t>(blockIdx.x) * batch.max_kv_len;
  const int64_t num_rows = static_cast<int64_t>(batch.num_queries) * shape.num_heads;
  for (int64_t index = blockIdx.x; index < num_rows; index += gridDim.x) {
    const Row row(shape, batch, index);
    const bf16* q = tensors.q + row.query * tensors.q_stride + row.head * head_dim;
    float largest = -INFINITY;
    for (int j = threadIdx.x; j < row.visible; j += blockDim.x) {
      const bf16* k =
          tensors.pages.k +
          PageRow(tensors.pages, shape.num_kv_heads, row.kv_head, row.table, j) * head_dim;
      float dot = 0;
      for (int d = 0; d < head_dim; ++d) dot += __bfloat162float(q[d]) * __bfloat162float(k[d]);
      scores[j] = shape.scale * dot;
      largest = fmaxf(largest, scores[j]);
    }
    largest = BlockMax(largest, scratch);

    float sum = 0;
    for (int j = threadIdx.x; j < row.visible; j += blockDim.x) {
      scores[j] = expf(scores[j] - largest);
      sum += scores[j];
    }
    sum = BlockSum(sum, scratch);  // its barriers also let every thread see every score

    for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
      float average = 0;
      for (int j = 0; j < row.visible; ++j) {
        const int64_t page_row =
            PageRow(tensors.pages, shape.num_kv_heads, row.kv_head, row.table, j);
        average += scores[j] * __bfloat162float(tensors.pages.v[page_row * head_dim + d]);
      }
      tensors.output[index * head_dim + d] =
          __float2bfloat16(row.visible > 0 ? average / sum : 0.0f);
    }
    __syncthreads();  // the next row may not overwrite scores that a slower thread still reads
  }
}

// --- merging parts of a softmax

// What a row still needs to know of keys it has seen: the largest score, the sum of all
// 2^(score - largest), and (elsewhere, spread over threads) the sum of 2^(score - largest) * value.
struct Softmax {
  float largest;
  float sum;
};

// Of no keys.
__device__ Softmax EmptySoftmax() { return {-INFINITY, 0}; }

// By how much two parts of a row shrink before their sums may be added.
struct Shrink {
  float whole;
  float part;
};

// Takes a part into the whole. Whoever holds the weighted sums of values then does
//   whole = MultiplyAdd(whole, shrink.whole, part * shrink.part).
// PRECONDITION: the part has seen a key at least; of the whole, that is not asked.
__device__ Shrink Merge(const Softmax& part, Softmax* whole) {
  // Your turn: The larger of both largest scores is the new one. Each side's sums are multiples of
  // 2^(-its own largest): shrink.whole and shrink.part are the factors that bring both to the new
  // largest (exp2f(old - new)). Update whole->sum with them, then whole->largest, return both.
  return {1, 1};
}

// --- version 2: online softmax

// A block computes a row. So many lanes side by side, a power of two, hold one key or value, eight
// elements each (kChunks times); they are a group. Group g takes the keys g, g + number of
// groups, ... each with a softmax of its own, and in the end these are merged.
constexpr int kOnlineThreads = 128;
constexpr int kMostLanes = 32;  // of a group: no warp is smaller
constexpr int kMostChunks = 4;

// Eight elements of a row, as f32, of which `count` exist.
__device__ void LoadFloats(const bf16* from, int count, bool by_eights,
                           float (&values)[kElements]) {
  if (by_eights && count > 0) return LoadBf16x8(from).ToFloats(values);
  for (int i = 0; i < kElements; ++i) values[i] = i < count ? __bfloat162float(from[i]) : 0.0f;
}

template <int kChunks>
__global__ void __launch_bounds__(kOnlineThreads)
    OnlineKernel(AttentionShape shape, PagedAttentionBatch batch, PagedAttentionTensors tensors,
                 int lanes, bool by_eights) {
  __shared__ float sums[kOnlineThreads * kChunks * kElements];  // (groups, kChunks, lanes * 8)
  __shared__ Softmax softmaxes[kOnlineThreads];                 // (groups)
  const int group = threadIdx.x / lanes;
  const int num_groups = kOnlineThreads / lanes;
  const int first_element = threadIdx.x % lanes * kElements;
  const Row row(shape, batch, blockIdx.x);

  float q[kChunks][kElements];
  float sum[kChunks][kElements] = {};  // of weights times values
  const bf16* q_row = tensors.q + row.query * tensors.q_stride + row.head * shape.head_dim;
  for (int c = 0; c < kChunks; ++c) {
    const int d = c * lanes * kElements + first_element;
    LoadFloats(q_row + d, shape.head_dim - d, by_eights, q[c]);
    for (int i = 0; i < kElements; ++i) q[c][i] *= shape.scale * kLog2E;
  }

  Softmax softmax = EmptySoftmax();
  for (int first = 0; first < row.visible; first += num_groups) {
    const int key = min(first + group, row.visible - 1);  // all lanes must reach the shuffles
    const int64_t at =
        PageRow(tensors.pages, shape.num_kv_heads, row.kv_head, row.table, key) * shape.head_dim;
    float score = 0;
    float value[kChunks][kElements];
    for (int c = 0; c < kChunks; ++c) {
      const int d = c * lanes * kElements + first_element;
      float k[kElements];
      LoadFloats(tensors.pages.k + at + d, shape.head_dim - d, by_eights, k);
      LoadFloats(tensors.pages.v + at + d, shape.head_dim - d, by_eights, value[c]);
      for (int i = 0; i < kElements; ++i) score = MultiplyAdd(q[c][i], k[i], score);
    }
    for (int bit = lanes / 2; bit > 0; bit /= 2) {
      score += __shfl_xor_sync(kFullWarpMask, score, bit);
    }
    if (first + group >= row.visible) continue;

    // Your turn: The score of one more key has come. If it is larger than all before it, shrink what
    // has been summed so far (softmax.sum, and all of sum[c][i]) from the old largest to the new
    // one; then add the key's weight, exp2f(score - largest), and weight * value[c][i].
  }

  const int row_width = kChunks * lanes * kElements;
  if (threadIdx.x % lanes == 0) softmaxes[group] = softmax;
  for (int c = 0; c < kChunks; ++c) {
    for (int i = 0; i < kElements; ++i) {
      sums[group * row_width + c * lanes * kElements + first_element + i] = sum[c][i];
    }
  }
  __syncthreads();
  for (int d = threadIdx.x; d < shape.head_dim; d += kOnlineThreads) {
    Softmax whole = EmptySoftmax();
    float total = 0;
    for (int g = 0; g < min(num_groups, row.visible); ++g) {
      const Shrink shrink = Merge(softmaxes[g], &whole);
      total = MultiplyAdd(total, shrink.whole, sums[g * row_width + d] * shrink.part);
    }
    tensors.output[static_cast<int64_t>(blockIdx.x) * shape.head_dim + d] =
        __float2bfloat16(row.visible > 0 ? total / whole.sum : 0.0f);
  }
}

// --- versions 3 and 4: one order of summation
//
// Both compute a row as follows, and so to the same bits.
//   score    the products of eight neighbouring elements are added one after the other; these sums
//            in pairs whose places differ in the highest bit, then the next, ... as lanes do
//   part     kPart keys: one largest score; weights are added over keys 8 apart, these sums in
//            pairs, neighbours first; weight * value is added key by key
//   span     kPartsPerSpan parts, merged one after the other
//   row      all spans, merged one after the other
constexpr int kPart = 32;
constexpr int kPartsPerSpan = kPagedSpan / kPart;
constexpr int kStep = 8;  // keys whose 16-byte loads a lane has in flight at a time

// Of all spans of a batch, so many are computed at a time; their results wait in a ring that has
// room for those of one more sequence, since one may begin in one launch and end in the next.
constexpr int64_t kSpansAtOnce = 1024;

int RingSpans(int64_t max_spans, int max_kv_len) {
  return static_cast<int>(std::min<int64_t>(max_spans, kSpansAtOnce + PagedSpansOf(max_kv_len)));
}

// The results of spans, for the block that merges them.
struct SpanResults {
  float* sums;         // (ring, num_heads, head_dim): of weights times values
  Softmax* softmaxes;  // (ring, num_heads)
  int ring;
};

// --- version 3: a part for each group of lanes, a span for each block

// scores[k][r] is this lane's share, kElements elements of q and k, of the dot product of key k and
// row r. Adds the shares of kLanes lanes: afterwards scores[0 .. kOwn) are the whole products of
// this lane's own keys, kOwn * lane / (kLanes * kOwn / kStep) and so on. Half of the products
// change hands at each step, which takes a third of the shuffles that adding all of them in all
// lanes does.
template <int kLanes, int kRows, int kKeys = kStep>
__device__ void SumOverLanes(int lane, float (&scores)[kStep][kRows]) {
  if constexpr (kLanes > 1) {
    constexpr int kBit = kLanes / 2;
    const bool upper = lane & kBit;
    if constexpr (kKeys > 1) {
#pragma unroll
      for (int k = 0; k < kKeys / 2; ++k) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float mine = upper ? scores[k + kKeys / 2][r] : scores[k][r];
          const float other = upper ? scores[k][r] : scores[k + kKeys / 2][r];
          scores[k][r] = mine + __shfl_xor_sync(kFullWarpMask, other, kBit);
        }
      }
      SumOverLanes<kBit, kRows, kKeys / 2>(lane, scores);
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        scores[0][r] += __shfl_xor_sync(kFullWarpMask, scores[0][r], kBit);
      }
      SumOverLanes<kBit, kRows, 1>(lane, scores);
    }
  }
}

// How a thread of a span's block sees the world.
template <int kHeadDim, int kRows>
struct SpanThread {
  static constexpr int kLanes = kHeadDim / kElements;                   // of a group
  static constexpr int kOwn = kLanes < kStep ? kStep / kLanes : 1;      // keys of a step, per lane
  static constexpr int kSharers = kLanes > kStep ? kLanes / kStep : 1;  // lanes with one key

  int part = threadIdx.x / kLanes;  // kPartsPerSpan and more: nothing to do
  int lane = threadIdx.x % kLanes;
  int num_keys;    // of the part: 0 to kPart
  int num_steps;   // of the longest part in the block: all its lanes shuffle together
  int first_head;  // the block's rows are heads of one group
  int num_heads;   // at most kRows

  __device__ int OwnKey(int step, int i) const {
    return step * kStep + (kLanes < kStep ? lane * kOwn : lane / kSharers) + i;
  }
  __device__ bool Owns() const { return part < kPartsPerSpan && lane % kSharers == 0; }
};

// Shared memory of a span's block.
template <int kHeadDim, int kRows>
struct SpanShared {
  int page_rows[kPagedSpan];
  float weights[kPartsPerSpan][kPart][kRows];
  float sums[kPartsPerSpan][kRows][kHeadDim];
  Softmax softmaxes[kPartsPerSpan][kRows];  // of the parts
  Shrink shrinks[kPartsPerSpan][kRows];     // of each part's merge
  Softmax span[kRows];
  int is_last;
};

// A step's eight 16-byte loads, issued together. Past the last key the last one is read again:
// what comes of it is never used.
template <int kHeadDim, int kRows>
__device__ void LoadStep(const SpanShared<kHeadDim, kRows>& shared,
                         const SpanThread<kHeadDim, kRows>& self, const bf16* __restrict__ pages,
                         int step, Bf16x8 (&values)[kStep]) {
  const int part = min(self.part, kPartsPerSpan - 1);
  const int* page_rows = shared.page_rows + part * kPart + step * kStep;
#pragma unroll
  for (int k = 0; k < kStep; ++k) {
    values[k] =
        LoadBf16x8(pages + static_cast<int64_t>(page_rows[k]) * kHeadDim + self.lane * kElements);
  }
}

// The scores of the part's keys, into shared.weights; `largest` of this lane's own, by row.
template <int kHeadDim, int kRows>
__device__ void SpanScores(const SpanThread<kHeadDim, kRows>& self, const bf16* __restrict__ pages,
                           const float (&q)[kRows][kElements], float (&largest)[kRows],
                           SpanShared<kHeadDim, kRows>& shared) {
  using Self = SpanThread<kHeadDim, kRows>;
  Bf16x8 keys[kStep] = {}, next[kStep] = {};
  if (self.num_steps > 0) LoadStep(shared, self, pages, 0, keys);
#pragma unroll 2
  for (int step = 0; step < self.num_steps; ++step) {
    if (step + 1 < self.num_steps) LoadStep(shared, self, pages, step + 1, next);
    float scores[kStep][kRows];
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      float key[kElements];
      keys[k].ToFloats(key);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < kElements; ++i) score = MultiplyAdd(q[r][i], key[i], score);
        scores[k][r] = score;
      }
    }
    SumOverLanes<Self::kLanes>(self.lane, scores);
#pragma unroll
    for (int i = 0; i < Self::kOwn; ++i) {
      const int key = self.OwnKey(step, i);
      if (!self.Owns()) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float score = key < self.num_keys ? scores[i][r] : -INFINITY;
        shared.weights[self.part][key][r] = score;
        largest[r] = fmaxf(largest[r], score);
      }
    }
#pragma unroll
    for (int k = 0; k < kStep; ++k) keys[k] = next[k];
  }
}

// Scores become weights; the part's Softmax goes to shared memory. Every lane calls it.
template <int kHeadDim, int kRows>
__device__ void SpanWeights(const SpanThread<kHeadDim, kRows>& self, float (&largest)[kRows],
                            SpanShared<kHeadDim, kRows>& shared) {
  using Self = SpanThread<kHeadDim, kRows>;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int bit = Self::kLanes / 2; bit > 0; bit /= 2) {
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(kFullWarpMask, largest[r], bit));
    }
    // No key, or scores that are not numbers: whatever is subtracted then, it must not be infinite.
    const float subtracted = largest[r] == -INFINITY ? 0.0f : largest[r];
    float own_sums[Self::kOwn] = {};
    for (int step = 0; step < self.num_steps; ++step) {
#pragma unroll
      for (int i = 0; i < Self::kOwn; ++i) {
        if (!self.Owns()) continue;
        float& weight = shared.weights[self.part][self.OwnKey(step, i)][r];
        weight = exp2f(weight - subtracted);
        own_sums[i] += weight;
      }
    }
    float sum = own_sums[0];
    if constexpr (Self::kOwn == 2) sum += own_sums[1];
#pragma unroll
    for (int bit = 1; bit < Self::kLanes; bit *= 2) {
      sum += __shfl_xor_sync(kFullWarpMask, sum, bit);
    }
    if (self.lane == 0 && self.part < kPartsPerSpan) {
      shared.softmaxes[self.part][r].largest = largest[r];
      shared.softmaxes[self.part][r].sum = sum;
    }
  }
}

// The part's weighted sum of values, eight elements a lane, into shared.sums. `values` are those of
// step 0, on their way since before the weights were known.
template <int kHeadDim, int kRows>
__device__ void SpanValues(const SpanThread<kHeadDim, kRows>& self, const bf16* __restrict__ pages,
                           Bf16x8 (&values)[kStep], SpanShared<kHeadDim, kRows>& shared) {
  float sums[kRows][kElements] = {};
  Bf16x8 next[kStep] = {};
#pragma unroll 2
  for (int first = 0; first < self.num_keys; first += kStep) {
    if (first + kStep < self.num_keys) LoadStep(shared, self, pages, first / kStep + 1, next);
    const auto add = [&](int k) {
      float value[kElements];
      values[k].ToFloats(value);
      const float* weights = shared.weights[self.part][first + k];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float weight = weights[r];
#pragma unroll
        for (int i = 0; i < kElements; ++i) sums[r][i] = MultiplyAdd(weight, value[i], sums[r][i]);
      }
    };
    const int left = self.num_keys - first;
    if (left >= kStep) {
#pragma unroll
      for (int k = 0; k < kStep; ++k) add(k);
    } else {
#pragma unroll
      for (int k = 0; k < kStep; ++k) {
        if (k < left) add(k);
      }
    }
#pragma unroll
    for (int k = 0; k < kStep; ++k) values[k] = next[k];
  }
  if (self.part >= kPartsPerSpan) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      shared.sums[self.part][r][self.lane * kElements + i] = sums[r][i];
    }
  }
}

// The span's parts, merged first to last: into the output if the row has no other span, else into
// the results that the last block will merge. Every thread of the block calls it.
template <int kHeadDim, int kRows>
__device__ void MergeParts(const AttentionShape& shape, const PagedSpan& work,
                           const SpanThread<kHeadDim, kRows>& self, int64_t item, int num_keys,
                           bf16* __restrict__ output, const SpanResults& results,
                           SpanShared<kHeadDim, kRows>& shared) {
  const int num_parts = (num_keys + kPart - 1) / kPart;
  if (threadIdx.x < kRows) {
    Softmax span = EmptySoftmax();
    for (int p = 0; p < num_parts; ++p) {
      shared.shrinks[p][threadIdx.x] = Merge(shared.softmaxes[p][threadIdx.x], &span);
    }
    shared.span[threadIdx.x] = span;
  }
  __syncthreads();

  for (int index = threadIdx.x; index < self.num_heads * kHeadDim; index += blockDim.x) {
    const int r = index / kHeadDim;
    const int d = index % kHeadDim;
    const int head = self.first_head + r;
    float sum = 0;
    for (int p = 0; p < num_parts; ++p) {
      const Shrink shrink = shared.shrinks[p][r];
      sum = MultiplyAdd(sum, shrink.whole, shared.sums[p][r][d] * shrink.part);
    }
    if (work.visible <= kPagedSpan) {
      output[(static_cast<int64_t>(work.query) * shape.num_heads + head) * kHeadDim + d] =
          __float2bfloat16(num_keys > 0 ? sum / shared.span[r].sum : 0.0f);
    } else {
      const int64_t row = item % results.ring * shape.num_heads + head;
      results.sums[row * kHeadDim + d] = sum;
      if (d == 0) results.softmaxes[row] = shared.span[r];
    }
  }
}

// Whether this block is the last of `count` to come here: then the results of all of them can be
// read. The ticket is 0 again afterwards. Every thread of the block calls it; `is_last`: shared.
__device__ bool IsLastOf(int count, int* ticket, int* is_last) {
  __threadfence();  // what this thread has written comes before the ticket that its block takes
  __syncthreads();
  if (threadIdx.x == 0) {
    *is_last = atomicAdd(ticket, 1) == count - 1;
    if (*is_last) atomicExch(ticket, 0);
  }
  __syncthreads();
  __threadfence();  // and what it will read comes after
  return *is_last;
}

// The block that finished last has all spans of its rows to merge, first to last. Each merge needs
// the one before, but no load does: those of a few spans, for all rows, are under way together.
template <int kRows>
__device__ void MergeSpans(const AttentionShape& shape, const PagedSpan& work,
                           const SpanResults& results, int64_t first_item, int first_head,
                           int num_heads, bf16* __restrict__ output) {  // (num_heads, head_dim)
  constexpr int kTogether = 4;
  const int num_spans = (work.visible + kPagedSpan - 1) / kPagedSpan;
  for (int d = threadIdx.x; d < shape.head_dim; d += blockDim.x) {
    Softmax wholes[kRows];
    float totals[kRows] = {};
    int place = static_cast<int>(first_item % results.ring);
    for (int first = 0; first < num_spans; first += kTogether) {
      Softmax spans[kTogether][kRows];
      float sums[kTogether][kRows];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        if (first + s >= num_spans) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int64_t row =
              static_cast<int64_t>(place) * shape.num_heads + first_head + min(r, num_heads - 1);
          // Past the L1 cache, where another block's results need not be seen.
          spans[s][r].largest = __ldcg(&results.softmaxes[row].largest);
          spans[s][r].sum = __ldcg(&results.softmaxes[row].sum);
          sums[s][r] = __ldcg(&results.sums[row * shape.head_dim + d]);
        }
        place = place + 1 == results.ring ? 0 : place + 1;
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        if (first + s >= num_spans) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (first + s == 0) wholes[r] = EmptySoftmax();
          const Shrink shrink = Merge(spans[s][r], &wholes[r]);
          totals[r] = first + s == 0
                          ? sums[s][r]
                          : MultiplyAdd(totals[r], shrink.whole, sums[s][r] * shrink.part);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < num_heads)
        output[r * shape.head_dim + d] = __float2bfloat16(totals[r] / wholes[r].sum);
    }
  }
}

// blockIdx.x: a span; blockIdx.y: a KV head and kRows heads of its group, which share every load.
template <int kHeadDim, int kRows>
__global__ void __launch_bounds__(kHeadDim)
    SpanKernel(AttentionShape shape, PagedAttentionBatch batch, PagedAttentionTensors tensors,
               SpanResults results, int64_t first_item) {
  __shared__ __align__(16) SpanShared<kHeadDim, kRows> shared;
  const int64_t item = first_item + blockIdx.x;
  const PagedSpan work = batch.spans[item];
  const int first_key = work.span * kPagedSpan;
  const int num_keys = min(kPagedSpan, work.visible - first_key);
  const int group = shape.num_heads / shape.num_kv_heads;
  const int tiles = gridDim.y / shape.num_kv_heads;
  const int kv_head = blockIdx.y / tiles;

  SpanThread<kHeadDim, kRows> self;
  self.num_keys = max(0, min(kPart, num_keys - self.part * kPart));
  self.num_steps = (min(num_keys, kPart) + kStep - 1) / kStep;
  self.first_head = kv_head * group + blockIdx.y % tiles * kRows;
  self.num_heads = min(kRows, (kv_head + 1) * group - self.first_head);

  for (int i = threadIdx.x; num_keys > 0 && i < kPagedSpan; i += blockDim.x) {
    shared.page_rows[i] = static_cast<int>(PageRow(tensors.pages, shape.num_kv_heads, kv_head,
                                                   batch.block_tables + work.table,
                                                   first_key + min(i, num_keys - 1)));
  }
  float q[kRows][kElements];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int head = self.first_head + min(r, self.num_heads - 1);
    LoadBf16x8(tensors.q + work.query * tensors.q_stride + head * kHeadDim + self.lane * kElements)
        .ToFloats(q[r]);
#pragma unroll
    for (int i = 0; i < kElements; ++i) q[r][i] *= shape.scale * kLog2E;
  }
  __syncthreads();

  float largest[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) largest[r] = -INFINITY;
  SpanScores(self, tensors.pages.k, q, largest, shared);
  Bf16x8 values[kStep] = {};
  if (num_keys > 0) LoadStep(shared, self, tensors.pages.v, 0, values);
  SpanWeights(self, largest, shared);
  __syncwarp();  // a lane reads the weights of its group's others
  SpanValues(self, tensors.pages.v, values, shared);
  __syncthreads();

  MergeParts(shape, work, self, item, num_keys, tensors.output, results, shared);
  if (work.visible <= kPagedSpan) return;

  const int64_t row_first_item = item - work.span;
  int* ticket = batch.tickets + row_first_item % results.ring * gridDim.y + blockIdx.y;
  if (!IsLastOf((work.visible - 1) / kPagedSpan + 1, ticket, &shared.is_last)) return;
  MergeSpans<kRows>(
      shape, work, results, row_first_item, self.first_head, self.num_heads,
      tensors.output +
          (static_cast<int64_t>(work.query) * shape.num_heads + self.first_head) * kHeadDim);
}

// --- version 4: many queries share every page

// 128 threads, 16 wide: each computes the scores of 4 rows and 4 keys, 16 keys apart, then the
// output of 4 rows and head_dim / 16 columns. A tile of keys is two parts.
constexpr int kTileThreads = 128;
constexpr int kTileWidth = 16;
constexpr int kTileKeys = 2 * kPart;
constexpr int kThreadRows = kPagedTileRows / (kTileThreads / kTileWidth);
constexpr int kThreadKeys = kTileKeys / kTileWidth;
constexpr int kPadding = 4;  // floats: rows of shared memory that are read together, in other banks

template <int kHeadDim>
struct TileShared {
  float q[kPagedTileRows][kHeadDim + kPadding];
  float kv[kTileKeys][kHeadDim + kPadding];  // keys, then values
  float weights[kPagedTileRows][kTileKeys + kPadding];
  Shrink shrinks[2][kPagedTileRows];    // of the merge of each part into its span
  Shrink span_shrinks[kPagedTileRows];  // and of the span into the row
  float row_sums[kPagedTileRows];
  int visible[kPagedTileRows];
  int page_rows[2][kTileKeys];  // of the tile of keys at hand, and the next
};

// scores[r][k] = q row r . key k, for this thread's rows and keys, over the chunks of kElements
// elements kFirst, kFirst + kStride, ...: first over every other of them, then over the rest.
template <int kHeadDim, int kFirst = 0, int kStride = 1>
__device__ void Dots(const float* q, const float* k, float (&scores)[kThreadRows][kThreadKeys]) {
  constexpr int kWidth = kHeadDim + kPadding;
  if constexpr (kStride * kElements == kHeadDim) {
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int j = 0; j < kThreadKeys; ++j) scores[r][j] = 0;
    }
#pragma unroll
    for (int d = kFirst * kElements; d < (kFirst + 1) * kElements; d += 4) {
      float4 keys[kThreadKeys];
#pragma unroll
      for (int j = 0; j < kThreadKeys; ++j) {
        keys[j] = *reinterpret_cast<const float4*>(k + j * kTileWidth * kWidth + d);
      }
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        const float4 row = *reinterpret_cast<const float4*>(q + r * kWidth + d);
#pragma unroll
        for (int j = 0; j < kThreadKeys; ++j) {
          scores[r][j] = MultiplyAdd(row.x, keys[j].x, scores[r][j]);
          scores[r][j] = MultiplyAdd(row.y, keys[j].y, scores[r][j]);
          scores[r][j] = MultiplyAdd(row.z, keys[j].z, scores[r][j]);
          scores[r][j] = MultiplyAdd(row.w, keys[j].w, scores[r][j]);
        }
      }
    }
  } else {
    Dots<kHeadDim, kFirst, 2 * kStride>(q, k, scores);
    float others[kThreadRows][kThreadKeys];
    Dots<kHeadDim, kFirst + kStride, 2 * kStride>(q, k, others);
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int j = 0; j < kThreadKeys; ++j) scores[r][j] += others[r][j];
    }
  }
}

// The tile of keys or values that begins at some key, eight elements a load, many in flight.
template <int kHeadDim>
struct TileLoad {
  static constexpr int kChunks = kHeadDim / kElements;  // of a row
  static constexpr int kLoads = kTileKeys * kChunks / kTileThreads;
  Bf16x8 values[kLoads];

  __device__ void Start(const bf16* __restrict__ pages, const int* page_rows) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = i * kTileThreads + threadIdx.x;
      values[i] = LoadBf16x8(pages + static_cast<int64_t>(page_rows[index / kChunks]) * kHeadDim +
                             index % kChunks * kElements);
    }
  }
  __device__ void Finish(float (&rows)[kTileKeys][kHeadDim + kPadding]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = i * kTileThreads + threadIdx.x;
      float floats[kElements];
      values[i].ToFloats(floats);
      float4* to = reinterpret_cast<float4*>(&rows[index / kChunks][index % kChunks * kElements]);
      to[0] = make_float4(floats[0], floats[1], floats[2], floats[3]);
      to[1] = make_float4(floats[4], floats[5], floats[6], floats[7]);
    }
  }
};

// Scores of a tile become weights, as SpanWeights makes them: four threads a row, two a part. The
// first of the four merges the parts into the row's span and, with the span's last tile, that into
// the row; it alone uses `span` and `whole`.
template <int kHeadDim>
__device__ void TileWeights(int first_key, bool ends_span, TileShared<kHeadDim>& shared,
                            Softmax* span, Softmax* whole) {
  const int row = threadIdx.x / 4;
  const int part = threadIdx.x % 4 / 2;
  float* weights = &shared.weights[row][part * kPart + threadIdx.x % 2 * 4];
  float largest = -INFINITY;
#pragma unroll
  for (int step = 0; step < kPart / kStep; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = fmaxf(largest, weights[step * kStep + i]);
  }
  largest = fmaxf(largest, __shfl_xor_sync(kFullWarpMask, largest, 1));
  const float subtracted = largest == -INFINITY ? 0.0f : largest;
  float sums[4] = {};
#pragma unroll
  for (int step = 0; step < kPart / kStep; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& weight = weights[step * kStep + i];
      weight = exp2f(weight - subtracted);
      sums[i] += weight;
    }
  }
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  sum += __shfl_xor_sync(kFullWarpMask, sum, 1);

  const float second_largest = __shfl_xor_sync(kFullWarpMask, largest, 2);
  const float second_sum = __shfl_xor_sync(kFullWarpMask, sum, 2);
  if (threadIdx.x % 4 != 0) return;
  const int visible = shared.visible[row];
  if (first_key < visible) shared.shrinks[0][row] = Merge({largest, sum}, span);
  if (first_key + kPart < visible) {
    shared.shrinks[1][row] = Merge({second_largest, second_sum}, span);
  }
  if (!ends_span) return;
  if (first_key / kPagedSpan * kPagedSpan < visible) {
    shared.span_shrinks[row] = Merge(*span, whole);
    shared.row_sums[row] = whole->sum;
  }
  *span = EmptySoftmax();
}

// sums[r][c] = sum over a part's keys of weight * value, for this thread's rows and columns. Where
// a row does not see every key, kMasked leaves values out instead of multiplying them by 0: 0 * NaN
// is NaN.
template <int kHeadDim, bool kMasked>
__device__ void TileValues(const TileShared<kHeadDim>& shared, int first_row, int part,
                           const int (&visible)[kThreadRows],  // counted from the part's first key
                           float (&sums)[kThreadRows][kHeadDim / kTileWidth]) {
  constexpr int kColumns = kHeadDim / kTileWidth;
  constexpr int kTogether = kColumns < 4 ? kColumns : 4;  // neighbours
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0;
  }
#pragma unroll 2
  for (int first = 0; first < kPart; first += 4) {
    float weights[kThreadRows][4];
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      const float4 four =
          *reinterpret_cast<const float4*>(&shared.weights[first_row + r][part * kPart + first]);
      weights[r][0] = four.x;
      weights[r][1] = four.y;
      weights[r][2] = four.z;
      weights[r][3] = four.w;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      __align__(16) float values[kColumns];
      const float* row = shared.kv[part * kPart + first + k] + threadIdx.x % kTileWidth * kTogether;
#pragma unroll
      for (int c = 0; c < kColumns; c += kTogether) {
        using Together = std::conditional_t<kTogether == 4, float4, float2>;
        *reinterpret_cast<Together*>(values + c) =
            *reinterpret_cast<const Together*>(row + c * kTileWidth);
      }
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        if (kMasked && first + k >= visible[r]) continue;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          sums[r][c] = MultiplyAdd(weights[r][k], values[c], sums[r][c]);
        }
      }
    }
  }
}

// The piece of work of a block.
struct Tile {
  int kv_head;
  int group;        // heads that share it
  int first_query;  // of the sequence, in the flat batch
  int first_row;    // of the tile, among the rows of sequence and group
  int num_rows;
  int q_len;
  int kv_len;
  const int* table;
  int num_keys;     // that the last row sees, which sees most
  int seen_by_all;  // that the first one sees

  __device__ Tile(const AttentionShape& shape, const PagedAttentionBatch& batch)
      : kv_head(blockIdx.y), group(shape.num_heads / shape.num_kv_heads) {
    const PagedTile work = batch.tiles[blockIdx.x];
    first_query = batch.query_offsets[work.sequence];
    first_row = work.first_row;
    q_len = batch.query_offsets[work.sequence + 1] - first_query;
    kv_len = batch.kv_lens[work.sequence];
    num_rows = min(kPagedTileRows, q_len * group - first_row);
    table = batch.block_tables + batch.table_offsets[work.sequence];
    num_keys = VisibleTo(num_rows - 1);
    seen_by_all = VisibleTo(0);
  }
  __device__ int VisibleTo(int row) const {
    return VisibleKeys((first_row + row) / group, q_len, kv_len);
  }
  __device__ int64_t Query(int row) const { return first_query + (first_row + row) / group; }
  __device__ int Head(int row) const { return kv_head * group + (first_row + row) % group; }
};

template <int kHeadDim>
__device__ void LoadTileQueries(const AttentionShape& shape, const PagedAttentionTensors& tensors,
                                const Tile& tile, TileShared<kHeadDim>& shared) {
  constexpr int kChunks = kHeadDim / kElements;
  for (int index = threadIdx.x; index < kPagedTileRows * kChunks; index += kTileThreads) {
    const int r = index / kChunks;
    const int row = min(r, tile.num_rows - 1);
    const int d = index % kChunks * kElements;
    float q[kElements];
    LoadBf16x8(tensors.q + tile.Query(row) * tensors.q_stride + tile.Head(row) * kHeadDim + d)
        .ToFloats(q);
#pragma unroll
    for (int i = 0; i < kElements; ++i) shared.q[r][d + i] = q[i] * (shape.scale * kLog2E);
  }
  const int row = threadIdx.x;
  if (row < kPagedTileRows) shared.visible[row] = row < tile.num_rows ? tile.VisibleTo(row) : 0;
}

template <int kHeadDim>
__device__ void WriteTile(const AttentionShape& shape, const Tile& tile, int first_row,
                          const float (&sums)[kThreadRows][kHeadDim / kTileWidth],
                          const TileShared<kHeadDim>& shared, bf16* __restrict__ output) {
  constexpr int kColumns = kHeadDim / kTileWidth;
  constexpr int kTogether = kColumns < 4 ? kColumns : 4;
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
    const int row = first_row + r;
    if (row >= tile.num_rows) break;
    bf16* to = output + (tile.Query(row) * shape.num_heads + tile.Head(row)) * kHeadDim +
               threadIdx.x % kTileWidth * kTogether;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      to[c / kTogether * kTileWidth * kTogether + c % kTogether] =
          __float2bfloat16(shared.visible[row] > 0 ? sums[r][c] / shared.row_sums[row] : 0.0f);
    }
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kTileThreads, kHeadDim == 128 ? 2 : 3)
    TileKernel(AttentionShape shape, PagedAttentionBatch batch, PagedAttentionTensors tensors) {
  constexpr int kColumns = kHeadDim / kTileWidth;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  TileShared<kHeadDim>& shared = *reinterpret_cast<TileShared<kHeadDim>*>(shared_bytes);
  const Tile tile(shape, batch);
  LoadTileQueries(shape, tensors, tile, shared);
  const auto find_pages = [&](int first_key) {
    if (threadIdx.x >= kTileKeys) return;
    const int key = min(first_key + static_cast<int>(threadIdx.x), tile.num_keys - 1);
    shared.page_rows[first_key / kTileKeys % 2][threadIdx.x] =
        static_cast<int>(PageRow(tensors.pages, shape.num_kv_heads, tile.kv_head, tile.table, key));
  };
  if (tile.num_keys > 0) find_pages(0);
  __syncthreads();

  const int first_row = threadIdx.x / kTileWidth * kThreadRows;
  const int column = threadIdx.x % kTileWidth;
  const bool has_rows = first_row < tile.num_rows;
  int visible[kThreadRows];
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) visible[r] = shared.visible[first_row + r];
  if (!has_rows) {  // TileWeights looks at these rows, too; nobody uses what it makes of them
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int j = 0; j < kThreadKeys; ++j) {
        shared.weights[first_row + r][column + j * kTileWidth] = 0;
      }
    }
  }
  float span_sums[kThreadRows][kColumns] = {};
  float row_sums[kThreadRows][kColumns] = {};
  Softmax span = EmptySoftmax(), whole = EmptySoftmax();  // of row threadIdx.x / 4

  TileLoad<kHeadDim> load;
  if (tile.num_keys > 0) load.Start(tensors.pages.k, shared.page_rows[0]);
  for (int first_key = 0; first_key < tile.num_keys; first_key += kTileKeys) {
    const int* page_rows = shared.page_rows[first_key / kTileKeys % 2];
    const bool is_last = first_key + kTileKeys >= tile.num_keys;
    const bool ends_span = is_last || (first_key + kTileKeys) % kPagedSpan == 0;

    // --- scores
    load.Finish(shared.kv);
    __syncthreads();
    load.Start(tensors.pages.v, page_rows);
    if (!is_last) find_pages(first_key + kTileKeys);
    if (has_rows) {
      float scores[kThreadRows][kThreadKeys];
      Dots<kHeadDim>(shared.q[first_row], shared.kv[column], scores);
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int j = 0; j < kThreadKeys; ++j) {
          const int key = column + j * kTileWidth;
          shared.weights[first_row + r][key] =
              first_key + key < visible[r] ? scores[r][j] : -INFINITY;
        }
      }
    }
    __syncthreads();

    // --- weights
    load.Finish(shared.kv);
    TileWeights(first_key, ends_span, shared, &span, &whole);
    __syncthreads();

    // --- values
    if (!is_last) load.Start(tensors.pages.k, shared.page_rows[(first_key / kTileKeys + 1) % 2]);
#pragma unroll
    for (int part = 0; part < 2 && has_rows; ++part) {
      const int part_key = first_key + part * kPart;
      float sums[kThreadRows][kColumns];
      int seen[kThreadRows];
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) seen[r] = visible[r] - part_key;
      if (part_key + kPart > tile.seen_by_all) {
        TileValues<kHeadDim, true>(shared, first_row, part, seen, sums);
      } else {
        TileValues<kHeadDim, false>(shared, first_row, part, seen, sums);
      }
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        if (seen[r] <= 0) continue;
        const Shrink shrink = shared.shrinks[part][first_row + r];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          span_sums[r][c] = MultiplyAdd(span_sums[r][c], shrink.whole, sums[r][c] * shrink.part);
        }
      }
    }
    if (ends_span) {
      const int span_key = first_key / kPagedSpan * kPagedSpan;
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        if (span_key >= visible[r]) continue;
        const Shrink shrink = shared.span_shrinks[first_row + r];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          // As in version 3, a row of one span has nothing to merge.
          row_sums[r][c] = span_key == 0 ? span_sums[r][c]
                                         : MultiplyAdd(row_sums[r][c], shrink.whole,
                                                       span_sums[r][c] * shrink.part);
          span_sums[r][c] = 0;
        }
      }
    }
    __syncthreads();
  }

  WriteTile(shape, tile, first_row, row_sums, shared, tensors.output);
}

// --- launchers

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int Group(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

void CheckShape(const AttentionShape& shape) {
  Check(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.head_dim > 0 &&
            shape.num_heads % shape.num_kv_heads == 0,
        "paged attention: ", shape.num_heads, " heads, ", shape.num_kv_heads,
        " KV heads of head_dim ", shape.head_dim,
        "; all must be positive, and KV heads a divisor of heads");
}

void CheckPages(const KvPages& pages, int num_kv_heads) {
  Check(pages.block_size > 0 && pages.num_blocks > 0, "paged attention: ", pages.num_blocks,
        " blocks of ", pages.block_size, " tokens; both must be positive");
  Check(int64_t{pages.num_blocks} * pages.block_size <=
            std::numeric_limits<int>::max() / num_kv_heads,
        "paged attention: ", pages.num_blocks, " blocks of ", pages.block_size, " tokens and ",
        num_kv_heads, " KV heads are more rows than 2^31 - 1; take fewer blocks");
}

// True when there is something to do.
bool CheckCall(const AttentionShape& shape, const PagedAttentionBatch& batch,
               const PagedAttentionTensors& tensors) {
  CheckShape(shape);
  Check(batch.num_sequences >= 0 && batch.num_queries >= 0 && batch.max_kv_len >= 0,
        "paged attention: a batch of ", batch.num_sequences, " sequences, ", batch.num_queries,
        " queries, at most ", batch.max_kv_len, " keys; none may be negative");
  if (batch.num_sequences == 0 || batch.num_queries == 0) return false;
  CheckPages(tensors.pages, shape.num_kv_heads);
  const int64_t q_width = int64_t{shape.num_heads} * shape.head_dim;
  Check(tensors.q_stride >= q_width, "paged attention: rows of q are ", q_width, " wide and ",
        tensors.q_stride, " apart; they overlap");
  return true;
}

void CheckWorkspace(const void* workspace, size_t bytes, size_t needed) {
  Check(bytes >= needed && (workspace != nullptr || needed == 0),
        "paged attention: a workspace of ", bytes, " bytes, but this batch needs ", needed,
        "; ask PagedAttentionWorkspaceBytes with the largest batch");
}

bool AnyShape(const AttentionShape& shape) {
  return shape.head_dim <= kMostChunks * kMostLanes * kElements;
}

bool SplitSupports(const AttentionShape& shape) {
  return shape.head_dim == 32 || shape.head_dim == 64 || shape.head_dim == 128;
}

bool ReadsByEights(const AttentionShape& shape, const PagedAttentionTensors& tensors) {
  return FitsBf16x8(shape.head_dim, tensors.q, tensors.pages.k, tensors.pages.v) &&
         tensors.q_stride % kElements == 0;
}

size_t NaiveWorkspaceBytes(const AttentionShape&, int64_t, int max_kv_len) {
  return sizeof(float) * kNaiveStrips * max_kv_len;
}

size_t NoWorkspace(const AttentionShape&, int64_t, int) { return 0; }

void PagedAttention1(const AttentionShape& shape, const PagedAttentionBatch& batch,
                     const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                     cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  CheckWorkspace(workspace, workspace_bytes, NaiveWorkspaceBytes(shape, 0, batch.max_kv_len));
  const int64_t num_rows = int64_t{batch.num_queries} * shape.num_heads;
  NaiveKernel<<<std::min<int64_t>(num_rows, kNaiveStrips), kNaiveThreads, 0, stream>>>(
      shape, batch, tensors, static_cast<float*>(workspace));
  CUDA_CHECK_LAUNCH();
}

void PagedAttention2(const AttentionShape& shape, const PagedAttentionBatch& batch,
                     const PagedAttentionTensors& tensors, void*, size_t, cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  Check(AnyShape(shape), "paged attention: head_dim ", shape.head_dim, " is above 1,024");
  const int64_t num_rows = int64_t{batch.num_queries} * shape.num_heads;
  Check(num_rows <= std::numeric_limits<int>::max(), "paged attention: ", batch.num_queries,
        " queries of ", shape.num_heads, " heads are more than one grid can hold");
  int lanes = 1;
  while (lanes * kElements < shape.head_dim && lanes < kMostLanes) lanes *= 2;
  const bool by_eights = ReadsByEights(shape, tensors);
  const auto kernel =
      lanes * kElements >= shape.head_dim ? OnlineKernel<1> : OnlineKernel<kMostChunks>;
  kernel<<<num_rows, kOnlineThreads, 0, stream>>>(shape, batch, tensors, lanes, by_eights);
  CUDA_CHECK_LAUNCH();
}

// Heads of a group that share a block of SpanKernel, at most 8: more would not fit its registers.
int SpanRows(const AttentionShape& shape) {
  int rows = 1;
  while (rows < Group(shape) && rows < 8) rows *= 2;
  return rows;
}

int SpanTiles(const AttentionShape& shape) {
  return static_cast<int>(CeilDiv(Group(shape), SpanRows(shape)));
}

size_t SplitWorkspaceBytes(const AttentionShape& shape, int64_t max_spans, int max_kv_len) {
  return RingSpans(max_spans, max_kv_len) * static_cast<size_t>(shape.num_heads) *
         (shape.head_dim * sizeof(float) + sizeof(Softmax));
}

using SpanFunction = void (*)(AttentionShape, PagedAttentionBatch, PagedAttentionTensors,
                              SpanResults, int64_t);

template <int kHeadDim>
SpanFunction SpanKernelOf(int rows) {
  switch (rows) {
    case 1:
      return SpanKernel<kHeadDim, 1>;
    case 2:
      return SpanKernel<kHeadDim, 2>;
    case 4:
      return SpanKernel<kHeadDim, 4>;
    default:
      return SpanKernel<kHeadDim, 8>;
  }
}

SpanFunction SpanKernelOf(int head_dim, int rows) {
  switch (head_dim) {
    case 32:
      return SpanKernelOf<32>(rows);
    case 64:
      return SpanKernelOf<64>(rows);
    default:
      return SpanKernelOf<128>(rows);
  }
}

void LaunchSpans(const AttentionShape& shape, const PagedAttentionBatch& batch,
                 const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                 cudaStream_t stream) {
  if (batch.num_spans == 0) return;
  Check(batch.tickets != nullptr, "paged attention: no tickets, which versions 3 and 4 need");
  CheckWorkspace(workspace, workspace_bytes,
                 SplitWorkspaceBytes(shape, batch.num_spans, batch.max_kv_len));
  SpanResults results;
  results.ring = RingSpans(batch.num_spans, batch.max_kv_len);
  results.sums = static_cast<float*>(workspace);
  results.softmaxes = reinterpret_cast<Softmax*>(
      results.sums + static_cast<size_t>(results.ring) * shape.num_heads * shape.head_dim);
  const SpanFunction kernel = SpanKernelOf(shape.head_dim, SpanRows(shape));
  const unsigned heads = shape.num_kv_heads * SpanTiles(shape);
  const int threads = std::max(shape.head_dim, kWarpSize);  // whole warps
  for (int64_t first = 0; first < batch.num_spans; first += kSpansAtOnce) {
    const unsigned spans = std::min<int64_t>(kSpansAtOnce, batch.num_spans - first);
    kernel<<<dim3(spans, heads), threads, 0, stream>>>(shape, batch, tensors, results, first);
    CUDA_CHECK_LAUNCH();
  }
}

template <int kHeadDim>
void LaunchTilesOf(const AttentionShape& shape, const PagedAttentionBatch& batch,
                   const PagedAttentionTensors& tensors, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(TileShared<kHeadDim>);
  CUDA_CHECK(cudaFuncSetAttribute(TileKernel<kHeadDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kSharedBytes));
  TileKernel<kHeadDim>
      <<<dim3(batch.num_tiles, shape.num_kv_heads), kTileThreads, kSharedBytes, stream>>>(
          shape, batch, tensors);
  CUDA_CHECK_LAUNCH();
}

void LaunchTiles(const AttentionShape& shape, const PagedAttentionBatch& batch,
                 const PagedAttentionTensors& tensors, cudaStream_t stream) {
  if (batch.num_tiles == 0) return;
  switch (shape.head_dim) {
    case 32:
      return LaunchTilesOf<32>(shape, batch, tensors, stream);
    case 64:
      return LaunchTilesOf<64>(shape, batch, tensors, stream);
    default:
      return LaunchTilesOf<128>(shape, batch, tensors, stream);
  }
}

void CheckSplit(const AttentionShape& shape, const PagedAttentionTensors& tensors) {
  Check(SplitSupports(shape), "paged attention: head_dim ", shape.head_dim,
        ", expected 32, 64 or 128; use version 2");
  Check(
      ReadsByEights(shape, tensors),
      "paged attention: q and the pages must begin at multiples of 16 bytes, and the stride of q, ",
      tensors.q_stride, ", be a multiple of 8; use version 2");
}

void PagedAttention3(const AttentionShape& shape, const PagedAttentionBatch& batch,
                     const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                     cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  CheckSplit(shape, tensors);
  Check(batch.num_tiles == 0, "paged attention: version 3 computes no tiles, but the batch has ",
        batch.num_tiles);
  LaunchSpans(shape, batch, tensors, workspace, workspace_bytes, stream);
}

void PagedAttention4(const AttentionShape& shape, const PagedAttentionBatch& batch,
                     const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                     cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  CheckSplit(shape, tensors);
  LaunchSpans(shape, batch, tensors, workspace, workspace_bytes, stream);
  LaunchTiles(shape, batch, tensors, stream);
}

}  // namespace

const PagedAttentionVersion kPagedAttentionVersions[kNumPagedAttentionVersions] = {
    {1, "naive", "the formula, its scores in memory; each key's page looked up in the table", false,
     AnyShape, NaiveWorkspaceBytes, PagedAttention1},
    {2, "online", "online softmax: no score is kept; 16 bytes a lane, side by side", false,
     AnyShape, NoWorkspace, PagedAttention2},
    {3, "split", "a block for 256 keys, shared by a KV head's queries; the last one merges", false,
     SplitSupports, SplitWorkspaceBytes, PagedAttention3},
    {4, "tiled", "the queries of a prompt share each page, 32 rows at a time", true, SplitSupports,
     SplitWorkspaceBytes, PagedAttention4},
};

void PagedWork::Make(const AttentionShape& shape, int num_sequences, const int* query_offsets,
                     const int* kv_lens, const int* table_offsets, bool tiles_wanted) {
  spans.clear();
  tiles.clear();
  for (int s = 0; s < num_sequences; ++s) {
    const int q_len = query_offsets[s + 1] - query_offsets[s];
    if (q_len > 1 && tiles_wanted) {
      // The last tile first: it sees most keys, and what takes longest should not begin last.
      const int num_rows = q_len * Group(shape);
      for (int64_t tile = CeilDiv(num_rows, kPagedTileRows) - 1; tile >= 0; --tile) {
        tiles.push_back({s, static_cast<int>(tile) * kPagedTileRows});
      }
      continue;
    }
    for (int i = 0; i < q_len; ++i) {
      const int visible = VisibleKeys(i, q_len, kv_lens[s]);
      for (int span = 0; span < std::max(1, PagedSpansOf(visible)); ++span) {
        spans.push_back({query_offsets[s] + i, table_offsets[s], visible, span});
      }
    }
  }
}

int PagedSpansOf(int kv_len) { return static_cast<int>(CeilDiv(kv_len, kPagedSpan)); }

size_t PagedAttentionWorkspaceBytes(const AttentionShape& shape, int64_t max_spans,
                                    int max_kv_len) {
  CheckShape(shape);
  return SplitSupports(shape) ? SplitWorkspaceBytes(shape, max_spans, max_kv_len) : 0;
}

int PagedAttentionTickets(const AttentionShape& shape, int64_t max_spans, int max_kv_len) {
  CheckShape(shape);
  return RingSpans(max_spans, max_kv_len) * shape.num_kv_heads * SpanTiles(shape);
}

void PagedAttention(const AttentionShape& shape, const PagedAttentionBatch& batch,
                    const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                    cudaStream_t stream) {
  CheckShape(shape);
  const auto launch =
      SplitSupports(shape) && ReadsByEights(shape, tensors) ? PagedAttention4 : PagedAttention2;
  launch(shape, batch, tensors, workspace, workspace_bytes, stream);
}

void StoreKvPages(const StoreKvPagesRows& rows, cudaStream_t stream) {
  const int64_t width = int64_t{rows.num_kv_heads} * rows.head_dim;
  Check(rows.num_tokens >= 0 && rows.num_kv_heads > 0 && rows.head_dim > 0,
        "StoreKvPages: ", rows.num_tokens, " tokens, ", rows.num_kv_heads, " KV heads of head_dim ",
        rows.head_dim);
  Check(rows.stride >= width, "StoreKvPages: rows of ", width, " elements lie ", rows.stride,
        " apart; they overlap");
  CheckPages(rows.pages, rows.num_kv_heads);
  if (rows.num_tokens == 0) return;
  const bool by_eights = FitsBf16x8(rows.head_dim, rows.k, rows.v, rows.pages.k, rows.pages.v) &&
                         rows.stride % kElements == 0;
  const int64_t threads = rows.num_tokens * width / (by_eights ? kElements : 1);
  const int64_t blocks = CeilDiv(threads, kStoreThreads);
  Check(blocks <= std::numeric_limits<int>::max(), "StoreKvPages: ", rows.num_tokens, " tokens of ",
        width, " elements are more than one grid can hold; store them in parts");
  const auto kernel = by_eights ? StoreKernel<kElements> : StoreKernel<1>;
  kernel<<<blocks, kStoreThreads, 0, stream>>>(rows);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
