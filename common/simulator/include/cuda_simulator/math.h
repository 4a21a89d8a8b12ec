// Mathematics: CUDA's intrinsics and the functions that <math.h> lacks. Part of the simulator's
// cuda_runtime.h.
//
// The fast intrinsics (`__expf` and so on) are approximations on a GPU, with an error of a few
// units in the last place; here they are the accurate functions. Code must not depend on either.
#pragma once

#include <math.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

// --- min and max, for CUDA's own list of types. Beside a NaN the number wins, as on the GPU.

#define TINYVLLM_SIM_MIN_MAX(A, B, T)                                                     \
  constexpr T min(A a, B b) {                                                             \
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
  }                                                                                       \
  constexpr T max(A a, B b) {                                                             \
    return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
  }
TINYVLLM_SIM_MIN_MAX(int, int, int)
TINYVLLM_SIM_MIN_MAX(unsigned, unsigned, unsigned)
TINYVLLM_SIM_MIN_MAX(int, unsigned, unsigned)
TINYVLLM_SIM_MIN_MAX(unsigned, int, unsigned)
TINYVLLM_SIM_MIN_MAX(long, long, long)
TINYVLLM_SIM_MIN_MAX(unsigned long, unsigned long, unsigned long)
TINYVLLM_SIM_MIN_MAX(long, unsigned long, unsigned long)
TINYVLLM_SIM_MIN_MAX(unsigned long, long, unsigned long)
TINYVLLM_SIM_MIN_MAX(long long, long long, long long)
TINYVLLM_SIM_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
TINYVLLM_SIM_MIN_MAX(long long, unsigned long long, unsigned long long)
TINYVLLM_SIM_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef TINYVLLM_SIM_MIN_MAX

inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }

// --- Functions that <math.h> lacks.

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float fdividef(float a, float b) { return a / b; }
inline float sinpif(float x) { return static_cast<float>(sin(x * M_PI)); }
inline float cospif(float x) { return static_cast<float>(cos(x * M_PI)); }
inline double sinpi(double x) { return sin(fmod(x, 2.0) * M_PI); }
inline double cospi(double x) { return cos(fmod(x, 2.0) * M_PI); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline float normcdff(float x) { return 0.5f * erfcf(-x * static_cast<float>(M_SQRT1_2)); }
inline float saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// --- Fast approximations.

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __saturatef(float x) { return saturatef(x); }

// --- Arithmetic with a stated rounding. To nearest is what the CPU does.

namespace tinyvllm::simulator {

// Evaluates `operation()` in another rounding mode. Volatile operands keep the compiler from doing
// it beforehand.
template <typename Operation>
auto Rounded(int mode, Operation operation) {
  const int before = fegetround();
  fesetround(mode);
  auto result = operation();
  fesetround(before);
  return result;
}

}  // namespace tinyvllm::simulator

#define TINYVLLM_SIM_BINARY(name, T, op)                            \
  inline T name##_rn(T a, T b) { return a op b; }                   \
  inline T name##_rz(T a, T b) {                                    \
    volatile T x = a, y = b, z;                                     \
    return tinyvllm::simulator::Rounded(FE_TOWARDZERO, [&]() -> T { \
      z = x op y;                                                   \
      return z;                                                     \
    });                                                             \
  }                                                                 \
  inline T name##_ru(T a, T b) {                                    \
    volatile T x = a, y = b, z;                                     \
    return tinyvllm::simulator::Rounded(FE_UPWARD, [&]() -> T {     \
      z = x op y;                                                   \
      return z;                                                     \
    });                                                             \
  }                                                                 \
  inline T name##_rd(T a, T b) {                                    \
    volatile T x = a, y = b, z;                                     \
    return tinyvllm::simulator::Rounded(FE_DOWNWARD, [&]() -> T {   \
      z = x op y;                                                   \
      return z;                                                     \
    });                                                             \
  }
TINYVLLM_SIM_BINARY(__fadd, float, +)
TINYVLLM_SIM_BINARY(__fsub, float, -)
TINYVLLM_SIM_BINARY(__fmul, float, *)
TINYVLLM_SIM_BINARY(__fdiv, float, /)
TINYVLLM_SIM_BINARY(__dadd, double, +)
TINYVLLM_SIM_BINARY(__dsub, double, -)
TINYVLLM_SIM_BINARY(__dmul, double, *)
TINYVLLM_SIM_BINARY(__ddiv, double, /)
#undef TINYVLLM_SIM_BINARY

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }

// --- Conversions. Out of range gives the nearest end of the range, NaN gives 0, as on the GPU.

namespace tinyvllm::simulator {

template <typename Integer, typename Float>
Integer Saturated(Float rounded) {
  using Limits = std::numeric_limits<Integer>;
  if (rounded != rounded) return 0;
  if (rounded <= static_cast<Float>(Limits::min())) return Limits::min();
  if (rounded >= static_cast<Float>(Limits::max())) return Limits::max();
  return static_cast<Integer>(rounded);
}

// NaN becomes the integer's highest bit alone where the target has 64 bits.
template <typename Integer, typename Float>
Integer Saturated64(Float rounded) {
  if (rounded != rounded) return static_cast<Integer>(uint64_t{1} << 63);
  return Saturated<Integer>(rounded);
}

template <typename To, typename From>
To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

}  // namespace tinyvllm::simulator

#define TINYVLLM_SIM_FLOAT_TO(name, Float, Integer, convert)         \
  inline Integer name##_rn(Float x) {                                \
    return tinyvllm::simulator::convert<Integer>(std::nearbyint(x)); \
  }                                                                  \
  inline Integer name##_rz(Float x) {                                \
    return tinyvllm::simulator::convert<Integer>(std::trunc(x));     \
  }                                                                  \
  inline Integer name##_rd(Float x) {                                \
    return tinyvllm::simulator::convert<Integer>(std::floor(x));     \
  }                                                                  \
  inline Integer name##_ru(Float x) { return tinyvllm::simulator::convert<Integer>(std::ceil(x)); }
TINYVLLM_SIM_FLOAT_TO(__float2int, float, int, Saturated)
TINYVLLM_SIM_FLOAT_TO(__float2uint, float, unsigned, Saturated)
TINYVLLM_SIM_FLOAT_TO(__float2ll, float, long long, Saturated64)
TINYVLLM_SIM_FLOAT_TO(__float2ull, float, unsigned long long, Saturated64)
TINYVLLM_SIM_FLOAT_TO(__double2int, double, int, Saturated)
TINYVLLM_SIM_FLOAT_TO(__double2uint, double, unsigned, Saturated)
TINYVLLM_SIM_FLOAT_TO(__double2ll, double, long long, Saturated64)
TINYVLLM_SIM_FLOAT_TO(__double2ull, double, unsigned long long, Saturated64)
#undef TINYVLLM_SIM_FLOAT_TO

inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __float_as_int(float x) { return tinyvllm::simulator::BitCast<int>(x); }
inline unsigned __float_as_uint(float x) { return tinyvllm::simulator::BitCast<unsigned>(x); }
inline float __int_as_float(int x) { return tinyvllm::simulator::BitCast<float>(x); }
inline float __uint_as_float(unsigned x) { return tinyvllm::simulator::BitCast<float>(x); }
inline long long __double_as_longlong(double x) {
  return tinyvllm::simulator::BitCast<long long>(x);
}
inline double __longlong_as_double(long long x) { return tinyvllm::simulator::BitCast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }

// --- Integers and bits.

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) {
  const auto low24 = [](int x) { return static_cast<int>(static_cast<unsigned>(x) << 8) >> 8; };
  return static_cast<int>(static_cast<unsigned>(low24(a)) * static_cast<unsigned>(low24(b)));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
// Four bytes chosen from the eight of y:x, each by the low three bits of its nibble; the highest
// bit of a nibble spreads the chosen byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> (4 * i) & 15;
    unsigned byte = static_cast<unsigned>(both >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
// The dot product of four signed bytes, added to c.
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<unsigned>(static_cast<int8_t>(a >> (8 * i)) *
                                 static_cast<int8_t>(b >> (8 * i)));
  }
  return static_cast<int>(sum);
}
