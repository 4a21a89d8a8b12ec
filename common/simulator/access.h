// What the hooks of an instrumented build (access_hooks.cc) tell the engine: each access to memory
// that a kernel makes, just before it happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simulator/watch.h"

namespace tinyvllm::simulator {

// Whose memory it is. kVariable: the program's, `__device__` variables among them. kOther: none
// that a kernel may have in common with others, such as a variable of the simulator.
enum class Space : uint8_t { kGlobal, kShared, kVariable, kOther };

enum class AccessKind : uint8_t { kRead, kWrite, kAtomicRead, kAtomicWrite };

inline bool IsWrite(AccessKind kind) {
  return kind == AccessKind::kWrite || kind == AccessKind::kAtomicWrite;
}
inline bool IsAtomic(AccessKind kind) {
  return kind == AccessKind::kAtomicRead || kind == AccessKind::kAtomicWrite;
}

struct MemoryAccess {
  uintptr_t address;
  size_t bytes;
  AccessKind kind;
  bool reads;  // or reads and writes
  bool is_volatile;
  bool in_thread_variables;  // the OS thread's own, as shared memory is; else global memory
  Space space;
  int thread;         // number in the block
  const void* place;  // where the hook returns to
};

// Tells the watchers, unless it is an access to the thread's own stack.
void TellAccess(const void* address, size_t bytes, AccessKind kind, bool reads, bool is_volatile,
                const void* place);
// __threadfence or __threadfence_system.
void TellFence();

inline void OnAccess(const void* address, size_t bytes, AccessKind kind, const void* place) {
  if (__builtin_expect(watching == 0, 1) || bytes == 0) return;
  TellAccess(address, bytes, kind, !IsWrite(kind), false, place);
}
// An atomic that depends on what is there: not a store, nor an exchange.
inline void OnUpdate(const void* address, size_t bytes, const void* place) {
  if (__builtin_expect(watching == 0, 1)) return;
  TellAccess(address, bytes, AccessKind::kAtomicWrite, true, false, place);
}
inline void OnVolatile(const void* address, size_t bytes, bool write, const void* place) {
  if (__builtin_expect(watching == 0, 1)) return;
  TellAccess(address, bytes, write ? AccessKind::kWrite : AccessKind::kRead, !write, true, place);
}
inline void OnFence() {
  if (__builtin_expect(watching != 0, 0)) TellFence();
}

// Whether it is one of the calling OS thread's own variables, as shared memory is.
bool IsThreadVariable(const void* address);

// For the access's report: names the memory at `address`, such as "the __shared__ variable `tile`,
// byte 4"; empty where it is none of CUDA's, such as a variable of the simulator.
std::string NameMemory(uintptr_t address, bool in_thread_variables);

}  // namespace tinyvllm::simulator
