#include "lessons/14_engine/slot_scheduler.h"

namespace tinyvllm {

int SlotScheduler::Add(const std::vector<int>& prompt_token_ids, int max_tokens,
                       bool use_cached_prefix) {
  const int request = Scheduler::Add(prompt_token_ids, max_tokens, use_cached_prefix);
  table_.Add(request, static_cast<int>(prompt_token_ids.size()));
  return request;
}

const StepPlan& SlotScheduler::Next() {
  bool given_to_nobody = true;
  while (given_to_nobody && !table_.done()) {
    given_to_nobody = false;
    for (const SlotWork& work : table_.NextStep()) {
      const int request = static_cast<int>(work.request);
      if (Has(request)) {
        slots_[request] = work.slot;
      } else {  // it was aborted while it waited, of which the table knows nothing
        table_.Release(work.slot);
        given_to_nobody = true;
      }
    }
  }
  return Scheduler::Next();
}

void SlotScheduler::Finish(int request) {
  Scheduler::Finish(request);
  const auto found = slots_.find(request);
  if (found == slots_.end()) return;
  table_.Release(found->second);
  slots_.erase(found);
}

}  // namespace tinyvllm
