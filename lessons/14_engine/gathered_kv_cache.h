// Lesson 13's blocks without lesson 13's kernels: keys and values are stored by lesson 10's kernel,
// gathered to one piece by lesson 03's, and read by lesson 07's attention.
//
//   GatheredKvCache cache(config, limits, num_blocks, /*block_size=*/16);
//   Stages stages = PlainStages();
//   stages.attend = PagedAttend(&cache);
//   stages.attend_workspace = ...  // GatheredKvCache::WorkspaceBytes(config, limits, 16)
//
// So the engine runs on code of lessons 07 and 10, in prefill and in decode, with all that it does
// otherwise: prefix caching, chunks, preemption. final takes it where that code is the learner's
// (--//:exercise=07_attention). It copies each sequence's whole past in every layer of every step,
// and is slower for it.
#pragma once

#include "lessons/13_paged_attention/paged_kv_cache.h"

namespace tinyvllm {

class GatheredKvCache : public PagedKvCache {
 public:
  // Where lesson 13's kernels are wanted as well, they have the layers of odd number.
  enum class Layers { kAll, kEven };

  GatheredKvCache(const ModelConfig& config, const PassLimits& limits, int num_blocks,
                  int block_size, Layers layers = Layers::kAll);

  void Begin(const Batch& batch, const std::vector<BlockSpan>& tables,
             cudaStream_t stream) override;
  void Attend(const PassContext& pass, int layer) override;

  // What Attend asks for of Buffer::kWorkspace in passes of these limits.
  static size_t WorkspaceBytes(const ModelConfig& config, const PassLimits& limits, int block_size);

 private:
  // A sequence in the words of AttentionBatch, which counts from its own first row.
  struct Offsets {
    int query_begin, query_end;
    int kv_begin, kv_end;
  };

  void Store(const PassContext& pass, int layer);
  void Read(const PassContext& pass, int layer);

  const Layers layers_;
  DeviceBuffer<int> zeros_;  // (max_tokens)
  PinnedBuffer<Offsets> host_offsets_;
  DeviceBuffer<Offsets> offsets_;  // (max_sequences)
  Event copied_;
};

}  // namespace tinyvllm
