// The element types of the safetensors format, and the two conversions a loader needs.
//
// The course computes on BF16 weights. BF16 is the upper half of an F32: one sign bit, the same
// eight exponent bits, seven mantissa bits instead of 23. So F32 to BF16 is a rounding of 16 bits
// away, and F16 (five exponent bits, ten of mantissa) goes through F32, where it is exact.
//
//   ConvertToBF16(DType::kF16, view.bytes.data(), element_count, row);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tinyvllm {

// The names are the format's own: kF16 is written "F16" in a header, and so on.
enum class DType {
  kBOOL,
  kU8,
  kI8,
  kF8_E4M3,
  kF8_E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

// "BF16" for kBF16.
const char* DTypeName(DType dtype);

// The dtype a header calls `name`, or nothing when the format (as we know it) has no such name.
std::optional<DType> DTypeFromName(std::string_view name);

// Every name, separated by ", ": for error messages.
const char* DTypeNames();

// Bytes of one element.
size_t DTypeBytes(DType dtype);

// Rounds to the nearest BF16, ties to the even one, bit for bit as CUDA's __float2bfloat16_rn: what
// is too large becomes infinity, and every NaN becomes 0x7fff.
uint16_t BF16FromF32(float value);

// Exact: every F16, subnormals and infinities included, is also an F32. NaN stays NaN.
float F32FromF16(uint16_t bits);

// The value of a BF16, exactly.
float F32FromBF16(uint16_t bits);

// Whether ConvertToBF16 takes `dtype`: BF16, F16 and F32.
bool ConvertsToBF16(DType dtype);

// Converts (or, from BF16, copies) `count` elements. `in` may have any alignment: nothing in the
// format aligns a tensor's bytes. Throws Error when ConvertsToBF16(from) is false.
void ConvertToBF16(DType from, const void* in, size_t count, uint16_t* out);

}  // namespace tinyvllm
