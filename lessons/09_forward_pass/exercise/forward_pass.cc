#include "lessons/09_forward_pass/forward_pass.h"

#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "lessons/03_embedding/embedding.h"

namespace tinyvllm {

ForwardPass::ForwardPass(const ModelConfig& config, const Weights& weights,
                         const PassLimits& limits, cudaStream_t stream, Stages stages,
                         GemmBackend gemm)
    : config_(config),
      weights_(weights),
      limits_(limits),
      stream_(stream),
      stages_(std::move(stages)),
      linear_(stream, gemm),
      rope_table_(config.rope, limits.max_sequence_len),
      activations_(config, limits, stages_.attend_workspace(config, limits)),
      batch_(limits) {}

PassContext ForwardPass::context() {
  return {config_, weights_, limits_, batch_, rope_table_, activations_, linear_, stream_};
}

void ForwardPass::Run(const Batch& batch, const std::function<void(int*)>& fill_in) {
  batch.Validate(config_.vocab_size, rope_table_.max_positions(), limits_);
  batch_.Upload(batch, stream_);
  if (fill_in) fill_in(batch_.mutable_token_ids());
  const PassContext pass = context();
  hooks_->BeforePass(stream_);
  bf16* remainder = activations_.Begin(Buffer::kRemainder, batch_.num_tokens, stream_);
  const size_t remainder_bytes = size_t(batch_.num_tokens) * config_.hidden_size * sizeof(bf16);
  CUDA_CHECK(cudaMemsetAsync(remainder, 0, remainder_bytes, stream_));
  // Your turn: Fill the residual stream with the tokens' embeddings, take it through every layer's
  // four stages, and end with the head if the batch asks for logits. Around each layer, the hooks
  // say when its weights are needed and when they are not any more.
  hooks_->AfterPass(stream_);
}

void ForwardPass::RunHead(const std::vector<int>& logit_rows) {
  Check(!logit_rows.empty() && static_cast<int>(logit_rows.size()) <= limits_.max_logit_rows,
        "head: ", logit_rows.size(), " rows, expected 1 to ", limits_.max_logit_rows);
  for (const int row : logit_rows) {
    Check(row >= 0 && row < batch_.num_tokens, "head: row ", row, " of a batch of ",
          batch_.num_tokens, " tokens");
  }
  batch_.UploadLogitRows(logit_rows, stream_);
  stages_.head(context());
}

std::vector<float> ForwardPass::LogitsToHost() {
  std::vector<float> host(size_t(batch_.num_logit_rows) * config_.vocab_size);
  CUDA_CHECK(cudaMemcpyAsync(host.data(), logits(), host.size() * sizeof(float),
                             cudaMemcpyDeviceToHost, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (size_t i = 0; i < host.size(); ++i) {
    Check(std::isfinite(host[i]), "logits: row ", i / config_.vocab_size, ", token ",
          i % config_.vocab_size, " is ", host[i],
          "; a kernel left its output unwritten, or the weights hold values that are not numbers");
  }
  return host;
}

}  // namespace tinyvllm
