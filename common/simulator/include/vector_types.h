// CUDA's vector types (float4, uint2, dim3, ...) with CUDA's own alignment, which decides how wide
// one load is. Part of the simulator's cuda_runtime.h.
#pragma once

// Up to 16 bytes a two- or four-element vector is aligned to its size; a three-element one to an
// element.
#define TINYVLLM_SIM_VECTOR(Element, Name, align2, align4) \
  struct Name##1 {                                         \
    Element x;                                             \
  };                                                       \
  struct alignas(align2) Name##2 {                         \
    Element x, y;                                          \
  };                                                       \
  struct Name##3 {                                         \
    Element x, y, z;                                       \
  };                                                       \
  struct alignas(align4) Name##4 {                         \
    Element x, y, z, w;                                    \
  };

TINYVLLM_SIM_VECTOR(signed char, char, 2, 4)
TINYVLLM_SIM_VECTOR(unsigned char, uchar, 2, 4)
TINYVLLM_SIM_VECTOR(short, short, 4, 8)
TINYVLLM_SIM_VECTOR(unsigned short, ushort, 4, 8)
TINYVLLM_SIM_VECTOR(int, int, 8, 16)
TINYVLLM_SIM_VECTOR(unsigned int, uint, 8, 16)
TINYVLLM_SIM_VECTOR(long, long, 16, 16)
TINYVLLM_SIM_VECTOR(unsigned long, ulong, 16, 16)
TINYVLLM_SIM_VECTOR(long long, longlong, 16, 16)
TINYVLLM_SIM_VECTOR(unsigned long long, ulonglong, 16, 16)
TINYVLLM_SIM_VECTOR(float, float, 8, 16)
TINYVLLM_SIM_VECTOR(double, double, 16, 16)

#undef TINYVLLM_SIM_VECTOR

// A size in up to three dimensions; what is not given is 1.
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
