// Atomic functions. Part of the simulator's cuda_runtime.h.
//
// Blocks run on several OS threads, so these are the CPU's own atomic instructions, unordered as
// CUDA's are.
#pragma once

#include <cstdint>
#include <cstring>

#include "sync.h"

// Always inlined: reports name the line of the kernel, which is the innermost one outside the
// simulator's headers.
#define TINYVLLM_SIM_ATOMIC_FUNCTION TINYVLLM_SIM_INLINE

namespace tinyvllm::simulator {

// A thread that waits for another by polling with atomics must let that one run: every so many
// atomics a thread gives way.
constexpr int kAtomicsBeforeYield = 1024;
extern __thread int atomics_left TINYVLLM_SIM_TLS;

TINYVLLM_SIM_ATOMIC_FUNCTION void CountAtomic() {
  if (__builtin_expect(--atomics_left < 0, 0)) {
    atomics_left = kAtomicsBeforeYield;
    Yield();
  }
}

// Replaces *address by update(*address) and returns what was there, by compare and swap. `Bits` is
// the unsigned integer of T's size.
template <typename Bits, typename T, typename Update>
TINYVLLM_SIM_ATOMIC_FUNCTION T AtomicUpdate(T* address, Update update) {
  static_assert(sizeof(Bits) == sizeof(T));
  CountAtomic();
  Bits* bits = reinterpret_cast<Bits*>(address);
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    T value;
    memcpy(static_cast<void*>(&value), &old, sizeof(T));
    const T changed = update(value);
    Bits wanted;
    memcpy(&wanted, &changed, sizeof(T));
    if (__atomic_compare_exchange_n(bits, &old, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      return value;
    }
  }
}

}  // namespace tinyvllm::simulator

#define TINYVLLM_SIM_ATOMIC(name, T, builtin)                \
  TINYVLLM_SIM_ATOMIC_FUNCTION T name(T* address, T value) { \
    tinyvllm::simulator::CountAtomic();                      \
    return builtin(address, value, __ATOMIC_RELAXED);        \
  }
#define TINYVLLM_SIM_ATOMIC_UPDATE(name, T, Bits, expression)                                   \
  TINYVLLM_SIM_ATOMIC_FUNCTION T name(T* address, T value) {                                    \
    return tinyvllm::simulator::AtomicUpdate<Bits>(address,                                     \
                                                   [value](T old) -> T { return expression; }); \
  }

#define TINYVLLM_SIM_ATOMIC_INTEGER(T)                                             \
  TINYVLLM_SIM_ATOMIC(atomicExch, T, __atomic_exchange_n)                          \
  TINYVLLM_SIM_ATOMIC(atomicAnd, T, __atomic_fetch_and)                            \
  TINYVLLM_SIM_ATOMIC(atomicOr, T, __atomic_fetch_or)                              \
  TINYVLLM_SIM_ATOMIC(atomicXor, T, __atomic_fetch_xor)                            \
  TINYVLLM_SIM_ATOMIC_UPDATE(atomicMin, T, T, old < value ? old : value)           \
  TINYVLLM_SIM_ATOMIC_UPDATE(atomicMax, T, T, old > value ? old : value)           \
  TINYVLLM_SIM_ATOMIC_FUNCTION T atomicCAS(T* address, T compare, T value) {       \
    tinyvllm::simulator::CountAtomic();                                            \
    __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, \
                                __ATOMIC_RELAXED);                                 \
    return compare;                                                                \
  }

// CUDA's own list: atomicMin and its kin also take signed 64-bit integers, atomicAdd does not.
TINYVLLM_SIM_ATOMIC_INTEGER(int)
TINYVLLM_SIM_ATOMIC_INTEGER(unsigned int)
TINYVLLM_SIM_ATOMIC_INTEGER(unsigned long long)
TINYVLLM_SIM_ATOMIC(atomicAdd, int, __atomic_fetch_add)
TINYVLLM_SIM_ATOMIC(atomicAdd, unsigned int, __atomic_fetch_add)
TINYVLLM_SIM_ATOMIC(atomicAdd, unsigned long long, __atomic_fetch_add)
TINYVLLM_SIM_ATOMIC(atomicSub, int, __atomic_fetch_sub)
TINYVLLM_SIM_ATOMIC(atomicSub, unsigned int, __atomic_fetch_sub)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicMin, long long, unsigned long long, old < value ? old : value)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicMax, long long, unsigned long long, old > value ? old : value)
TINYVLLM_SIM_ATOMIC(atomicAnd, long long, __atomic_fetch_and)
TINYVLLM_SIM_ATOMIC(atomicOr, long long, __atomic_fetch_or)
TINYVLLM_SIM_ATOMIC(atomicXor, long long, __atomic_fetch_xor)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicAdd, float, uint32_t, old + value)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicAdd, double, uint64_t, old + value)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicExch, float, uint32_t, (static_cast<void>(old), value))
// Counters that wrap: up to `value` and then 0, or down from `value`.
TINYVLLM_SIM_ATOMIC_UPDATE(atomicInc, unsigned int, uint32_t, old >= value ? 0 : old + 1)
TINYVLLM_SIM_ATOMIC_UPDATE(atomicDec, unsigned int, uint32_t,
                           old == 0 || old > value ? value : old - 1)

TINYVLLM_SIM_ATOMIC_FUNCTION unsigned short atomicCAS(unsigned short* address,
                                                      unsigned short compare,
                                                      unsigned short value) {
  tinyvllm::simulator::CountAtomic();
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}

// Every atomic of the simulator holds for the whole machine, so the scopes are one.
#define TINYVLLM_SIM_SCOPED(name)                                     \
  template <typename T>                                               \
  TINYVLLM_SIM_ATOMIC_FUNCTION T name##_block(T* address, T value) {  \
    return name(address, value);                                      \
  }                                                                   \
  template <typename T>                                               \
  TINYVLLM_SIM_ATOMIC_FUNCTION T name##_system(T* address, T value) { \
    return name(address, value);                                      \
  }
TINYVLLM_SIM_SCOPED(atomicAdd)
TINYVLLM_SIM_SCOPED(atomicMin)
TINYVLLM_SIM_SCOPED(atomicMax)
TINYVLLM_SIM_SCOPED(atomicExch)
TINYVLLM_SIM_SCOPED(atomicAnd)
TINYVLLM_SIM_SCOPED(atomicOr)
TINYVLLM_SIM_SCOPED(atomicXor)

#undef TINYVLLM_SIM_SCOPED
#undef TINYVLLM_SIM_ATOMIC
#undef TINYVLLM_SIM_ATOMIC_UPDATE
#undef TINYVLLM_SIM_ATOMIC_INTEGER
