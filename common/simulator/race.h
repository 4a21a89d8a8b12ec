// The race detector of --config=race; docs/simulator.md#races explains it.
//
// g++ compiles kernels with -fsanitize=thread, which calls a hook before each access to memory. The
// hooks (race_hooks.cc) are ours and not ThreadSanitizer's, as its idea of a thread and of a lock
// is not CUDA's. For every few bytes of shared and global memory a shadow remembers the last
// accesses (race.cc): which thread of which block made them, and when, counted in barriers. An
// access races with one of these where no barrier that both threads took part in lies between. The
// engine tells the detector about barriers with the functions below.
//
// In every other configuration they are empty.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef TINYVLLM_SIM_RACE
#define TINYVLLM_SIM_RACE 0
#endif

#if TINYVLLM_SIM_RACE
#include <mutex>
#endif

namespace tinyvllm::simulator {

class BlockRunner;

#if TINYVLLM_SIM_RACE

constexpr bool kRaceDetector = true;

// One launch: numbers its blocks, so that accesses of earlier launches can be told from its own.
class RaceLaunch {
 public:
  explicit RaceLaunch(uint64_t num_blocks) : num_blocks_(num_blocks) {}
  // Called by every OS thread before its first block, once no earlier launch runs any more.
  void Begin();

 private:
  const uint64_t num_blocks_;
  std::once_flag numbered_;
  uint32_t first_block_ = 0;
};

// The calling OS thread begins or ends block `number` of the launch it has begun.
void RaceBeginBlock(BlockRunner* runner, uint64_t number);
void RaceEndBlock();
// All threads of the block have met.
void RaceBarrier();
// `lanes` of a warp have met in the function `operation`.
void RaceMeeting(int warp, uint64_t lanes, const char* operation);
// A __shared__ variable of this block.
void RaceShared(const void* variable, size_t bytes, const char* name);
// Between Pause(true) and Pause(false) accesses of the calling OS thread do not count.
void RacePause(bool pause);

#else

constexpr bool kRaceDetector = false;

class RaceLaunch {
 public:
  explicit RaceLaunch(uint64_t) {}
  void Begin() {}
};
inline void RaceBeginBlock(BlockRunner*, uint64_t) {}
inline void RaceEndBlock() {}
inline void RaceBarrier() {}
inline void RaceMeeting(int, uint64_t, const char*) {}
inline void RaceShared(const void*, size_t, const char*) {}
inline void RacePause(bool) {}

#endif

}  // namespace tinyvllm::simulator
