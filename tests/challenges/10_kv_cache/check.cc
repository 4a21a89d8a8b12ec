// The challenge of lesson 10: the same tokens as one by one, in fewer passes where the text repeats
// itself. The model has random weights, and such models soon talk in circles.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/10_kv_cache/challenge/prompt_lookup.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

constexpr int kMaxLen = 100;

class PromptLookupChallenge : public testing::Test {
 protected:
  // One whose rows do not depend on how many there are, so that tokens one by one and in groups
  // have the same logits. The simulator's cuBLAS is like that, and fast.
  static GemmBackend Gemm() { return IsSimulator() ? GemmBackend::kCublas : GemmBackend::kTiled; }

  PromptLookupChallenge() {
    const std::string folder =
        TinyCheckpoint(1, {{"max_position_embeddings", kMaxLen}}).Write("lookup");
    config_ = ModelConfig::FromFolder(folder);
    weights_ = std::make_unique<Weights>(Checkpoint(folder), config_);
  }

  Generation OneByOne(const GenerationRequest& request) const {
    KvCacheGenerator generator(config_, *weights_, kMaxLen, Gemm());
    return generator.Generate({request})[0];
  }

  LookupGeneration WithLookup(const GenerationRequest& request, int max_guesses) const {
    const PassLimits limits{kMaxLen, 1, kMaxLen, kMaxLen};
    const Stream stream;
    ContiguousKvCache cache(config_, limits);
    ForwardPass pass(config_, *weights_, limits, stream.get(), CachedStages(&cache), Gemm());
    return GenerateWithLookup(request, max_guesses, &pass, &cache, stream.get());
  }

  testing::AssertionResult CheckRequest(const GenerationRequest& request, int max_guesses) const {
    const Generation expected = OneByOne(request);
    const auto Text = [](const Generation& generation) {
      std::vector<std::string> words = {ToString(generation.finish_reason)};
      for (int id : generation.token_ids) words.push_back(std::to_string(id));
      return words;
    };
    return Guide("docs/10_kv_cache.md#challenge")
        .Input("prompt_token_ids", request.prompt_token_ids)
        .Input("max_tokens", request.max_tokens)
        .Input("max_guesses", max_guesses)
        .Compare([&] { return Text(WithLookup(request, max_guesses).generation); }, Text(expected));
  }

  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
};

TEST_F(PromptLookupChallenge, GivesTheSameTokens) {
  Random random(1);
  for (int round = 0; round < 4; ++round) {
    GenerationRequest request;
    request.prompt_token_ids = random.Integers(random.Integer(1, 30), 3, config_.vocab_size - 1);
    request.max_tokens = random.Integer(1, 80);
    request.ignore_eos = round % 2 == 0;
    for (int max_guesses : {1, 4, 10}) ASSERT_TRUE(CheckRequest(request, max_guesses));
  }
}

TEST_F(PromptLookupChallenge, EndsWhereTheTextEnds) {
  GenerationRequest request;
  request.prompt_token_ids = {7, 8, 7, 8, 7, 8};
  request.max_tokens = 1000;  // the model's length comes first
  request.ignore_eos = true;
  EXPECT_TRUE(CheckRequest(request, 10));
  request.max_tokens = 1;
  EXPECT_TRUE(CheckRequest(request, 10));
  // Every token that it chose ends a text, each in its turn.
  request.max_tokens = 30;
  for (int id : OneByOne(request).token_ids) {
    request.ignore_eos = false;
    config_.eos_token_ids = {id};
    ASSERT_TRUE(CheckRequest(request, 4)) << "the end-of-text token is " << id;
  }
}

TEST_F(PromptLookupChallenge, TakesFewerPassesWhereTheTextRepeatsItself) {
  GenerationRequest request;
  request.prompt_token_ids = {7, 8, 9, 10};
  request.max_tokens = 90;
  request.ignore_eos = true;
  const LookupGeneration none = WithLookup(request, 0);
  EXPECT_EQ(none.num_passes, 90) << "without guesses, a pass a token";
  const LookupGeneration four = WithLookup(request, 4);
  EXPECT_EQ(four.generation.token_ids.size(), 90u);
  EXPECT_LE(four.num_passes, 70) << "the random model repeats itself often enough";
  EXPECT_GE(four.num_passes, 18) << "no pass can give more than its guesses and one";
}

}  // namespace
}  // namespace tinyvllm
