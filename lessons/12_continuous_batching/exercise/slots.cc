#include "lessons/12_continuous_batching/slots.h"

#include <algorithm>

#include "common/base/error.h"

namespace tinyvllm {

SlotTable::SlotTable(int num_slots, int chunk, Refill refill) : chunk_(chunk), refill_(refill) {
  Check(num_slots >= 1, "slots: ", num_slots, ", expected at least 1");
  Check(chunk >= 1, "chunk is ", chunk, ", expected at least 1");
  slots_.resize(num_slots);
}

void SlotTable::Add(size_t request, int prompt_tokens) {
  Check(prompt_tokens >= 1, "request ", request, ": a prompt of ", prompt_tokens,
        " tokens, expected at least 1");
  queue_.push_back({request, prompt_tokens});
}

int SlotTable::num_running() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [](const auto& slot) { return slot.has_value(); }));
}

void SlotTable::FillFreeSlots() {
  // Your turn: Give each free slot the request that has waited longest, as long as one waits: slots_
  // says who has which slot (empty: free), queue_ who waits (the longest at the front). With static
  // batches (refill_ is Refill::kWhenAllAreFree) do so only while no slot has a request.
}

Step SlotTable::NextStep() {
  FillFreeSlots();
  Step step;
  for (int slot = 0; slot < num_slots(); ++slot) {
    if (slots_[slot].has_value()) step.push_back(Advance(slot));
  }
  Check(!step.empty(), "slots: every one is idle, and ", queue_.size(),
        " requests wait; SlotTable::FillFreeSlots must give them the free slots");
  return step;
}

SlotWork SlotTable::Advance(int slot) {
  Request& request = *slots_[slot];
  SlotWork work;
  work.slot = slot;
  work.request = request.id;
  work.first_position = request.cached;
  work.is_prefill = request.cached < request.prompt_tokens;
  work.num_tokens = work.is_prefill ? std::min(chunk_, request.prompt_tokens - request.cached) : 1;
  request.cached += work.num_tokens;
  work.chooses_token = request.cached >= request.prompt_tokens;
  return work;
}

void SlotTable::Release(int slot) {
  Check(slot >= 0 && slot < num_slots() && slots_[slot].has_value(), "slots: slot ", slot, " of ",
        num_slots(), " has no request to release");
  slots_[slot].reset();
}

void AppendToBatch(const std::vector<int>& sequence, int first_position, int end, bool wants_logits,
                   Batch* batch) {
  // Your turn: Append the sequence's tokens first_position to end - 1, and their positions; where
  // they end in the batch; and, if logits are wanted, the row of the last of them, whose logits
  // decide the next token. lessons/09_forward_pass/batch.h draws the four arrays.
}

Batch FlatBatch(const Step& step, const std::vector<std::vector<int>>& sequences) {
  Batch batch;
  batch.sequence_offsets = {0};
  for (const SlotWork& work : step) {
    const std::vector<int>& sequence = sequences.at(work.request);
    const int end = work.first_position + work.num_tokens;
    Check(end <= static_cast<int>(sequence.size()), "request ", work.request, ": position ",
          end - 1, " is wanted of a sequence of ", sequence.size(), " tokens");
    AppendToBatch(sequence, work.first_position, end, work.chooses_token, &batch);
  }
  return batch;
}

}  // namespace tinyvllm
