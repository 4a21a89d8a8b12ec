#include "lessons/14_engine/gathered_kv_cache.h"

#include <algorithm>

#include "common/cuda/check.h"
#include "lessons/03_embedding/embedding.h"
#include "lessons/07_attention/attention.h"
#include "lessons/10_kv_cache/kv_cache.h"

namespace tinyvllm {
namespace {

constexpr size_t kAlignment = 256;

int BlocksFor(int tokens, int block_size) { return (tokens + block_size - 1) / block_size; }

// Room for the keys of the longest sequence, and as much again for its values.
size_t GatheredBytes(const ModelConfig& config, const PassLimits& limits, int block_size) {
  const size_t tokens = size_t{1} * BlocksFor(limits.max_sequence_len, block_size) * block_size;
  const size_t bytes = tokens * config.kv_size() * sizeof(bf16);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GatheredKvCache::GatheredKvCache(const ModelConfig& config, const PassLimits& limits,
                                 int num_blocks, int block_size, Layers layers)
    : PagedKvCache(config, limits, num_blocks, block_size),
      layers_(layers),
      zeros_(limits.max_tokens),
      host_offsets_(limits.max_sequences),
      offsets_(limits.max_sequences) {
  zeros_.Fill(0);
  // The ends of blocks are gathered before anything is stored there. All ones: NaN, which nobody
  // may look at.
  CUDA_CHECK(cudaMemset(pages(0).k, 0xff, bytes()));
  CUDA_CHECK(cudaDeviceSynchronize());
}

size_t GatheredKvCache::WorkspaceBytes(const ModelConfig& config, const PassLimits& limits,
                                       int block_size) {
  const size_t gathered = 2 * GatheredBytes(config, limits, block_size);
  return std::max(gathered + PlainAttendWorkspace(config, limits),
                  PagedKvCache::WorkspaceBytes(config, limits));
}

void GatheredKvCache::Begin(const Batch& batch, const std::vector<BlockSpan>& tables,
                            cudaStream_t stream) {
  PagedKvCache::Begin(batch, tables, stream);
  copied_.Synchronize();  // the copy before this one has been made
  const int sequences = batch.num_sequences();
  for (int s = 0; s < sequences; ++s) {
    const int queries = batch.sequence_offsets[s + 1] - batch.sequence_offsets[s];
    host_offsets_[s] = {0, queries, 0, kv_len(s)};
  }
  CUDA_CHECK(cudaMemcpyAsync(offsets_.data(), host_offsets_.data(), sequences * sizeof(Offsets),
                             cudaMemcpyHostToDevice, stream));
  copied_.Record(stream);
}

// tag::attend[]
void GatheredKvCache::Attend(const PassContext& pass, int layer) {
  if (layers_ == Layers::kEven && layer % 2 == 1) return PagedKvCache::Attend(pass, layer);
  CheckAnnounced(pass);
  Store(pass, layer);
  Read(pass, layer);
  LayerDone(layer);
}

// The pool is one slot of lesson 10's cache, as long as all blocks together: a token's row in it is
// its position. So a block holds (block_size, kv_size), a row a token, not head by head as lesson
// 13's kernels lay it out.
void GatheredKvCache::Store(const PassContext& pass, int layer) {
  const ModelConfig& config = pass.config;
  const bf16* qkv = pass.activations.Get(Buffer::kQkv);  // (tokens, qkv_size)
  StoreKvRows rows;
  rows.k = qkv + config.q_size();
  rows.v = qkv + config.q_size() + config.kv_size();
  rows.stride = config.qkv_size();
  rows.slots = zeros_.data();
  rows.positions = token_slots();
  rows.num_tokens = pass.batch.num_tokens;
  rows.kv_size = config.kv_size();
  rows.max_len = num_blocks() * block_size();
  rows.k_cache = pages(layer).k;
  rows.v_cache = pages(layer).v;
  StoreKv(rows, pass.stream);
}

// One sequence after the other. A block table is a list of rows of a table, and to bring these side
// by side is lesson 03's gather: a "token" is a block here, and its "vector" the block's contents.
void GatheredKvCache::Read(const PassContext& pass, int layer) {
  const ModelConfig& config = pass.config;
  const size_t gathered = GatheredBytes(config, pass.limits, block_size());
  char* workspace = pass.activations.Begin<char>(Buffer::kWorkspace, 1, pass.stream);
  const size_t workspace_bytes = pass.activations.bytes(Buffer::kWorkspace);
  bf16* keys = reinterpret_cast<bf16*>(workspace);  // (kv_len, kv_size)
  bf16* values = reinterpret_cast<bf16*>(workspace + gathered);

  AttentionTensors tensors;
  tensors.q = pass.activations.Get(Buffer::kQkv);
  tensors.k = keys;
  tensors.v = values;
  tensors.q_stride = config.qkv_size();
  tensors.kv_stride = config.kv_size();
  tensors.output = pass.activations.Begin(Buffer::kAttended, pass.batch.num_tokens,
                                          pass.stream);  // (tokens, q_size)
  for (int s = 0; s < pass.batch.num_sequences; ++s) {
    const int num_queries = host_offsets_[s].query_end;
    const int num_blocks = BlocksFor(kv_len(s), block_size());
    const int block_elements = block_size() * config.kv_size();
    EmbeddingGather(block_table(s), pages(layer).k, keys, num_blocks, block_elements, pass.stream);
    EmbeddingGather(block_table(s), pages(layer).v, values, num_blocks, block_elements,
                    pass.stream);
    AttentionBatch batch;
    batch.num_sequences = 1;
    batch.num_queries = batch.max_query_len = num_queries;
    batch.max_kv_len = kv_len(s);
    batch.query_offsets = &offsets_.data()[s].query_begin;
    batch.kv_offsets = &offsets_.data()[s].kv_begin;
    Attention(AttentionShapeOf(config), batch, tensors, workspace + 2 * gathered,
              workspace_bytes - 2 * gathered, pass.stream);
    tensors.q += int64_t{num_queries} * tensors.q_stride;
    tensors.output += int64_t{num_queries} * config.q_size();
  }
}
// end::attend[]

}  // namespace tinyvllm
