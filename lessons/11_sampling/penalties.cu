#include "lessons/11_sampling/penalties.h"

#include <cmath>
#include <cstddef>

#include "common/cuda/check.h"
#include "lessons/11_sampling/sampling_params.h"

namespace tinyvllm {
namespace {

constexpr int kThreads = 256;
constexpr int kTokensPerBlock = 8 * kThreads;

// tag::adjust[]
__device__ float Adjust(float logit, bool banned, uint32_t history, const SlotParams& params) {
  if (banned || isnan(logit)) return -INFINITY;
  const uint32_t generated = history & ~kInPrompt;
  if (history != 0) {  // in the prompt, or generated
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  if (generated > 0) {
    logit -= params.frequency_penalty * generated;
    logit -= params.presence_penalty;
  }
  return logit;
}
// end::adjust[]

// A block takes kTokensPerBlock tokens of a row. Biases are few, so that tokens that have one are
// computed twice: without it by whoever comes by, and again with it.
__global__ void AdjustKernel(const float* __restrict__ logits,   // (num_rows, vocab_size)
                             SlotArrays slots,                   //
                             const int* __restrict__ row_slots,  // (num_rows)
                             float* __restrict__ adjusted,       // (num_rows, vocab_size)
                             int vocab_size) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * vocab_size;
  const int64_t slot = row_slots[blockIdx.x];
  const SlotParams params = slots.params[slot];
  const uint32_t* history = slots.history + slot * vocab_size;
  const uint32_t* banned_bits = slots.banned_bits + slot * ((vocab_size + 31) / 32);
  const auto AdjustToken = [&](int id, float bias) {
    const bool banned = params.has_bans && (banned_bits[id / 32] >> (id % 32) & 1);
    const uint32_t seen = params.tracks_history ? history[id] : 0;
    adjusted[row + id] = Adjust(logits[row + id] + bias, banned, seen, params);
  };

  const int begin = blockIdx.y * kTokensPerBlock;
  const int end = min(vocab_size, begin + kTokensPerBlock);
  for (int id = begin + threadIdx.x; id < end; id += kThreads) AdjustToken(id, 0);
  __syncthreads();
  for (int i = threadIdx.x; i < params.num_biases; i += kThreads) {
    const int id = slots.bias_ids[slot * kMaxLogitBiases + i];
    if (id >= begin && id < end) {
      AdjustToken(id, slots.bias_values[slot * kMaxLogitBiases + i]);
    }
  }
}

__global__ void RecordKernel(const int* __restrict__ token_ids, int num_prompt_tokens,
                             int num_tokens, uint32_t* __restrict__ history) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_tokens) return;
  uint32_t* entry = history + token_ids[i];
  if (i < num_prompt_tokens) {
    atomicOr(entry, kInPrompt);
  } else {
    atomicAdd(entry, 1u);
  }
}

}  // namespace

void AdjustLogits(const float* __restrict__ logits, SlotArrays slots,
                  const int* __restrict__ row_slots, float* __restrict__ adjusted, int num_rows,
                  int vocab_size, cudaStream_t stream) {
  if (num_rows == 0) return;
  const dim3 grid(num_rows, (vocab_size + kTokensPerBlock - 1) / kTokensPerBlock);
  AdjustKernel<<<grid, kThreads, 0, stream>>>(logits, slots, row_slots, adjusted, vocab_size);
  CUDA_CHECK_LAUNCH();
}

void RecordTokens(const int* __restrict__ token_ids, int num_prompt_tokens, int num_tokens,
                  uint32_t* __restrict__ history, cudaStream_t stream) {
  if (num_tokens == 0) return;
  RecordKernel<<<(num_tokens + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      token_ids, num_prompt_tokens, num_tokens, history);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
