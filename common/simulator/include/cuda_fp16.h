// fp16 (half) on the simulator: CUDA's header of this name, with CUDA's own rounding.
#pragma once

#include "cuda_runtime.h"
#include "cuda_simulator/small_float.h"

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x;
  unsigned short y;
};

struct alignas(2) __half {
  // The storage, under CUDA's name for it.
  unsigned short __x;

  __half() = default;
  constexpr __half(const __half_raw& raw) : __x(raw.x) {}
  __half(float value) : __x(tinyvllm::simulator::FloatToFp16Bits(value)) {}
  __half(double value) : __x(Round(value)) {}
  __half(short value) : __x(Round(value)) {}
  __half(unsigned short value) : __x(Round(value)) {}
  __half(int value) : __x(Round(value)) {}
  __half(unsigned int value) : __x(Round(value)) {}
  __half(long value) : __x(Round(tinyvllm::simulator::IntegerForRounding(value))) {}
  __half(unsigned long value) : __x(Round(tinyvllm::simulator::IntegerForRounding(value, false))) {}
  __half(long long value) : __x(Round(tinyvllm::simulator::IntegerForRounding(value))) {}
  __half(unsigned long long value)
      : __x(Round(tinyvllm::simulator::IntegerForRounding(value, false))) {}

  operator __half_raw() const { return {__x}; }
  operator float() const { return tinyvllm::simulator::Fp16BitsToFloat(__x); }
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
  static constexpr unsigned short kInfinityBits = 0x7c00;
  static constexpr __half FromBits(unsigned short bits) { return __half_raw{bits}; }
  constexpr unsigned short Bits() const { return __x; }

 private:
  static unsigned short Round(double value) {
    using namespace tinyvllm::simulator;
    return RoundToFormat<Fp16Format>(value, Rounding::kNearest);
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
typedef __half half;

struct alignas(4) __half2 {
  __half x;
  __half y;

  __half2() = default;
  constexpr __half2(const __half& low, const __half& high) : x(low), y(high) {}
  __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
  operator __half2_raw() const { return {x.__x, y.__x}; }
};
typedef __half2 half2;

// --- Conversions.

inline float __half2float(__half a) { return a; }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }

#define TINYVLLM_SIM_TO_FP16(name, T, wide)                                    \
  inline __half name##_rz(T a) {                                               \
    using namespace tinyvllm::simulator;                                       \
    return __half::FromBits(RoundToFormat<Fp16Format>(wide, Rounding::kZero)); \
  }                                                                            \
  inline __half name##_rd(T a) {                                               \
    using namespace tinyvllm::simulator;                                       \
    return __half::FromBits(RoundToFormat<Fp16Format>(wide, Rounding::kDown)); \
  }                                                                            \
  inline __half name##_ru(T a) {                                               \
    using namespace tinyvllm::simulator;                                       \
    return __half::FromBits(RoundToFormat<Fp16Format>(wide, Rounding::kUp));   \
  }
TINYVLLM_SIM_TO_FP16(__float2half, float, a)
TINYVLLM_SIM_TO_FP16(__short2half, short, a)
TINYVLLM_SIM_TO_FP16(__ushort2half, unsigned short, a)
TINYVLLM_SIM_TO_FP16(__int2half, int, a)
TINYVLLM_SIM_TO_FP16(__uint2half, unsigned, a)
TINYVLLM_SIM_TO_FP16(__ll2half, long long, IntegerForRounding(a))
TINYVLLM_SIM_TO_FP16(__ull2half, unsigned long long, IntegerForRounding(a, false))
#undef TINYVLLM_SIM_TO_FP16
inline __half __short2half_rn(short a) { return a; }
inline __half __ushort2half_rn(unsigned short a) { return a; }
inline __half __int2half_rn(int a) { return a; }
inline __half __uint2half_rn(unsigned a) { return a; }
inline __half __ll2half_rn(long long a) { return a; }
inline __half __ull2half_rn(unsigned long long a) { return a; }

#define TINYVLLM_SIM_FROM_FP16(name, Integer, convert)                                            \
  inline Integer name##_rn(__half a) {                                                            \
    return tinyvllm::simulator::convert<Integer>(nearbyintf(a));                                  \
  }                                                                                               \
  inline Integer name##_rz(__half a) { return tinyvllm::simulator::convert<Integer>(truncf(a)); } \
  inline Integer name##_rd(__half a) { return tinyvllm::simulator::convert<Integer>(floorf(a)); } \
  inline Integer name##_ru(__half a) { return tinyvllm::simulator::convert<Integer>(ceilf(a)); }
TINYVLLM_SIM_FROM_FP16(__half2short, short, Saturated)
TINYVLLM_SIM_FROM_FP16(__half2ushort, unsigned short, Saturated)
TINYVLLM_SIM_FROM_FP16(__half2int, int, Saturated)
TINYVLLM_SIM_FROM_FP16(__half2uint, unsigned, Saturated)
TINYVLLM_SIM_FROM_FP16(__half2ll, long long, Saturated64)
TINYVLLM_SIM_FROM_FP16(__half2ull, unsigned long long, Saturated64)
#undef TINYVLLM_SIM_FROM_FP16
inline signed char __half2char_rz(__half a) { return a; }
inline unsigned char __half2uchar_rz(__half a) { return a; }

inline short __half_as_short(__half a) { return static_cast<short>(a.__x); }
inline unsigned short __half_as_ushort(__half a) { return a.__x; }
inline __half __short_as_half(short a) { return __half::FromBits(static_cast<unsigned short>(a)); }
inline __half __ushort_as_half(unsigned short a) { return __half::FromBits(a); }

// --- Making and taking apart pairs.

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }

#define SCALAR __half
#define PAIR __half2
#define Format Fp16Format
#define ToFloat __half2float
#define FromFloat __float2half
#include "cuda_simulator/small_float_functions.inc"
#undef SCALAR
#undef PAIR
#undef PAIR_OF
#undef Format
#undef ToFloat
#undef FromFloat

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)
