#include "lessons/10_kv_cache/kv_cache.h"

#include <algorithm>
#include <limits>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/check.h"
#include "lessons/03_embedding/bf16x8.cuh"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {
namespace {

// --- the kernels

constexpr int kThreads = 256;

// Where a token's row of K begins in the cache, and its row of V. 64 bits: a cache of 2^31 elements
// is one of 4 GB.
__device__ int64_t CacheRow(const StoreKvRows& rows, int64_t token) {
  return (static_cast<int64_t>(rows.slots[token]) * rows.max_len + rows.positions[token]) *
         rows.kv_size;
}

// tag::one[]
// Version 1: a thread moves one element of K and the same one of V.
__global__ void OneElementKernel(StoreKvRows rows) {
  // exercise: Thread number blockIdx.x * blockDim.x + threadIdx.x (64 bits) is element i of token
  // t, where t counts rows of kv_size elements; the last block has threads beyond the last token.
  // Copy that element of row t of k, and of v, to its place in the cache: CacheRow says where the
  // row begins there. In k and v, rows lie `stride` elements apart.
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = index / rows.kv_size;
  const int i = static_cast<int>(index % rows.kv_size);
  if (token >= rows.num_tokens) return;
  const int64_t from = token * rows.stride + i;
  const int64_t to = CacheRow(rows, token) + i;
  rows.k_cache[to] = rows.k[from];
  rows.v_cache[to] = rows.v[from];
  // end exercise
}
// end::one[]

// tag::eight[]
// Version 2: the same in steps of eight elements, 16 bytes a load and a store.
// PRECONDITION: kv_size and stride are multiples of 8; k, v and the caches lie at multiples of 16
// bytes.
__global__ void EightElementsKernel(StoreKvRows rows) {
  // exercise: The same with LoadBf16x8 and StoreBf16x8 of lesson 03, which move eight elements: a
  // row has kv_size / 8 threads now. This is the kernel that the engine runs.
  const int row_threads = rows.kv_size / Bf16x8::kSize;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = index / row_threads;
  const int i = static_cast<int>(index % row_threads) * Bf16x8::kSize;
  if (token >= rows.num_tokens) return;
  const int64_t from = token * rows.stride + i;
  const int64_t to = CacheRow(rows, token) + i;
  StoreBf16x8(rows.k_cache + to, LoadBf16x8(rows.k + from));
  StoreBf16x8(rows.v_cache + to, LoadBf16x8(rows.v + from));
  // end exercise
}
// end::eight[]

void CheckSizes(const StoreKvRows& rows) {
  Check(rows.num_tokens >= 0 && rows.kv_size >= 0 && rows.max_len >= 0, "StoreKv: num_tokens is ",
        rows.num_tokens, ", kv_size ", rows.kv_size, ", max_len ", rows.max_len,
        "; expected 0 or more");
  Check(rows.stride >= rows.kv_size, "StoreKv: rows of ", rows.kv_size, " elements lie ",
        rows.stride, " apart; they overlap");
}

// Blocks for so many threads a token.
unsigned BlocksFor(const StoreKvRows& rows, int row_threads) {
  const int64_t threads = static_cast<int64_t>(rows.num_tokens) * row_threads;
  const int64_t blocks = (threads + kThreads - 1) / kThreads;
  Check(blocks <= std::numeric_limits<int>::max(), "StoreKv: ", rows.num_tokens, " tokens of ",
        rows.kv_size, " elements are more than one grid can hold; store them in parts");
  return static_cast<unsigned>(blocks);
}

}  // namespace

void StoreKv1(const StoreKvRows& rows, cudaStream_t stream) {
  CheckSizes(rows);
  if (rows.num_tokens == 0 || rows.kv_size == 0) return;  // CUDA refuses a grid of no blocks
  OneElementKernel<<<BlocksFor(rows, rows.kv_size), kThreads, 0, stream>>>(rows);
  CUDA_CHECK_LAUNCH();
}

void StoreKv2(const StoreKvRows& rows, cudaStream_t stream) {
  CheckSizes(rows);
  if (!FitsBf16x8(rows.kv_size, rows.k, rows.v, rows.k_cache, rows.v_cache) ||
      rows.stride % Bf16x8::kSize != 0) {
    return StoreKv1(rows, stream);
  }
  if (rows.num_tokens == 0 || rows.kv_size == 0) return;
  EightElementsKernel<<<BlocksFor(rows, rows.kv_size / Bf16x8::kSize), kThreads, 0, stream>>>(rows);
  CUDA_CHECK_LAUNCH();
}

void StoreKv(const StoreKvRows& rows, cudaStream_t stream) { StoreKv2(rows, stream); }

// --- the cache

// tag::bytes[]
size_t ContiguousKvCache::BytesPerToken(const ModelConfig& config) {
  return size_t{2} * config.num_hidden_layers * config.kv_size() * sizeof(bf16);  // K and V
}

size_t ContiguousKvCache::Bytes(const ModelConfig& config, const PassLimits& limits) {
  return BytesPerToken(config) * limits.max_sequences * limits.max_sequence_len;
}
// end::bytes[]

ContiguousKvCache::ContiguousKvCache(const ModelConfig& config, const PassLimits& limits)
    : limits_(limits),
      num_layers_(config.num_hidden_layers),
      layer_size_(Bytes(config, limits) / sizeof(bf16) / 2 / config.num_hidden_layers),
      lengths_(limits.max_sequences, 0),
      planned_(limits.max_sequences, -1) {
  // Attention counts rows of K in an int.
  Check(int64_t{limits.max_sequences} * limits.max_sequence_len <= std::numeric_limits<int>::max(),
        "KV cache: ", limits.max_sequences, " slots of ", limits.max_sequence_len,
        " tokens are more rows than 2^31 - 1; take fewer or shorter slots");
  const size_t bytes = Bytes(config, limits);
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  Check(bytes <= free, "KV cache: ", limits.max_sequences, " slots of ", limits.max_sequence_len,
        " tokens take ", HumanBytes(bytes), ", and the device has ", HumanBytes(free), " of ",
        HumanBytes(total), " free; lower --max-model-len");
  cache_ = DeviceBuffer<bf16>(bytes / sizeof(bf16));
  device_ = DeviceBuffer<int>(size_t{2} * limits.max_sequences + limits.max_tokens);
  host_ = PinnedBuffer<int>(device_.size());
}

// tag::begin[]
void ContiguousKvCache::Begin(const Batch& batch, const std::vector<int>& slots,
                              cudaStream_t stream) {
  planned_tokens_ = 0;
  Plan(batch, slots);
  Upload(batch, slots, stream);
  planned_tokens_ = batch.num_tokens();
}

// Checks what the kernels take for granted, and works out how long each slot will be.
void ContiguousKvCache::Plan(const Batch& batch, const std::vector<int>& slots) {
  batch.ValidateShape();
  Check(batch.num_tokens() >= 1 && batch.num_tokens() <= limits_.max_tokens,
        "KV cache: ", batch.num_tokens(), " tokens, expected 1 to ", limits_.max_tokens);
  Check(static_cast<int>(slots.size()) == batch.num_sequences(), "KV cache: ", slots.size(),
        " slots for ", batch.num_sequences(), " sequences");
  std::fill(planned_.begin(), planned_.end(), -1);
  planned_max_kv_len_ = 0;
  for (int s = 0; s < batch.num_sequences(); ++s) {
    const int slot = slots[s];
    Check(slot >= 0 && slot < num_slots(), "KV cache: sequence ", s, " is in slot ", slot,
          ", expected 0 to ", num_slots() - 1);
    Check(planned_[slot] < 0, "KV cache: sequence ", s, " is in slot ", slot,
          ", and so is one before it");
    const int begin = batch.sequence_offsets[s];
    const int end = batch.sequence_offsets[s + 1];
    const int first = begin < end ? batch.positions[begin] : lengths_[slot];
    Check(first >= 0 && first <= lengths_[slot], "KV cache: sequence ", s, " goes on at position ",
          first, ", but slot ", slot, " holds ", lengths_[slot], " tokens");
    Check(end - begin <= max_len() - first, "KV cache: sequence ", s, " reaches position ",
          int64_t{first} + end - begin - 1, ", but a slot has room for ", max_len(), " tokens");
    for (int t = begin; t < end; ++t) {
      Check(batch.positions[t] == first + t - begin, "KV cache: positions[", t, "] is ",
            batch.positions[t], ", expected ", first + t - begin, ", the next of sequence ", s);
    }
    planned_[slot] = first + end - begin;
    planned_max_kv_len_ = std::max(planned_max_kv_len_, planned_[slot]);
  }
}
// end::begin[]

void ContiguousKvCache::Upload(const Batch& batch, const std::vector<int>& slots,
                               cudaStream_t stream) {
  copied_.Synchronize();  // the copy before this one has been made
  const auto host = [&](const int* device) { return host_.data() + (device - device_.data()); };
  for (int s = 0; s < batch.num_sequences(); ++s) {
    host(kv_offsets())[s] = slots[s] * max_len();
    host(kv_lens())[s] = planned_[slots[s]];
    std::fill(host(token_slots()) + batch.sequence_offsets[s],
              host(token_slots()) + batch.sequence_offsets[s + 1], slots[s]);
  }
  const size_t used = token_slots() - device_.data() + batch.num_tokens();
  CUDA_CHECK(cudaMemcpyAsync(device_.data(), host_.data(), used * sizeof(int),
                             cudaMemcpyHostToDevice, stream));
  copied_.Record(stream);
}

// tag::attend[]
void ContiguousKvCache::Attend(const PassContext& pass, int layer) {
  Check(planned_tokens_ == pass.batch.num_tokens, "KV cache: a pass of ", pass.batch.num_tokens,
        " tokens, but Begin announced ", planned_tokens_, "; call Begin before each pass");
  const ModelConfig& config = pass.config;
  const bf16* qkv = pass.activations.Get(Buffer::kQkv);  // (tokens, qkv_size)
  StoreKvRows rows;
  rows.k = qkv + config.q_size();
  rows.v = qkv + config.q_size() + config.kv_size();
  rows.stride = config.qkv_size();
  rows.slots = token_slots();
  rows.positions = pass.batch.positions();
  rows.num_tokens = pass.batch.num_tokens;
  rows.kv_size = config.kv_size();
  rows.max_len = max_len();
  rows.k_cache = keys(layer);
  rows.v_cache = values(layer);
  StoreKv(rows, pass.stream);

  AttentionBatch batch;
  batch.num_sequences = pass.batch.num_sequences;
  batch.num_queries = pass.batch.num_tokens;
  batch.max_query_len = pass.batch.max_query_len;
  batch.max_kv_len = planned_max_kv_len_;
  batch.query_offsets = pass.batch.sequence_offsets();
  batch.kv_offsets = kv_offsets();  // slot * max_len
  batch.kv_lens = kv_lens();        // what the slot holds, this batch's tokens included
  AttentionTensors tensors;
  tensors.q = qkv;
  tensors.k = keys(layer);
  tensors.v = values(layer);
  tensors.q_stride = config.qkv_size();
  tensors.kv_stride = config.kv_size();
  tensors.output = pass.activations.Begin(Buffer::kAttended, batch.num_queries,
                                          pass.stream);  // (tokens, q_size)
  Attention(AttentionShapeOf(config), batch, tensors,
            pass.activations.Begin<void>(Buffer::kWorkspace, 1, pass.stream),
            pass.activations.bytes(Buffer::kWorkspace), pass.stream);

  if (layer + 1 < num_layers_) return;
  for (size_t slot = 0; slot < lengths_.size(); ++slot) {
    if (planned_[slot] >= 0) lengths_[slot] = planned_[slot];
  }
  planned_tokens_ = 0;
}
// end::attend[]

LayerStage CachedAttend(ContiguousKvCache* cache) {
  return [cache](const PassContext& pass, int layer) { cache->Attend(pass, layer); };
}

Stages CachedStages(ContiguousKvCache* cache) {
  Stages stages = PlainStages();
  stages.attend = CachedAttend(cache);
  return stages;
}

}  // namespace tinyvllm
