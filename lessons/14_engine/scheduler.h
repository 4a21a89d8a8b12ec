// What runs in the next step, and where its keys and values lie. Pure bookkeeping: no GPU in it.
//
//   Scheduler scheduler(config);
//   const int request = scheduler.Add(prompt, /*max_tokens=*/100);
//   while (scheduler.has_work()) {
//     const StepPlan& plan = scheduler.Next();
//     for (const ScheduledSequence& sequence : plan.sequences) {
//       // compute its tokens; where sequence.samples, choose the next one:
//       scheduler.Append(sequence.request, token);     // or Finish(sequence.request)
//     }
//   }
//
// A step has one budget of tokens, and spends it in this order (Agrawal et al., Taming
// Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve, OSDI 2024, section 4):
//   1. Every request that decodes gets its one token, the oldest first. One that needs a block when
//      none is free puts off the youngest that runs: that gives back all it has, and will be
//      computed anew (Kwon et al. 2023, section 4.5: recomputation).
//   2. Prompts that are under way get what is left, in chunks, the oldest first.
//   3. Requests that wait are admitted, in the order in which they came, while a slot, room for the
//      whole prompt, and budget are left. Nobody is admitted in a step that put someone off.
// So a long prompt never holds up those who decode by more than one step of the budget's size; and
// whoever runs came before whoever waits, so that the oldest of all always moves on, and each
// request becomes the oldest in time.
//
// The plan follows from counts alone: how many tokens there are, not which. The values come by
// Append, when they are known, and serve to recognise prefixes. Next may be called again before the
// values of the step before are there (then Finish comes a step late, and what was planned for that
// request in between is for nothing).
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "lessons/13_paged_attention/block_pool.h"
#include "lessons/14_engine/prefix_cache.h"

namespace tinyvllm {

struct SchedulerConfig {
  int max_num_seqs = 256;             // requests that run at a time
  int max_num_batched_tokens = 2048;  // a step's budget; at least max_num_seqs
  int max_model_len = 0;              // tokens of a request, prompt and answer together
  int num_blocks = 0;                 // the pool
  int block_size = 16;                // tokens
  bool enable_prefix_caching = true;
};

// A part of a request that a step computes.
struct ScheduledSequence {
  int request;
  int slot;            // 0 to max_num_seqs - 1, its own while it runs
  int first_position;  // in its tokens
  int num_tokens;
  bool samples;  // the part ends with the request's last token: the next one is chosen
};

struct StepPlan {
  std::vector<ScheduledSequence> sequences;
  std::vector<int> admitted;       // requests, new or coming back
  std::vector<int> cached_tokens;  // of each that was admitted: found, not computed
  std::vector<int> preempted;      // put off: blocks and slot are gone
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  virtual ~Scheduler() = default;

  // Throws Error, naming the field, for a configuration that no request could run with; so does the
  // constructor.
  static void CheckConfig(const SchedulerConfig& config);

  // Returns the request's number, which counts from 0. With use_cached_prefix false, all of the
  // prompt is computed whatever is known. Throws Error for an empty prompt, for max_tokens below 1,
  // and for a prompt that can never fit the pool or the model; the others run on.
  virtual int Add(const std::vector<int>& prompt_token_ids, int max_tokens,
                  bool use_cached_prefix = true);

  // Plans a step. Valid until the next call. Empty where every request only waits for a token that
  // is not known yet, or where there is none.
  virtual const StepPlan& Next();

  // The value of the request's first token that is not known yet.
  void Append(int request, int token_id);

  // It is done, or not wanted any more. Throws Error for a number that is not in use.
  virtual void Finish(int request);

  bool has_work() const { return !requests_.empty(); }
  bool Has(int request) const { return requests_.count(request) != 0; }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }

  // Prompt and answer together: where it ends with "length". By max_tokens, max_model_len, and by
  // what the whole pool can hold: the last token of all needs no place in it.
  int length_limit(int request) const { return Get(request).limit; }
  bool is_running(int request) const { return Get(request).slot >= 0; }
  // Its blocks, in the order of its tokens; none while it waits.
  const std::vector<int>& blocks(int request) const { return Get(request).blocks; }
  const std::vector<int>& blocks_in_slot(int slot) const { return slots_.at(slot)->blocks; }
  // Its tokens, prompt and answer, as far as they are known.
  const std::vector<int>& tokens_in_slot(int slot) const { return slots_.at(slot)->token_ids; }

  const SchedulerConfig& config() const { return config_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixCache& prefix_cache() const { return prefix_cache_; }

  // Throws Error, naming what is broken, unless every block has as many references as requests that
  // hold it, every request that runs has the blocks that it needs, and all of them came before all
  // that wait. For checks: takes as many steps as there are blocks.
  void CheckInvariants() const;

 protected:
  // Whether a request that waits may be admitted, as far as it is not for the scheduler to say.
  virtual bool MayRun(int /*request*/) const { return true; }

 private:
  struct Request {
    int number;
    int limit;             // of num_tokens
    int num_tokens;        // prompt, and answer as far as it has been planned
    int num_computed = 0;  // of them, those that have their place in the pool
    int slot = -1;         // -1: it waits
    bool use_cached_prefix;
    std::vector<int> token_ids;  // as far as they are known
    std::vector<int> blocks;
    Prefix prefix;             // of its first num_known_blocks blocks
    int num_known_blocks = 0;  // of its blocks, those that the prefix cache has been told of

    // Tokens that are there and not computed. Of one that has reached its limit, the last need not
    // be.
    int remaining() const { return num_tokens == limit ? 0 : num_tokens - num_computed; }
  };
  using RequestList = std::list<Request>;

  const Request& Get(int request) const;
  int BlocksFor(int num_tokens) const;

  void SpendBudget();
  bool MakeRoom(Request* request);
  void PutOffYoungest();
  bool TryToAdmit();
  Prefix FindPrefix(const Request& request);
  void Run(Request* request, int num_tokens);
  void RememberBlocks(Request* request);
  void AddBlock(Request* request);
  void GiveBack(Request* request);

  const SchedulerConfig config_;
  BlockPool pool_;
  PrefixCache prefix_cache_;
  // Both in the order in which requests came. A request moves between them as a list's node, which
  // allocates nothing.
  RequestList waiting_;
  RequestList running_;
  std::unordered_map<int, RequestList::iterator> requests_;
  std::vector<Request*> slots_;  // (max_num_seqs): who has each; null: nobody
  std::vector<int> free_slots_;  // a stack
  std::vector<int> found_;       // blocks of a prefix, for TryToAdmit
  int budget_ = 0;               // tokens left in this step
  int next_number_ = 0;
  StepPlan plan_;
};

}  // namespace tinyvllm
