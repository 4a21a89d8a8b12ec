// Checks of lesson 03: every version copies the right rows, bit for bit, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/cuda/warp.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/03_embedding/embedding.h"

namespace tinyvllm {

void PrintTo(const EmbeddingGatherVersion& version, std::ostream* out) {
  *out << "version " << version.number << ", " << version.name;
}

namespace {

// --- First steps: versions 1 and 3, the exercise, on a table that one can follow by hand.

constexpr int kTableRows = 4;
constexpr int kBeyond = -1;   // what lies behind the table
constexpr int kSpare = 2048;  // elements behind ids, table and output, for kernels that go too far

// Row r is 64 r, 64 r + 1, ... 64 r + 63, and from its start anew: numbers that a bf16 holds.
int TableElement(int row, int i) { return 64 * row + i % 64; }

struct Gather {
  std::vector<int> ids;
  int width;

  size_t size() const { return ids.size() * width; }

  // What is left by a kernel that copies element from(t, i) of the table to element to(t, i) of the
  // output, for each token t and each i below `count`.
  using Place = std::function<int(int t, int i)>;
  std::vector<double> Copied(int count, const Place& from, const Place& to) const {
    std::vector<double> output(size() + kSpare, NAN);
    for (size_t t = 0; t < ids.size(); ++t) {
      for (int i = 0; i < count; ++i) {
        const int source = from(t, i);
        output.at(to(t, i)) =
            source < kTableRows * width ? TableElement(source / width, source % width) : kBeyond;
      }
    }
    return Written(std::move(output));
  }

  std::vector<double> Run(decltype(&EmbeddingGather) launch) const {
    std::vector<bf16> table;
    for (int i = 0; i < kTableRows * width; ++i) {
      table.push_back(__float2bfloat16(static_cast<float>(TableElement(i / width, i % width))));
    }
    table.resize(table.size() + kSpare, __float2bfloat16(kBeyond));
    std::vector<int> more_ids = ids;
    more_ids.resize(ids.size() + kSpare);
    const Stream stream;
    const DeviceBuffer<int> device_ids(more_ids);
    const DeviceBuffer<bf16> device_table(table);
    DeviceBuffer<bf16> output(size() + kSpare);
    output.Fill(0xff);  // NaN, so that an element nobody wrote shows
    launch(device_ids.data(), device_table.data(), output.data(), ids.size(), width, stream.get());
    stream.Synchronize();
    std::vector<double> all;
    for (bf16 value : output.ToHost()) all.push_back(__bfloat162float(value));
    return Written(std::move(all));
  }

  // The output, and behind it as much as was written there.
  std::vector<double> Written(std::vector<double> output) const {
    while (output.size() > size() && std::isnan(output.back())) output.pop_back();
    return output;
  }
};

std::vector<double> EveryEighth(std::vector<double> output) {
  for (size_t i = 0; i < output.size(); ++i) {
    if (i % 8 != 0) output[i] = NAN;
  }
  return output;
}

testing::AssertionResult CheckGather(int version, const std::vector<int>& ids, int width) {
  const Gather gather{ids, width};
  std::vector<double> table;
  for (int i = 0; i < kTableRows * width; ++i) table.push_back(TableElement(i / width, i % width));
  const auto Id = [&](int t) { return t < static_cast<int>(ids.size()) ? ids[t] : 0; };
  const auto From = [&](int t, int i) { return Id(t) * width + i; };
  const auto To = [&](int t, int i) { return t * width + i; };
  const auto RowsFrom = [&](const Gather::Place& from) { return gather.Copied(width, from, To); };

  const bool eight = version == 3, wide = width > 16;
  const int a_thread = eight ? 8 : 1;
  const int warps = (width / a_thread + kWarpSize - 1) / kWarpSize;
  const int threads = std::min(warps * kWarpSize, 1024), copies = threads * a_thread;
  Guide guide(eight ? "docs/03_embedding.md#versions-2-and-3-more-bytes-a-load"
                    : "docs/03_embedding.md#version-1-one-element-a-thread");
  guide.Input("token_ids", ids).Input("hidden_size", width);
  if (wide) {
    guide.Input("table", "row r is 64 r, 64 r + 1, ..., 64 r + 63, and from its start anew");
  } else {
    guide.Input("table", table, width);
  }
  guide
      .Start(eight ? "version 1 copies rows; now write EightElementsKernel in "
                     "lessons/03_embedding/exercise/embedding.cu, with its two pointers, and its "
                     "loop in steps that are eight times as long"
                   : "write the body of OneElementKernel in "
                     "lessons/03_embedding/exercise/embedding.cu; the easiest beginning is a "
                     "pointer to where this block's row begins in the table, and one to where it "
                     "goes in the output")
      .Mistake(
          "the block's number was taken for the row of the table; which row this token wants "
          "stands in token_ids",
          RowsFrom([&](int t, int i) { return t * width + i; }))
      .Mistake(
          "token_ids was asked for the thread's number; all threads of a block copy one "
          "token's row, and the token's number is the block's",
          RowsFrom([&](int, int i) { return From(i, i); }))
      .Mistake("every block copied the first token's row; a block's token is number blockIdx.x",
               RowsFrom([&](int, int i) { return From(0, i); }))
      .Mistake(
          "the row was read from element number id on; before row number id lie id whole rows, "
          "of hidden_size elements each",
          RowsFrom([&](int t, int i) { return Id(t) + i; }))
      .Mistake(
          "the row's place in the table was reckoned with the number of threads; a row has "
          "hidden_size elements, however many threads copy it",
          RowsFrom([&](int t, int i) { return Id(t) * threads + i; }))
      .Mistake(
          "all elements of a row are its first one: the thread's number is missing in the "
          "place to read from",
          RowsFrom([&](int t, int) { return From(t, 0); }))
      .Mistake(
          "the row was written where the id says; the output has a row for each token of the "
          "batch, in the batch's order",
          gather.Copied(width, From, From))
      .Mistake(
          "the row's place in the output was reckoned with the number of threads; a row has "
          "hidden_size elements, however many threads copy it",
          gather.Copied(width, From, [&](int t, int i) { return t * threads + i; }))
      .Mistake(
          "the rows in the output lie one element apart; each begins hidden_size elements "
          "after the one before",
          gather.Copied(width, From, [&](int t, int i) { return t + i; }))
      .Mistake(
          "table and batch are mixed up: the block's number says where to write, its id where "
          "to read",
          gather.Copied(
              width, [&](int t, int i) { return t * width + i; }, From))
      .Mistake(
          "all rows were written to the first one; each begins hidden_size elements after the one "
          "before",
          gather.Copied(width, From, [](int, int i) { return i; }))
      .Mistake(
          "the end of the row is missing: a block has at most 1,024 threads, so each goes on, "
          "in steps of the number of threads, until the row ends",
          gather.Copied(std::min(width, copies), From, To));
  if (copies > width) {
    guide
        .Mistake(
            "threads beyond the end of the row copied, too; where there are more threads than "
            "pieces of a row, the others have nothing to do",
            gather.Copied(copies, From, To))
        .Mistake(
            "all elements are the row's first one: the thread's number is missing in the place to "
            "read from; and threads beyond the end of the row wrote, too",
            gather.Copied(
                copies, [&](int t, int) { return From(t, 0); }, To));
  }
  if (eight) {
    guide
        .Mistake(
            "only a part was copied: does the loop count elements, up to hidden_size, or "
            "pieces of eight, up to hidden_size / 8? Here it mixes the two",
            gather.Copied(8 * ((width / 8 + 7) / 8), From, To))
        .Mistake("one element of each eight was copied; LoadBf16x8 and StoreBf16x8 move eight",
                 EveryEighth(gather.Copied(width, From, To)));
  }
  return guide
      .WhenOrderMatters(
          "two threads write the same element; a token's row in the output begins at "
          "its number in the batch times hidden_size, and no other thread writes there")
      .Otherwise(
          "the two pointers: on paper, at which element does block 0 begin to read, and at "
          "which to write? And block 1?")
      .Compare([&] { return gather.Run(kEmbeddingGatherVersions[version - 1].launch); },
               gather.Copied(width, From, To), 0, 0, width);
}

TEST(EmbeddingFirstSteps, OneRow) { EXPECT_TRUE(CheckGather(1, {2}, 4)); }

TEST(EmbeddingFirstSteps, FourRows) { EXPECT_TRUE(CheckGather(1, {2, 0, 3, 2}, 4)); }

TEST(EmbeddingFirstSteps, RowsLongerThanABlock) { EXPECT_TRUE(CheckGather(1, {1, 0}, 1030)); }

TEST(EmbeddingFirstSteps, EightElementsAThread) { EXPECT_TRUE(CheckGather(3, {2, 0, 3, 2}, 16)); }

TEST(EmbeddingFirstSteps, EightElementsAThreadInRowsLongerThanThat) {
  EXPECT_TRUE(CheckGather(3, {1, 0}, 8208));
}

// --- All versions.

constexpr int kMargin = 64;  // elements behind the output that must stay as they are

struct Shape {
  int num_tokens;
  int hidden_size;
  int vocab_size;
  int table_offset;   // elements by which the table, or the output, lies off its allocation, which
  int output_offset;  // begins at a multiple of 256 bytes
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.num_tokens << " tokens, hidden " << shape.hidden_size << ", vocabulary "
             << shape.vocab_size << ", offsets " << shape.table_offset << " and "
             << shape.output_offset;
}

// All 65,536 patterns, so NaNs with their payloads, infinities and denormals among them.
std::vector<uint16_t> AnyBits(Random& random, size_t size) {
  std::vector<uint16_t> bits(size);
  for (uint16_t& value : bits) value = static_cast<uint16_t>(random.Bits());
  return bits;
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {
      {1, 1, 1, 0, 0},    {1, 8, 3, 0, 0},     {5, 256, 100, 0, 0},  {3, 2048, 50, 0, 0},
      {2, 1024, 9, 0, 0}, {2, 1025, 9, 0, 0},  {2, 1026, 9, 0, 0},   {2, 8192, 9, 0, 0},
      {2, 8200, 9, 0, 0}, {2, 20001, 9, 0, 0}, {1025, 40, 70, 0, 0}, {70000, 8, 30, 0, 0},
      {3, 256, 9, 1, 0},  {3, 256, 9, 0, 1},   {3, 256, 9, 2, 2},    {3, 256, 9, 8, 8},
      {3, 256, 9, 4, 0},
  };
  Random random(11);
  for (int k = 0; k < 30; ++k) {
    shapes.push_back({random.Integer(1, 40), random.Integer(1, 3000), random.Integer(1, 200),
                      random.Integer(0, 9), random.Integer(0, 9)});
  }
  for (int k = 0; k < 10; ++k) {
    shapes.push_back({random.Integer(1, 40), 8 * random.Integer(1, 400), random.Integer(1, 200),
                      8 * random.Integer(0, 2), 8 * random.Integer(0, 2)});
  }
  return shapes;
}

class EmbeddingGatherTest : public testing::TestWithParam<EmbeddingGatherVersion> {};

TEST_P(EmbeddingGatherTest, CopiesTheRowsBitForBit) {
  const Stream stream;
  Random random(7);
  for (const Shape& shape : Shapes()) {
    const size_t width = shape.hidden_size;
    const std::vector<uint16_t> table =
        AnyBits(random, shape.table_offset + shape.vocab_size * width);
    const std::vector<int> ids = random.Integers(shape.num_tokens, 0, shape.vocab_size - 1);
    const DeviceBuffer<uint16_t> device_table(table);
    const DeviceBuffer<int> device_ids(ids);
    DeviceBuffer<uint16_t> device_output(shape.output_offset + shape.num_tokens * width + kMargin);
    device_output.Fill(0xff);
    GetParam().launch(device_ids.data(),
                      reinterpret_cast<const bf16*>(device_table.data()) + shape.table_offset,
                      reinterpret_cast<bf16*>(device_output.data()) + shape.output_offset,
                      shape.num_tokens, shape.hidden_size, stream.get());
    stream.Synchronize();

    std::vector<uint16_t> expected(device_output.size(), 0xffff);
    for (int t = 0; t < shape.num_tokens; ++t) {
      std::memcpy(&expected[shape.output_offset + t * width],
                  &table[shape.table_offset + ids[t] * width], width * sizeof(uint16_t));
    }
    const std::vector<uint16_t> output = device_output.ToHost();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(output[i], expected[i]) << shape << ", element " << i << " of the output's memory";
    }
  }
}

TEST_P(EmbeddingGatherTest, NothingToDoIsFine) {
  const Stream stream;
  EXPECT_NO_THROW(GetParam().launch(nullptr, nullptr, nullptr, 0, 256, stream.get()));
  EXPECT_NO_THROW(GetParam().launch(nullptr, nullptr, nullptr, 5, 0, stream.get()));
  EXPECT_THROW(GetParam().launch(nullptr, nullptr, nullptr, -1, 256, stream.get()), Error);
  EXPECT_THROW(GetParam().launch(nullptr, nullptr, nullptr, 5, -8, stream.get()), Error);
  stream.Synchronize();
}

#ifdef __SANITIZE_ADDRESS__
using EmbeddingGatherDeathTest = EmbeddingGatherTest;

TEST_P(EmbeddingGatherDeathTest, AddressSanitizerNamesABadId) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto gather = [] {
    const Stream stream;
    const DeviceBuffer<int> ids(std::vector<int>{3, 10});
    const DeviceBuffer<bf16> table(std::vector<bf16>(10 * 256));
    DeviceBuffer<bf16> output(2 * 256);
    GetParam().launch(ids.data(), table.data(), output.data(), 2, 256, stream.get());
    stream.Synchronize();
  };
  EXPECT_DEATH(gather(), "Element.*Kernel");
}

INSTANTIATE_TEST_SUITE_P(Versions, EmbeddingGatherDeathTest,
                         testing::ValuesIn(kEmbeddingGatherVersions),
                         [](const auto& info) { return std::to_string(info.param.number); });
#endif

INSTANTIATE_TEST_SUITE_P(Versions, EmbeddingGatherTest, testing::ValuesIn(kEmbeddingGatherVersions),
                         [](const auto& info) { return std::to_string(info.param.number); });

TEST(EmbeddingGather, IsOneOfTheVersions) {
  const Stream stream;
  Random random(5);
  const std::vector<uint16_t> table = AnyBits(random, 10 * 256);
  const DeviceBuffer<uint16_t> device_table(table);
  const DeviceBuffer<int> ids(std::vector<int>{9, 0, 9});
  DeviceBuffer<uint16_t> device_output(3 * 256);
  device_output.Fill(0xff);
  EmbeddingGather(ids.data(), reinterpret_cast<const bf16*>(device_table.data()),
                  reinterpret_cast<bf16*>(device_output.data()), 3, 256, stream.get());
  stream.Synchronize();
  const std::vector<uint16_t> output = device_output.ToHost();
  for (int i = 0; i < 256; ++i) {
    ASSERT_EQ(output[i], table[9 * 256 + i]);
    ASSERT_EQ(output[256 + i], table[i]);
    ASSERT_EQ(output[512 + i], table[9 * 256 + i]);
  }
}

}  // namespace
}  // namespace tinyvllm
