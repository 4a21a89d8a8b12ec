// The simulator's device memory and pinned host memory, both ordinary memory of the process, and a
// table that knows which is which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_runtime_api.h"

namespace tinyvllm::simulator {

enum class MemoryKind { kPageable, kPinned, kRegistered, kDevice, kManaged, kSymbol };

// What is known of one address: where its allocation begins, and how much lies from the address to
// its end. Memory the runtime has not handed out is kPageable.
struct AddressInfo {
  MemoryKind kind = MemoryKind::kPageable;
  char* begin = nullptr;
  size_t bytes_left = 0;
  unsigned flags = 0;
};
AddressInfo LookUp(const void* address);

// CUDA's memory at one moment, for many look-ups without a lock. A kernel's own is that of its
// launch: what it may access exists by then.
class MemoryMap {
 public:
  void Update();
  bool Contains(uintptr_t address) {
    Range& cached = cache_[address >> kCachedShift & (kCached - 1)];
    return address - cached.begin < cached.bytes || Find(address, &cached);
  }

 private:
  struct Range {
    uintptr_t begin = 0;
    size_t bytes = 0;
  };
  bool Find(uintptr_t address, Range* found) const;

  static constexpr int kCachedShift = 10;
  static constexpr size_t kCached = 256;
  uint64_t version_ = 0;
  std::vector<Range> ranges_;  // by address
  Range cache_[kCached];
};

// Frees everything, for cudaDeviceReset.
void FreeAllMemory();

}  // namespace tinyvllm::simulator
