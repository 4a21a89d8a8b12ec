// Fibers: stacks that one OS thread switches between in a few nanoseconds. Each thread of a CUDA
// block that has to wait (at a barrier, in a warp exchange) keeps its state on one.
//
// The switch itself is Boost.Context's, in cuda_simulator/fiber.h. Here are the stacks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda_simulator/fiber.h"

#if TINYVLLM_SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tinyvllm::simulator {

// A sanitizer's code needs more room, and so does a watcher's report.
size_t StackBytes();
constexpr size_t kGuardBytes = 64 * 1024;

// The fibers of one OS thread. They are kept for its life, as making one costs a system call.
class FiberPool {
 public:
  using Entry = void (*)(boost::context::detail::transfer_t);

  explicit FiberPool(Entry entry) : entry_(entry) {}
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  // A fiber that nobody uses: it starts in `entry`, or goes on after the switch it was left in.
  Fiber* Take() {
    if (free_.empty()) return Make();
    Fiber* fiber = free_.back();
    free_.pop_back();
    return fiber;
  }
  void GiveBack(Fiber* fiber) { free_.push_back(fiber); }

  // Forgets what all fibers were doing, so that each starts in `entry` again.
  void ResetAll();

  // Whether `address` lies in one of the fibers themselves, which a switch reads.
  bool Owns(const void* address) const;

  // Whether `address` lies in the guard zone below one of the stacks.
  bool IsOverflow(const void* address) const;

 private:
  Fiber* Make();
  void Reset(Fiber* fiber);

  Entry entry_;
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
};

}  // namespace tinyvllm::simulator
