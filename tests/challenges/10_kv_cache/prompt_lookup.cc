#include "lessons/10_kv_cache/challenge/prompt_lookup.h"

#include <algorithm>
#include <numeric>

namespace tinyvllm {

// exercise: Three pieces: find the guesses; run the newest token and the guesses as a part of the
// sequence, with the logits of all of them; keep what agrees. A guess that was wrong has left its
// keys and values in the cache: look at what ContiguousKvCache::Begin does with a position before
// the slot's end. Mind what ends a text, which may lie among the guesses.
// starter: LookupGeneration GenerateWithLookup(const GenerationRequest&, int, ForwardPass*,
// starter:                                     ContiguousKvCache*, cudaStream_t) {
// starter:   return {};
// starter: }
namespace {

// What followed the latest place, before the end, of the last two tokens.
std::vector<int> Guesses(const std::vector<int>& sequence, int max_guesses) {
  const int length = static_cast<int>(sequence.size());
  for (int i = length - 3; i >= 0; --i) {
    if (sequence[i] != sequence[length - 2] || sequence[i + 1] != sequence[length - 1]) continue;
    const auto begin = sequence.begin() + i + 2;
    return {begin, begin + std::min<int>(max_guesses, length - i - 2)};
  }
  return {};
}

// The token with the highest logit of each row, the lowest id among equals.
std::vector<int> Choices(ForwardPass* pass) {
  const std::vector<float> logits = pass->LogitsToHost();
  const size_t vocab_size = pass->config().vocab_size;
  std::vector<int> choices;
  for (size_t row = 0; row < logits.size(); row += vocab_size) {
    const auto begin = logits.begin() + row;
    choices.push_back(static_cast<int>(std::max_element(begin, begin + vocab_size) - begin));
  }
  return choices;
}

}  // namespace

LookupGeneration GenerateWithLookup(const GenerationRequest& request, int max_guesses,
                                    ForwardPass* pass, ContiguousKvCache* cache,
                                    cudaStream_t stream) {
  LookupGeneration answer;
  std::vector<int>& chosen = answer.generation.token_ids;
  std::vector<int> sequence = request.prompt_token_ids;
  Batch batch = Batch::WholeSequence(sequence);
  std::vector<int> guesses;
  for (;;) {
    cache->Begin(batch, {0}, stream);
    pass->Run(batch);
    ++answer.num_passes;
    const std::vector<int> choices = Choices(pass);
    for (size_t i = 0; i < choices.size(); ++i) {
      if (IsEndToken(choices[i], request, pass->config())) {
        answer.generation.finish_reason = FinishReason::kStop;
        return answer;
      }
      chosen.push_back(choices[i]);
      sequence.push_back(choices[i]);
      if (static_cast<int>(chosen.size()) == request.max_tokens ||
          static_cast<int>(sequence.size()) == cache->max_len()) {
        return answer;
      }
      if (i < guesses.size() && guesses[i] != choices[i]) break;
    }
    const int newest = static_cast<int>(sequence.size()) - 1;
    guesses = Guesses(sequence, std::min(max_guesses, cache->max_len() - newest - 1));
    std::vector<int> tokens = {sequence[newest]};
    tokens.insert(tokens.end(), guesses.begin(), guesses.end());
    batch = Batch::PartOfSequence(tokens, newest);
    batch.logit_rows.resize(tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
  }
}
// end exercise

}  // namespace tinyvllm
