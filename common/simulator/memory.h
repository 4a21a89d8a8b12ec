// The simulator's device memory and pinned host memory, both ordinary memory of the process, and a
// table that knows which is which.
#pragma once

#include <cstddef>

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

// Frees everything, for cudaDeviceReset.
void FreeAllMemory();

}  // namespace tinyvllm::simulator
