// What watches a kernel while it runs: the race detector (race.h), the memory checker
// (memory_check.h) and the statistics (statistics.h), each switched on by a setting.
// docs/simulator.md explains them.
//
// Two sources feed a watcher. The engine tells it when blocks begin and end and when threads meet,
// by the functions below, in every build. The hooks (access_hooks.cc) tell it of each access to
// memory, from code that is compiled for it: everything under --//:instrumented=on, or the
// ":NAME.counted" twin of a single cuda_library. Where no watcher is on, each of these costs one
// branch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/simulator/race.h"
#include "common/simulator/statistics.h"
#include "cuda_simulator/launch.h"

namespace tinyvllm::simulator {

class BlockRunner;

// A set of these.
enum Watcher : unsigned { kWatchRaces = 1, kWatchStatistics = 2, kWatchMemory = 4 };

// The watchers of the block that the calling OS thread runs. None between blocks, while a watcher
// itself works, and after a report.
extern __thread unsigned watching TINYVLLM_SIM_TLS;

// Those of the launch whose blocks the OS thread runs.
extern __thread unsigned watchers_of_launch TINYVLLM_SIM_TLS;

// What is on: what the settings say, and the statistics where CountKernels is at work.
unsigned Watchers();
void SwitchStatistics(bool on);

// Between its beginning and its end accesses of the calling OS thread do not count.
class WatchPause {
 public:
  WatchPause() : before_(watching) {
    watching = 0;
    // To the compiler a fill does not read `watching`; its hook does.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~WatchPause() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    watching = before_;
  }
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;

 private:
  const unsigned before_;
};

// One launch.
class WatchedLaunch {
 public:
  explicit WatchedLaunch(const KernelLaunch& launch);
  // Called by every OS thread before its first block, once no earlier launch runs any more, and
  // after its last one.
  void Begin();
  void End();
  // Called once, when all have ended.
  void Finish();

 private:
  const KernelLaunch& launch_;
  const unsigned watchers_;
  RaceLaunch race_;
  StatisticsLaunch statistics_;
};

// Behind the functions below: see watch.cc.
void TellBlockBegins(BlockRunner* runner, uint64_t number);
void TellBlockEnds(BlockRunner* runner);
void TellBarrier();
void TellMeeting(int warp, uint64_t lanes, const char* operation);
void TellShared(const void* variable, size_t bytes, const char* name);

// The calling OS thread begins or ends block `number` of the launch it has begun.
inline void OnBlockBegins(BlockRunner* runner, uint64_t number) {
  if (watchers_of_launch != 0) TellBlockBegins(runner, number);
}
inline void OnBlockEnds(BlockRunner* runner) {
  if (watching != 0) TellBlockEnds(runner);
}
// All threads of the block have met.
inline void OnBarrier() {
  if (watching != 0) TellBarrier();
}
// `lanes` of a warp have met in the function `operation`.
inline void OnMeeting(int warp, uint64_t lanes, const char* operation) {
  if (watching != 0) TellMeeting(warp, lanes, operation);
}
// A __shared__ variable of this block.
inline void OnShared(const void* variable, size_t bytes, const char* name) {
  if (watching != 0) TellShared(variable, bytes, name);
}

}  // namespace tinyvllm::simulator

// A `__shared__` variable outside functions, which every block has. Translated code declares and
// calls this at the program's start; `address`: where the calling OS thread's lies.
extern "C" int tinyvllm_simulator_namespace_shared(void* (*address)(), unsigned long bytes,
                                                   const char* name);
