// Attention: every query looks at the keys before it and takes the average of their values,
// weighted by how well query and key agree. Grouped queries, causal mask, softmax in f32.
//
//   // heads, KV heads, head_dim, 1 / sqrt(head_dim)
//   const AttentionShape shape{32, 8, 64, 0.125f};
//   AttentionBatch batch;  // two sequences, of 5 and 3 tokens
//   batch.num_sequences = 2;
//   batch.num_queries = 8;
//   batch.max_query_len = batch.max_kv_len = 5;
//   batch.query_offsets = batch.kv_offsets = offsets;  // on the device: {0, 5, 8}
//   DeviceBuffer<char> workspace(AttentionWorkspaceBytes(shape, 8, 5));
//   Attention(shape, batch, tensors, workspace.data(), workspace.bytes(), stream);
//
// The mathematics: Vaswani et al., Attention Is All You Need, 2017, section 3.2; grouped queries:
// Ainslie et al., GQA, 2023. For head h, query i and the keys j that it may see,
//
//   weight[j] = softmax over j of (scale * q[i] . k[j])
//   output[i] = sum over j of weight[j] v[j]
//
// where head h reads the keys and values of KV head h / (num_heads / num_kv_heads).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "common/cuda/bf16.h"

namespace tinyvllm {

struct AttentionShape {
  int num_heads = 0;     // of queries
  int num_kv_heads = 0;  // a divisor of num_heads
  int head_dim = 0;
  float scale = 0;  // of the scores: 1 / sqrt(head_dim)
};

// Which rows belong together. The queries of all sequences lie one after the other, and so do the
// keys: sequence s has the queries query_offsets[s] to query_offsets[s + 1] - 1 and the keys from
// kv_offsets[s] on.
//
// The mask is causal and aligned at the end: query i of a sequence with q_len queries and kv_len
// keys sees the keys j <= i + kv_len - q_len. With q_len = kv_len that is itself and all before it;
// a single query, as when one token is generated, sees all keys. A query that sees none gives
// zeros.
struct AttentionBatch {
  int num_sequences = 0;
  int num_queries = 0;                 // of all sequences together
  int max_query_len = 0;               // of one sequence
  int max_kv_len = 0;                  // of one sequence; none may have more keys
  const int* query_offsets = nullptr;  // (num_sequences + 1), on the device
  const int* kv_offsets = nullptr;     // (num_sequences + 1), on the device
  // (num_sequences), on the device: the number of keys of each sequence, for a cache whose
  // sequences leave room to grow. Null: a sequence's keys end where those of the next begin.
  const int* kv_lens = nullptr;
};

// Rows may lie further apart than they are wide: q, k and v can be parts of one fused matrix.
struct AttentionTensors {
  const bf16* q = nullptr;  // (num_queries, num_heads, head_dim), rows q_stride elements apart
  const bf16* k = nullptr;  // (num_keys, num_kv_heads, head_dim), rows kv_stride elements apart
  const bf16* v = nullptr;  // like k
  int64_t q_stride = 0;
  int64_t kv_stride = 0;
  bf16* output = nullptr;  // (num_queries, num_heads, head_dim), dense
};

// What the engine calls: the fast version for this shape. One query's output depends on that query,
// its keys and its values alone: bit for bit the same in a prefill of many tokens, in a decode step
// of one, alone or in any batch.
//
// `workspace` has at least AttentionWorkspaceBytes. The fast versions want q, k and v at multiples
// of 16 bytes and strides that are multiples of 8; head_dim that is no multiple of 8, or above 256,
// takes version 1. Throws Error for a shape that contradicts itself and for a workspace too small.
void Attention(const AttentionShape& shape, const AttentionBatch& batch,
               const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
               cudaStream_t stream);

// Enough for every batch of at most so many queries and so many keys a sequence. Nothing at all as
// long as one row of scores fits into shared memory.
size_t AttentionWorkspaceBytes(const AttentionShape& shape, int num_queries, int max_kv_len);

struct AttentionVersion {
  int number;
  const char* name;
  const char* idea;
  bool (*supports)(const AttentionShape& shape);
  size_t (*workspace_bytes)(const AttentionShape& shape, int num_queries, int max_kv_len);
  void (*launch)(const AttentionShape& shape, const AttentionBatch& batch,
                 const AttentionTensors& tensors, void* workspace, size_t workspace_bytes,
                 cudaStream_t stream);
};

constexpr int kNumAttentionVersions = 4;
extern const AttentionVersion kAttentionVersions[kNumAttentionVersions];

}  // namespace tinyvllm
