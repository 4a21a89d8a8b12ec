// The challenge of lesson 03: the gradient to the last bit, in whatever order the blocks run.
#include <gtest/gtest.h>

#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/03_embedding/challenge/embedding_gradient.h"

namespace tinyvllm {
namespace {

testing::AssertionResult CheckGradient(const std::vector<int>& token_ids, int vocab_size,
                                       int hidden_size) {
  Random random(hidden_size);
  const std::vector<float> d_output = random.F32(token_ids.size() * hidden_size);
  const std::vector<float> before = random.F32(size_t(vocab_size) * hidden_size);
  std::vector<float> expected = before;
  for (size_t t = 0; t < token_ids.size(); ++t) {
    for (int i = 0; i < hidden_size; ++i) {
      expected[token_ids[t] * hidden_size + i] += d_output[t * hidden_size + i];
    }
  }
  Guide guide("docs/03_embedding.md#challenge");
  guide.Input("token_ids", token_ids).Input("hidden_size", hidden_size);
  return guide.Compare(
      [&] {
        const Stream stream;
        DeviceBuffer<int> ids(token_ids);
        DeviceBuffer<float> gradient(d_output), table(before);
        EmbeddingGradient(ids.data(), gradient.data(), table.data(),
                          static_cast<int>(token_ids.size()), hidden_size, stream.get());
        stream.Synchronize();
        return table.ToHost();
      },
      expected);
}

TEST(EmbeddingGradientChallenge, TokensThatAllDiffer) {
  EXPECT_TRUE(CheckGradient({4, 0, 2}, 5, 3));
}

TEST(EmbeddingGradientChallenge, TokensThatAreAlike) {
  EXPECT_TRUE(CheckGradient({1, 0, 1, 1}, 3, 4));
  EXPECT_TRUE(CheckGradient(std::vector<int>(50, 2), 4, 64));
}

TEST(EmbeddingGradientChallenge, ManyTokensOfAnyWidth) {
  for (int hidden_size : {1, 31, 100, 1025}) {
    EXPECT_TRUE(CheckGradient(Random(7).Integers(200, 0, 39), 40, hidden_size));
  }
}

TEST(EmbeddingGradientChallenge, NothingIsNoWork) {
  EmbeddingGradient(nullptr, nullptr, nullptr, 0, 64, nullptr);
}

}  // namespace
}  // namespace tinyvllm
