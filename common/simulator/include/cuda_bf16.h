// bf16 on the simulator: CUDA's header of this name, with CUDA's own rounding.
#pragma once

#include "cuda_runtime.h"
#include "cuda_simulator/small_float.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat162_raw {
  unsigned short x;
  unsigned short y;
};

struct alignas(2) __nv_bfloat16 {
  // The storage, under CUDA's name for it.
  unsigned short __x;

  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  __nv_bfloat16(float value) : __x(tinyvllm::simulator::FloatToBf16Bits(value)) {}
  __nv_bfloat16(double value) : __x(Round(value)) {}
  __nv_bfloat16(short value) : __x(Round(value)) {}
  __nv_bfloat16(unsigned short value) : __x(Round(value)) {}
  __nv_bfloat16(int value) : __x(Round(value)) {}
  __nv_bfloat16(unsigned int value) : __x(Round(value)) {}
  __nv_bfloat16(long value) : __x(Round(tinyvllm::simulator::IntegerForRounding(value))) {}
  __nv_bfloat16(unsigned long value)
      : __x(Round(tinyvllm::simulator::IntegerForRounding(value, false))) {}
  __nv_bfloat16(long long value) : __x(Round(tinyvllm::simulator::IntegerForRounding(value))) {}
  __nv_bfloat16(unsigned long long value)
      : __x(Round(tinyvllm::simulator::IntegerForRounding(value, false))) {}

  operator __nv_bfloat16_raw() const { return {__x}; }
  operator float() const { return tinyvllm::simulator::Bf16BitsToFloat(__x); }
  operator signed char() const { return ToInteger<signed char>(); }
  operator unsigned char() const { return ToInteger<unsigned char>(); }
  operator char() const { return ToInteger<char>(); }
  operator short() const { return ToInteger<short>(); }
  operator unsigned short() const { return ToInteger<unsigned short>(); }
  operator int() const { return ToInteger<int>(); }
  operator unsigned int() const { return ToInteger<unsigned int>(); }
  operator long() const { return ToInteger64<long>(); }
  operator unsigned long() const { return ToInteger64<unsigned long>(); }
  operator long long() const { return ToInteger64<long long>(); }
  operator unsigned long long() const { return ToInteger64<unsigned long long>(); }
  constexpr operator bool() const { return (__x & 0x7fff) != 0; }

  // For the simulator's own headers.
  static constexpr unsigned short kInfinityBits = 0x7f80;
  static constexpr __nv_bfloat16 FromBits(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
  constexpr unsigned short Bits() const { return __x; }

 private:
  static unsigned short Round(double value) {
    using namespace tinyvllm::simulator;
    return RoundToFormat<Bf16Format>(value, Rounding::kNearest);
  }
  template <typename Integer>
  Integer ToInteger() const {
    return tinyvllm::simulator::Saturated<Integer>(truncf(static_cast<float>(*this)));
  }
  template <typename Integer>
  Integer ToInteger64() const {
    return tinyvllm::simulator::Saturated64<Integer>(truncf(static_cast<float>(*this)));
  }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x;
  __nv_bfloat16 y;

  __nv_bfloat162() = default;
  constexpr __nv_bfloat162(const __nv_bfloat16& low, const __nv_bfloat16& high) : x(low), y(high) {}
  __nv_bfloat162(const __nv_bfloat162_raw& raw)
      : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
  operator __nv_bfloat162_raw() const { return {x.__x, y.__x}; }
};
typedef __nv_bfloat162 nv_bfloat162;

// --- Conversions.

inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline __nv_bfloat16 __double2bfloat16(double a) { return a; }

#define TINYVLLM_SIM_TO_BF16(name, T, wide)                                           \
  inline __nv_bfloat16 name##_rz(T a) {                                               \
    using namespace tinyvllm::simulator;                                              \
    return __nv_bfloat16::FromBits(RoundToFormat<Bf16Format>(wide, Rounding::kZero)); \
  }                                                                                   \
  inline __nv_bfloat16 name##_rd(T a) {                                               \
    using namespace tinyvllm::simulator;                                              \
    return __nv_bfloat16::FromBits(RoundToFormat<Bf16Format>(wide, Rounding::kDown)); \
  }                                                                                   \
  inline __nv_bfloat16 name##_ru(T a) {                                               \
    using namespace tinyvllm::simulator;                                              \
    return __nv_bfloat16::FromBits(RoundToFormat<Bf16Format>(wide, Rounding::kUp));   \
  }
TINYVLLM_SIM_TO_BF16(__float2bfloat16, float, a)
TINYVLLM_SIM_TO_BF16(__short2bfloat16, short, a)
TINYVLLM_SIM_TO_BF16(__ushort2bfloat16, unsigned short, a)
TINYVLLM_SIM_TO_BF16(__int2bfloat16, int, a)
TINYVLLM_SIM_TO_BF16(__uint2bfloat16, unsigned, a)
TINYVLLM_SIM_TO_BF16(__ll2bfloat16, long long, IntegerForRounding(a))
TINYVLLM_SIM_TO_BF16(__ull2bfloat16, unsigned long long, IntegerForRounding(a, false))
#undef TINYVLLM_SIM_TO_BF16
inline __nv_bfloat16 __short2bfloat16_rn(short a) { return a; }
inline __nv_bfloat16 __ushort2bfloat16_rn(unsigned short a) { return a; }
inline __nv_bfloat16 __int2bfloat16_rn(int a) { return a; }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned a) { return a; }
inline __nv_bfloat16 __ll2bfloat16_rn(long long a) { return a; }
inline __nv_bfloat16 __ull2bfloat16_rn(unsigned long long a) { return a; }

#define TINYVLLM_SIM_FROM_BF16(name, Integer, convert)           \
  inline Integer name##_rn(__nv_bfloat16 a) {                    \
    return tinyvllm::simulator::convert<Integer>(nearbyintf(a)); \
  }                                                              \
  inline Integer name##_rz(__nv_bfloat16 a) {                    \
    return tinyvllm::simulator::convert<Integer>(truncf(a));     \
  }                                                              \
  inline Integer name##_rd(__nv_bfloat16 a) {                    \
    return tinyvllm::simulator::convert<Integer>(floorf(a));     \
  }                                                              \
  inline Integer name##_ru(__nv_bfloat16 a) {                    \
    return tinyvllm::simulator::convert<Integer>(ceilf(a));      \
  }
TINYVLLM_SIM_FROM_BF16(__bfloat162short, short, Saturated)
TINYVLLM_SIM_FROM_BF16(__bfloat162ushort, unsigned short, Saturated)
TINYVLLM_SIM_FROM_BF16(__bfloat162int, int, Saturated)
TINYVLLM_SIM_FROM_BF16(__bfloat162uint, unsigned, Saturated)
TINYVLLM_SIM_FROM_BF16(__bfloat162ll, long long, Saturated64)
TINYVLLM_SIM_FROM_BF16(__bfloat162ull, unsigned long long, Saturated64)
#undef TINYVLLM_SIM_FROM_BF16
inline signed char __bfloat162char_rz(__nv_bfloat16 a) { return a; }
inline unsigned char __bfloat162uchar_rz(__nv_bfloat16 a) { return a; }

inline short __bfloat16_as_short(__nv_bfloat16 a) { return static_cast<short>(a.__x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.__x; }
inline __nv_bfloat16 __short_as_bfloat16(short a) {
  return __nv_bfloat16::FromBits(static_cast<unsigned short>(a));
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16::FromBits(a); }

// --- Making and taking apart pairs.

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {a, a}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }

#define SCALAR __nv_bfloat16
#define PAIR __nv_bfloat162
#define Format Bf16Format
#define ToFloat __bfloat162float
#define FromFloat __float2bfloat16
#include "cuda_simulator/small_float_functions.inc"
#undef SCALAR
#undef PAIR
#undef PAIR_OF
#undef Format
#undef ToFloat
#undef FromFloat

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7F80U)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7F7FU)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000U)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000U)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3F80U)
