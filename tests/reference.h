// Hugging Face transformers' results (tests/fixtures), and how close ours must come to them.
//
// The rule (docs/09_forward_pass.md): transformers' f32 run is the truth, its bf16 run the peer.
// Over a prompt, our logits lie no further from the truth than 1.25 times the peer's (relative
// Frobenius norm), and at any one position no further than 2 times. Greedy tokens are equal
// wherever the truth's best leads the second by more than twice the peer's largest error.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "lessons/01_safetensors/checkpoint.h"

namespace tinyvllm {

constexpr double kPromptFactor = 1.25;
constexpr double kPositionFactor = 2.0;

// A fixture's tensors as the checks want them.
class Fixture {
 public:
  explicit Fixture(const std::string& path) : file_(DataPath(path)) {}

  std::vector<double> Values(const std::string& name) const {
    const TensorView& tensor = Get(name);
    std::vector<double> values(tensor.element_count());
    for (size_t i = 0; i < values.size(); ++i) {
      const char* element = tensor.bytes.data() + i * DTypeBytes(tensor.dtype);
      if (tensor.dtype == DType::kF32) {
        float value;
        std::memcpy(&value, element, sizeof value);
        values[i] = value;
      } else {
        EXPECT_EQ(tensor.dtype, DType::kBF16) << name;
        uint16_t bits;
        std::memcpy(&bits, element, sizeof bits);
        values[i] = F32FromBF16(bits);
      }
    }
    return values;
  }

  std::vector<int> Ints(const std::string& name) const {
    const TensorView& tensor = Get(name);
    EXPECT_EQ(tensor.dtype, DType::kI32) << name;
    std::vector<int> values(tensor.element_count());
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  bool Has(const std::string& name) const { return file_.Find(name) != nullptr; }

 private:
  const TensorView& Get(const std::string& name) const {
    const TensorView* tensor = file_.Find(name);
    if (tensor == nullptr) throw Error("fixture: has no ", name);
    return *tensor;
  }

  SafetensorsFile file_;
};

inline double Distance(const double* a, const double* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// `ours` against truth and peer, as a whole.
inline void ExpectAsCloseAsThePeer(const std::vector<double>& ours,
                                   const std::vector<double>& truth,
                                   const std::vector<double>& peer) {
  ASSERT_EQ(ours.size(), truth.size());
  ASSERT_EQ(peer.size(), truth.size());
  EXPECT_LE(Distance(ours.data(), truth.data(), truth.size()),
            kPromptFactor * Distance(peer.data(), truth.data(), truth.size()));
}

// And row by row. For logits alone: they are the sum of many roundings. A row of an early
// activation is the sum of few, and in it the peer may have been lucky.
inline void ExpectEveryRowCloseTo(const std::vector<double>& ours, const std::vector<double>& truth,
                                  const std::vector<double>& peer, size_t width) {
  ASSERT_EQ(ours.size(), truth.size());
  for (size_t at = 0; at < truth.size(); at += width) {
    EXPECT_LE(Distance(&ours[at], &truth[at], width),
              kPositionFactor * Distance(&peer[at], &truth[at], width))
        << "row " << at / width;
  }
}

inline void ExpectLogitsCloseTo(const std::vector<double>& ours, const std::vector<double>& truth,
                                const std::vector<double>& peer, size_t vocab_size) {
  ExpectAsCloseAsThePeer(ours, truth, peer);
  ExpectEveryRowCloseTo(ours, truth, peer, vocab_size);
}

}  // namespace tinyvllm
