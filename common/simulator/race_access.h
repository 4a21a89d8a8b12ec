// Between the parts of the race detector: what the hooks call, and what a report is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tinyvllm::simulator {

class BlockRunner;

enum class AccessKind { kRead, kWrite, kAtomicRead, kAtomicWrite };

// An access that the kernel is about to make; `place` is where its hook returns to.
void OnAccess(const void* address, size_t bytes, AccessKind kind, const void* place);
// An access to a volatile object: with the order of an atomic in global memory, and with none in
// shared memory.
void OnVolatile(const void* address, size_t bytes, bool write, const void* place);
// __threadfence or __threadfence_system.
void OnFence();

// Two accesses that race, for the report.
struct Race {
  struct Side {
    AccessKind kind;
    uint64_t block;  // number in the grid
    int thread;      // number in the block
    const void* place;
  };
  Side earlier, later;  // as the simulator happened to run them
  size_t bytes;         // of the later access
  bool same_warp;       // and same block
  bool in_shared;       // shared memory
  std::string memory;   // "shared variable `tile`, byte 4"
};

// "FILE:LINE" of the kernel's code that `place` belongs to.
std::string SourcePlace(const void* place);

// Everything after "error in kernel ...:\n  ".
std::string DescribeRace(const Race& race, const BlockRunner& runner);

}  // namespace tinyvllm::simulator
