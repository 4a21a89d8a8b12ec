// One token for every sequence that wants one, chosen on the device as its request asks.
//
//   Sampler sampler({max_slots, max_rows, config.vocab_size, max_model_len}, stream);
//   sampler.SetRequest(slot, params, prompt_token_ids);        // when a request takes a slot
//   sampler.Sample(pass.logits(), {{slot, position}, ...});    // each step, queued on the stream
//   next_pass_reads(sampler.token_ids());                      // on the device, no wait
//   sampler.Wait();
//   int token = sampler.token_id(0);                           // of the first row
//
// All memory is taken in the constructor. What waits for the device is Wait; and SetRequest, for a
// request with lists or penalties, until those of the last such request have been copied.
#pragma once

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/11_sampling/argmax.h"
#include "lessons/11_sampling/sampling_params.h"
#include "lessons/11_sampling/slot.h"

namespace tinyvllm {

struct SamplerLimits {
  int max_slots;         // requests at a time
  int max_rows;          // rows of one Sample
  int vocab_size;        // 1 to kMaxVocabSize
  int max_sequence_len;  // tokens of a request, prompt and answer together
};

// A row of logits: whose it is, and the position in the sequence of the token that it decides. The
// position and the request's seed give the random number.
struct SampleRow {
  int slot;
  int position;
};

struct TokenLogprobs {
  float logprob;                           // of the chosen token
  std::vector<std::pair<int, float>> top;  // (id, logprob), the most probable first
};

class Sampler {
 public:
  Sampler(const SamplerLimits& limits, cudaStream_t stream);

  // Gives `slot` to a request. A request that comes back after it was put off brings the tokens it
  // has generated, and goes on as if it had never been away. Throws Error for bad parameters, with
  // the slot as it was.
  void SetRequest(int slot, const SamplingParams& params, const std::vector<int>& prompt_token_ids,
                  const std::vector<int>& generated_token_ids = {});
  // The same where the parameters were validated before: nothing is allocated.
  void SetValidRequest(int slot, const SamplingParams& params,
                       const std::vector<int>& prompt_token_ids,
                       const std::vector<int>& generated_token_ids);

  // Queues the choice for rows 0, 1, ... of `logits`; a slot whose request has penalties at most
  // once, for each of its tokens depends on the one before. `probabilities`, if not null, receives
  // what each row is drawn from. Throws Error for rows beyond the limits.
  void Sample(const float* logits,  // (rows.size(), vocab_size) f32, device
              const std::vector<SampleRow>& rows,
              float* probabilities = nullptr);  // (rows.size(), vocab_size) f32, device

  // On the device, valid until the next Sample. (rows.size())
  const int* token_ids() const { return token_ids_.data(); }

  // Waits for the last Sample; then its results can be read.
  void Wait();
  // -1: no token of the row can be chosen, all being banned, minus infinity or NaN.
  int token_id(int row) const { return host_token_ids_[row]; }
  // Of the raw logits. PRECONDITION: the row's request has logprobs >= 0.
  TokenLogprobs Logprobs(int row) const;

  size_t device_bytes() const;

 private:
  struct HostSlot {
    bool in_use = false;
    bool plain_greedy = false;  // the highest of the raw logits is the answer
    bool has_penalties = false;
    int logprobs = -1;
    int sampled_in = 0;  // number of the last Sample that had the slot
  };

  SlotArrays Arrays();
  void UploadLists(int slot, const SamplingParams& params);
  void UploadHistory(int slot, const std::vector<int>& prompt, const std::vector<int>& generated);
  void CheckRows(const std::vector<SampleRow>& rows);

  const SamplerLimits limits_;
  const cudaStream_t stream_;
  std::vector<HostSlot> host_slots_;
  int num_samples_ = 0;
  std::vector<int> row_logprobs_;  // of the last Sample

  DeviceBuffer<SlotParams> params_;     // (max_slots)
  DeviceBuffer<int> bias_ids_;          // (max_slots, kMaxLogitBiases)
  DeviceBuffer<float> bias_values_;     // (max_slots, kMaxLogitBiases)
  DeviceBuffer<uint32_t> banned_bits_;  // (max_slots, ceil(vocab_size / 32))
  DeviceBuffer<uint32_t> history_;      // (max_slots, vocab_size)
  DeviceBuffer<int> tokens_;            // (max_sequence_len), on their way to a history
  DeviceBuffer<float> adjusted_;        // (max_rows, vocab_size)
  DeviceBuffer<TokenKey> workspace_;    // (ArgmaxWorkspace(max_rows))
  DeviceBuffer<int> rows_;              // slots, positions, logprobs: (3, max_rows)
  DeviceBuffer<int> token_ids_;         // (max_rows)
  DeviceBuffer<float> logprobs_;        // (max_rows)
  DeviceBuffer<int> top_ids_;           // (max_rows, kMaxLogprobs)
  DeviceBuffer<float> top_logprobs_;    // (max_rows, kMaxLogprobs)

  // What is copied from and to: a copy that is under way must find it unchanged.
  PinnedBuffer<SlotParams> staged_params_;  // (max_slots)
  PinnedBuffer<int> staged_bias_ids_;
  PinnedBuffer<float> staged_bias_values_;
  PinnedBuffer<uint32_t> staged_bits_;
  PinnedBuffer<int> staged_tokens_;
  PinnedBuffer<int> staged_rows_;
  PinnedBuffer<int> host_token_ids_;
  PinnedBuffer<float> host_logprobs_;
  PinnedBuffer<int> host_top_ids_;
  PinnedBuffer<float> host_top_logprobs_;
  std::vector<Event> params_copied_;  // (max_slots)
  Event lists_copied_;
  Event rows_copied_;
  Event sampled_;
};

}  // namespace tinyvllm
