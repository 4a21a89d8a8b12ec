// Every buffer that a forward pass writes: its shape, its role, and the memory it shares.
//
// A pass needs few buffers at a time. The fused qkv rows are dead once attention has read them, so
// the gate and up rows take their memory; and so on. Buffers of one slot share memory, one at a
// time:
//
//   slot      buffers, in the order in which they take it
//   stream    hidden_state
//   remainder remainder
//   narrow    normed, projected, normed, projected, ... last_normed
//   wide      qkv, gate_up, qkv, gate_up, ...           last_hidden
//   inner     attended, activated, attended, ...
//   scores    workspace
//   logits    logits
//
// A stage that fills a buffer asks for it with Begin, one that reads it with Get; to Get a buffer
// whose memory another one has taken since is an Error. On the simulator Begin fills the memory
// with NaN when its role changes, so that a kernel which reads a dead buffer, or leaves a hole in
// its output, cannot go unseen.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "lessons/09_forward_pass/model_config.h"

namespace tinyvllm {

// How large one pass may be. The buffers are sized by it once, at the start.
struct PassLimits {
  int max_tokens = 0;        // tokens of all sequences together
  int max_sequences = 0;     // sequences they belong to
  int max_sequence_len = 0;  // tokens that one token may attend to, itself included
  int max_logit_rows = 0;    // tokens whose logits are wanted at a time
};

enum class Buffer {
  kHiddenState,  // (tokens, hidden_size) bf16: the residual stream
  kRemainder,    // (tokens, hidden_size) bf16: what rounding left over of the stream
  kNormed,       // (tokens, hidden_size) bf16: RMSNorm's output, what a block reads
  kProjected,    // (tokens, hidden_size) f32: a block's output, before it joins the stream
  kLastNormed,   // (logit_rows, hidden_size) bf16
  kQkv,          // (tokens, qkv_size) bf16: q, k and v of a token side by side
  kGateUp,       // (tokens, 2 * intermediate_size) bf16
  kLastHidden,   // (logit_rows, hidden_size) bf16: rows of the stream that are wanted
  kAttended,     // (tokens, q_size) bf16: attention's output, heads side by side
  kActivated,    // (tokens, intermediate_size) bf16: SwiGLU's output
  kWorkspace,    // bytes, as many as the attend stage asks for: lesson 07's scores
  kLogits,       // (logit_rows, vocab_size) f32
  kCount
};

struct BufferPlan {
  const char* name;
  const char* shape;  // in the names above
  const char* role;
  const char* slot;  // buffers of one slot share memory
  size_t rows;       // at most
  size_t row_bytes;

  size_t bytes() const { return rows * row_bytes; }
};

// Bytes that lesson 07's attention asks for in passes of these limits.
size_t PlainAttendWorkspace(const ModelConfig& config, const PassLimits& limits);

// The plan alone, computed from the configuration; allocates nothing. One entry a Buffer, in order.
// `workspace_bytes`: what the attend stage asks for, as Stages::attend_workspace says.
std::vector<BufferPlan> PlanActivations(const ModelConfig& config, const PassLimits& limits,
                                        size_t workspace_bytes);
// With lesson 07's attention.
std::vector<BufferPlan> PlanActivations(const ModelConfig& config, const PassLimits& limits);

class Activations {
 public:
  // Throws Error when the device has too little memory.
  Activations(const ModelConfig& config, const PassLimits& limits, size_t workspace_bytes);

  // Takes the buffer's slot for it, and returns its memory, of which the first `rows` rows are
  // about to be written on `stream`. Throws Error for more rows than were planned.
  template <typename T = bf16>
  T* Begin(Buffer buffer, int rows, cudaStream_t stream) {
    return static_cast<T*>(BeginBytes(buffer, rows, stream));
  }

  // A buffer that was begun and has not lost its memory to another since. Throws Error otherwise.
  template <typename T = bf16>
  T* Get(Buffer buffer) {
    return static_cast<T*>(GetBytes(buffer));
  }

  size_t bytes() const { return arena_.bytes(); }
  size_t bytes(Buffer buffer) const { return plan_[static_cast<size_t>(buffer)].bytes(); }

 private:
  static constexpr size_t kBuffers = static_cast<size_t>(Buffer::kCount);
  static constexpr size_t kMaxSlots = kBuffers;

  void* BeginBytes(Buffer buffer, int rows, cudaStream_t stream);
  void* GetBytes(Buffer buffer);

  std::vector<BufferPlan> plan_;
  std::array<size_t, kBuffers> slot_of_;  // index into the arrays below
  std::array<size_t, kMaxSlots> offset_;  // of a slot in the arena
  std::array<size_t, kMaxSlots> size_;    // of a slot, bytes
  std::array<Buffer, kMaxSlots> holder_;  // the buffer that has the slot now; kCount: none yet
  DeviceBuffer<char> arena_;
};

}  // namespace tinyvllm
