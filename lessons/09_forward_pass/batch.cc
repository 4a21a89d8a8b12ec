#include "lessons/09_forward_pass/batch.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"

namespace tinyvllm {

Batch Batch::WholeSequence(const std::vector<int>& token_ids) {
  return PartOfSequence(token_ids, 0);
}

Batch Batch::PartOfSequence(const std::vector<int>& token_ids, int first_position) {
  Batch batch;
  batch.token_ids = token_ids;
  batch.positions.resize(token_ids.size());
  std::iota(batch.positions.begin(), batch.positions.end(), first_position);
  batch.sequence_offsets = {0, batch.num_tokens()};
  batch.logit_rows = {batch.num_tokens() - 1};
  return batch;
}

void Batch::ValidateShape() const {
  Check(positions.size() == token_ids.size(), "batch: ", positions.size(), " positions for ",
        token_ids.size(), " tokens");
  const bool ordered = std::is_sorted(sequence_offsets.begin(), sequence_offsets.end());
  Check(num_sequences() >= 1 && ordered && sequence_offsets.front() == 0 &&
            sequence_offsets.back() == num_tokens(),
        "batch: sequence_offsets must rise from 0 to the ", num_tokens(), " tokens");
}

void Batch::Validate(int vocab_size, int max_positions, const PassLimits& limits) const {
  const auto in_range = [](const char* what, const std::vector<int>& values, int end) {
    for (size_t i = 0; i < values.size(); ++i) {
      Check(values[i] >= 0 && values[i] < end, "batch: ", what, "[", i, "] is ", values[i],
            ", expected 0 to ", end - 1);
    }
  };
  Check(num_tokens() >= 1 && num_tokens() <= limits.max_tokens, "batch: ", num_tokens(),
        " tokens, expected 1 to ", limits.max_tokens);
  ValidateShape();
  in_range("token_ids", token_ids, vocab_size);
  in_range("positions", positions, max_positions);
  Check(num_sequences() >= 1 && num_sequences() <= limits.max_sequences, "batch: ", num_sequences(),
        " sequences, expected 1 to ", limits.max_sequences);
  Check(num_logit_rows() <= limits.max_logit_rows, "batch: ", num_logit_rows(),
        " logit rows, expected at most ", limits.max_logit_rows);
  in_range("logit_rows", logit_rows, num_tokens());
}

DeviceBatch::DeviceBatch(const PassLimits& limits)
    : limits_(limits),
      device_(2 * limits.max_tokens + limits.max_sequences + 1 + limits.max_logit_rows),
      host_(device_.size()) {}

void DeviceBatch::Upload(const Batch& batch, cudaStream_t stream) {
  copied_.Synchronize();
  num_tokens = batch.num_tokens();
  num_sequences = batch.num_sequences();
  max_query_len = 0;
  for (int s = 0; s < num_sequences; ++s) {
    max_query_len =
        std::max(max_query_len, batch.sequence_offsets[s + 1] - batch.sequence_offsets[s]);
  }
  num_logit_rows = batch.num_logit_rows();
  ++num_batches;
  // One copy for all: what lies unused between the arrays costs less than a second call.
  Fill(token_ids(), batch.token_ids);
  Fill(positions(), batch.positions);
  Fill(sequence_offsets(), batch.sequence_offsets);
  Fill(logit_rows(), batch.logit_rows);
  Copy(token_ids(), logit_rows() + num_logit_rows, stream);
  copied_.Record(stream);
}

void DeviceBatch::UploadLogitRows(const std::vector<int>& rows, cudaStream_t stream) {
  copied_.Synchronize();
  Fill(logit_rows(), rows);
  num_logit_rows = static_cast<int>(rows.size());
  Copy(logit_rows(), logit_rows() + num_logit_rows, stream);
  copied_.Record(stream);
}

void DeviceBatch::Fill(const int* device, const std::vector<int>& values) {
  std::copy(values.begin(), values.end(), Host(device));
}

void DeviceBatch::Copy(const int* begin, const int* end, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(const_cast<int*>(begin), Host(begin), (end - begin) * sizeof(int),
                             cudaMemcpyHostToDevice, stream));
}

}  // namespace tinyvllm
