// How far a result may lie from its reference, in one place, each with its reason.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/bf16.h"

namespace tinyvllm {

// Half a unit in the last place of bf16, relative: one rounding to 8 significant bits.
constexpr double kBf16Rounding = 1.0 / 256;

template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
double ToDouble(T value) {
  return static_cast<double>(value);
}
inline double ToDouble(bf16 value) { return __bfloat162float(value); }

// ||actual - expected|| / ||expected||, the Frobenius norm; NaN anywhere gives NaN, which no
// comparison with a tolerance passes.
template <typename T, typename U>
double RelativeError(const std::vector<T>& actual, const std::vector<U>& expected) {
  Check(actual.size() == expected.size(), "RelativeError: ", actual.size(), " against ",
        expected.size(), " elements");
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double d = ToDouble(actual[i]) - ToDouble(expected[i]);
    difference += d * d;
    norm += ToDouble(expected[i]) * ToDouble(expected[i]);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// The first element with |actual - expected| > absolute + relative * |expected| (or a NaN), as a
// line for a test's failure; empty when there is none.
template <typename T, typename U>
std::string FirstMismatch(const std::vector<T>& actual, const std::vector<U>& expected,
                          double relative, double absolute) {
  if (actual.size() != expected.size()) {
    return StrCat(actual.size(), " elements, expected ", expected.size());
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = ToDouble(actual[i]), e = ToDouble(expected[i]);
    if (!(std::abs(a - e) <= absolute + relative * std::abs(e))) {
      return StrCat("element ", i, " of ", actual.size(), ": got ", a, ", expected ", e, " within ",
                    absolute + relative * std::abs(e));
    }
  }
  return "";
}

}  // namespace tinyvllm
