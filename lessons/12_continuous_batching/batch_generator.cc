#include "lessons/12_continuous_batching/batch_generator.h"

#include <algorithm>
#include <limits>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

PassLimits LimitsOf(const ModelConfig& config, const BatchOptions& options) {
  CheckMaxModelLen(config, options.max_model_len);
  Check(options.num_slots >= 1, "num_slots is ", options.num_slots, ", expected at least 1");
  Check(options.chunk >= 1, "chunk is ", options.chunk, ", expected at least 1");
  const int chunk = std::min(options.chunk, options.max_model_len);
  Check(options.num_slots <= std::numeric_limits<int>::max() / chunk, "num_slots is ",
        options.num_slots, ", and each may have ", chunk,
        " tokens in a step; take fewer slots or a smaller chunk");
  PassLimits limits;
  limits.max_tokens = options.num_slots * chunk;  // every slot may be at its prompt
  limits.max_sequences = options.num_slots;
  limits.max_sequence_len = options.max_model_len;
  limits.max_logit_rows = options.num_slots;
  return limits;
}

SamplerLimits SamplerLimitsOf(const ModelConfig& config, const BatchOptions& options) {
  return {options.num_slots, options.num_slots, config.vocab_size, options.max_model_len};
}

// `check`, whose Error shall name the request.
template <typename Call>
void NamingRequest(size_t request, const Call& check) {
  try {
    check();
  } catch (const Error& error) {
    throw Error("request ", request, ": ", error.what());
  }
}

}  // namespace

BatchGenerator::BatchGenerator(const ModelConfig& config, const Weights& weights,
                               const BatchOptions& options, Refill refill)
    : options_(options),
      refill_(refill),
      cache_(config, LimitsOf(config, options)),
      pass_(config, weights, LimitsOf(config, options), stream_.get(), CachedStages(&cache_),
            options.gemm),
      sampler_(SamplerLimitsOf(config, options), stream_.get()) {}

void BatchGenerator::Validate(const std::vector<SampledRequest>& requests) const {
  const int vocab_size = pass_.config().vocab_size;
  for (size_t i = 0; i < requests.size(); ++i) {
    NamingRequest(i, [&] {
      ValidateRequest(requests[i].generation, vocab_size, options_.max_model_len);
      requests[i].sampling.Validate(vocab_size);
    });
  }
}

std::vector<Generation> BatchGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  std::vector<SampledRequest> greedy;
  for (const GenerationRequest& request : requests) greedy.push_back({request, SamplingParams()});
  return GenerateSampled(greedy, on_token);
}

// tag::run[]
// Queues the step's batch and the choice of its tokens, and waits for their ids.
void BatchGenerator::RunStep(const Step& step, const std::vector<SampledRequest>& requests,
                             const std::vector<std::vector<int>>& sequences) {
  const Batch batch = FlatBatch(step, sequences);
  std::vector<int> slots;
  std::vector<SampleRow> rows;
  for (const SlotWork& work : step) {
    slots.push_back(work.slot);
    const int end = work.first_position + work.num_tokens;
    if (work.first_position == 0) {  // the slot's first step with this request
      sampler_.SetRequest(work.slot, requests[work.request].sampling, sequences[work.request]);
    }
    if (work.chooses_token) rows.push_back({work.slot, end});
  }
  Check(batch.num_sequences() == static_cast<int>(slots.size()), "step: ", slots.size(),
        " slots have work, but the batch holds ", batch.num_sequences(),
        " sequences; FlatBatch must lay them side by side");
  cache_.Begin(batch, slots, stream_.get());
  pass_.Run(batch);
  if (rows.empty()) return;  // every slot is in the middle of its prompt
  sampler_.Sample(pass_.logits(), rows);
  sampler_.Wait();
}
// end::run[]

// tag::generate[]
std::vector<Generation> BatchGenerator::GenerateSampled(
    const std::vector<SampledRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  Validate(requests);
  SlotTable table(options_.num_slots, options_.chunk, refill_);
  std::vector<std::vector<int>> sequences;  // (requests): the prompt, then what is chosen
  for (const SampledRequest& request : requests) {
    const std::vector<int>& prompt = request.generation.prompt_token_ids;
    table.Add(sequences.size(), static_cast<int>(prompt.size()));
    sequences.push_back(prompt);
  }
  std::vector<Generation> generations(requests.size());
  steps_.clear();
  while (!table.done()) {
    steps_.push_back(table.NextStep());
    RunStep(steps_.back(), requests, sequences);
    int row = 0;
    for (const SlotWork& work : steps_.back()) {
      if (!work.chooses_token) continue;
      const GenerationRequest& request = requests[work.request].generation;
      std::vector<int>& sequence = sequences[work.request];
      Generation& generation = generations[work.request];
      const int token = sampler_.token_id(row++);
      Check(token >= 0, "request ", work.request, ": no token was chosen for position ",
            sequence.size(), "; its logits are NaN, or the argmax left its output unwritten");
      if (IsEndToken(token, request, pass_.config())) {
        generation.finish_reason = FinishReason::kStop;
        table.Release(work.slot);
        continue;
      }
      sequence.push_back(token);
      generation.token_ids.push_back(token);
      if (on_token) on_token({work.request, token, nullptr});
      const bool full = static_cast<int>(sequence.size()) == options_.max_model_len;
      const bool enough = static_cast<int>(generation.token_ids.size()) == request.max_tokens;
      if (full || enough) table.Release(work.slot);
    }
  }
  return generations;
}
// end::generate[]

}  // namespace tinyvllm
