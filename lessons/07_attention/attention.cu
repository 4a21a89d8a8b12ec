#include "lessons/07_attention/attention.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/04_rmsnorm/reduce.cuh"

namespace tinyvllm {
namespace {

// --- which sequence, which keys

// The last index i < count with start(i) <= at; start never falls, and start(0) <= at.
template <typename Start>
__device__ int LastStartingAtOrBefore(int count, int64_t at, Start start) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (start(middle) <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// One sequence of the batch, as its offsets say.
struct Sequence {
  int first_query;
  int query_len;
  int first_key;
  int kv_len;

  __device__ Sequence(const AttentionBatch& batch, int s)
      : first_query(batch.query_offsets[s]),
        query_len(batch.query_offsets[s + 1] - first_query),
        first_key(batch.kv_offsets[s]),
        kv_len(batch.kv_lens != nullptr ? batch.kv_lens[s] : batch.kv_offsets[s + 1] - first_key) {}

  // tag::mask[]
  // The causal mask: how many keys, from the first on, query i of the sequence may see. The last
  // query sees all of them, each earlier one a key less.
  __device__ int VisibleKeys(int i) const { return max(0, i + 1 + kv_len - query_len); }
  // end::mask[]
};

__device__ int SequenceOfQuery(const AttentionBatch& batch, int64_t query) {
  return LastStartingAtOrBefore(batch.num_sequences, query,
                                [&](int s) { return batch.query_offsets[s]; });
}

// --- the softmax of one row, by one warp

// tag::softmax[]
// Turns the scores row[0 .. size) into exp(score - largest score) and returns their sum, in every
// lane. Divided by it, they are the softmax. One warp calls it, with each lane's number.
//
// Every lane takes the elements lane, lane + kWarpSize, ...: their order of summation depends on
// nothing but their index.
__device__ float ExponentiateRow(float* row, int size, int lane) {
  // exercise: The softmax of one row, by one warp. First find the largest score: each lane looks at
  // its own elements (lane, lane + kWarpSize, ...), then WarpMax gives every lane the maximum of
  // all. Then replace each score by expf(score - largest) and return the sum of all of them
  // (WarpSum). Why subtract the largest? Try scores of 1000 without.
  // starter: return 1;
  float largest = -INFINITY;
  for (int j = lane; j < size; j += kWarpSize) largest = fmaxf(largest, row[j]);
  largest = WarpMax(largest);

  float sum = 0;
  for (int j = lane; j < size; j += kWarpSize) {
    const float weight = expf(row[j] - largest);
    row[j] = weight;
    sum += weight;
  }
  return WarpSum(sum);
  // end exercise
}
// end::softmax[]

// --- version 1: three kernels, as the formula reads

constexpr int kNaiveThreads = 256;

// tag::naive[]
// scores: (num_queries, num_heads, max_kv_len). One thread a score.
__global__ void NaiveScoresKernel(AttentionShape shape, AttentionBatch batch,
                                  AttentionTensors tensors, float* __restrict__ scores) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int key = index % batch.max_kv_len;
  const int head = index / batch.max_kv_len % shape.num_heads;
  const int64_t query = index / batch.max_kv_len / shape.num_heads;
  if (query >= batch.num_queries) return;

  const Sequence sequence(batch, SequenceOfQuery(batch, query));
  if (key >= sequence.VisibleKeys(query - sequence.first_query)) return;

  const int kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const bf16* q = tensors.q + query * tensors.q_stride + head * shape.head_dim;
  const bf16* k =
      tensors.k + (sequence.first_key + key) * tensors.kv_stride + kv_head * shape.head_dim;
  float dot = 0;
  for (int d = 0; d < shape.head_dim; ++d) dot += __bfloat162float(q[d]) * __bfloat162float(k[d]);
  scores[index] = shape.scale * dot;
}

// One warp a row, in place: its visible scores become weights whose sum is 1.
__global__ void NaiveSoftmaxKernel(AttentionShape shape, AttentionBatch batch,
                                   float* __restrict__ scores) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize;
  const int64_t query = row / shape.num_heads;
  if (query >= batch.num_queries) return;

  const Sequence sequence(batch, SequenceOfQuery(batch, query));
  const int visible = sequence.VisibleKeys(query - sequence.first_query);
  float* weights = scores + row * batch.max_kv_len;
  const float sum = ExponentiateRow(weights, visible, lane);
  for (int j = lane; j < visible; j += kWarpSize) weights[j] /= sum;
}

// One thread an element of the output.
__global__ void NaiveWeightedSumKernel(AttentionShape shape, AttentionBatch batch,
                                       AttentionTensors tensors,
                                       const float* __restrict__ weights) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int d = index % shape.head_dim;
  const int64_t row = index / shape.head_dim;
  const int head = row % shape.num_heads;
  const int64_t query = row / shape.num_heads;
  if (query >= batch.num_queries) return;

  const Sequence sequence(batch, SequenceOfQuery(batch, query));
  const int visible = sequence.VisibleKeys(query - sequence.first_query);
  const int kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const bf16* v = tensors.v + sequence.first_key * tensors.kv_stride + kv_head * shape.head_dim + d;
  float sum = 0;
  for (int j = 0; j < visible; ++j) {
    sum += weights[row * batch.max_kv_len + j] * __bfloat162float(v[j * tensors.kv_stride]);
  }
  tensors.output[index] = __float2bfloat16(sum);
}
// end::naive[]

// --- versions 2 to 4: one kernel, which keeps the scores on the chip

// A block computes a tile of up to kRows rows, where a row is one query in one head. The rows of a
// sequence and a KV head are ordered query by query, head by head of the group: row r is query
// r / group in the group's head r % group. All rows of a tile read the same K and V, once.
//
// Every sum is taken in an order that depends on the index of key and element alone, never on the
// tile: so a row comes out the same, to the bit, whatever else is computed beside it.
constexpr int kFusedThreads = 128;
constexpr int kMaxTileRows = 8;
constexpr int kMaxHeadDim = 256;
constexpr int kElements = Bf16x8::kSize;

// Step 1 brings keys into shared memory, a thread a key, and 64 elements of each at a time. The
// rows there are a chunk longer than that: eight threads that read eight rows at the same place
// then find them in different banks.
constexpr int kSliceChunks = 8;
constexpr int kKeyStride = kSliceChunks + 1;

// Step 3 reads values straight from memory, so many of them at a time to hide its latency.
constexpr int kValuesInFlight = 4;

struct Tile {
  Sequence sequence;
  int kv_head;
  int first_row;
  int num_rows;  // at most kRows; 0 or less: an empty tile
};

struct Row {
  int64_t query;  // in the flat batch
  int head;
  int visible;  // keys that it may see; 0 for a row that the tile does not have
};

// tag::tile[]
// How many tiles of `rows` rows the batch has for each KV head, and where those of sequence s
// begin. Sequence s starts after as many tiles as the rows before it would fill, plus s: each
// sequence before it may have needed one more because its last tile was not full. Some tiles may
// stay empty; in return no table of tiles has to be made.
__device__ int64_t FirstTile(const AttentionBatch& batch, int group, int rows, int s) {
  return static_cast<int64_t>(batch.query_offsets[s]) * group / rows + s;
}
int64_t NumTiles(const AttentionShape& shape, const AttentionBatch& batch, int rows) {
  const int group = shape.num_heads / shape.num_kv_heads;
  return static_cast<int64_t>(batch.num_queries) * group / rows + batch.num_sequences;
}
// end::tile[]

__device__ Tile FindTile(const AttentionShape& shape, const AttentionBatch& batch, int rows,
                         int64_t work) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int64_t number = work / shape.num_kv_heads;
  const int s = LastStartingAtOrBefore(batch.num_sequences, number,
                                       [&](int i) { return FirstTile(batch, group, rows, i); });
  const Sequence sequence(batch, s);
  const int first_row = static_cast<int>((number - FirstTile(batch, group, rows, s)) * rows);
  return {sequence, static_cast<int>(work % shape.num_kv_heads), first_row,
          min(rows, sequence.query_len * group - first_row)};
}

__device__ Row RowOfTile(const AttentionShape& shape, const Tile& tile, int r) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int query = (tile.first_row + r) / group;
  return {tile.sequence.first_query + static_cast<int64_t>(query),
          tile.kv_head * group + (tile.first_row + r) % group,
          r < tile.num_rows ? tile.sequence.VisibleKeys(query) : 0};
}

// tag::load_queries[]
// The tile's queries times the scale, as f32, by columns: q[d * kRows + r]. The rows that the tile
// does not have are zeros.
template <int kRows>
__device__ void LoadQueries(const AttentionShape& shape, const AttentionTensors& tensors,
                            const Row* rows, int num_rows, float* q) {
  const int chunks = shape.head_dim / kElements;
  for (int index = threadIdx.x; index < kRows * chunks; index += kFusedThreads) {
    const int r = index / chunks;
    const int d = index % chunks * kElements;
    float query[kElements] = {};
    if (r < num_rows) {
      LoadBf16x8(tensors.q + rows[r].query * tensors.q_stride + rows[r].head * shape.head_dim + d)
          .ToFloats(query);
    }
    for (int i = 0; i < kElements; ++i) q[(d + i) * kRows + r] = shape.scale * query[i];
  }
}
// end::load_queries[]

// tag::scores[]
// Step 1: scores[r][j] = scale * q[r] . k[j], for all rows of the tile and the keys j < num_keys.
// Neighbouring threads read neighbouring chunks of a key from memory; once the keys lie in `tile`,
// each thread takes one of them and multiplies it with all queries.
template <int kRows>
__device__ void ComputeScores(const AttentionShape& shape, const AttentionTensors& tensors,
                              const Tile& tile, int num_keys, const float* q, Bf16x8* keys,
                              float* scores, int score_stride) {
  const bf16* k =
      tensors.k + tile.sequence.first_key * tensors.kv_stride + tile.kv_head * shape.head_dim;
  const int num_chunks = shape.head_dim / kElements;
  for (int first_key = 0; first_key < num_keys; first_key += kFusedThreads) {
    const int j = first_key + threadIdx.x;
    float dot[kRows] = {};
    for (int first_chunk = 0; first_chunk < num_chunks; first_chunk += kSliceChunks) {
      __syncthreads();  // the queries are there, and nobody reads the keys before these any more
#pragma unroll
      for (int i = 0; i < kSliceChunks; ++i) {
        const int row = (i * kFusedThreads + threadIdx.x) / kSliceChunks;
        const int chunk = threadIdx.x % kSliceChunks;
        if (first_key + row < num_keys && first_chunk + chunk < num_chunks) {
          keys[row * kKeyStride + chunk] = LoadBf16x8(k + (first_key + row) * tensors.kv_stride +
                                                      (first_chunk + chunk) * kElements);
        }
      }
      __syncthreads();
      if (j >= num_keys) continue;
      const int chunks = min(kSliceChunks, num_chunks - first_chunk);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        float key[kElements];
        keys[threadIdx.x * kKeyStride + chunk].ToFloats(key);
        const float* column = q + (first_chunk + chunk) * kElements * kRows;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) dot[r] += column[i * kRows + r] * key[i];
        }
      }
    }
    if (j >= num_keys) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r) scores[r * score_stride + j] = dot[r];
  }
}
// end::scores[]

// In steps 3 and 4, so many threads side by side hold one row of V or of the output, eight elements
// each. They are a slot: slot s takes the values s, s + number of slots, ...
__device__ int ThreadsPerSlot(int head_dim) {
  int threads = 1;
  while (threads * kElements < head_dim) threads *= 2;
  return threads;
}

// tag::weighted_sum[]
// Step 3: sums[r] = this slot's part of the sum over j of weights[r][j] * v[j], eight elements of
// it a thread. A value that row r may not see is not multiplied by 0 but left out: 0 * NaN is NaN.
template <int kRows>
__device__ void SumValues(const AttentionShape& shape, const AttentionTensors& tensors,
                          const Tile& tile, const Row* rows, int num_keys, const float* weights,
                          int weight_stride, float (&sums)[kRows][kElements]) {
  const int threads_per_slot = ThreadsPerSlot(shape.head_dim);
  const int num_slots = kFusedThreads / threads_per_slot;
  const int slot = threadIdx.x / threads_per_slot;
  const int d = threadIdx.x % threads_per_slot * kElements;
  if (d >= shape.head_dim) return;
  int visible[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) visible[r] = rows[r].visible;

  const bf16* v =
      tensors.v + tile.sequence.first_key * tensors.kv_stride + tile.kv_head * shape.head_dim + d;
  for (int first = slot; first < num_keys; first += kValuesInFlight * num_slots) {
    Bf16x8 values[kValuesInFlight] = {};
#pragma unroll
    for (int u = 0; u < kValuesInFlight; ++u) {
      const int j = first + u * num_slots;
      if (j < num_keys) values[u] = LoadBf16x8(v + j * tensors.kv_stride);
    }
#pragma unroll
    for (int u = 0; u < kValuesInFlight; ++u) {
      const int j = first + u * num_slots;
      if (j >= num_keys) break;
      float value[kElements];
      values[u].ToFloats(value);
      // exercise: The average itself. For each of the kRows rows that may see value j (j <
      // visible[r]), take its weight (row r of `weights`, rows weight_stride apart, element j) and
      // add weight * value[i] to sums[r][i] for each of the eight elements i.
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (j >= visible[r]) continue;
        const float weight = weights[r * weight_stride + j];
#pragma unroll
        for (int i = 0; i < kElements; ++i) sums[r][i] += weight * value[i];
      }
      // end exercise
    }
  }
}
// end::weighted_sum[]

// tag::output[]
// Step 4: adds the slots' parts up, in the order of the slots, divides by the sum of the weights
// and writes the rows. `parts`: shared, 2 * kFusedThreads * kElements floats; two buffers by turns,
// so that one barrier a row is enough.
template <int kRows>
__device__ void WriteOutput(const AttentionShape& shape, const AttentionTensors& tensors,
                            const Row* rows, int num_rows, const float (&sums)[kRows][kElements],
                            const float* row_sums, float* parts) {
  const int part_width = ThreadsPerSlot(shape.head_dim) * kElements;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= num_rows) break;
    float* part = parts + r % 2 * kFusedThreads * kElements;  // (slots, part_width)
#pragma unroll
    for (int i = 0; i < kElements; ++i) part[threadIdx.x * kElements + i] = sums[r][i];
    __syncthreads();

    bf16* output =
        tensors.output + (rows[r].query * shape.num_heads + rows[r].head) * shape.head_dim;
    for (int d = threadIdx.x; d < shape.head_dim; d += kFusedThreads) {
      float sum = 0;
      for (int i = d; i < kFusedThreads * kElements; i += part_width) sum += part[i];
      output[d] = __float2bfloat16(rows[r].visible > 0 ? sum / row_sums[r] : 0.0f);
    }
  }
}
// end::output[]

// tag::fused[]
// Each block takes tiles until none is left. Their scores lie in shared memory or, where even one
// row is too long for it, in a strip of the workspace that is the block's own.
template <int kRows, bool kInShared>
__global__ void __launch_bounds__(kFusedThreads)
    FusedAttentionKernel(AttentionShape shape, AttentionBatch batch, AttentionTensors tensors,
                         int64_t num_work, int score_stride, float* workspace) {
  extern __shared__ float shared_scores[];  // (kRows, score_stride)
  __shared__ __align__(16) float q[kMaxHeadDim * kRows];
  __shared__ Bf16x8 keys[kFusedThreads * kKeyStride];
  __shared__ float parts[2 * kFusedThreads * kElements];
  __shared__ float row_sums[kRows];
  __shared__ Row rows[kRows];
  float* scores =
      kInShared ? shared_scores : workspace + static_cast<size_t>(blockIdx.x) * score_stride;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;

  for (int64_t work = blockIdx.x; work < num_work; work += gridDim.x) {
    const Tile tile = FindTile(shape, batch, kRows, work);
    if (tile.num_rows <= 0) continue;
    if (threadIdx.x < kRows) rows[threadIdx.x] = RowOfTile(shape, tile, threadIdx.x);
    __syncthreads();
    const int num_keys = rows[tile.num_rows - 1].visible;  // the last row sees most

    LoadQueries<kRows>(shape, tensors, rows, tile.num_rows, q);
    ComputeScores<kRows>(shape, tensors, tile, num_keys, q, keys, scores, score_stride);
    __syncthreads();
    for (int r = warp; r < tile.num_rows; r += kFusedThreads / kWarpSize) {
      const float sum = ExponentiateRow(scores + r * score_stride, rows[r].visible, lane);
      if (lane == 0) row_sums[r] = sum;
    }
    __syncthreads();
    float sums[kRows][kElements] = {};
    SumValues<kRows>(shape, tensors, tile, rows, num_keys, scores, score_stride, sums);
    WriteOutput<kRows>(shape, tensors, rows, tile.num_rows, sums, row_sums, parts);
    __syncthreads();  // the next tile may not overwrite what a slower thread still reads
  }
}
// end::fused[]

// --- launchers

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int Group(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

void CheckShape(const AttentionShape& shape) {
  Check(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.head_dim > 0,
        "attention: ", shape.num_heads, " heads, ", shape.num_kv_heads, " KV heads of head_dim ",
        shape.head_dim, "; all must be positive");
  Check(shape.num_heads % shape.num_kv_heads == 0, "attention: ", shape.num_heads,
        " heads cannot be divided among ", shape.num_kv_heads, " KV heads");
}

// True when there is something to do.
bool CheckCall(const AttentionShape& shape, const AttentionBatch& batch,
               const AttentionTensors& tensors) {
  CheckShape(shape);
  Check(batch.num_sequences >= 0 && batch.num_queries >= 0 && batch.max_kv_len >= 0,
        "attention: a batch of ", batch.num_sequences, " sequences, ", batch.num_queries,
        " queries, at most ", batch.max_kv_len, " keys; none may be negative");
  if (batch.num_sequences == 0 || batch.num_queries == 0) return false;
  const int64_t q_width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  const int64_t kv_width = static_cast<int64_t>(shape.num_kv_heads) * shape.head_dim;
  Check(tensors.q_stride >= q_width && tensors.kv_stride >= kv_width, "attention: rows of q are ",
        q_width, " wide and ", tensors.q_stride, " apart, rows of k and v ", kv_width, " and ",
        tensors.kv_stride, "; they overlap");
  return true;
}

void CheckWorkspace(const void* workspace, size_t bytes, size_t needed) {
  Check(bytes >= needed && (workspace != nullptr || needed == 0), "attention: a workspace of ",
        bytes, " bytes, but this batch needs ", needed,
        "; ask AttentionWorkspaceBytes with the largest batch");
}

bool NaiveSupports(const AttentionShape&) { return true; }

size_t NaiveWorkspaceBytes(const AttentionShape& shape, int num_queries, int max_kv_len) {
  return sizeof(float) * shape.num_heads * num_queries * max_kv_len;
}

void Attention1(const AttentionShape& shape, const AttentionBatch& batch,
                const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  CheckWorkspace(workspace, workspace_bytes,
                 NaiveWorkspaceBytes(shape, batch.num_queries, batch.max_kv_len));
  float* scores = static_cast<float*>(workspace);
  const int64_t num_rows = static_cast<int64_t>(batch.num_queries) * shape.num_heads;
  if (batch.max_kv_len > 0) {
    const int64_t blocks = CeilDiv(num_rows * batch.max_kv_len, kNaiveThreads);
    Check(blocks <= INT32_MAX, "attention version 1: ", num_rows * batch.max_kv_len,
          " scores are more than one grid can hold; use a later version");
    NaiveScoresKernel<<<blocks, kNaiveThreads, 0, stream>>>(shape, batch, tensors, scores);
    CUDA_CHECK_LAUNCH();
    NaiveSoftmaxKernel<<<CeilDiv(num_rows, kNaiveThreads / kWarpSize), kNaiveThreads, 0, stream>>>(
        shape, batch, scores);
    CUDA_CHECK_LAUNCH();
  }
  NaiveWeightedSumKernel<<<CeilDiv(num_rows * shape.head_dim, kNaiveThreads), kNaiveThreads, 0,
                           stream>>>(shape, batch, tensors, scores);
  CUDA_CHECK_LAUNCH();
}

bool FusedSupports(const AttentionShape& shape) {
  return shape.head_dim % kElements == 0 && shape.head_dim <= kMaxHeadDim;
}

int DeviceAttribute(cudaDeviceAttr attribute) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, 0));
  return value;
}

// What is left of a block's shared memory (opt-in size: 99 KB to 227 KB on today's GPUs) for
// scores.
size_t SharedBytesForScores() {
  static const int optin = DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  constexpr int kStatic =
      sizeof(float) * (kMaxHeadDim * kMaxTileRows + 2 * kFusedThreads * kElements + kMaxTileRows) +
      sizeof(Bf16x8) * kFusedThreads * kKeyStride + sizeof(Row) * kMaxTileRows;
  return optin - kStatic;
}

// The most rows, a power of two up to `wanted`, whose scores fit into shared memory; 0: none does.
int RowsThatFit(int wanted, int max_kv_len) {
  int rows = kMaxTileRows;
  while (rows / 2 >= wanted) rows /= 2;
  while (rows > 0 && sizeof(float) * rows * max_kv_len > SharedBytesForScores()) {
    rows /= 2;
  }
  return rows;
}

// Strips of the workspace, one a block, where not one row fits.
int NumStrips() {
  static const int multiprocessors = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  return 4 * multiprocessors;
}

size_t FusedWorkspaceBytes(const AttentionShape&, int /*num_queries*/, int max_kv_len) {
  if (RowsThatFit(1, max_kv_len) > 0) return 0;
  return sizeof(float) * NumStrips() * max_kv_len;
}

using FusedKernel = void (*)(AttentionShape, AttentionBatch, AttentionTensors, int64_t, int,
                             float*);

// The kernel for tiles of `rows` rows; 0: one row, with its scores in the workspace.
FusedKernel FusedKernelOf(int rows) {
  switch (rows) {
    case 0:
      return FusedAttentionKernel<1, false>;
    case 1:
      return FusedAttentionKernel<1, true>;
    case 2:
      return FusedAttentionKernel<2, true>;
    case 4:
      return FusedAttentionKernel<4, true>;
    default:
      return FusedAttentionKernel<kMaxTileRows, true>;
  }
}

// The fused kernel with tiles of `wanted_rows` rows, or as many as shared memory holds.
void LaunchFused(int wanted_rows, const AttentionShape& shape, const AttentionBatch& batch,
                 const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                 cudaStream_t stream) {
  if (!CheckCall(shape, batch, tensors)) return;
  Check(FusedSupports(shape), "attention: head_dim ", shape.head_dim,
        " is not a multiple of 8 up to ", kMaxHeadDim, "; use version 1");
  Check(FitsBf16x8(shape.head_dim, tensors.q, tensors.k, tensors.v) &&
            tensors.q_stride % kElements == 0 && tensors.kv_stride % kElements == 0,
        "attention: q, k, v must begin at multiples of 16 bytes, with strides (", tensors.q_stride,
        ", ", tensors.kv_stride, ") that are multiples of 8; use version 1");

  const int rows = RowsThatFit(wanted_rows, batch.max_kv_len);
  const size_t shared_bytes = sizeof(float) * rows * batch.max_kv_len;
  const int64_t num_work = shape.num_kv_heads * NumTiles(shape, batch, std::max(1, rows));
  if (rows == 0) {
    CheckWorkspace(workspace, workspace_bytes, FusedWorkspaceBytes(shape, 0, batch.max_kv_len));
  }
  const FusedKernel kernel = FusedKernelOf(rows);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)));
  const int64_t most_blocks = rows == 0 ? NumStrips() : INT32_MAX;
  kernel<<<std::min(num_work, most_blocks), kFusedThreads, shared_bytes, stream>>>(
      shape, batch, tensors, num_work, batch.max_kv_len, static_cast<float*>(workspace));
  CUDA_CHECK_LAUNCH();
}

void Attention2(const AttentionShape& shape, const AttentionBatch& batch,
                const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) {
  LaunchFused(1, shape, batch, tensors, workspace, workspace_bytes, stream);
}

void Attention3(const AttentionShape& shape, const AttentionBatch& batch,
                const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) {
  LaunchFused(Group(shape), shape, batch, tensors, workspace, workspace_bytes, stream);
}

void Attention4(const AttentionShape& shape, const AttentionBatch& batch,
                const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                cudaStream_t stream) {
  LaunchFused(kMaxTileRows, shape, batch, tensors, workspace, workspace_bytes, stream);
}

}  // namespace

const AttentionVersion kAttentionVersions[kNumAttentionVersions] = {
    {1, "three kernels", "the formula as it stands, every score written to memory", NaiveSupports,
     NaiveWorkspaceBytes, Attention1},
    {2, "fused", "one kernel; a block a row, its scores in shared memory, 16 bytes a load",
     FusedSupports, FusedWorkspaceBytes, Attention2},
    {3, "grouped", "the query heads of a group share each load of K and V", FusedSupports,
     FusedWorkspaceBytes, Attention3},
    {4, "tiled", "several queries share it too: tiles of 8 (query, head) rows", FusedSupports,
     FusedWorkspaceBytes, Attention4},
};

size_t AttentionWorkspaceBytes(const AttentionShape& shape, int num_queries, int max_kv_len) {
  CheckShape(shape);
  return FusedSupports(shape) ? FusedWorkspaceBytes(shape, num_queries, max_kv_len)
                              : NaiveWorkspaceBytes(shape, num_queries, max_kv_len);
}

void Attention(const AttentionShape& shape, const AttentionBatch& batch,
               const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
               cudaStream_t stream) {
  CheckShape(shape);
  if (!FusedSupports(shape)) {
    Attention1(shape, batch, tensors, workspace, workspace_bytes, stream);
    return;
  }
  // Rows that a sequence does not have would be computed for nothing: a decode step has one query.
  const int64_t rows = static_cast<int64_t>(std::max(1, batch.max_query_len)) * Group(shape);
  LaunchFused(static_cast<int>(std::min<int64_t>(rows, kMaxTileRows)), shape, batch, tensors,
              workspace, workspace_bytes, stream);
}

}  // namespace tinyvllm
