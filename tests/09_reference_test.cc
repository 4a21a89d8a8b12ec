// Lesson 09 against Hugging Face transformers: logits, activations and greedy tokens, on the
// bundled model and on small random models of odd shapes. The rule is in tests/reference.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/base/data_path.h"
#include "lessons/09_forward_pass/recompute_generator.h"
#include "tests/reference.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* fixture;
};

const Case kCases[] = {
    {"pocket_sum", "models/pocket", "tests/fixtures/pocket_sum.safetensors"},
    {"pocket_raw", "models/pocket", "tests/fixtures/pocket_raw.safetensors"},
    {"pocket_chat", "models/pocket", "tests/fixtures/pocket_chat.safetensors"},
    {"pocket_story", "models/pocket", "tests/fixtures/pocket_story.safetensors"},
    {"explicit_head_dim", "tests/fixtures/models/explicit_head_dim",
     "tests/fixtures/models/explicit_head_dim/expected.safetensors"},
    {"rope_parameters", "tests/fixtures/models/rope_parameters",
     "tests/fixtures/models/rope_parameters/expected.safetensors"},
    {"no_scaling", "tests/fixtures/models/no_scaling",
     "tests/fixtures/models/no_scaling/expected.safetensors"},
    {"wide_heads", "tests/fixtures/models/wide_heads",
     "tests/fixtures/models/wide_heads/expected.safetensors"},
};

PassLimits LimitsFor(size_t tokens, int positions) {
  PassLimits limits;
  limits.max_tokens = static_cast<int>(tokens);
  limits.max_sequences = 1;
  limits.max_sequence_len = positions;
  limits.max_logit_rows = static_cast<int>(tokens);
  return limits;
}

// (rows, vocab_size)
std::vector<double> LogitsOf(const Model& model, const std::vector<int>& token_ids,
                             const std::vector<int>& positions, const std::vector<int>& rows) {
  Batch batch = Batch::WholeSequence(token_ids);
  batch.positions = positions;
  batch.logit_rows = rows;
  const int longest = *std::max_element(positions.begin(), positions.end()) + 1;
  const Stream stream;
  ForwardPass pass(model.config, model.weights, LimitsFor(token_ids.size(), longest), stream.get());
  pass.Run(batch);
  const std::vector<float> logits = pass.LogitsToHost();
  return std::vector<double>(logits.begin(), logits.end());
}

std::vector<int> UpTo(size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

class Reference : public testing::TestWithParam<Case> {};

TEST_P(Reference, LogitsAreAsCloseAsTransformersOwn) {
  const Fixture fixture(GetParam().fixture);
  const Model model(DataPath(GetParam().model));
  const std::vector<int> ids = fixture.Ints("token_ids");
  const std::vector<double> ours =
      LogitsOf(model, ids, UpTo(ids.size()), fixture.Ints("logit_positions"));
  ExpectLogitsCloseTo(ours, fixture.Values("logits.f32"), fixture.Values("logits.bf16"),
                      model.config.vocab_size);
}

TEST_P(Reference, LogitsAtFarPositionsAre) {
  const Fixture fixture(GetParam().fixture);
  if (!fixture.Has("far.token_ids")) return;  // the random models have it
  const Model model(DataPath(GetParam().model));
  const std::vector<double> ours =
      LogitsOf(model, fixture.Ints("far.token_ids"), fixture.Ints("far.positions"), UpTo(4));
  ExpectLogitsCloseTo(ours, fixture.Values("far.logits.f32"), fixture.Values("far.logits.bf16"),
                      model.config.vocab_size);
}

// Teacher-forced: whatever came before, the next token is the truth's where the truth is sure.
TEST_P(Reference, GreedyTokensAreEqualWhereTheTruthIsSure) {
  const Fixture fixture(GetParam().fixture);
  const Model model(DataPath(GetParam().model));
  std::vector<int> ids = fixture.Ints("token_ids");
  const std::vector<int> generated = fixture.Ints("generated.f32");
  const std::vector<double> gap = fixture.Values("generated.gap");
  const std::vector<double> error = fixture.Values("generated.bf16_max_error");
  const size_t prompt = ids.size();
  ids.insert(ids.end(), generated.begin(), generated.end());
  std::vector<int> rows(generated.size());
  std::iota(rows.begin(), rows.end(), static_cast<int>(prompt) - 1);
  const std::vector<double> logits = LogitsOf(model, ids, UpTo(ids.size()), rows);
  int sure = 0;
  for (size_t i = 0; i < generated.size(); ++i) {
    if (gap[i] <= 2 * error[i]) continue;
    ++sure;
    const auto row = logits.begin() + i * model.config.vocab_size;
    EXPECT_EQ(std::max_element(row, row + model.config.vocab_size) - row, generated[i])
        << "generated token " << i;
  }
  EXPECT_GT(sure, 0);
}

TEST_P(Reference, FreeRunningTextIsTransformersText) {
  const Fixture fixture(GetParam().fixture);
  const Model model(DataPath(GetParam().model));
  std::vector<int> expected = fixture.Ints("generated.f32");
  const std::vector<double> gap = fixture.Values("generated.gap");
  const std::vector<double> error = fixture.Values("generated.bf16_max_error");
  // Beyond the first token of which the truth is not sure, two right engines may tell two stories.
  size_t comparable = 0;
  while (comparable < expected.size() && gap[comparable] > 2 * error[comparable]) ++comparable;

  GenerationRequest request;
  request.prompt_token_ids = fixture.Ints("token_ids");
  request.max_tokens = static_cast<int>(expected.size());
  request.ignore_eos = true;  // the fixture shows the end token
  RecomputeGenerator generator(model.config, model.weights,
                               static_cast<int>(request.prompt_token_ids.size() + expected.size()));
  std::vector<int> ours = generator.Generate({request})[0].token_ids;
  ASSERT_EQ(ours.size(), expected.size());
  ours.resize(comparable);
  expected.resize(comparable);
  EXPECT_EQ(ours, expected);
}

INSTANTIATE_TEST_SUITE_P(, Reference, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// --- what each stage leaves behind

class Activation : public testing::Test {
 protected:
  Activation()
      : fixture_("tests/fixtures/pocket_sum.safetensors"),
        model_("models/pocket"),
        ids_(fixture_.Ints("token_ids")) {}

  // (tokens, width), columns [first, first + width) of rows that are `stride` wide.
  template <typename T>
  std::vector<double> Columns(const T* device, int stride, int first, int width) {
    std::vector<T> host(ids_.size() * stride);
    CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    CUDA_CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<double> values;
    for (size_t row = 0; row < ids_.size(); ++row) {
      for (int c = 0; c < width; ++c) {
        values.push_back(static_cast<float>(host[row * stride + first + c]));
      }
    }
    return values;
  }

  void Expect(const std::string& name, const std::vector<double>& ours) {
    SCOPED_TRACE(name);
    ExpectAsCloseAsThePeer(ours, fixture_.Values(name + ".f32"), fixture_.Values(name + ".bf16"));
  }

  Fixture fixture_;
  Model model_;
  std::vector<int> ids_;
  Stream stream_;
};

TEST_F(Activation, AfterEveryStageOfTheFirstAndTheLastLayer) {
  const ModelConfig& config = model_.config;
  const int hidden = config.hidden_size;
  Stages stages = PlainStages();
  const Stages plain = stages;
  const auto looked_at = [&](int layer) {
    return layer == 0 || layer == config.num_hidden_layers - 1;
  };
  const auto name = [](int layer, const char* piece) {
    return StrCat("layers.", layer, ".", piece);
  };
  stages.attention_input = [&](const PassContext& pass, int layer) {
    if (layer == 0) {
      const bf16* stream = pass.activations.Get(Buffer::kHiddenState);
      const std::vector<double> rows = Columns(stream, hidden, 0, hidden);
      EXPECT_EQ(rows, fixture_.Values("embedding.bf16")) << "a gather rounds nothing";
    }
    plain.attention_input(pass, layer);
    if (!looked_at(layer)) return;
    Expect(name(layer, "input_norm"),
           Columns(pass.activations.Get(Buffer::kNormed), hidden, 0, hidden));
    const bf16* qkv = pass.activations.Get(Buffer::kQkv);
    const int q = config.q_size(), kv = config.kv_size(), width = config.qkv_size();
    Expect(name(layer, "q_rope"), Columns(qkv, width, 0, q));
    Expect(name(layer, "k_rope"), Columns(qkv, width, q, kv));
    Expect(name(layer, "v"), Columns(qkv, width, q + kv, kv));
  };
  stages.attend = [&](const PassContext& pass, int layer) {
    plain.attend(pass, layer);
    if (!looked_at(layer)) return;
    const int q = config.q_size();
    Expect(name(layer, "attention"), Columns(pass.activations.Get(Buffer::kAttended), q, 0, q));
  };
  stages.attention_output = [&](const PassContext& pass, int layer) {
    plain.attention_output(pass, layer);
    if (!looked_at(layer)) return;
    Expect(name(layer, "after_attention"),
           Columns(pass.activations.Get(Buffer::kHiddenState), hidden, 0, hidden));
  };
  stages.feed_forward = [&](const PassContext& pass, int layer) {
    plain.feed_forward(pass, layer);
    if (!looked_at(layer)) return;
    const int inner = config.intermediate_size;
    Expect(name(layer, "swiglu"),
           Columns(pass.activations.Get(Buffer::kActivated), inner, 0, inner));
    Expect(name(layer, "mlp"),
           Columns(pass.activations.Get<float>(Buffer::kProjected), hidden, 0, hidden));
    Expect(name(layer, "output"),
           Columns(pass.activations.Get(Buffer::kHiddenState), hidden, 0, hidden));
  };
  ForwardPass pass(config, model_.weights, LimitsFor(ids_.size(), 64), stream_.get(), stages);
  Batch batch = Batch::WholeSequence(ids_);
  batch.logit_rows = UpTo(ids_.size());
  pass.Run(batch);
  Expect("final_norm",
         Columns(pass.context().activations.Get(Buffer::kLastNormed), hidden, 0, hidden));
}

}  // namespace
}  // namespace tinyvllm
