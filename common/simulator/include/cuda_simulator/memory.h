// Loads and stores with cache hints, clocks and address questions. Part of the simulator's
// cuda_runtime.h. A cache hint changes no result, so here each is a plain load or store.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>

#include "fiber.h"

#define TINYVLLM_SIM_LOAD(name)                  \
  template <typename T>                          \
  TINYVLLM_SIM_INLINE T name(const T* address) { \
    return *address;                             \
  }
TINYVLLM_SIM_LOAD(__ldg)
TINYVLLM_SIM_LOAD(__ldcg)
TINYVLLM_SIM_LOAD(__ldca)
TINYVLLM_SIM_LOAD(__ldcs)
TINYVLLM_SIM_LOAD(__ldlu)
TINYVLLM_SIM_LOAD(__ldcv)
#undef TINYVLLM_SIM_LOAD

#define TINYVLLM_SIM_STORE(name)                       \
  template <typename T>                                \
  TINYVLLM_SIM_INLINE void name(T* address, T value) { \
    *address = value;                                  \
  }
TINYVLLM_SIM_STORE(__stwb)
TINYVLLM_SIM_STORE(__stcg)
TINYVLLM_SIM_STORE(__stcs)
TINYVLLM_SIM_STORE(__stwt)
#undef TINYVLLM_SIM_STORE

// Nanoseconds stand for clock cycles: a device of 1 GHz.
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(clock64()); }

inline size_t __cvta_generic_to_shared(const void* address) {
  return reinterpret_cast<size_t>(address);
}
