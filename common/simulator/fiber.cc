#include "common/simulator/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/simulator/watch.h"

namespace tinyvllm::simulator {
namespace {

// The tops of the stacks differ in this many places, a cache line apart: 1,024 stacks that begin at
// the same place in their pages would compete for the same few sets of the cache.
constexpr size_t kStaggerPlaces = 61;
constexpr size_t kCacheLine = 64;

}  // namespace

size_t StackBytes() {
  static const size_t bytes = (TINYVLLM_SIM_ASAN || Watchers() != 0 ? 512 : 128) * 1024;
  return bytes;
}

#if TINYVLLM_SIM_ASAN
void SwitchTo(Fiber* to) {
  if (to == nullptr) return;
  Fiber* from = to->from;
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_low, to->stack_top - to->stack_low);
  const auto came_from = boost::context::detail::jump_fcontext(to->context, from);
  static_cast<Fiber*>(came_from.data)->context = came_from.fctx;
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}
#endif

Fiber* FiberPool::Make() {
  const WatchPause pause;
  void* memory = mmap(nullptr, kGuardBytes + StackBytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::fprintf(
        stderr,
        "CUDA simulator: no memory for the stack of a thread; lower TINYVLLM_SIM_THREADS or "
        "raise vm.max_map_count\n");
    std::abort();
  }
  auto fiber = std::make_unique<Fiber>();
  char* low = static_cast<char*>(memory) + kGuardBytes;
  fiber->stack_low = low;
  fiber->stack_top = low + StackBytes() - all_.size() % kStaggerPlaces * kCacheLine;
  Reset(fiber.get());
  all_.push_back(std::move(fiber));
  free_.reserve(all_.capacity());  // so that GiveBack never allocates
  return all_.back().get();
}

void FiberPool::Reset(Fiber* fiber) {
#if TINYVLLM_SIM_ASAN
  __asan_unpoison_memory_region(fiber->stack_low, fiber->stack_top - fiber->stack_low);
#endif
  fiber->fake_stack = nullptr;
  fiber->context = boost::context::detail::make_fcontext(
      fiber->stack_top, fiber->stack_top - fiber->stack_low, entry_);
}

void FiberPool::ResetAll() {
  free_.clear();
  for (const auto& fiber : all_) {
    Reset(fiber.get());
    free_.push_back(fiber.get());
  }
}

bool FiberPool::Owns(const void* address) const {
  return std::any_of(all_.begin(), all_.end(), [address](const auto& fiber) {
    return address >= fiber.get() && address < fiber.get() + 1;
  });
}

bool FiberPool::IsOverflow(const void* address) const {
  const char* byte = static_cast<const char*>(address);
  for (const auto& fiber : all_) {
    if (byte >= fiber->stack_low - kGuardBytes && byte < fiber->stack_low) return true;
  }
  return false;
}

FiberPool::~FiberPool() {
  for (const auto& fiber : all_) {
#if TINYVLLM_SIM_ASAN
    __asan_unpoison_memory_region(fiber->stack_low, StackBytes());
#endif
    munmap(fiber->stack_low - kGuardBytes, kGuardBytes + StackBytes());
  }
}

}  // namespace tinyvllm::simulator
