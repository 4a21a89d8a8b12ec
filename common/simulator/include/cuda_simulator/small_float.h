// Conversions between f32 or f64 and the 16-bit formats, exact to the bit with CUDA's: rounding in
// the four directions, NaN always 0x7fff. Part of the simulator's cuda_bf16.h and cuda_fp16.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tinyvllm::simulator {

// nearest (ties to even), towards zero, down, up
enum class Rounding { kNearest, kZero, kDown, kUp };

// What a 16-bit format is made of.
struct Bf16Format {
  static constexpr int kExponentBits = 8;
  static constexpr int kFractionBits = 7;
};
struct Fp16Format {
  static constexpr int kExponentBits = 5;
  static constexpr int kFractionBits = 10;
};

// Rounds a finite or infinite f64 to the format. An f32 is exact in f64, so this one function
// serves both.
template <typename Format>
uint16_t RoundToFormat(double value, Rounding rounding) {
  constexpr int kFraction = Format::kFractionBits;
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  constexpr uint64_t kInfinity = ((uint64_t{1} << Format::kExponentBits) - 1) << kFraction;
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint16_t sign = static_cast<uint16_t>(bits >> 63 << 15);
  bits &= ~(uint64_t{1} << 63);
  if (bits > 0x7ff0000000000000u) return 0x7fff;  // NaN
  if (bits == 0x7ff0000000000000u) return static_cast<uint16_t>(sign | kInfinity);
  if (bits == 0) return sign;

  // value = significand * 2^(exponent - 52), with the leading bit of a normal f64 written out.
  int exponent = static_cast<int>(bits >> 52) - 1023;
  uint64_t significand = bits & 0xfffffffffffffu;
  if (exponent == -1023) {
    exponent = -1022;
  } else {
    significand |= uint64_t{1} << 52;
  }
  // Below the smallest normal number of the format the exponent stays and bits get lost instead.
  const int least = 1 - kBias;
  const int lost = 52 - kFraction + (exponent < least ? least - exponent : 0);
  uint64_t kept = 0, rest = significand, half = ~uint64_t{0};
  if (lost < 64) {
    kept = significand >> lost;
    rest = significand & ((uint64_t{1} << lost) - 1);
    half = uint64_t{1} << (lost - 1);
  }
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest:
      up = rest > half || (rest == half && (kept & 1));
      break;
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = sign != 0 && rest != 0;
      break;
    case Rounding::kUp:
      up = sign == 0 && rest != 0;
      break;
  }
  kept += up;
  // The leading bit of `kept` adds one to the exponent field, and so does a carry from rounding.
  const int field = exponent < least ? 0 : exponent + kBias - 1;
  uint64_t result = (static_cast<uint64_t>(field) << kFraction) + kept;
  if (result >= kInfinity) {
    const bool to_infinity = rounding == Rounding::kNearest ||
                             (rounding == Rounding::kUp && sign == 0) ||
                             (rounding == Rounding::kDown && sign != 0);
    result = to_infinity ? kInfinity : kInfinity - 1;
  }
  return static_cast<uint16_t>(sign | result);
}

// The two conversions that every kernel does.
inline uint16_t FloatToBf16Bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float Bf16BitsToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

inline uint16_t FloatToFp16Bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return 0x7fff;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  if (bits >= 0x38800000u) {  // normal: rebias the exponent, round 13 bits away
    bits += 0xc8000000u + 0xfffu + (bits >> 13 & 1);
    return static_cast<uint16_t>(sign | bits >> 13);
  }
  // Adding 0.5 leaves a subnormal's bits, rounded, at the end of the sum.
  float magnitude;
  memcpy(&magnitude, &bits, sizeof(magnitude));
  magnitude += 0.5f;
  memcpy(&bits, &magnitude, sizeof(bits));
  return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
}
inline float Fp16BitsToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  uint32_t wide;
  if (rest >= 0x7c00u) {  // infinity and NaN
    wide = sign | 0x7f800000u | rest << 13;
  } else if (rest >= 0x400u) {
    wide = sign | ((rest << 13) + 0x38000000u);
  } else {  // subnormal: an integer number of 2^-24
    float value = static_cast<float>(rest) * 5.9604644775390625e-8f;
    memcpy(&wide, &value, sizeof(wide));
    wide |= sign;
  }
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

// a * b + c, rounded so that a further rounding to 16 bits gives what one rounding of the exact
// value would: the product of two 16-bit numbers is exact in f64, and where the sum is not, its
// last bit is made odd, which keeps the second rounding from seeing a tie that is none (Boldo and
// Melquiond, 2008).
inline double FmaRoundedToOdd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  // Knuth's two-sum: sum + error is exact.
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (c - c_part);
  uint64_t bits;
  memcpy(&bits, &sum, sizeof(bits));
  if (error != 0 && (bits & 1) == 0) {
    bits += (error > 0) == (sum > 0) ? 1 : -1;
  }
  double odd;
  memcpy(&odd, &bits, sizeof(odd));
  return odd;
}

// An integer as f64 that rounds to 16 bits like the integer itself: bits below the 11 that a format
// can keep, and the rounding needs, are merged into one.
inline double IntegerForRounding(uint64_t magnitude, bool negative) {
  int shift = 0;
  while (magnitude >> shift >= uint64_t{1} << 32) ++shift;
  uint64_t kept = magnitude >> shift;
  if (kept << shift != magnitude) kept |= 1;
  const double value = std::ldexp(static_cast<double>(kept), shift);
  return negative ? -value : value;
}
inline double IntegerForRounding(long long value) {
  return value < 0 ? IntegerForRounding(0 - static_cast<uint64_t>(value), true)
                   : IntegerForRounding(static_cast<uint64_t>(value), false);
}

}  // namespace tinyvllm::simulator
