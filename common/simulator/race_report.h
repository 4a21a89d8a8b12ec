// A race, and what its report says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simulator/access.h"

namespace tinyvllm::simulator {

class BlockRunner;

// Two accesses that race.
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
  std::string memory;   // NameMemory's
};

// Everything after "error in kernel ...:\n  ".
std::string DescribeRace(const Race& race, const BlockRunner& runner);

}  // namespace tinyvllm::simulator
