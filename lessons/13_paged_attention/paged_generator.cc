#include "lessons/13_paged_attention/paged_generator.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

PassLimits LimitsOf(const ModelConfig& config, const PagedOptions& options) {
  CheckMaxModelLen(config, options.max_model_len);
  Check(options.max_sequences >= 1 && options.chunk >= options.max_sequences,
        "paged generator: ", options.max_sequences, " sequences and ", options.chunk,
        " tokens a pass; expected at least one sequence, and a token for each");
  PassLimits limits;
  limits.max_tokens = options.chunk;
  limits.max_sequences = options.max_sequences;
  limits.max_sequence_len = options.max_model_len;
  limits.max_logit_rows = options.max_sequences;
  return limits;
}

int BlocksFor(int tokens, int block_size) { return (tokens + block_size - 1) / block_size; }

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

PagedGenerator::PagedGenerator(const ModelConfig& config, const Weights& weights,
                               const PagedOptions& options)
    : options_(options),
      pool_(options.num_blocks),
      cache_(config, LimitsOf(config, options), options.num_blocks, options.block_size),
      pass_(config, weights, LimitsOf(config, options), stream_.get(), PagedStages(&cache_),
            options.gemm),
      argmax_workspace_(ArgmaxWorkspace(options.max_sequences)),
      token_ids_(options.max_sequences),
      host_token_ids_(options.max_sequences) {}

void PagedGenerator::Validate(const GenerationRequest& request) const {
  ValidateRequest(request, pass_.config().vocab_size, options_.max_model_len);
  const int prompt_tokens = static_cast<int>(request.prompt_token_ids.size());
  const int needed = BlocksFor(prompt_tokens, options_.block_size);
  Check(needed <= options_.num_blocks, "prompt: ", prompt_tokens, " tokens need ", needed,
        " blocks of ", options_.block_size, ", and the pool has ", options_.num_blocks,
        "; shorten the prompt or take more blocks");
}

// The last token of an answer is never computed with, so it needs no place.
int PagedGenerator::MostBlocks(const GenerationRequest& request) const {
  const int64_t tokens =
      std::min<int64_t>(static_cast<int64_t>(request.prompt_token_ids.size()) + request.max_tokens,
                        options_.max_model_len);
  return std::min(BlocksFor(static_cast<int>(tokens) - 1, options_.block_size),
                  options_.num_blocks);
}

// tag::admit[]
void PagedGenerator::Admit(const std::vector<GenerationRequest>& requests,
                           std::deque<size_t>* waiting) {
  while (!waiting->empty() && static_cast<int>(running_.size()) < options_.max_sequences) {
    const GenerationRequest& request = requests[waiting->front()];
    const int promised = MostBlocks(request);
    if (promised_ + promised > options_.num_blocks) return;  // it stays first in the queue
    PagedSequence sequence;
    sequence.request = waiting->front();
    sequence.token_ids = request.prompt_token_ids;
    sequence.promised = promised;
    running_.push_back(sequence);
    promised_ += promised;
    waiting->pop_front();
  }
}

// Blocks for the sequence's first num_tokens tokens; false when the pool has none left.
bool PagedGenerator::TakeBlocksFor(PagedSequence* sequence, int num_tokens) {
  while (static_cast<int>(sequence->blocks.size()) < BlocksFor(num_tokens, options_.block_size)) {
    if (pool_.num_free() == 0) return false;
    sequence->blocks.push_back(pool_.Allocate());
  }
  return true;
}

void PagedGenerator::GiveBack(const PagedSequence& sequence) {
  for (const int block : sequence.blocks) pool_.Release(block);
  promised_ -= sequence.promised;
}
// end::admit[]

// tag::batch[]
// Every sequence goes on: by its one new token, or by a part of its prompt, as long as the pass has
// room. There is a table for each of them, and a logit row for each that is complete.
Batch PagedGenerator::NextBatch(std::vector<BlockSpan>* tables) {
  Batch batch;
  batch.sequence_offsets = {0};
  tables->clear();
  int room = options_.chunk - static_cast<int>(running_.size());  // beyond one token for each
  for (PagedSequence& sequence : running_) {
    const int length = static_cast<int>(sequence.token_ids.size());
    const int count = std::min(length - sequence.cached, 1 + room);
    room -= count - 1;
    const int end = sequence.cached + count;
    Check(TakeBlocksFor(&sequence, end), "paged generator: a block was promised and is not there");
    for (int position = sequence.cached; position < end; ++position) {
      batch.token_ids.push_back(sequence.token_ids[position]);
      batch.positions.push_back(position);
    }
    if (end == length) batch.logit_rows.push_back(batch.num_tokens() - 1);
    batch.sequence_offsets.push_back(batch.num_tokens());
    tables->push_back({sequence.blocks.data(), static_cast<int>(sequence.blocks.size())});
    sequence.cached = end;
  }
  return batch;
}
// end::batch[]

// The likeliest token of each logit row. Only the ids come to the host.
const int* PagedGenerator::ChooseTokens(int num_rows) {
  if (num_rows == 0) return nullptr;  // no prompt is complete
  const cudaStream_t stream = stream_.get();
  Argmax(pass_.logits(), token_ids_.data(), argmax_workspace_.data(), num_rows,
         pass_.config().vocab_size, stream);
  CUDA_CHECK(cudaMemcpyAsync(host_token_ids_.data(), token_ids_.data(), num_rows * sizeof(int),
                             cudaMemcpyDeviceToHost, stream));
  stream_.Synchronize();
  return host_token_ids_.data();
}

void PagedGenerator::TakeTokens(const Batch& batch, const std::vector<GenerationRequest>& requests,
                                std::vector<Generation>* generations,
                                const std::function<void(const GeneratedToken&)>& on_token) {
  const int* chosen = ChooseTokens(batch.num_logit_rows());
  const std::vector<float> logits =  // (logit_rows, vocab_size)
      options_.logits_to_host && chosen != nullptr ? pass_.LogitsToHost() : std::vector<float>();
  const float* row = logits.empty() ? nullptr : logits.data();
  std::vector<PagedSequence> still_running;
  for (PagedSequence& sequence : running_) {
    if (sequence.cached < static_cast<int>(sequence.token_ids.size())) {
      still_running.push_back(std::move(sequence));  // the prompt is not complete
      continue;
    }
    const ModelConfig& config = pass_.config();
    const GenerationRequest& request = requests[sequence.request];
    Generation& generation = (*generations)[sequence.request];
    const int token = *chosen++;
    Check(token >= 0, "request ", sequence.request, ": no token was chosen for position ",
          sequence.token_ids.size(), "; its logits are NaN, or minus infinity");
    bool goes_on = false;
    if (!request.ignore_eos && Contains(config.eos_token_ids, token)) {
      generation.finish_reason = FinishReason::kStop;
    } else {
      generation.token_ids.push_back(token);
      sequence.token_ids.push_back(token);
      if (on_token) on_token({sequence.request, token, row});
      const int length = static_cast<int>(sequence.token_ids.size());
      goes_on = static_cast<int>(generation.token_ids.size()) < request.max_tokens &&
                length < options_.max_model_len && TakeBlocksFor(&sequence, length);
    }
    if (row != nullptr) row += config.vocab_size;
    if (goes_on) {
      still_running.push_back(std::move(sequence));
    } else {
      GiveBack(sequence);
    }
  }
  running_ = std::move(still_running);
}

// tag::generate[]
std::vector<Generation> PagedGenerator::Generate(
    const std::vector<GenerationRequest>& requests,
    const std::function<void(const GeneratedToken&)>& on_token) {
  for (const GenerationRequest& request : requests) Validate(request);
  for (const PagedSequence& sequence : running_) GiveBack(sequence);  // of a call that failed
  running_.clear();
  std::deque<size_t> waiting(requests.size());
  std::iota(waiting.begin(), waiting.end(), 0);
  std::vector<Generation> generations(requests.size());
  std::vector<BlockSpan> tables;
  while (!waiting.empty() || !running_.empty()) {
    Admit(requests, &waiting);
    const Batch batch = NextBatch(&tables);
    cache_.Begin(batch, tables, stream_.get());
    pass_.Run(batch);
    if (on_step_) on_step_(running_);
    TakeTokens(batch, requests, &generations, on_token);
  }
  return generations;
}
// end::generate[]

}  // namespace tinyvllm
