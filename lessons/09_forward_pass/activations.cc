#include "lessons/09_forward_pass/activations.h"

#include <algorithm>
#include <map>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/device.h"
#include "lessons/01_safetensors/arena.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {
namespace {

constexpr int kNaNByte = 0xff;  // 0xffff is NaN in bf16, 0xffffffff in f32

size_t Index(Buffer buffer) { return static_cast<size_t>(buffer); }

}  // namespace

size_t PlainAttendWorkspace(const ModelConfig& config, const PassLimits& limits) {
  return AttentionWorkspaceBytes(AttentionShapeOf(config), limits.max_tokens,
                                 limits.max_sequence_len);
}

std::vector<BufferPlan> PlanActivations(const ModelConfig& config, const PassLimits& limits) {
  return PlanActivations(config, limits, PlainAttendWorkspace(config, limits));
}

// tag::plan[]
std::vector<BufferPlan> PlanActivations(const ModelConfig& config, const PassLimits& limits,
                                        size_t workspace_bytes) {
  const size_t tokens = limits.max_tokens;
  const size_t rows = limits.max_logit_rows;
  const size_t hidden = config.hidden_size * sizeof(bf16);  // bytes of a row
  const size_t inner = config.intermediate_size * sizeof(bf16);
  return {
      {"hidden_state", "(tokens, hidden_size)", "residual stream", "stream", tokens, hidden},
      {"remainder", "(tokens, hidden_size)", "the stream's lower bits", "remainder", tokens,
       hidden},
      {"normed", "(tokens, hidden_size)", "a block's input", "narrow", tokens, hidden},
      {"projected", "(tokens, hidden_size) f32", "a block's output", "narrow", tokens,
       config.hidden_size * sizeof(float)},
      {"last_normed", "(logit_rows, hidden_size)", "the head's input", "narrow", rows, hidden},
      {"qkv", "(tokens, qkv_size)", "queries, keys, values", "wide", tokens,
       config.qkv_size() * sizeof(bf16)},
      {"gate_up", "(tokens, 2 * intermediate_size)", "gate and up", "wide", tokens, 2 * inner},
      {"last_hidden", "(logit_rows, hidden_size)", "rows that are wanted", "wide", rows, hidden},
      {"attended", "(tokens, q_size)", "attention's output", "inner", tokens,
       config.q_size() * sizeof(bf16)},
      {"activated", "(tokens, intermediate_size)", "SwiGLU's output", "inner", tokens, inner},
      {"workspace", "as attention asks", "attention scores", "scores", 1, workspace_bytes},
      {"logits", "(logit_rows, vocab_size) f32", "scores of the next token", "logits", rows,
       config.vocab_size * sizeof(float)},
  };
}
// end::plan[]

Activations::Activations(const ModelConfig& config, const PassLimits& limits,
                         size_t workspace_bytes)
    : plan_(PlanActivations(config, limits, workspace_bytes)) {
  Check(plan_.size() == kBuffers, "activations: ", plan_.size(), " buffers planned, expected ",
        kBuffers);
  std::map<std::string, size_t> slots;
  size_.fill(0);
  holder_.fill(Buffer::kCount);
  for (size_t i = 0; i < kBuffers; ++i) {
    slot_of_[i] = slots.emplace(plan_[i].slot, slots.size()).first->second;
    size_[slot_of_[i]] = std::max(size_[slot_of_[i]], plan_[i].bytes());
  }
  ArenaPlan arena;
  for (size_t slot = 0; slot < slots.size(); ++slot) offset_[slot] = arena.Add("", size_[slot]);
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  Check(arena.total_bytes() <= free, "the buffers for passes of ", limits.max_tokens,
        " tokens take ", HumanBytes(arena.total_bytes()), ", and the device has ", HumanBytes(free),
        " of ", HumanBytes(total),
        " free; ask for less (--max-num-batched-tokens, --max-num-seqs, --max-model-len)");
  arena_ = DeviceBuffer<char>(arena.total_bytes());
}

void* Activations::BeginBytes(Buffer buffer, int rows, cudaStream_t stream) {
  const BufferPlan& plan = plan_[Index(buffer)];
  Check(rows >= 0 && size_t(rows) <= plan.rows, "activations: ", rows, " rows of ", plan.name,
        ", planned for ", plan.rows);
  const size_t slot = slot_of_[Index(buffer)];
  void* data = arena_.data() + offset_[slot];
  const size_t bytes = rows * plan.row_bytes;
  if (IsSimulator() && holder_[slot] != buffer && bytes > 0) {
    CUDA_CHECK(cudaMemsetAsync(data, kNaNByte, bytes, stream));
  }
  holder_[slot] = buffer;
  return data;
}

void* Activations::GetBytes(Buffer buffer) {
  const size_t slot = slot_of_[Index(buffer)];
  if (holder_[slot] != buffer) {
    const bool taken = holder_[slot] != Buffer::kCount;
    throw Error("activations: ", plan_[Index(buffer)].name, " is read, but its memory ",
                taken ? StrCat("has become ", plan_[Index(holder_[slot])].name)
                      : std::string("was never written"));
  }
  return arena_.data() + offset_[slot];
}

}  // namespace tinyvllm
