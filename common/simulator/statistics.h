// Counts what kernels do; cuda_simulator/statistics.h says what, docs/simulator.md#statistics why.
//
// These functions are called by watch.cc, while the statistics are on.
#pragma once

#include <cstdint>
#include <mutex>

#include "cuda_simulator/launch.h"
#include "cuda_simulator/statistics.h"

namespace tinyvllm::simulator {

struct MemoryAccess;

// One launch: what its OS threads have counted comes together here.
class StatisticsLaunch {
 public:
  explicit StatisticsLaunch(const KernelLaunch& launch) : launch_(launch) {}
  // Called by every OS thread before its first block and after its last one.
  void Begin();
  void End();
  // Called once, when all have ended.
  void Finish();

 private:
  const KernelLaunch& launch_;
  std::mutex mutex_;
  KernelStatistics total_;
};

void StatisticsBeginBlock();
void StatisticsEndBlock();
void StatisticsBarrier();
void StatisticsMeeting(int warp, uint64_t lanes);
void StatisticsAccess(const MemoryAccess& access);

}  // namespace tinyvllm::simulator
