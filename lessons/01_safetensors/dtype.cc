#include "lessons/01_safetensors/dtype.h"

#include <cmath>
#include <cstring>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

struct DTypeInfo {
  const char* name;
  size_t bytes;
};

// In the order of the enumeration.
constexpr DTypeInfo kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};
static_assert(sizeof(kDTypes) / sizeof(kDTypes[0]) == static_cast<size_t>(DType::kU64) + 1,
              "one row a dtype");

template <typename To, typename From>
To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename T>
T LoadUnaligned(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

const char* DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  size_t index = 0;
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.name) return static_cast<DType>(index);
    ++index;
  }
  return std::nullopt;
}

const char* DTypeNames() {
  static const std::string names = [] {
    std::string joined;
    for (const DTypeInfo& info : kDTypes)
      joined += (joined.empty() ? "" : ", ") + std::string(info.name);
    return joined;
  }();
  return names.c_str();
}

size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

// tag::bf16_from_f32[]
uint16_t BF16FromF32(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  // The half-way point of the 16 bits that fall away is 0x8000. Adding one less than that, plus
  // the last bit that stays, carries into the upper half exactly when we must round up: above the
  // half-way point always, on it only from an odd number.
  const uint32_t last_kept_bit = (bits >> 16) & 1;
  const uint32_t rounded = (bits + 0x7fff + last_kept_bit) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(is_nan ? 0x7fff : rounded);
}
// end::bf16_from_f32[]

// tag::f32_from_f16[]
float F32FromF16(uint16_t bits) {
  // Exponent and mantissa moved to their place in an F32 read as a value too small by 2^112, the
  // difference of the two exponent biases (127 and 15). The multiplication mends that, and turns
  // an F16 subnormal into the normal F32 it is.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t scaled = BitCast<uint32_t>(BitCast<float>(magnitude) * 0x1p112f);
  const bool infinite_or_nan = (bits & 0x7c00) == 0x7c00;
  return BitCast<float>(sign | (infinite_or_nan ? magnitude | 0x7f800000 : scaled));
}
// end::f32_from_f16[]

float F32FromBF16(uint16_t bits) { return BitCast<float>(static_cast<uint32_t>(bits) << 16); }

bool ConvertsToBF16(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

void ConvertToBF16(DType from, const void* in, size_t count, uint16_t* out) {
  const char* bytes = static_cast<const char*>(in);
  switch (from) {
    case DType::kBF16:
      if (count > 0) std::memcpy(out, bytes, count * sizeof(uint16_t));
      return;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) {
        out[i] = BF16FromF32(F32FromF16(LoadUnaligned<uint16_t>(bytes + 2 * i)));
      }
      return;
    case DType::kF32:
      for (size_t i = 0; i < count; ++i) out[i] = BF16FromF32(LoadUnaligned<float>(bytes + 4 * i));
      return;
    default:
      throw Error("dtype ", DTypeName(from),
                  " cannot be converted to BF16: expected BF16, F16 or F32");
  }
}

}  // namespace tinyvllm
