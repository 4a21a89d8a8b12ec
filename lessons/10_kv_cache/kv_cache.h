// The KV cache: the keys and values of every token a sequence has had so far, kept on the device,
// so that each is computed once.
//
//   ContiguousKvCache cache(config, limits);       // limits.max_sequences slots
//   ForwardPass pass(config, weights, limits, stream, CachedStages(&cache));
//   Batch batch = Batch::WholeSequence(prompt);
//   cache.Begin(batch, {0}, stream);               // the batch's only sequence lives in slot 0
//   pass.Run(batch);                               // prefill
//   batch = Batch::PartOfSequence({token}, cache.length(0));
//   cache.Begin(batch, {0}, stream);
//   pass.Run(batch);                               // decode: one token, attending to all before it
//
// Each slot has room for limits.max_sequence_len tokens and belongs to one sequence at a time. A
// batch may hold any mix: prompts, parts of prompts, single tokens; in any slots.
//
// That the keys and values of earlier tokens may be kept follows from the causal mask (Vaswani et
// al. 2017, section 3.2.3); the cost of reading them at each step is the subject of Pope et al.,
// Efficiently Scaling Transformer Inference, 2022, section 3.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"

namespace tinyvllm {

// --- the kernel: rows of K and V into the cache

// All pointers are device pointers.
struct StoreKvRows {
  const bf16* k = nullptr;         // (num_tokens, kv_size), rows `stride` elements apart
  const bf16* v = nullptr;         // like k: both are parts of the fused qkv matrix
  int64_t stride = 0;              // at least kv_size
  const int* slots = nullptr;      // (num_tokens): slot of each token's sequence
  const int* positions = nullptr;  // (num_tokens): of each token in its sequence
  int num_tokens = 0;
  int kv_size = 0;          // num_kv_heads * head_dim
  int max_len = 0;          // positions of a slot
  bf16* k_cache = nullptr;  // (num_slots, max_len, kv_size)
  bf16* v_cache = nullptr;  // like k_cache
};

// k_cache[slots[t]][positions[t]] = k[t], and the same for v, bit for bit. 0 tokens are no work.
// Throws Error for a negative size, for rows that overlap, and when CUDA refuses the launch.
//
// PRECONDITION: slots[t] is a slot of the cache, 0 <= positions[t] < max_len, no two tokens have
// both alike. ContiguousKvCache::Begin checks it on the host.
void StoreKv(const StoreKvRows& rows, cudaStream_t stream);

// Its versions, from naive to fast. 2 falls back to 1 where kv_size, stride or an address does not
// fit accesses of 16 bytes.
void StoreKv1(const StoreKvRows& rows, cudaStream_t stream);
void StoreKv2(const StoreKvRows& rows, cudaStream_t stream);

struct StoreKvVersion {
  int number;
  const char* name;
  const char* idea;
  decltype(&StoreKv1) launch;
};

inline constexpr std::array<StoreKvVersion, 2> kStoreKvVersions = {{
    {1, "one element", "a thread moves one element of K and one of V", StoreKv1},
    {2, "eight elements", "a thread moves 16 bytes of K and 16 of V", StoreKv2},
}};

// --- the cache

class ContiguousKvCache {
 public:
  // Takes all the memory there will be: limits.max_sequences slots of limits.max_sequence_len
  // tokens. Throws Error when the device has too little, or a slot's number of rows too many.
  ContiguousKvCache(const ModelConfig& config, const PassLimits& limits);

  // K and V of one token in all layers.
  static size_t BytesPerToken(const ModelConfig& config);
  static size_t Bytes(const ModelConfig& config, const PassLimits& limits);

  // Announces the batch that the next pass will run, and the slot of each of its sequences. A
  // sequence goes on where its slot ends, at position length(slot); or begins before that, which
  // forgets what the slot held from there on: at position 0, a new sequence takes the slot over.
  //
  // Queues a small copy on `stream`, which must be the pass's. Throws Error, and leaves all as it
  // was, for a slot that does not exist or is given twice, for positions that do not follow each
  // other or leave a hole in the slot, and for those that are beyond its end.
  void Begin(const Batch& batch, const std::vector<int>& slots, cudaStream_t stream);

  // Tokens that the slot holds. A pass adds its own when its last layer has been queued.
  int length(int slot) const { return lengths_.at(slot); }
  int num_slots() const { return static_cast<int>(lengths_.size()); }
  int max_len() const { return limits_.max_sequence_len; }
  size_t bytes() const { return cache_.bytes(); }

  // (num_slots, max_len, num_kv_heads, head_dim), on the device.
  bf16* keys(int layer) { return cache_.data() + 2 * layer * layer_size_; }
  bf16* values(int layer) { return keys(layer) + layer_size_; }

  // The stage: stores K and V of the batch's tokens, then attends to all that the slots hold.
  // Throws Error when Begin was not called for this pass.
  void Attend(const PassContext& pass, int layer);

 private:
  // Their places in the small arrays that go to the device with each batch.
  int* kv_offsets() { return device_.data(); }                               // (sequences)
  int* kv_lens() { return device_.data() + limits_.max_sequences; }          // (sequences)
  int* token_slots() { return device_.data() + 2 * limits_.max_sequences; }  // (tokens)

  void Plan(const Batch& batch, const std::vector<int>& slots);
  void Upload(const Batch& batch, const std::vector<int>& slots, cudaStream_t stream);

  const PassLimits limits_;
  const int num_layers_;
  const size_t layer_size_;     // elements of K, and of V, in one layer
  std::vector<int> lengths_;    // (slots)
  std::vector<int> planned_;    // (slots): length after the pass; -1: not in the batch
  int planned_tokens_ = 0;      // of the batch that was announced; 0: none is
  int planned_max_kv_len_ = 0;  // of its sequences
  DeviceBuffer<bf16> cache_;    // (layers, K and V, slots, max_len, kv_heads, head_dim)
  DeviceBuffer<int> device_;
  PinnedBuffer<int> host_;
  Event copied_;
};

// Lesson 09's stages with the cache in place of its attend. The cache must outlive them.
LayerStage CachedAttend(ContiguousKvCache* cache);
Stages CachedStages(ContiguousKvCache* cache);

}  // namespace tinyvllm
