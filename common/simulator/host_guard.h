// Finds a host that does not wait: with late streams (TINYVLLM_SIM_LAZY_STREAMS=1) a copy to or
// from pinned memory is queued, and until it runs the host must not read what the copy will write,
// nor change what it will read. The pages in question are taken away from the program meanwhile, so
// that an access is a fault, which OnFault turns into a report. Pages that the copy shares with
// other memory stay. docs/simulator.md#host-does-not-wait
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simulator/call_place.h"

namespace tinyvllm::simulator {

constexpr size_t kPageBytes = 4096;

// Whether pinned memory needs pages of its own.
bool GuardsHost();

// A copy of `function` is queued that will write, or else read, these bytes of pinned memory;
// `at_end`: they end where their allocation does. Returns a number for GuardEnd.
uint64_t GuardBegin(const char* function, const void* begin, size_t bytes, bool at_end,
                    bool will_write);
// The copy's turn has come.
void GuardEnd(uint64_t number);
void GuardEndAll();

// While a queued copy runs, its memory is open to it, though other copies wait for the same bytes.
class GuardPause {
 public:
  GuardPause(const void* begin, size_t bytes);
  ~GuardPause();
  GuardPause(const GuardPause&) = delete;
  GuardPause& operator=(const GuardPause&) = delete;

 private:
  uintptr_t first_page_, pages_end_;
};

// The place of a queued copy that needs these bytes, in `where`; false where there is none.
bool FindGuard(const void* begin, size_t bytes, const char** function, CallPlace* where);

// Whether the fault was an access to memory under guard: then it may be repeated.
bool OnFault(const void* address, bool is_write, const void* place, bool in_kernel);

}  // namespace tinyvllm::simulator
