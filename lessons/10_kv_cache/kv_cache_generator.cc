#include "lessons/10_kv_cache/kv_cache_generator.h"

#include <algorithm>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

// Rows of a prompt's logits at a time: a vocabulary of 128,256 in f32 takes half a megabyte a row.
constexpr int kLogitRows = 32;

// The only sequence there is at a time.
constexpr int kSlot = 0;

PassLimits OneSequence(const ModelConfig& config, int max_model_len, int chunk) {
  CheckMaxModelLen(config, max_model_len);
  Check(chunk >= 1, "chunk is ", chunk, ", expected at least 1");
  PassLimits limits;
  limits.max_tokens = std::min(chunk, max_model_len);
  limits.max_sequences = 1;
  limits.max_sequence_len = max_model_len;
  limits.max_logit_rows = std::min(kLogitRows, limits.max_tokens);
  return limits;
}

}  // namespace

KvCacheGenerator::KvCacheGenerator(const ModelConfig& config, const Weights& weights,
                                   int max_model_len, GemmBackend gemm, int chunk)
    : cache_(config, OneSequence(config, max_model_len, chunk)),
      pass_(config, weights, OneSequence(config, max_model_len, chunk), stream_.get(),
            CachedStages(&cache_), gemm) {}

void KvCacheGenerator::Validate(const GenerationRequest& request) const {
  ValidateRequest(request, pass_.config().vocab_size, max_model_len());
}

// tag::generate[]
int KvCacheGenerator::RunChunk(const std::vector<int>& sequence, int cached, bool want_logits) {
  const int length = static_cast<int>(sequence.size());
  const int end = std::min(length, cached + pass_.limits().max_tokens);
  Batch batch = Batch::PartOfSequence({sequence.begin() + cached, sequence.begin() + end}, cached);
  if (!want_logits || end < length) batch.logit_rows.clear();
  cache_.Begin(batch, {kSlot}, stream_.get());
  pass_.Run(batch);
  return end;
}

std::vector<Generation> KvCacheGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  for (const GenerationRequest& request : requests) Validate(request);
  std::vector<Generation> generations;
  for (size_t i = 0; i < requests.size(); ++i) {
    int cached = 0;  // the sequence's tokens whose keys and values are kept
    const auto next_logits = [&](const std::vector<int>& sequence) {
      // The whole prompt at first, then one token a call.
      while (cached < static_cast<int>(sequence.size())) {
        cached = RunChunk(sequence, cached, /*want_logits=*/true);
      }
      return pass_.LogitsToHost();  // (vocab_size): of the last token
    };
    generations.push_back(
        ContinueGreedily(i, requests[i], pass_.config(), max_model_len(), next_logits, on_token));
  }
  return generations;
}
// end::generate[]

void KvCacheGenerator::PromptLogits(
    const std::vector<int>& prompt_token_ids,
    const std::function<void(int position, const float* logits)>& on_row) {
  const int length = static_cast<int>(prompt_token_ids.size());
  for (int cached = 0; cached < length;) {
    const int first = cached;
    cached = RunChunk(prompt_token_ids, first, /*want_logits=*/false);
    VisitLogits(&pass_, cached - first,
                [&](int token, const float* logits) { on_row(first + token, logits); });
  }
}

}  // namespace tinyvllm
