#include "lessons/11_sampling/sampler.h"

#include <algorithm>
#include <string>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/device.h"
#include "lessons/11_sampling/filters.h"
#include "lessons/11_sampling/logprobs.h"
#include "lessons/11_sampling/penalties.h"

namespace tinyvllm {
namespace {

const SamplerLimits& Checked(const SamplerLimits& limits) {
  Check(limits.max_slots >= 1 && limits.max_rows >= 1 && limits.max_sequence_len >= 1,
        "Sampler: max_slots ", limits.max_slots, ", max_rows ", limits.max_rows,
        ", max_sequence_len ", limits.max_sequence_len, ", expected 1 or more each");
  Check(limits.vocab_size >= 1 && limits.vocab_size <= kMaxVocabSize, "Sampler: vocab_size is ",
        limits.vocab_size, ", expected 1 to ", kMaxVocabSize);
  // The two that are largest by far: history and adjusted logits.
  const double bytes = 4.0 * (1.0 * limits.max_slots + limits.max_rows) * limits.vocab_size;
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  Check(bytes <= free, "sampling for ", limits.max_slots, " requests at a time takes ",
        HumanBytes(bytes), ", and the device has ", HumanBytes(free), " of ", HumanBytes(total),
        " free; ask for fewer (--max-num-seqs)");
  return limits;
}

size_t Product(int a, int b) { return static_cast<size_t>(a) * b; }
int NumBitWords(int vocab_size) { return (vocab_size + 31) / 32; }

template <typename T>
void CopyToDevice(T* to, const T* from, size_t size, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, size * sizeof(T), cudaMemcpyHostToDevice, stream));
}

template <typename T>
void CopyToHost(T* to, const T* from, size_t size, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, size * sizeof(T), cudaMemcpyDeviceToHost, stream));
}

// All ones: NaN, and the id -1.
template <typename T>
void Fill(DeviceBuffer<T>& buffer, cudaStream_t stream) {
  CUDA_CHECK(cudaMemsetAsync(buffer.data(), 0xff, buffer.bytes(), stream));
}

SlotParams ForDevice(const SamplingParams& params) {
  SlotParams slot = {};
  slot.temperature = params.greedy() ? 0 : params.temperature;
  slot.top_p = params.top_p;
  slot.min_p = params.min_p;
  slot.repetition_penalty = params.repetition_penalty;
  slot.presence_penalty = params.presence_penalty;
  slot.frequency_penalty = params.frequency_penalty;
  slot.top_k = std::max(0, params.top_k);
  slot.num_biases = static_cast<int>(params.logit_bias.size());
  slot.has_bans = params.has_bans();
  slot.tracks_history = params.has_penalties();
  slot.seed = params.seed;
  return slot;
}

}  // namespace

Sampler::Sampler(const SamplerLimits& limits, cudaStream_t stream)
    : limits_(Checked(limits)),
      stream_(stream),
      host_slots_(limits.max_slots),
      params_(limits.max_slots),
      bias_ids_(Product(limits.max_slots, kMaxLogitBiases)),
      bias_values_(Product(limits.max_slots, kMaxLogitBiases)),
      banned_bits_(Product(limits.max_slots, NumBitWords(limits.vocab_size))),
      history_(Product(limits.max_slots, limits.vocab_size)),
      tokens_(limits.max_sequence_len),
      adjusted_(Product(limits.max_rows, limits.vocab_size)),
      workspace_(ArgmaxWorkspace(limits.max_rows)),
      rows_(Product(3, limits.max_rows)),
      token_ids_(limits.max_rows),
      logprobs_(limits.max_rows),
      top_ids_(Product(limits.max_rows, kMaxLogprobs)),
      top_logprobs_(Product(limits.max_rows, kMaxLogprobs)),
      staged_params_(limits.max_slots),
      staged_bias_ids_(kMaxLogitBiases),
      staged_bias_values_(kMaxLogitBiases),
      staged_bits_(NumBitWords(limits.vocab_size)),
      staged_tokens_(limits.max_sequence_len),
      staged_rows_(Product(3, limits.max_rows)),
      host_token_ids_(limits.max_rows),
      host_logprobs_(limits.max_rows),
      host_top_ids_(Product(limits.max_rows, kMaxLogprobs)),
      host_top_logprobs_(Product(limits.max_rows, kMaxLogprobs)),
      params_copied_(limits.max_slots) {
  // Copied back whole, although TopLogprobs writes no more of a row than was asked for.
  Fill(logprobs_, stream);
  Fill(top_ids_, stream);
  Fill(top_logprobs_, stream);
}

SlotArrays Sampler::Arrays() {
  return {params_.data(), bias_ids_.data(), bias_values_.data(), banned_bits_.data(),
          history_.data()};
}

void Sampler::SetRequest(int slot, const SamplingParams& params,
                         const std::vector<int>& prompt_token_ids,
                         const std::vector<int>& generated_token_ids) {
  params.Validate(limits_.vocab_size);
  SetValidRequest(slot, params, prompt_token_ids, generated_token_ids);
}

void Sampler::SetValidRequest(int slot, const SamplingParams& params,
                              const std::vector<int>& prompt_token_ids,
                              const std::vector<int>& generated_token_ids) {
  Check(slot >= 0 && slot < limits_.max_slots, "Sampler: slot ", slot, ", expected 0 to ",
        limits_.max_slots - 1);
  const size_t length = prompt_token_ids.size() + generated_token_ids.size();
  Check(length <= static_cast<size_t>(limits_.max_sequence_len), "Sampler: a request of ", length,
        " tokens, expected at most ", limits_.max_sequence_len);
  for (const std::vector<int>* ids : {&prompt_token_ids, &generated_token_ids}) {
    for (const int id : *ids) {
      Check(id >= 0 && id < limits_.vocab_size, "Sampler: token id ", id,
            " is not in the vocabulary of ", limits_.vocab_size);
    }
  }
  params_copied_[slot].Synchronize();
  staged_params_[slot] = ForDevice(params);
  CopyToDevice(params_.data() + slot, staged_params_.data() + slot, 1, stream_);
  params_copied_[slot].Record(stream_);
  if (!params.logit_bias.empty() || params.has_bans() || params.has_penalties()) {
    lists_copied_.Synchronize();
    UploadLists(slot, params);
    if (params.has_penalties()) UploadHistory(slot, prompt_token_ids, generated_token_ids);
    lists_copied_.Record(stream_);
  }

  HostSlot& host = host_slots_[slot];
  host.in_use = true;
  host.plain_greedy = params.greedy() && !params.changes_logits();
  host.has_penalties = params.has_penalties();
  host.logprobs = params.logprobs;
}

void Sampler::UploadLists(int slot, const SamplingParams& params) {
  const size_t num_biases = params.logit_bias.size();
  for (size_t i = 0; i < num_biases; ++i) {
    staged_bias_ids_[i] = params.logit_bias[i].first;
    staged_bias_values_[i] = params.logit_bias[i].second;
  }
  if (num_biases > 0) {
    const size_t offset = Product(slot, kMaxLogitBiases);
    CopyToDevice(bias_ids_.data() + offset, staged_bias_ids_.data(), num_biases, stream_);
    CopyToDevice(bias_values_.data() + offset, staged_bias_values_.data(), num_biases, stream_);
  }
  if (params.has_bans()) {
    params.WriteBannedBits(limits_.vocab_size, staged_bits_.data());
    CopyToDevice(banned_bits_.data() + slot * staged_bits_.size(), staged_bits_.data(),
                 staged_bits_.size(), stream_);
  }
}

void Sampler::UploadHistory(int slot, const std::vector<int>& prompt,
                            const std::vector<int>& generated) {
  uint32_t* history = history_.data() + Product(slot, limits_.vocab_size);
  CUDA_CHECK(cudaMemsetAsync(history, 0, limits_.vocab_size * sizeof(uint32_t), stream_));
  std::copy(prompt.begin(), prompt.end(), staged_tokens_.data());
  std::copy(generated.begin(), generated.end(), staged_tokens_.data() + prompt.size());
  const size_t length = prompt.size() + generated.size();
  if (length == 0) return;
  CopyToDevice(tokens_.data(), staged_tokens_.data(), length, stream_);
  RecordTokens(tokens_.data(), static_cast<int>(prompt.size()), static_cast<int>(length), history,
               stream_);
}

void Sampler::CheckRows(const std::vector<SampleRow>& rows) {
  Check(rows.size() <= static_cast<size_t>(limits_.max_rows), "Sampler: ", rows.size(),
        " rows, expected at most ", limits_.max_rows);
  ++num_samples_;
  for (const SampleRow& row : rows) {
    Check(row.slot >= 0 && row.slot < limits_.max_slots, "Sampler: slot ", row.slot,
          ", expected 0 to ", limits_.max_slots - 1);
    HostSlot& slot = host_slots_[row.slot];
    Check(slot.in_use, "Sampler: slot ", row.slot, " has no request; call SetRequest first");
    Check(!slot.has_penalties || slot.sampled_in != num_samples_, "Sampler: slot ", row.slot,
          " has penalties and two rows, expected one");
    Check(row.position >= 0, "Sampler: position ", row.position, " in slot ", row.slot,
          ", expected 0 or more");
    slot.sampled_in = num_samples_;
  }
}

void Sampler::Sample(const float* logits, const std::vector<SampleRow>& rows,
                     float* probabilities) {
  CheckRows(rows);
  const int num_rows = static_cast<int>(rows.size());
  rows_copied_.Synchronize();
  bool plain_greedy = probabilities == nullptr, any_logprobs = false;
  row_logprobs_.resize(num_rows);
  for (int i = 0; i < num_rows; ++i) {
    const HostSlot& slot = host_slots_[rows[i].slot];
    staged_rows_[i] = rows[i].slot;
    staged_rows_[limits_.max_rows + i] = rows[i].position;
    staged_rows_[2 * limits_.max_rows + i] = row_logprobs_[i] = slot.logprobs;
    plain_greedy = plain_greedy && slot.plain_greedy;
    any_logprobs = any_logprobs || slot.logprobs >= 0;
  }
  CopyToDevice(rows_.data(), staged_rows_.data(), rows_.size(), stream_);
  rows_copied_.Record(stream_);
  const int* row_slots = rows_.data();
  const int* positions = row_slots + limits_.max_rows;
  const int* num_top = positions + limits_.max_rows;

  // A row that no kernel writes shall not pass off the last step's token as its own.
  if (IsSimulator()) Fill(token_ids_, stream_);
  if (plain_greedy) {
    Argmax(logits, token_ids_.data(), workspace_.data(), num_rows, limits_.vocab_size, stream_);
  } else {
    AdjustLogits(logits, Arrays(), row_slots, adjusted_.data(), num_rows, limits_.vocab_size,
                 stream_);
    ChooseTokens(adjusted_.data(), Arrays(), row_slots, positions, token_ids_.data(), probabilities,
                 num_rows, limits_.vocab_size, stream_);
  }
  CopyToHost(host_token_ids_.data(), token_ids_.data(), num_rows, stream_);
  if (any_logprobs) {
    TopLogprobs(logits, token_ids_.data(), num_top, logprobs_.data(), top_ids_.data(),
                top_logprobs_.data(), kMaxLogprobs, num_rows, limits_.vocab_size, stream_);
    CopyToHost(host_logprobs_.data(), logprobs_.data(), num_rows, stream_);
    CopyToHost(host_top_ids_.data(), top_ids_.data(), Product(num_rows, kMaxLogprobs), stream_);
    CopyToHost(host_top_logprobs_.data(), top_logprobs_.data(), Product(num_rows, kMaxLogprobs),
               stream_);
  }
  sampled_.Record(stream_);
}

void Sampler::Wait() { sampled_.Synchronize(); }

TokenLogprobs Sampler::Logprobs(int row) const {
  TokenLogprobs result = {host_logprobs_[row], {}};
  for (int i = 0; i < row_logprobs_[row]; ++i) {
    const size_t at = Product(row, kMaxLogprobs) + i;
    if (host_top_ids_[at] < 0) break;  // the row has no more
    result.top.emplace_back(host_top_ids_[at], host_top_logprobs_[at]);
  }
  return result;
}

size_t Sampler::device_bytes() const {
  return params_.bytes() + bias_ids_.bytes() + bias_values_.bytes() + banned_bits_.bytes() +
         history_.bytes() + tokens_.bytes() + adjusted_.bytes() + workspace_.bytes() +
         rows_.bytes() + token_ids_.bytes() + logprobs_.bytes() + top_ids_.bytes() +
         top_logprobs_.bytes();
}

}  // namespace tinyvllm
