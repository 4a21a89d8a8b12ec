// Who computes what in which step: a few slots, a queue of requests before them, and the rule by
// which a slot gets its next request. Bookkeeping on counts of tokens: no model, no GPU.
//
//   SlotTable table(/*num_slots=*/2, /*chunk=*/128, Refill::kAtOnce);
//   for (size_t i = 0; i < prompts.size(); ++i) table.Add(i, prompts[i].size());
//   while (!table.done()) {
//     const Step step = table.NextStep();
//     ... FlatBatch(step, sequences) through the model, one token for each work.chooses_token ...
//     for (const SlotWork& work : step) {
//       if (work.chooses_token && ended(work.request)) table.Release(work.slot);
//     }
//   }
//
// That a batch is decided anew before each step, in place of once for all its requests, is
// iteration-level scheduling: Yu et al., Orca: A Distributed Serving System for Transformer-Based
// Generative Models, OSDI 2022, section 3.1.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "lessons/09_forward_pass/batch.h"

namespace tinyvllm {

// When free slots take requests from the queue.
enum class Refill {
  kWhenAllAreFree,  // static batches: the next batch begins when the longest of this one has ended
  kAtOnce,          // continuous batching: a slot that has become free works on in the next step
};

// What one slot does in one step: a chunk of its request's prompt, or one token that was chosen in
// the step before.
struct SlotWork {
  int slot;
  size_t request;
  int first_position;  // of its tokens in the sequence
  int num_tokens;
  bool is_prefill;     // they are the prompt's
  bool chooses_token;  // the sequence is complete up to here: a new token follows
};

// Slots in rising order; an idle one is not in it.
using Step = std::vector<SlotWork>;

class SlotTable {
 public:
  // A prompt goes through in chunks of at most `chunk` tokens, one a step. Throws Error unless both
  // are at least 1.
  SlotTable(int num_slots, int chunk, Refill refill);

  // To the end of the queue. Throws Error for an empty prompt.
  void Add(size_t request, int prompt_tokens);

  // No request runs, and none waits.
  bool done() const { return queue_.empty() && num_running() == 0; }

  // Fills free slots as the rule says, then gives the work of all that have a request, and takes it
  // for done. Each work with chooses_token is followed by a token, unless Release ends the request.
  // Throws Error when there is nothing to do.
  Step NextStep();

  // The slot's request has ended; nobody has it from now on. Throws Error for a slot without one.
  void Release(int slot);

  int num_slots() const { return static_cast<int>(slots_.size()); }
  int num_running() const;
  int num_waiting() const { return static_cast<int>(queue_.size()); }

 private:
  struct Request {
    size_t id;
    int prompt_tokens;
    int cached = 0;  // its tokens that have gone through the model
  };

  void FillFreeSlots();
  SlotWork Advance(int slot);

  const int chunk_;
  const Refill refill_;
  std::vector<std::optional<Request>> slots_;  // empty: free
  std::deque<Request> queue_;
};

// Lays the sequence's tokens first_position to end - 1 at the end of the batch, as a sequence of
// it; wants_logits: of the last of them.
void AppendToBatch(const std::vector<int>& sequence, int first_position, int end, bool wants_logits,
                   Batch* batch);

// The tokens of all slots in one flat batch, each slot a sequence of it, in the order of the step;
// the logits of those that choose a token are wanted. sequences[request] are its tokens so far.
Batch FlatBatch(const Step& step, const std::vector<std::vector<int>>& sequences);

}  // namespace tinyvllm
