// What the program has not given back when it ends: TINYVLLM_SIM_LEAKS=1 lists it, and the program
// then ends with status 1. docs/simulator.md#leaks
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "common/simulator/call_place.h"

namespace tinyvllm::simulator {

// By place and kind, such as "device memory": how many, and their bytes.
class Leaks {
 public:
  void Add(const CallPlace& where, const char* kind, size_t bytes);
  bool empty() const { return found_.empty(); }
  std::string ToString() const;

 private:
  struct Found {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<std::string, std::string>, Found> found_;
};

// Called by what makes such things, so that the list at the end is linked into the program.
void WatchForLeaks();

// Of memory.cc and stream.cc.
void CollectMemory(Leaks* leaks);
void CollectStreams(Leaks* leaks);

}  // namespace tinyvllm::simulator
