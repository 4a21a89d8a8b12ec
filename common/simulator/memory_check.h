// The memory checker: finds accesses to memory that is not the kernel's to touch. Beyond the end of
// an allocation or of a __shared__ variable, or before its beginning; in memory that has been
// freed; reads of bytes that nothing has written; addresses of the host.
// docs/simulator.md#out-of-bounds
//
// It watches kernels that are compiled for it (watch.h). What the runtime and cuBLAS do to memory,
// they tell it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simulator/access.h"
#include "common/simulator/call_place.h"
#include "common/simulator/settings.h"
#include "common/simulator/watch.h"

namespace tinyvllm::simulator {

inline bool CheckingMemory() { return GetSettings().watch_memory; }

// What lies between two allocations, and so is out of bounds of both.
constexpr size_t kGapBytes = 256;

// --- What the runtime tells, where CheckingMemory().

// New memory of the device, which holds nothing yet; or of the host, which may have been written.
void MemoryAllocated(const void* begin, size_t bytes, bool on_host, const CallPlace& where);
// Memory that `release` gives back to the system, once it has lain idle for a while.
void MemoryFreed(const void* begin, const CallPlace& where, void (*release)(const void*));
// Memory of the host that the device no longer sees.
void MemoryForgotten(const void* begin);
// The host, or cuBLAS, has written or copied bytes.
void MemoryWritten(const void* begin, size_t bytes);
void MemoryCopied(const void* to, const void* from, size_t bytes);
// The host, or cuBLAS, reads bytes, as the program has asked at `asked`. Reports those that nothing
// has written, and then returns false.
bool MemoryRead(const char* function, const CallPlace& asked, const void* begin, size_t bytes);

// --- What watch.cc tells.

void MemoryCheckBlockBegins(BlockRunner* runner);
void MemoryCheckShared(const void* variable, size_t bytes, const char* name);
// The threads of the block have met, or all have returned. False after a report, and so is the next
// function: the block must end.
bool MemoryCheckMeeting();
bool MemoryCheckAccess(const MemoryAccess& access);

}  // namespace tinyvllm::simulator
