#include "common/simulator/host_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <string>

#include "common/simulator/crash.h"
#include "common/simulator/error.h"
#include "common/simulator/settings.h"
#include "common/simulator/source_place.h"
#include "cuda_simulator/fiber.h"

namespace tinyvllm::simulator {
namespace {

struct Guard {
  const char* function;
  CallPlace where;
  uintptr_t begin, end;             // of the bytes
  uintptr_t first_page, pages_end;  // of the pages that hold nothing else
  bool will_write;

  bool Holds(uintptr_t address) const { return address >= begin && address < end; }
  bool Overlaps(uintptr_t from, uintptr_t to) const { return first_page < to && from < pages_end; }
};

// A fault's handler takes it too, so no code that holds it may touch guarded memory.
class SpinLock {
 public:
  SpinLock() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
    }
  }
  ~SpinLock() { locked_.store(false, std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  static inline std::atomic<bool> locked_{false};
};

std::map<uint64_t, Guard>& Guards() {
  static auto* guards = new std::map<uint64_t, Guard>;
  return *guards;
}

void Protect(uintptr_t begin, uintptr_t end, int protection) {
  if (begin < end) mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

// Gives the pages what the guards that remain say.
void ProtectAnew(uintptr_t begin, uintptr_t end) {
  Protect(begin, end, PROT_READ | PROT_WRITE);
  for (const bool will_write : {false, true}) {
    for (const auto& [number, guard] : Guards()) {
      if (guard.will_write != will_write || !guard.Overlaps(begin, end)) continue;
      Protect(std::max(begin, guard.first_page), std::min(end, guard.pages_end),
              will_write ? PROT_NONE : PROT_READ);
    }
  }
}

}  // namespace

bool GuardsHost() {
  static const bool guards = !TINYVLLM_SIM_ASAN && GetSettings().lazy_streams;
  return guards;
}

uint64_t GuardBegin(const char* function, const void* begin, size_t bytes, bool at_end,
                    bool will_write) {
  if (!GuardsHost() || !InstallCrashReports()) return 0;
  static uint64_t next = 1;
  const auto from = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t to = from + bytes;
  const auto up = [](uintptr_t address) {
    return (address + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  const Guard guard = {function,  CallPlace::Here(), from,
                       to,        up(from),          at_end ? up(to) : to / kPageBytes * kPageBytes,
                       will_write};
  SpinLock lock;
  Guards()[next] = guard;
  ProtectAnew(guard.first_page, guard.pages_end);
  return next++;
}

void GuardEnd(uint64_t number) {
  SpinLock lock;
  const auto found = Guards().find(number);
  if (found == Guards().end()) return;
  const Guard guard = found->second;
  Guards().erase(found);
  ProtectAnew(guard.first_page, guard.pages_end);
}

void GuardEndAll() {
  SpinLock lock;
  for (const auto& [number, guard] : Guards()) {
    Protect(guard.first_page, guard.pages_end, PROT_READ | PROT_WRITE);
  }
  Guards().clear();
}

GuardPause::GuardPause(const void* begin, size_t bytes)
    : first_page_(reinterpret_cast<uintptr_t>(begin) / kPageBytes * kPageBytes),
      pages_end_(reinterpret_cast<uintptr_t>(begin) + bytes) {
  SpinLock lock;
  for (const auto& [number, guard] : Guards()) {
    if (!guard.Overlaps(first_page_, pages_end_)) continue;
    Protect(std::max(first_page_, guard.first_page), std::min(pages_end_, guard.pages_end),
            PROT_READ | PROT_WRITE);
  }
}

GuardPause::~GuardPause() {
  SpinLock lock;
  for (const bool will_write : {false, true}) {
    for (const auto& [number, guard] : Guards()) {
      if (guard.will_write != will_write || !guard.Overlaps(first_page_, pages_end_)) continue;
      Protect(guard.first_page, guard.pages_end, will_write ? PROT_NONE : PROT_READ);
    }
  }
}

bool FindGuard(const void* begin, size_t bytes, const char** function, CallPlace* where) {
  const auto from = reinterpret_cast<uintptr_t>(begin);
  SpinLock lock;
  for (const auto& [number, guard] : Guards()) {
    if (guard.begin >= from + bytes || guard.end <= from) continue;
    *function = guard.function;
    *where = guard.where;
    return true;
  }
  return false;
}

bool OnFault(const void* address, bool is_write, const void* place, bool in_kernel) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  Guard culprit = {};
  {
    SpinLock lock;
    bool guarded = false;
    for (const auto& [number, guard] : Guards()) {
      if (!guard.Overlaps(at, at + 1)) continue;
      guarded = true;
      if (guard.Holds(at) && (guard.will_write || is_write)) culprit = guard;
    }
    if (!guarded) return false;
    // The access is repeated, and the pages are watched no more.
    for (auto& [number, guard] : Guards()) {
      if (!guard.Overlaps(at, at + 1)) continue;
      Protect(guard.first_page, guard.pages_end, PROT_READ | PROT_WRITE);
      guard.pages_end = guard.first_page;
    }
  }
  // A kernel runs in its stream's order, and the host's order is not its own.
  if (in_kernel || culprit.function == nullptr) return true;
  std::string line = ProgramPlace(place);
  if (line.empty())
    line = CallPlace::Now().ToString();  // the fault is in a library, such as memcpy
  if (line.empty()) line = SourcePlace(place);
  SetStickyError(cudaErrorLaunchFailure);
  const std::string queued = culprit.where.ToString();
  std::fprintf(stderr,
               "CUDA simulator: error: the host does not wait\n"
               "    %s: the host %s pinned memory, byte %zu of what a copy will %s\n"
               "    %s%s was given to a stream, and has not run\n"
               "  missing between them: cudaStreamSynchronize, or cudaEventSynchronize of an event "
               "recorded after the copy\n"
               "  advice: cudaMemcpyAsync only queues a copy; %s\n"
               "  more: docs/simulator.md#host-does-not-wait\n",
               line.c_str(), is_write ? "changes" : "reads",
               static_cast<size_t>(at - culprit.begin), culprit.will_write ? "write" : "read",
               queued.empty() ? "" : (queued + ": ").c_str(), culprit.function,
               culprit.will_write
                   ? "a copy back to the host is done when something has waited for it"
                   : "wait for its stream before you change what it reads, or use a second buffer");
  return true;
}

}  // namespace tinyvllm::simulator
