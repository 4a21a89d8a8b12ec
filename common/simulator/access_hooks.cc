// The functions that g++ calls from code compiled with -fsanitize=thread. Their names and types are
// ThreadSanitizer's (sanitizer.def in GCC lists them); what they do is ours. g++ turns each atomic
// operation into a call, so those also do the work.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "common/simulator/access.h"

using namespace tinyvllm::simulator;

#define TINYVLLM_HOOK extern "C" __attribute__((noinline))
#define TINYVLLM_CALLER __builtin_return_address(0)

// --- Plain and volatile accesses.

#define TINYVLLM_HOOK_ACCESSES(bytes)                                  \
  TINYVLLM_HOOK void __tsan_read##bytes(void* p) {                     \
    OnAccess(p, bytes, AccessKind::kRead, TINYVLLM_CALLER);            \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_write##bytes(void* p) {                    \
    OnAccess(p, bytes, AccessKind::kWrite, TINYVLLM_CALLER);           \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_unaligned_read##bytes(void* p) {           \
    OnAccess(p, bytes, AccessKind::kRead, TINYVLLM_CALLER);            \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_unaligned_write##bytes(void* p) {          \
    OnAccess(p, bytes, AccessKind::kWrite, TINYVLLM_CALLER);           \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_volatile_read##bytes(void* p) {            \
    OnVolatile(p, bytes, false, TINYVLLM_CALLER);                      \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_volatile_write##bytes(void* p) {           \
    OnVolatile(p, bytes, true, TINYVLLM_CALLER);                       \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_unaligned_volatile_read##bytes(void* p) {  \
    OnVolatile(p, bytes, false, TINYVLLM_CALLER);                      \
  }                                                                    \
  TINYVLLM_HOOK void __tsan_unaligned_volatile_write##bytes(void* p) { \
    OnVolatile(p, bytes, true, TINYVLLM_CALLER);                       \
  }
TINYVLLM_HOOK_ACCESSES(1)
TINYVLLM_HOOK_ACCESSES(2)
TINYVLLM_HOOK_ACCESSES(4)
TINYVLLM_HOOK_ACCESSES(8)
TINYVLLM_HOOK_ACCESSES(16)

TINYVLLM_HOOK void __tsan_read_range(void* p, size_t bytes) {
  OnAccess(p, bytes, AccessKind::kRead, TINYVLLM_CALLER);
}
TINYVLLM_HOOK void __tsan_write_range(void* p, size_t bytes) {
  OnAccess(p, bytes, AccessKind::kWrite, TINYVLLM_CALLER);
}

// A virtual object's table pointer changes while it is constructed; kernels do not share such.
TINYVLLM_HOOK void __tsan_vptr_update(void**, void*) {}
TINYVLLM_HOOK void __tsan_vptr_read(void**) {}

TINYVLLM_HOOK void __tsan_init() {}
TINYVLLM_HOOK void __tsan_func_entry(void*) {}
TINYVLLM_HOOK void __tsan_func_exit() {}

// --- Atomics. The order asked for is always the strongest here; CUDA's own rules for what an
// atomic orders are in race.cc.

#define TINYVLLM_HOOK_UPDATE(bits, T, name)                                   \
  TINYVLLM_HOOK T __tsan_atomic##bits##_##name(volatile T* p, T value, int) { \
    OnUpdate(const_cast<const T*>(p), sizeof(T), TINYVLLM_CALLER);            \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                       \
  }
#define TINYVLLM_HOOK_COMPARE(bits, T, strength)                                                   \
  TINYVLLM_HOOK bool __tsan_atomic##bits##_compare_exchange_##strength(volatile T* p, T* expected, \
                                                                       T wanted, int, int) {       \
    OnUpdate(const_cast<const T*>(p), sizeof(T), TINYVLLM_CALLER);                                 \
    return __atomic_compare_exchange_n(p, expected, wanted, false, __ATOMIC_SEQ_CST,               \
                                       __ATOMIC_SEQ_CST);                                          \
  }
#define TINYVLLM_HOOK_ATOMICS(bits, T)                                                       \
  TINYVLLM_HOOK T __tsan_atomic##bits##_load(const volatile T* p, int) {                     \
    OnAccess(const_cast<const T*>(p), sizeof(T), AccessKind::kAtomicRead, TINYVLLM_CALLER);  \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                             \
  }                                                                                          \
  TINYVLLM_HOOK void __tsan_atomic##bits##_store(volatile T* p, T value, int) {              \
    OnAccess(const_cast<const T*>(p), sizeof(T), AccessKind::kAtomicWrite, TINYVLLM_CALLER); \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                          \
  TINYVLLM_HOOK T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {              \
    OnAccess(const_cast<const T*>(p), sizeof(T), AccessKind::kAtomicWrite, TINYVLLM_CALLER); \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                  \
  }                                                                                          \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_add)                                                   \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_sub)                                                   \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_and)                                                   \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_or)                                                    \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_xor)                                                   \
  TINYVLLM_HOOK_UPDATE(bits, T, fetch_nand)                                                  \
  TINYVLLM_HOOK_COMPARE(bits, T, strong)                                                     \
  TINYVLLM_HOOK_COMPARE(bits, T, weak)
TINYVLLM_HOOK_ATOMICS(8, uint8_t)
TINYVLLM_HOOK_ATOMICS(16, uint16_t)
TINYVLLM_HOOK_ATOMICS(32, uint32_t)
TINYVLLM_HOOK_ATOMICS(64, uint64_t)

// Not every processor has atomics of 16 bytes: a lock makes them.
using Wide = unsigned __int128;
static std::mutex wide_mutex;
template <typename Change>
static Wide ChangeWide(volatile Wide* p, const void* place, AccessKind kind, Change change) {
  OnAccess(const_cast<const Wide*>(p), sizeof(Wide), kind, place);
  std::lock_guard<std::mutex> lock(wide_mutex);
  const Wide old = *p;
  if (kind == AccessKind::kAtomicWrite) *p = change(old);
  return old;
}
#define TINYVLLM_HOOK_WIDE(name, expression)                                      \
  TINYVLLM_HOOK Wide __tsan_atomic128_##name(volatile Wide* p, Wide value, int) { \
    return ChangeWide(p, TINYVLLM_CALLER, AccessKind::kAtomicWrite,               \
                      [value](Wide old) -> Wide { return expression; });          \
  }
TINYVLLM_HOOK_WIDE(exchange, (static_cast<void>(old), value))
TINYVLLM_HOOK_WIDE(fetch_add, old + value)
TINYVLLM_HOOK_WIDE(fetch_sub, old - value)
TINYVLLM_HOOK_WIDE(fetch_and, old& value)
TINYVLLM_HOOK_WIDE(fetch_or, old | value)
TINYVLLM_HOOK_WIDE(fetch_xor, old ^ value)
TINYVLLM_HOOK_WIDE(fetch_nand, ~(old& value))
TINYVLLM_HOOK Wide __tsan_atomic128_load(const volatile Wide* p, int) {
  return ChangeWide(const_cast<volatile Wide*>(p), TINYVLLM_CALLER, AccessKind::kAtomicRead,
                    [](Wide old) { return old; });
}
TINYVLLM_HOOK void __tsan_atomic128_store(volatile Wide* p, Wide value, int) {
  ChangeWide(p, TINYVLLM_CALLER, AccessKind::kAtomicWrite, [value](Wide) { return value; });
}
static bool CompareWide(volatile Wide* p, Wide* expected, Wide wanted, const void* place) {
  const Wide old = ChangeWide(p, place, AccessKind::kAtomicWrite, [=](Wide current) {
    return current == *expected ? wanted : current;
  });
  const bool equal = old == *expected;
  *expected = old;
  return equal;
}
TINYVLLM_HOOK bool __tsan_atomic128_compare_exchange_strong(volatile Wide* p, Wide* expected,
                                                            Wide wanted, int, int) {
  return CompareWide(p, expected, wanted, TINYVLLM_CALLER);
}
TINYVLLM_HOOK bool __tsan_atomic128_compare_exchange_weak(volatile Wide* p, Wide* expected,
                                                          Wide wanted, int, int) {
  return CompareWide(p, expected, wanted, TINYVLLM_CALLER);
}

// __threadfence_block asks for less than __ATOMIC_SEQ_CST: it orders nothing between blocks.
TINYVLLM_HOOK void __tsan_atomic_thread_fence(int order) {
  if (order == __ATOMIC_SEQ_CST) OnFence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
TINYVLLM_HOOK void __tsan_atomic_signal_fence(int) {}

// --- Copies. g++ leaves memcpy and its kin alone; the linker (--wrap) sends them here.

extern "C" void* __real_memcpy(void* to, const void* from, size_t bytes);
extern "C" void* __real_memmove(void* to, const void* from, size_t bytes);
extern "C" void* __real_memset(void* to, int value, size_t bytes);

TINYVLLM_HOOK void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  OnAccess(from, bytes, AccessKind::kRead, TINYVLLM_CALLER);
  OnAccess(to, bytes, AccessKind::kWrite, TINYVLLM_CALLER);
  return __real_memcpy(to, from, bytes);
}
TINYVLLM_HOOK void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  OnAccess(from, bytes, AccessKind::kRead, TINYVLLM_CALLER);
  OnAccess(to, bytes, AccessKind::kWrite, TINYVLLM_CALLER);
  return __real_memmove(to, from, bytes);
}
TINYVLLM_HOOK void* __wrap_memset(void* to, int value, size_t bytes) {
  OnAccess(to, bytes, AccessKind::kWrite, TINYVLLM_CALLER);
  return __real_memset(to, value, bytes);
}
