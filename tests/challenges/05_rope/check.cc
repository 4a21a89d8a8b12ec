// The challenge of lesson 05: against the rotation in f64, and against keys that were computed
// where they now stand.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/05_rope/challenge/shift_rope.h"
#include "lessons/05_rope/reference.h"

namespace tinyvllm {
namespace {

constexpr int kHeads = 2, kHeadDim = 64, kStride = 160;  // 32 elements behind the heads
const RopeConfig kConfig{500000, kHeadDim, Llama3Scaling{32, 1, 4, 8192}};

template <typename Turn>
std::vector<bf16> Turned(std::vector<bf16> x, const std::vector<int>& by, Turn turn) {
  const Stream stream;
  const RopeTable table(kConfig, 4096);
  DeviceBuffer<bf16> rows(x);
  DeviceBuffer<int> device_by(by);
  turn(rows.data(), device_by.data(), table, static_cast<int>(by.size()), kHeads, kHeadDim, kStride,
       stream.get());
  stream.Synchronize();
  return rows.ToHost();
}

TEST(ShiftRopeChallenge, TurnsByTheDistance) {
  const std::vector<int> shifts = {-1, 1, -4000, 3000, 7, -100000};
  const std::vector<bf16> x = Random(1).Bf16(shifts.size() * kStride);
  EXPECT_TRUE(Guide("docs/05_rope.md#challenge")
                  .Input("shifts", shifts)
                  .Compare([&] { return Turned(x, shifts, ShiftRope); },
                           RopeReference(x, shifts, InverseFrequencies(kConfig), kHeads, kStride),
                           kBf16Rounding, 1e-5));
}

TEST(ShiftRopeChallenge, NoShiftChangesNoBit) {
  const std::vector<bf16> x = Random(2).Bf16(3 * kStride);
  const std::vector<bf16> same = Turned(x, {0, 0, 0}, ShiftRope);
  EXPECT_EQ(std::memcmp(same.data(), x.data(), x.size() * sizeof(bf16)), 0);
}

TEST(ShiftRopeChallenge, MovedKeysAreThoseOfTheirNewPlace) {
  const std::vector<bf16> x = Random(3).Bf16(4 * kStride);
  const std::vector<bf16> there = Turned(x, {90, 0, 512, 7}, Rope);
  const std::vector<bf16> moved =
      Turned(Turned(x, {100, 5, 12, 7}, Rope), {-10, -5, 500, 0}, ShiftRope);
  // The cached keys were rounded once, and are now rounded again.
  EXPECT_LT(RelativeError(moved, there), kBf16Rounding);
  EXPECT_GT(RelativeError(Turned(x, {100, 5, 12, 7}, Rope), there), 0.1);  // they had to move
}

}  // namespace
}  // namespace tinyvllm
