// The switch from one thread of a block to another. Part of the simulator's cuda_runtime.h.
//
// It is here, inlined where a kernel waits, for speed: a processor predicts where a `ret` goes from
// the calls it has seen, so each function that returned across a switch would be mispredicted. The
// engine decides what runs next in ordinary functions that return before the switch.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define TINYVLLM_SIM_ASAN 1
#else
#define TINYVLLM_SIM_ASAN 0
#endif

// For the functions between a kernel and the switch.
#define TINYVLLM_SIM_INLINE inline __attribute__((always_inline))

namespace tinyvllm::simulator {

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;  // where to go on, while it does not run
  Fiber* from = nullptr;                                 // whose place it takes
  char* stack_low = nullptr;
  char* stack_top = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

#if TINYVLLM_SIM_ASAN
void SwitchTo(Fiber* to);  // tells AddressSanitizer as well
#else
// Goes on in `to`, or here where it is null. Returns when another fiber switches back to this one.
TINYVLLM_SIM_INLINE void SwitchTo(Fiber* to) {
  if (to == nullptr) return;
  const auto came_from = boost::context::detail::jump_fcontext(to->context, to->from);
  static_cast<Fiber*>(came_from.data)->context = came_from.fctx;
}
#endif

}  // namespace tinyvllm::simulator
