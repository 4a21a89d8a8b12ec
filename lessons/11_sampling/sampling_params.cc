#include "lessons/11_sampling/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

// Written so that NaN fails too.
void CheckRange(const char* name, float value, float low, float high) {
  Check(value >= low && value <= high, name, " is ", value, ", expected ", low, " to ", high);
}

void CheckIds(const char* name, const std::vector<int>& ids, int vocab_size) {
  for (const int id : ids) {
    Check(id >= 0 && id < vocab_size, name, ": token id ", id, " is not in the vocabulary of ",
          vocab_size);
  }
}

void CheckBias(const std::vector<std::pair<int, float>>& biases, int vocab_size) {
  Check(biases.size() <= kMaxLogitBiases, "logit_bias has ", biases.size(), " entries, expected ",
        kMaxLogitBiases, " or fewer");
  std::vector<int> ids;
  for (const auto& [id, value] : biases) {
    CheckRange("logit_bias", value, -100, 100);
    ids.push_back(id);
  }
  CheckIds("logit_bias", ids, vocab_size);
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  Check(twice == ids.end(), "logit_bias names token id ", twice == ids.end() ? 0 : *twice,
        " twice, expected once");
}

}  // namespace

void SamplingParams::Validate(int vocab_size) const {
  Check(temperature >= 0 && std::isfinite(temperature), "temperature is ", temperature,
        ", expected 0 (greedy) or more, and finite");
  Check(top_k >= -1, "top_k is ", top_k, ", expected 1 or more, or 0 or -1 for all tokens");
  Check(top_p > 0 && top_p <= 1, "top_p is ", top_p, ", expected more than 0 and at most 1");
  CheckRange("min_p", min_p, 0, 1);
  Check(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty is ",
        repetition_penalty, ", expected more than 0, and finite");
  CheckRange("presence_penalty", presence_penalty, -2, 2);
  CheckRange("frequency_penalty", frequency_penalty, -2, 2);
  Check(logprobs >= -1 && logprobs <= kMaxLogprobs, "logprobs is ", logprobs, ", expected 0 to ",
        kMaxLogprobs, ", or -1 for none");
  CheckBias(logit_bias, vocab_size);
  CheckIds("allowed_token_ids", allowed_token_ids, vocab_size);
  CheckIds("bad_token_ids", bad_token_ids, vocab_size);
  if (!has_bans()) return;
  const std::vector<uint32_t> banned = BannedBits(vocab_size);
  int num_banned = 0;
  for (int id = 0; id < vocab_size; ++id) num_banned += banned[id / 32] >> (id % 32) & 1;
  Check(num_banned < vocab_size, "allowed_token_ids and bad_token_ids leave no token to choose");
}

void SamplingParams::WriteBannedBits(int vocab_size, uint32_t* bits) const {
  std::fill(bits, bits + (vocab_size + 31) / 32, allowed_token_ids.empty() ? 0 : ~0u);
  for (const int id : allowed_token_ids) bits[id / 32] &= ~(1u << (id % 32));
  for (const int id : bad_token_ids) bits[id / 32] |= 1u << (id % 32);
}

std::vector<uint32_t> SamplingParams::BannedBits(int vocab_size) const {
  std::vector<uint32_t> bits((vocab_size + 31) / 32);
  WriteBannedBits(vocab_size, bits.data());
  return bits;
}

}  // namespace tinyvllm
