// The challenge of lesson 07: against plain loops in f64, and no key read that nobody sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/07_attention/challenge/sliding_window.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {
namespace {

AttentionShape Shape(int num_heads, int num_kv_heads, int head_dim) {
  return {num_heads, num_kv_heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim))};
}

struct Case {
  Case(const AttentionShape& shape, int length)
      : shape(shape),
        length(length),
        q(Random(1).Bf16(size_t(length) * shape.num_heads * shape.head_dim, 2)),
        k(Random(2).Bf16(size_t(length) * shape.num_kv_heads * shape.head_dim, 2)),
        v(Random(3).Bf16(size_t(length) * shape.num_kv_heads * shape.head_dim)) {}

  std::vector<bf16> Run(int window) const {
    const Stream stream;
    DeviceBuffer<bf16> d_q(q), d_k(k), d_v(v), output(q.size());
    output.Fill(0xff);
    SlidingWindowAttention(shape, d_q.data(), d_k.data(), d_v.data(), output.data(), length, window,
                           stream.get());
    stream.Synchronize();
    return output.ToHost();
  }

  std::vector<double> Expected(int window) const {
    const int dim = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
    std::vector<double> output(q.size());
    for (int query = 0; query < length; ++query) {
      for (int head = 0; head < shape.num_heads; ++head) {
        const size_t q_row = (size_t(query) * shape.num_heads + head) * dim;
        const auto KvRow = [&](int key) {
          return (size_t(key) * shape.num_kv_heads + head / group) * dim;
        };
        const int first = std::max(0, query - window + 1);
        std::vector<double> weights;
        double total = 0;
        for (int key = first; key <= query; ++key) {
          double score = 0;
          for (int i = 0; i < dim; ++i)
            score += ToDouble(q[q_row + i]) * ToDouble(k[KvRow(key) + i]);
          weights.push_back(std::exp(score * shape.scale));
          total += weights.back();
        }
        for (int key = first; key <= query; ++key) {
          for (int i = 0; i < dim; ++i) {
            output[q_row + i] += weights[key - first] / total * ToDouble(v[KvRow(key) + i]);
          }
        }
      }
    }
    return output;
  }

  AttentionShape shape;
  int length;
  std::vector<bf16> q, k, v;
};

TEST(SlidingWindowChallenge, FourTokensThatSeeTwo) {
  const Case c(Shape(1, 1, 4), 4);
  EXPECT_TRUE(Guide("docs/07_attention.md#challenge")
                  .Input("q", c.q, 4)
                  .Input("k", c.k, 4)
                  .Input("v", c.v, 4)
                  .Mistake("the window is one key too long", c.Expected(3))
                  .Mistake("the window is one key too short", c.Expected(1))
                  .Mistake("there is no window: all keys before count", c.Expected(4))
                  .Compare([&] { return c.Run(2); }, c.Expected(2), kBf16Rounding, 1e-4, 4));
}

TEST(SlidingWindowChallenge, EveryShapeAndWindow) {
  for (const AttentionShape& shape :
       {Shape(4, 2, 64), Shape(6, 1, 32), Shape(2, 2, 128), Shape(3, 3, 20), Shape(1, 1, 256)}) {
    for (int length : {1, 5, 40}) {
      const Case c(shape, length);
      for (int window : {1, 2, 7, 39, 40, 1000}) {
        ASSERT_TRUE(
            Guide("docs/07_attention.md#challenge")
                .Input(
                    "heads, KV heads, head_dim",
                    {double(shape.num_heads), double(shape.num_kv_heads), double(shape.head_dim)})
                .Input("length", length)
                .Input("window", window)
                .Compare([&] { return c.Run(window); }, c.Expected(window), kBf16Rounding, 1e-4));
      }
    }
  }
}

TEST(SlidingWindowChallenge, LargeScoresOverflowNothing) {
  Case c(Shape(1, 1, 64), 30);
  for (bf16& value : c.q) value = __float2bfloat16(__bfloat162float(value) * 50);
  for (bf16 value : c.Run(8)) ASSERT_TRUE(std::isfinite(ToDouble(value)));
}

// AddressSanitizer takes the place of what counts accesses.
#if defined(TINYVLLM_SIMULATOR) && !defined(__SANITIZE_ADDRESS__)

TEST(SlidingWindowChallenge, KeysOutsideTheWindowAreNotRead) {
  const Case c(Shape(2, 1, 64), 200);
  constexpr int kWindow = 16;
  simulator::KernelStatistics all;
  for (const auto& kernel : simulator::CountKernels([&] { c.Run(kWindow); })) all.Add(kernel);
  const size_t row = 64 * sizeof(bf16), queries = 200 * 2;
  EXPECT_LE(all.bytes_read, queries * (1 + 2 * kWindow) * row);
  EXPECT_EQ(all.bytes_written, queries * row) << "no score goes to memory";
}

#endif

}  // namespace
}  // namespace tinyvllm
