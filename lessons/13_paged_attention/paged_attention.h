// Attention over a KV cache in pages: the keys and values of a sequence lie in blocks of a few
// tokens each, anywhere in one pool, and a block table says where.
//
//   const AttentionShape shape{32, 8, 64, 0.125f};
//   StoreKvPages(rows, stream);                     // this pass's K and V, into their pages
//   PagedWork work;                                 // on the host: who computes what
//   work.Make(shape, 2, query_offsets, kv_lens, table_offsets, /*tiles=*/true);
//   ... copy its lists and the tables to the device, fill `batch` ...
//   PagedAttention(shape, batch, tensors, workspace, workspace_bytes, stream);
//
// (PagedKvCache in paged_kv_cache.h does all of that for a forward pass.)
//
// The mathematics is lesson 07's, one softmax over all visible keys, computed without ever holding
// all of a row's scores: online softmax (Milakov and Gimelshein, Online normalizer calculation for
// softmax, 2018), in tiles as FlashAttention (Dao et al. 2022), over pages as in Kwon et al. 2023,
// with long contexts split among thread blocks (Dao et al., Flash-Decoding, 2023).
//
// The order of every sum depends on the positions of query, key and element alone. So a query's
// output is the same, bit for bit, alone and in any batch, as the single token of a decode step and
// in a prompt of any chunks, with its pages anywhere in the pool.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cuda/bf16.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {

// The pages of one layer, on the device. The tokens of a block lie side by side head by head, so
// what one KV head reads of a block is one piece: 2 KiB at 16 tokens and head_dim 64.
struct KvPages {
  bf16* k = nullptr;  // (num_blocks, num_kv_heads, block_size, head_dim)
  bf16* v = nullptr;  // like k
  int num_blocks = 0;
  int block_size = 0;  // tokens
};

// --- rows of K and V into their pages

// All pointers are device pointers.
struct StoreKvPagesRows {
  const bf16* k = nullptr;     // (num_tokens, num_kv_heads, head_dim), rows `stride` elements apart
  const bf16* v = nullptr;     // like k: both are parts of the fused qkv matrix
  int64_t stride = 0;          // at least num_kv_heads * head_dim
  const int* slots = nullptr;  // (num_tokens): block * block_size + place in the block
  int num_tokens = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  KvPages pages;
};

// Bit for bit. A thread moves 16 bytes of K and 16 of V, or one element of each where widths or
// addresses do not fit. 0 tokens are no work. Throws Error for sizes that contradict each other.
//
// PRECONDITION: no two slots are alike, and all lie in the pool. PagedKvCache::Begin sees to it.
void StoreKvPages(const StoreKvPagesRows& rows, cudaStream_t stream);

// --- attention

// A piece of work for one thread block and KV head: one query and kPagedSpan of its keys.
struct alignas(16) PagedSpan {  // one load
  int query;                    // in the flat batch
  int table;                    // where the sequence's table begins in block_tables
  int visible;                  // keys that the query sees: 0 and more
  int span;                     // the keys from span * kPagedSpan on
};

// Another: a tile of queries of one sequence, with all their keys.
struct PagedTile {
  int sequence;
  int first_row;  // rows are counted query by query, head by head of the KV head's group
};

constexpr int kPagedSpan = 256;
constexpr int kPagedTileRows = 32;

// The lists of both, made on the host. Reserve once, and Make allocates nothing.
struct PagedWork {
  std::vector<PagedSpan> spans;
  std::vector<PagedTile> tiles;

  // Single queries (all queries unless `tiles`) become spans, longer ones tiles. Arrays as in
  // PagedAttentionBatch, but on the host.
  void Make(const AttentionShape& shape, int num_sequences, const int* query_offsets,
            const int* kv_lens, const int* table_offsets, bool tiles);
};

// Which queries belong to which keys. The mask is lesson 07's: query i of q_len sees the keys
// j <= i + kv_len - q_len; one that sees none gives zeros. All pointers are device pointers.
struct PagedAttentionBatch {
  int num_sequences = 0;
  int num_queries = 0;                 // of all sequences together
  int max_kv_len = 0;                  // of one sequence; none may have more keys
  const int* query_offsets = nullptr;  // (num_sequences + 1)
  const int* kv_lens = nullptr;        // (num_sequences)
  const int* table_offsets = nullptr;  // (num_sequences): where each table begins in block_tables
  const int* block_tables = nullptr;   // block of the tokens 0 .. block_size - 1, of the next, ...
  const PagedSpan* spans = nullptr;    // (num_spans)
  const PagedTile* tiles = nullptr;    // (num_tiles)
  int num_spans = 0;
  int num_tiles = 0;
  int* tickets = nullptr;  // (PagedAttentionTickets): zeros, and zeros again after each call
};

struct PagedAttentionTensors {
  const bf16* q = nullptr;  // (num_queries, num_heads, head_dim), rows q_stride elements apart
  int64_t q_stride = 0;
  KvPages pages;
  bf16* output = nullptr;  // (num_queries, num_heads, head_dim), dense
};

// What the engine calls: version 4 for head_dim 32, 64 and 128, version 2 for any other.
//
// Throws Error for sizes that contradict each other, a workspace too small, head_dim above 1,024.
// PRECONDITION: the tables name blocks of the pool for every visible key.
void PagedAttention(const AttentionShape& shape, const PagedAttentionBatch& batch,
                    const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                    cudaStream_t stream);

// Enough for every batch of at most so many spans and so many keys a sequence: at most some tens of
// megabytes, however many there are.
size_t PagedAttentionWorkspaceBytes(const AttentionShape& shape, int64_t max_spans, int max_kv_len);
int PagedAttentionTickets(const AttentionShape& shape, int64_t max_spans, int max_kv_len);

// Spans of a sequence of so many keys.
int PagedSpansOf(int kv_len);

struct PagedAttentionVersion {
  int number;
  const char* name;
  const char* idea;
  bool makes_tiles;  // what PagedWork::Make is to be told
  bool (*supports)(const AttentionShape& shape);
  size_t (*workspace_bytes)(const AttentionShape& shape, int64_t max_spans, int max_kv_len);
  void (*launch)(const AttentionShape& shape, const PagedAttentionBatch& batch,
                 const PagedAttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                 cudaStream_t stream);
};

constexpr int kNumPagedAttentionVersions = 4;
extern const PagedAttentionVersion kPagedAttentionVersions[kNumPagedAttentionVersions];

}  // namespace tinyvllm
