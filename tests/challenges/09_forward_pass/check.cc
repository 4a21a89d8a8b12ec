// The challenge of lesson 09: against one pass a prefix, with small and with huge logits, in one
// pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/stream.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/09_forward_pass/challenge/perplexity.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

class PerplexityChallenge : public testing::Test, public OffloadHooks {
 protected:
  // The norm before the head makes the logits, times `scale`.
  void Load(float scale) {
    TinyCheckpoint tiny(1);
    for (float& weight : tiny.tensors["model.norm.weight"]) weight = scale * std::round(weight);
    const std::string folder = tiny.Write("perplexity");
    config_ = ModelConfig::FromFolder(folder);
    weights_ = std::make_unique<Weights>(Checkpoint(folder), config_);
    const PassLimits limits{40, 1, 40, 3};  // the logits come three rows at a time
    pass_ = std::make_unique<ForwardPass>(config_, *weights_, limits, stream_.get());
    pass_->set_offload_hooks(this);
  }

  void BeforePass(cudaStream_t) override { ++num_passes_; }

  // The probability of each token, from a pass over all before it.
  std::vector<double> LogProbabilities(const std::vector<int>& ids) {
    std::vector<double> log_probabilities;
    for (size_t i = 1; i < ids.size(); ++i) {
      pass_->Run(Batch::WholeSequence({ids.begin(), ids.begin() + i}));
      const std::vector<float> logits = pass_->LogitsToHost();
      const double largest = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (float logit : logits) sum += std::exp(logit - largest);
      log_probabilities.push_back(logits[ids[i]] - largest - std::log(sum));
    }
    return log_probabilities;
  }

  // The most probable tokens, each with all before it; every sixth is another.
  std::vector<int> WhatItExpects(int length) {
    std::vector<int> ids = {3};
    while (static_cast<int>(ids.size()) < length) {
      pass_->Run(Batch::WholeSequence(ids));
      const std::vector<float> logits = pass_->LogitsToHost();
      const auto most = std::max_element(logits.begin(), logits.end());
      const int id = static_cast<int>(most - logits.begin());
      ids.push_back(ids.size() % 6 == 4 ? (id + 1) % config_.vocab_size : id);
    }
    return ids;
  }

  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  const Stream stream_;
  std::unique_ptr<ForwardPass> pass_;
  int num_passes_ = 0;
};

TEST_F(PerplexityChallenge, IsThatOfTheTokensThatFollow) {
  for (float scale : {1.0f, 256.0f}) {
    Load(scale);
    for (int length : {2, 5, 40}) {
      // What is made of 256 times larger logits is certain of itself: a text of random tokens would
      // have more surprise than a double can hold.
      const std::vector<int> ids = scale == 1
                                       ? Random(length).Integers(length, 0, config_.vocab_size - 1)
                                       : WhatItExpects(length);
      const std::vector<double> logs = LogProbabilities(ids);
      const double sum = std::accumulate(logs.begin(), logs.end(), 0.0);
      num_passes_ = 0;
      ASSERT_TRUE(Guide("docs/09_forward_pass.md#challenge")
                      .Input("token_ids", ids)
                      .Input("the head's scale", scale)
                      .Mistake("the sum was divided by the number of tokens, but the first of them "
                               "is not predicted",
                               -sum / length)
                      .Mistake("this is the logarithm, without exp", std::log(-sum / (length - 1)))
                      .Otherwise("which row of logits says something of which token?")
                      .Compare([&] { return std::log(Perplexity(pass_.get(), ids)); },
                               -sum / (length - 1), 1e-6, 1e-9));
      EXPECT_LE(num_passes_, 2)
          << "one pass over the layers, twice for the second order of threads";
    }
  }
}

TEST_F(PerplexityChallenge, ATextOfOneTokenHasNone) {
  Load(1);
  EXPECT_THROW(Perplexity(pass_.get(), {3}), Error);
  EXPECT_THROW(Perplexity(pass_.get(), {}), Error);
}

}  // namespace
}  // namespace tinyvllm
