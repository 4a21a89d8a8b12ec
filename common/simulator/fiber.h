// Fibers: stacks that one OS thread switches between in a few nanoseconds. Each thread of a CUDA
// block that has to wait (at a barrier, in a warp exchange) keeps its state on one.
//
// The switch itself is Boost.Context's. Here are the stacks, the bookkeeping, and the annotations
// that AddressSanitizer needs to follow a switch.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TINYVLLM_SIM_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define TINYVLLM_SIM_ASAN 0
#endif

namespace tinyvllm::simulator {

// A sanitizer's code needs more room.
constexpr size_t kStackBytes = TINYVLLM_SIM_ASAN ? 512 * 1024 : 128 * 1024;
constexpr size_t kGuardBytes = 64 * 1024;

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;  // where to go on, while it does not run
  char* stack_low = nullptr;
  char* stack_top = nullptr;
#if TINYVLLM_SIM_ASAN
  void* fake_stack = nullptr;
#endif
};

// Goes on in `to`; returns when something switches back to `from`, the fiber that runs now.
inline void SwitchFiber(Fiber* from, Fiber* to) {
#if TINYVLLM_SIM_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_low, to->stack_top - to->stack_low);
#endif
  const auto came_from = boost::context::detail::jump_fcontext(to->context, from);
  static_cast<Fiber*>(came_from.data)->context = came_from.fctx;
#if TINYVLLM_SIM_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

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
