// The KV cache in pages: one pool of blocks for all sequences. A sequence's tokens lie in the
// blocks that its block table names, in that order, a few tokens in each.
//
//   BlockPool pool(num_blocks);  // who owns which block: the caller's business
//   PagedKvCache cache(config, limits, num_blocks, /*block_size=*/16);
//   ForwardPass pass(config, weights, limits, stream, PagedStages(&cache));
//
//   std::vector<int> blocks = {pool.Allocate(), pool.Allocate()};  // room for 32 tokens
//   const Batch batch = Batch::WholeSequence(prompt);              // of up to 32
//   cache.Begin(batch, {{blocks.data(), 2}}, stream);
//   pass.Run(batch);
//
// The cache keeps no record of sequences: what a block holds is known to whoever filled it. So two
// sequences may name the same block, as long as at most one of them writes to it.
//
// Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention,
// SOSP 2023, section 4.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/13_paged_attention/paged_attention.h"

namespace tinyvllm {

// A sequence's block table, in host memory: blocks[i] holds the tokens from i * block_size on.
struct BlockSpan {
  const int* blocks;
  int count;
};

class PagedKvCache {
 public:
  // Takes all the memory there will be. `limits` are those of the passes to come. Throws Error when
  // the device has too little, or there are more rows in a layer than 2^31 - 1.
  PagedKvCache(const ModelConfig& config, const PassLimits& limits, int num_blocks, int block_size);
  virtual ~PagedKvCache() = default;

  // K and V of one block in all layers.
  static size_t BytesPerBlock(const ModelConfig& config, int block_size);

  // Announces the batch that the next pass will run. tables[s] covers the tokens 0 to the last of
  // sequence s; the tokens before its first in the batch are those that earlier passes stored
  // there. Tables may be longer than that; only what is used is read.
  //
  // Queues one copy on `stream`, which must be the pass's. Throws Error, with nothing queued, for a
  // table that is too short or names a block that the pool has not, positions that do not follow
  // each other or reach beyond the limits, and for a block that two sequences would write to.
  virtual void Begin(const Batch& batch, const std::vector<BlockSpan>& tables, cudaStream_t stream);

  // The stage: stores K and V of the batch's tokens, then attends to all that the tables name.
  // What a query gets is the same bits in any batch. Throws Error when Begin was not called for
  // this pass.
  virtual void Attend(const PassContext& pass, int layer);

  // What Attend asks for of Buffer::kWorkspace in passes of these limits.
  static size_t WorkspaceBytes(const ModelConfig& config, const PassLimits& limits);

  int num_blocks() const { return num_blocks_; }
  int block_size() const { return block_size_; }
  size_t bytes() const { return pool_.bytes(); }
  KvPages pages(int layer);

 protected:
  // Of the batch that Begin has announced, for another Attend over the same blocks.
  int kv_len(int sequence) const { return sequence_kv_lens_.at(sequence); }  // after the pass
  // On the device.
  const int* block_table(int sequence) { return Device(tables_) + sequence_tables_.at(sequence); }
  const int* token_slots() { return Device(slots_); }  // block * block_size + place in the block
  // Throws Error unless the pass is the one that Begin has announced.
  void CheckAnnounced(const PassContext& pass) const;
  void LayerDone(int layer);  // after the last one, Begin must be called again

 private:
  // A list of ints of the pinned buffer, and of its copy on the device.
  struct Region {
    size_t begin = 0;
    size_t size = 0;
  };

  void Validate(const Batch& batch, const std::vector<BlockSpan>& tables);
  void Fill(const Batch& batch, const std::vector<BlockSpan>& tables);
  int* Host(const Region& region) { return host_.data() + region.begin; }
  int* Device(const Region& region) { return device_.data() + region.begin; }

  const PassLimits limits_;
  const AttentionShape shape_;
  const int num_layers_;
  const int num_blocks_;
  const int block_size_;
  const int64_t max_spans_;
  DeviceBuffer<bf16> pool_;  // (layers, K and V, num_blocks, kv_heads, block_size, head_dim)
  DeviceBuffer<int> tickets_;

  // What goes to the device with each batch. The tables end where the lists of fixed size begin,
  // and spans come last: what is used of all of them is one piece.
  Region tables_, kv_lens_, table_offsets_, slots_, tiles_, spans_;
  PinnedBuffer<int> host_;
  DeviceBuffer<int> device_;
  Event copied_;
  PagedWork work_;
  std::vector<int> sequence_kv_lens_;  // (sequences): after the pass
  std::vector<int> sequence_tables_;   // (sequences): where its table begins in tables_
  std::vector<int64_t> written_;       // (blocks): the last batch that writes to it ...
  std::vector<int> writer_;            // (blocks): ... and which of its sequences
  int64_t batches_ = 0;
  int planned_tokens_ = 0;  // of the batch that was announced; 0: none is
  int planned_max_kv_len_ = 0;
};

// Lesson 09's stages with the pages in place of its attend. The cache must outlive them.
LayerStage PagedAttend(PagedKvCache* cache);
Stages PagedStages(PagedKvCache* cache);

}  // namespace tinyvllm
