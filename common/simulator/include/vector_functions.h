// make_float4 and its kin. Part of the simulator's cuda_runtime.h.
#pragma once

#include "vector_types.h"

#define TINYVLLM_SIM_MAKE(Element, Name)                                                  \
  constexpr Name##1 make_##Name##1(Element x) { return {x}; }                             \
  constexpr Name##2 make_##Name##2(Element x, Element y) { return {x, y}; }               \
  constexpr Name##3 make_##Name##3(Element x, Element y, Element z) { return {x, y, z}; } \
  constexpr Name##4 make_##Name##4(Element x, Element y, Element z, Element w) {          \
    return {x, y, z, w};                                                                  \
  }

TINYVLLM_SIM_MAKE(signed char, char)
TINYVLLM_SIM_MAKE(unsigned char, uchar)
TINYVLLM_SIM_MAKE(short, short)
TINYVLLM_SIM_MAKE(unsigned short, ushort)
TINYVLLM_SIM_MAKE(int, int)
TINYVLLM_SIM_MAKE(unsigned int, uint)
TINYVLLM_SIM_MAKE(long, long)
TINYVLLM_SIM_MAKE(unsigned long, ulong)
TINYVLLM_SIM_MAKE(long long, longlong)
TINYVLLM_SIM_MAKE(unsigned long long, ulonglong)
TINYVLLM_SIM_MAKE(float, float)
TINYVLLM_SIM_MAKE(double, double)

#undef TINYVLLM_SIM_MAKE
