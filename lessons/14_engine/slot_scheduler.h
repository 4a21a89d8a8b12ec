// The scheduler behind lesson 12's slot table: a request is admitted only once the table has given
// it a slot. All else is the scheduler's: blocks, budget, chunks, who is put off.
//
//   std::unique_ptr<Scheduler> scheduler = std::make_unique<SlotScheduler>(config);
//
// The scheduler admits in the order of arrival anyway, so the plans are the same. final takes it
// where the table is the learner's (--//:exercise=12_continuous_batching).
#pragma once

#include <unordered_map>

#include "lessons/12_continuous_batching/slots.h"
#include "lessons/14_engine/scheduler.h"

namespace tinyvllm {

class SlotScheduler : public Scheduler {
 public:
  explicit SlotScheduler(const SchedulerConfig& config)
      : Scheduler(config),
        table_(config.max_num_seqs, /*chunk=*/config.max_model_len, Refill::kAtOnce) {}

  int Add(const std::vector<int>& prompt_token_ids, int max_tokens,
          bool use_cached_prefix = true) override;
  const StepPlan& Next() override;
  void Finish(int request) override;

  const SlotTable& table() const { return table_; }

 protected:
  bool MayRun(int request) const override { return slots_.count(request) != 0; }

 private:
  SlotTable table_;
  std::unordered_map<int, int> slots_;  // request to slot of the table
};

}  // namespace tinyvllm
