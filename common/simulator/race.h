// The race detector of --config=race; docs/simulator.md#races explains it.
//
// For every few bytes of shared and global memory a shadow remembers the last accesses: which
// thread of which block made them, and when, counted in barriers. An access races with one of these
// where no barrier that both threads took part in lies between.
//
// These functions are called by watch.cc, while the detector is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tinyvllm::simulator {

class BlockRunner;
struct MemoryAccess;

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

// The calling OS thread begins block `number` of the launch it has begun.
void RaceBeginBlock(BlockRunner* runner, uint64_t number);
// All threads of the block have met.
void RaceBarrier();
// `lanes` of a warp have met in the function `operation`.
void RaceMeeting(int warp, uint64_t lanes, const char* operation);
// The kernel is about to make this access. False, after BlockRunner::Fail, where it races with an
// earlier one.
bool RaceAccess(const MemoryAccess& memory_access);
// The thread executes __threadfence or __threadfence_system.
void RaceFence(int thread);

}  // namespace tinyvllm::simulator
