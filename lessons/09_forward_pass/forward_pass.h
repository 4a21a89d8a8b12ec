// The forward pass: token ids in, logits out. The one loop over the layers in this course; later
// lessons replace stages of it, never the loop.
//
//   ForwardPass pass(config, weights, limits, stream);
//   pass.Run(Batch::WholeSequence(prompt));          // queued on the stream
//   const float* logits = pass.logits();             // device, (logit_rows, vocab_size) f32
//
// A decoder layer (Llama: pre-norm, Touvron et al. 2023, section 2.2) in five stages:
//
//   attention_input   normed = RmsNorm(hidden_state); qkv = normed · qkv_projᵀ; rotate q and k
//   attend            attended = softmax(q kᵀ / sqrt(head_dim), causal) v
//   attention_output  hidden_state += attended · o_projᵀ
//   feed_forward      hidden_state += (silu(gate) * up) · down_projᵀ of RmsNorm(hidden_state)
//   head              logits = RmsNorm(hidden_state of the rows that are wanted) · lm_headᵀ
//
// A stage is a function that queues its kernels; whoever replaces one reads and writes the same
// activations.
#pragma once

#include <cstdint>
#include <functional>

#include "lessons/05_rope/rope.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/09_forward_pass/activations.h"
#include "lessons/09_forward_pass/batch.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/weights.h"

namespace tinyvllm {

// All that a stage may use.
struct PassContext {
  const ModelConfig& config;
  const Weights& weights;
  const PassLimits& limits;
  const DeviceBatch& batch;
  const RopeTable& rope_table;
  Activations& activations;
  const Linear& linear;
  cudaStream_t stream;
};

using LayerStage = std::function<void(const PassContext&, int layer)>;

struct Stages {
  LayerStage attention_input;
  LayerStage attend;  // owns both the write of K and V and their read: caches replace it
  LayerStage attention_output;
  LayerStage feed_forward;
  std::function<void(const PassContext&)> head;
  // Bytes of Buffer::kWorkspace that attend asks for, in passes of these limits at most.
  std::function<size_t(const ModelConfig&, const PassLimits&)> attend_workspace;
};

// The stages of this lesson, made of the kernels of lessons 03 to 08. K and V live for one pass, so
// a sequence must be in the batch as a whole.
Stages PlainStages();

// Where weights that do not lie on the device (lessons 18 and 19) are brought there in time. All of
// it happens on the host, around what is queued on the stream.
class OffloadHooks {
 public:
  virtual ~OffloadHooks() = default;
  virtual void BeforePass(cudaStream_t) {}
  virtual void WaitForLayer(int /*layer*/, cudaStream_t) {}  // its weights are read after this
  virtual void LayerDone(int /*layer*/, cudaStream_t) {}     // and not after this
  virtual void AfterPass(cudaStream_t) {}
};

class ForwardPass {
 public:
  // `weights` must outlive the pass. Throws Error when the buffers do not fit the device.
  ForwardPass(const ModelConfig& config, const Weights& weights, const PassLimits& limits,
              cudaStream_t stream, Stages stages = PlainStages(),
              GemmBackend gemm = GemmBackend::kCublas);

  // Queues the embedding, all layers and, where the batch asks for logits, the head. Throws Error
  // for a batch that Batch::Validate refuses; nothing is queued then. `fill_in`, if there is one,
  // may queue work that writes token ids which the host does not know yet: (num_tokens), device.
  void Run(const Batch& batch, const std::function<void(int* token_ids)>& fill_in = nullptr);

  // The head once more, over other tokens of the batch that Run was given last: logits of a whole
  // prompt come in portions of at most limits.max_logit_rows.
  void RunHead(const std::vector<int>& logit_rows);

  // On the device, valid until the next Run or RunHead. (num_logit_rows, vocab_size)
  const float* logits() { return activations_.Get<float>(Buffer::kLogits); }
  // Copied to the host; waits for the stream. Throws Error unless every one is finite: an answer is
  // never made of NaN.
  std::vector<float> LogitsToHost();

  void set_offload_hooks(OffloadHooks* hooks) { hooks_ = hooks; }
  const ModelConfig& config() const { return config_; }
  const PassLimits& limits() const { return limits_; }
  size_t activation_bytes() const { return activations_.bytes(); }
  int64_t num_passes() const { return batch_.num_batches; }  // so far
  // For a caller that runs stages one by one, to look between them.
  PassContext context();
  const Stages& stages() const { return stages_; }

 private:
  const ModelConfig config_;
  const Weights& weights_;
  const PassLimits limits_;
  const cudaStream_t stream_;
  const Stages stages_;
  Linear linear_;
  RopeTable rope_table_;
  Activations activations_;
  DeviceBatch batch_;
  OffloadHooks no_hooks_;
  OffloadHooks* hooks_ = &no_hooks_;
};

}  // namespace tinyvllm
