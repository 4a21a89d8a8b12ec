// The tokens of one forward pass: a flat row of them, whatever sequences they belong to.
//
//   sequence 0: "The cat sat"       sequence 1: "Hi"
//   token_ids         [ 791, 8415, 7731,  13347 ]
//   positions         [   0,    1,    2,      0 ]
//   sequence_offsets  [   0,                  3,      4 ]
//   logit_rows        [               2,      3 ]
//
// A prompt, a part of one, and the single token of a sequence that is being continued look alike.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/activations.h"

namespace tinyvllm {

struct Batch {
  std::vector<int> token_ids;         // (num_tokens)
  std::vector<int> positions;         // (num_tokens): index of each token in its sequence
  std::vector<int> sequence_offsets;  // (num_sequences + 1): first token of each, then num_tokens
  std::vector<int> logit_rows;        // (num_logit_rows): tokens whose next token is asked for

  int num_tokens() const { return static_cast<int>(token_ids.size()); }
  int num_sequences() const { return static_cast<int>(sequence_offsets.size()) - 1; }
  int num_logit_rows() const { return static_cast<int>(logit_rows.size()); }

  // One whole sequence from its first token on; the logits of its last token are wanted.
  static Batch WholeSequence(const std::vector<int>& token_ids);
  // The part of a sequence that begins at first_position; the rest as above.
  static Batch PartOfSequence(const std::vector<int>& token_ids, int first_position);

  // Throws Error, naming the field and the index, unless the batch is consistent, every token is in
  // the vocabulary, every position is below max_positions, and it keeps to `limits`. What the
  // kernels take for granted is checked here, once.
  void Validate(int vocab_size, int max_positions, const PassLimits& limits) const;
  // The part of it that asks for no limits: a position for every token, offsets that rise from 0 to
  // the last token.
  void ValidateShape() const;
};

// The batch's arrays on the device, in memory taken once.
class DeviceBatch {
 public:
  explicit DeviceBatch(const PassLimits& limits);

  // Queues the copy on `stream`. `batch` may be changed as soon as this returns; the next call
  // waits until the copy before it has been made.
  void Upload(const Batch& batch, cudaStream_t stream);
  // The logit rows alone, for a further Head over the same pass.
  void UploadLogitRows(const std::vector<int>& rows, cudaStream_t stream);

  const int* token_ids() const { return device_.data(); }
  int* mutable_token_ids() { return device_.data(); }
  const int* positions() const { return token_ids() + limits_.max_tokens; }
  const int* sequence_offsets() const { return positions() + limits_.max_tokens; }
  const int* logit_rows() const { return sequence_offsets() + limits_.max_sequences + 1; }

  int num_tokens = 0;
  int num_sequences = 0;
  int num_logit_rows = 0;
  int max_query_len = 0;    // the longest sequence's tokens in this batch
  int64_t num_batches = 0;  // uploaded so far

 private:
  int* Host(const int* device) { return host_.data() + (device - device_.data()); }
  void Fill(const int* device, const std::vector<int>& values);
  void Copy(const int* begin, const int* end, cudaStream_t stream);

  PassLimits limits_;
  DeviceBuffer<int> device_;
  PinnedBuffer<int> host_;
  Event copied_;
};

}  // namespace tinyvllm
