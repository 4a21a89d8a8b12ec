// The plain stages: each a few lines over the kernels of lessons 03 to 08.
#include "lessons/03_embedding/embedding.h"
#include "lessons/04_rmsnorm/rmsnorm.h"
#include "lessons/05_rope/rope.h"
#include "lessons/07_attention/attention.h"
#include "lessons/08_feed_forward/feed_forward.h"
#include "lessons/09_forward_pass/forward_pass.h"

namespace tinyvllm {
namespace {

// RmsNorm of the residual stream, into the buffer that a block reads.
const bf16* NormedStream(const PassContext& pass, const bf16* weight) {
  const int tokens = pass.batch.num_tokens;
  bf16* normed = pass.activations.Begin(Buffer::kNormed, tokens, pass.stream);
  RmsNorm(pass.activations.Get(Buffer::kHiddenState), weight, normed, tokens,
          pass.config.hidden_size, pass.config.rms_norm_eps, pass.stream);
  return normed;
}

// hidden_state += input · weightᵀ, which is how every block ends.
void ProjectAndAdd(const PassContext& pass, const bf16* input, int in_features,
                   const bf16* weight) {
  const ModelConfig& config = pass.config;
  const int tokens = pass.batch.num_tokens;
  float* projected = pass.activations.Begin<float>(Buffer::kProjected, tokens, pass.stream);
  pass.linear(input, weight, projected, tokens, in_features, config.hidden_size);
  ResidualAdd(pass.activations.Get(Buffer::kHiddenState), pass.activations.Get(Buffer::kRemainder),
              projected, int64_t{tokens} * config.hidden_size, pass.stream);
}

// tag::stages[]
// tag::attention_input[]
void AttentionInput(const PassContext& pass, int layer) {
  const ModelConfig& config = pass.config;
  const LayerWeights& weights = pass.weights.layers[layer];
  const int tokens = pass.batch.num_tokens;
  const bf16* normed = NormedStream(pass, weights.input_layernorm);
  bf16* qkv = pass.activations.Begin(Buffer::kQkv, tokens, pass.stream);  // (tokens, qkv_size)
  pass.linear(normed, weights.qkv_proj, qkv, tokens, config.hidden_size, config.qkv_size());
  // The heads of q and of k lie side by side in a row, so one call rotates both.
  Rope(qkv, pass.batch.positions(), pass.rope_table, tokens,
       config.num_attention_heads + config.num_key_value_heads, config.head_dim, config.qkv_size(),
       pass.stream);
}
// end::attention_input[]

void Attend(const PassContext& pass, int /*layer*/) {
  const ModelConfig& config = pass.config;
  AttentionBatch batch;
  batch.num_sequences = pass.batch.num_sequences;
  batch.num_queries = pass.batch.num_tokens;
  batch.max_query_len = pass.batch.max_query_len;
  batch.max_kv_len = pass.batch.max_query_len;
  batch.query_offsets = pass.batch.sequence_offsets();
  batch.kv_offsets = pass.batch.sequence_offsets();  // every key of a sequence is in the batch
  const bf16* qkv = pass.activations.Get(Buffer::kQkv);
  AttentionTensors tensors;
  tensors.q = qkv;
  tensors.k = qkv + config.q_size();
  tensors.v = qkv + config.q_size() + config.kv_size();
  tensors.q_stride = config.qkv_size();
  tensors.kv_stride = config.qkv_size();
  tensors.output = pass.activations.Begin(Buffer::kAttended, batch.num_queries,
                                          pass.stream);  // (tokens, q_size)
  Attention(AttentionShapeOf(config), batch, tensors,
            pass.activations.Begin<void>(Buffer::kWorkspace, 1, pass.stream),
            pass.activations.bytes(Buffer::kWorkspace), pass.stream);
}

void AttentionOutput(const PassContext& pass, int layer) {
  ProjectAndAdd(pass, pass.activations.Get(Buffer::kAttended), pass.config.q_size(),
                pass.weights.layers[layer].o_proj);
}

// tag::feed_forward[]
void FeedForward(const PassContext& pass, int layer) {
  const ModelConfig& config = pass.config;
  const LayerWeights& weights = pass.weights.layers[layer];
  const int tokens = pass.batch.num_tokens;
  const bf16* normed = NormedStream(pass, weights.post_attention_layernorm);
  bf16* gate_up = pass.activations.Begin(Buffer::kGateUp, tokens, pass.stream);
  pass.linear(normed, weights.gate_up_proj, gate_up, tokens, config.hidden_size,
              2 * config.intermediate_size);
  bf16* activated = pass.activations.Begin(Buffer::kActivated, tokens, pass.stream);
  SwiGlu(gate_up, activated, tokens, config.intermediate_size, pass.stream);
  ProjectAndAdd(pass, activated, config.intermediate_size, weights.down_proj);
}
// end::feed_forward[]

// tag::head[]
void Head(const PassContext& pass) {
  const ModelConfig& config = pass.config;
  const int rows = pass.batch.num_logit_rows;
  // The rows that are wanted are gathered as the embedding's rows were: by index.
  bf16* hidden = pass.activations.Begin(Buffer::kLastHidden, rows, pass.stream);
  EmbeddingGather(pass.batch.logit_rows(), pass.activations.Get(Buffer::kHiddenState), hidden, rows,
                  config.hidden_size, pass.stream);
  bf16* normed = pass.activations.Begin(Buffer::kLastNormed, rows, pass.stream);
  RmsNorm(hidden, pass.weights.norm, normed, rows, config.hidden_size, config.rms_norm_eps,
          pass.stream);
  float* logits = pass.activations.Begin<float>(Buffer::kLogits, rows, pass.stream);
  pass.linear(normed, pass.weights.lm_head, logits, rows, config.hidden_size, config.vocab_size);
}
// end::head[]
// end::stages[]

}  // namespace

Stages PlainStages() {
  return {AttentionInput, Attend, AttentionOutput, FeedForward, Head, PlainAttendWorkspace};
}

}  // namespace tinyvllm
