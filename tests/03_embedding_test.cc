// Checks of lesson 03: every version copies the right rows, bit for bit, and nothing else.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/random.h"
#include "lessons/03_embedding/embedding.h"

namespace tinyvllm {

void PrintTo(const EmbeddingGatherVersion& version, std::ostream* out) {
  *out << "version " << version.number << ", " << version.name;
}

namespace {

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
