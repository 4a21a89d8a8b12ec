// Generation for all requests at a time over one pool of pages: a request takes a block when it has
// filled the one before, and gives all of them back when it ends.
//
//   PagedOptions options;
//   options.num_blocks = 64;
//   PagedGenerator generator(config, weights, options);
//   const std::vector<Generation> answers = generator.Generate(requests);   // in their order
//
// The tokens are lesson 10's, chosen on the device by lesson 11. A request begins when the pool has
// room for the longest answer it may give, beside those that run: nothing must ever be taken back.
// (Lesson 14 lets more of them in, and takes back.) One that needs more than the whole pool runs
// alone, and ends with `length` when the pool is full.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/09_forward_pass/generator.h"
#include "lessons/11_sampling/argmax.h"
#include "lessons/13_paged_attention/block_pool.h"
#include "lessons/13_paged_attention/paged_kv_cache.h"

namespace tinyvllm {

struct PagedOptions {
  int num_blocks = 256;
  int block_size = 16;      // tokens
  int max_sequences = 16;   // requests that run at a time
  int max_model_len = 512;  // of each, prompt and answer together
  int chunk = 128;          // tokens of a pass: one of each sequence, then parts of prompts
  GemmBackend gemm = GemmBackend::kCublas;
  bool logits_to_host = false;  // on_token gets each token's logits: vocab_size floats to copy
};

// A request that runs.
struct PagedSequence {
  size_t request;
  std::vector<int> token_ids;  // prompt, then answer
  int cached = 0;              // tokens whose K and V lie in the blocks
  std::vector<int> blocks;     // its table
  int promised = 0;            // blocks that it may come to need
};

class PagedGenerator : public Generator {
 public:
  // Takes all memory there will be. `weights` must outlive the generator. Throws Error for options
  // out of range, and when the memory does not suffice.
  PagedGenerator(const ModelConfig& config, const Weights& weights, const PagedOptions& options);

  std::string name() const override { return "13 paged attention"; }
  int64_t num_passes() const override { return pass_.num_passes(); }

  // Throws Error, too, for a prompt that needs more blocks than the pool has.
  std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) override;

  // Called after every pass, with those that run, before any of them gives its blocks back.
  void set_on_step(std::function<void(const std::vector<PagedSequence>&)> on_step) {
    on_step_ = std::move(on_step);
  }

  const BlockPool& pool() const { return pool_; }
  const PagedKvCache& cache() const { return cache_; }
  const PagedOptions& options() const { return options_; }

 private:
  void Validate(const GenerationRequest& request) const;
  int MostBlocks(const GenerationRequest& request) const;
  void Admit(const std::vector<GenerationRequest>& requests, std::deque<size_t>* waiting);
  Batch NextBatch(std::vector<BlockSpan>* tables);
  const int* ChooseTokens(int num_rows);
  void TakeTokens(const Batch& batch, const std::vector<GenerationRequest>& requests,
                  std::vector<Generation>* generations,
                  const std::function<void(const GeneratedToken&)>& on_token);
  bool TakeBlocksFor(PagedSequence* sequence, int num_tokens);
  void GiveBack(const PagedSequence& sequence);

  const PagedOptions options_;
  Stream stream_;
  BlockPool pool_;
  PagedKvCache cache_;
  ForwardPass pass_;
  DeviceBuffer<TokenKey> argmax_workspace_;
  DeviceBuffer<int> token_ids_;  // (max_sequences)
  PinnedBuffer<int> host_token_ids_;
  std::vector<PagedSequence> running_;  // in the order in which they came
  int promised_ = 0;                    // blocks, of all that run
  std::function<void(const std::vector<PagedSequence>&)> on_step_;
};

}  // namespace tinyvllm
