// Checks of lesson 09: the configuration, the weights, the buffers, the pass and the generator, on
// checkpoints of a few kilobytes. 09_reference_test.cc holds the pass against Hugging Face's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/testing/expect_error.h"
#include "common/testing/guide.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/recompute_generator.h"
#include "lessons/09_forward_pass/weights.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

ModelConfig ConfigWith(const nlohmann::json& changes) {
  TinyCheckpoint checkpoint;
  for (const auto& [name, value] : changes.items()) {
    if (value == "absent") {
      checkpoint.config.erase(name);
    } else {
      checkpoint.config[name] = value;
    }
  }
  return ModelConfig::FromFolder(checkpoint.Write("config"));
}

PassLimits Limits(int tokens, int sequences = 4, int logit_rows = 8) {
  PassLimits limits;
  limits.max_tokens = tokens;
  limits.max_sequences = sequences;
  limits.max_sequence_len = 64;
  limits.max_logit_rows = logit_rows;
  return limits;
}

// --- First steps: the loop alone, with stages that compute nothing and tell that they were called.

constexpr int kHidden = 8;

// The table's row t is 10 t, 10 t + 1, ... 10 t + 7.
std::vector<double> TableRows(const std::vector<int>& ids) {
  std::vector<double> rows;
  for (int id : ids) {
    for (int i = 0; i < kHidden; ++i) rows.push_back(10 * id + i);
  }
  return rows;
}

std::string WhatLayerFinds(int layer) {
  return layer == 0 ? "the embeddings" : StrCat("what layer ", layer - 1, " left");
}

// Runs a batch through two layers.
class Recorder : public OffloadHooks {
 public:
  // `marks`: the last stage of each layer leaves a mark in the stream, for the next layer to find.
  explicit Recorder(const Batch& batch, bool marks) : batch_(batch), marks_(marks) {
    const Model model(Folder());
    const Stream stream;
    ForwardPass pass(model.config, model.weights, Limits(8), stream.get(), RecordingStages());
    pass.set_offload_hooks(this);
    pass.Run(batch_);
    const bf16* hidden = HiddenState(pass.context());
    if (hidden == nullptr) return;
    std::vector<bf16> host(batch_.token_ids.size() * kHidden);
    CUDA_CHECK(cudaMemcpyAsync(host.data(), hidden, host.size() * sizeof(bf16),
                               cudaMemcpyDeviceToHost, stream.get()));
    stream.Synchronize();
    residual = host;
  }

  std::vector<std::string> calls;  // of stages and hooks, in their order
  Values residual;                 // the stream after the pass; empty if nobody has begun it

  static constexpr int kLateToken = 2;

 private:
  // The ids have been copied to the device: those on the host may change, and do.
  void BeforePass(cudaStream_t) override {
    std::fill(batch_.token_ids.begin(), batch_.token_ids.end(), kLateToken);
  }
  void WaitForLayer(int layer, cudaStream_t) override { Add("WaitForLayer", layer); }
  void LayerDone(int layer, cudaStream_t) override { Add("LayerDone", layer); }

  static std::string Folder() {
    TinyCheckpoint checkpoint(1, {{"hidden_size", kHidden},
                                  {"intermediate_size", 8},
                                  {"num_attention_heads", 2},
                                  {"num_key_value_heads", 1},
                                  {"head_dim", 4},
                                  {"vocab_size", 5}});
    const std::vector<double> table = TableRows({0, 1, 2, 3, 4});
    checkpoint.tensors["model.embed_tokens.weight"].assign(table.begin(), table.end());
    return checkpoint.Write("first_steps");
  }

  static bf16* HiddenState(const PassContext& pass) {
    try {
      return pass.activations.Get(Buffer::kHiddenState);
    } catch (const Error&) {
      return nullptr;
    }
  }

  void Add(const std::string& name, int layer, const std::string& more = "") {
    calls.push_back(StrCat(name, "(", layer, ")", more));
  }

  Stages RecordingStages() {
    Stages stages = PlainStages();
    stages.attention_input = [this](const PassContext& pass, int layer) {
      Add("attention_input", layer, StrCat(", which finds ", WhatIsIn(pass)));
    };
    stages.attend = [this](const PassContext&, int layer) { Add("attend", layer); };
    stages.attention_output = [this](const PassContext&, int layer) {
      Add("attention_output", layer);
    };
    stages.feed_forward = [this](const PassContext& pass, int layer) {
      Add("feed_forward", layer);
      bf16* hidden = HiddenState(pass);
      if (!marks_ || hidden == nullptr) return;
      CUDA_CHECK(cudaMemsetAsync(hidden, layer + 1, sizeof *hidden, pass.stream));
    };
    stages.head = [this](const PassContext&) { calls.push_back("head"); };
    return stages;
  }

  static std::string WhatIsIn(const PassContext& pass) {
    const bf16* hidden = HiddenState(pass);
    if (hidden == nullptr) return "no stream";
    uint16_t bits;
    CUDA_CHECK(cudaMemcpyAsync(&bits, hidden, sizeof bits, cudaMemcpyDeviceToHost, pass.stream));
    CUDA_CHECK(cudaStreamSynchronize(pass.stream));
    const int mark = bits & 0xff;
    return bits == mark * 0x0101 ? WhatLayerFinds(mark) : WhatLayerFinds(0);
  }

  Batch batch_;
  const bool marks_;
};

const std::vector<int> kTokens = {3, 1, 4};

constexpr char kMathematics[] = "docs/09_forward_pass.md#the-mathematics";
constexpr char kLoop[] = "docs/09_forward_pass.md#the-loop";

testing::AssertionResult CheckEmbedding() {
  std::vector<double> one_row = TableRows({3});
  one_row.resize(3 * kHidden, NAN);
  return Guide(kMathematics)
      .Input("token_ids", kTokens)
      .Input("embed_tokens", TableRows({0, 1, 2, 3, 4}), kHidden)
      .Start(
          "write what is missing in ForwardPass::Run, in "
          "lessons/09_forward_pass/exercise/forward_pass.cc; begin with the residual stream: "
          "take Buffer::kHiddenState as the lines above take the remainder, and let "
          "EmbeddingGather of lesson 03 fill it")
      .Mistake(
          "the rows of the positions 0, 1, 2 were taken; it is the tokens' ids that choose "
          "the rows",
          TableRows({0, 1, 2}))
      .Mistake("one row only: each token of the batch has its row", one_row)
      .Mistake(
          "the ids were read from `batch`, which lies on the host, and may have changed by the "
          "time "
          "the kernel runs; the copy on the device is that of batch_",
          TableRows(std::vector<int>(kTokens.size(), Recorder::kLateToken)))
      .WhenThrown("hidden_state is read",
                  "the stream's buffer was asked for with Get, but nobody has taken it yet: who is "
                  "about to fill a buffer asks for it with Begin",
                  "docs/09_forward_pass.md#the-buffers")
      .Otherwise(
          "row t of the stream is row token_ids[t] of the table; the kernel needs the ids "
          "that lie on the device, those of batch_")
      .Compare([] { return Recorder(Batch::WholeSequence(kTokens), false).residual; },
               TableRows(kTokens), 0, 0, kHidden);
}

TEST(ForwardPassFirstSteps, TheStreamBeginsAsTheTokensEmbeddings) { EXPECT_TRUE(CheckEmbedding()); }

using Calls = std::vector<std::string>;

Calls operator+(Calls a, const Calls& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Call(const std::string& name, int layer) { return StrCat(name, "(", layer, ")"); }

Calls StagesOf(int layer) {
  return {Call("attention_input", layer) + ", which finds " + WhatLayerFinds(layer),
          Call("attend", layer), Call("attention_output", layer), Call("feed_forward", layer)};
}

Calls Hooked(int layer, const Calls& stages) {
  return Calls{Call("WaitForLayer", layer)} + stages + Calls{Call("LayerDone", layer)};
}

Calls Layers(int count) {
  Calls calls;
  for (int layer = 0; layer < count; ++layer) calls = calls + Hooked(layer, StagesOf(layer));
  return calls;
}

testing::AssertionResult CheckLayers() {
  const Calls head = {"head"}, wait_0 = {"WaitForLayer(0)"}, wait_1 = {"WaitForLayer(1)"},
              done_0 = {"LayerDone(0)"}, done_1 = {"LayerDone(1)"};
  const Calls input_of_embeddings = {"attention_input(1), which finds the embeddings"};
  Calls by_stage;
  for (int stage = 0; stage < 4; ++stage) {
    for (int layer : {0, 1}) by_stage.push_back(StagesOf(layer)[stage]);
  }
  Guide guide(kLoop);
  guide.Input("layers", 2)
      .Input("tokens", kTokens)
      .Input("logit_rows", std::vector<int>{2})
      .Start(
          "the stream is there; now the loop over the layers in ForwardPass::Run. Begin with "
          "the four stages of `stages_` alone, in the order in which Stages names them")
      .Mistake(
          "the hooks are missing: before a layer's first stage they must hear that its "
          "weights are needed (WaitForLayer), after its last that they are not any more "
          "(LayerDone)",
          StagesOf(0) + StagesOf(1) + head)
      .Mistake("the hooks and the head are missing", StagesOf(0) + StagesOf(1))
      .Mistake("the head is missing: the batch asks for the logits of one row", Layers(2))
      .Mistake("the layers are missing: the head alone has run", head)
      .Mistake("layer 0 only: the loop goes over config_.num_hidden_layers", Layers(1) + head)
      .Mistake("layer 0 twice: the stages must get the number of the layer",
               Hooked(0, StagesOf(0)) +
                   Hooked(1, Calls{"attention_input(0), which finds what layer 0 left", "attend(0)",
                                   "attention_output(0)", "feed_forward(0)"}) +
                   head)
      .Mistake("one layer too many: of two layers, the last is number 1", Layers(3) + head)
      .Mistake("the head stands in the loop; it comes once, after the last layer",
               Hooked(0, StagesOf(0)) + head + Hooked(1, StagesOf(1)) + head)
      .Mistake("the head stands in the loop; it comes once, after the last layer",
               Hooked(0, StagesOf(0) + head) + Hooked(1, StagesOf(1) + head))
      .Mistake("the head came first; it reads what the last layer has left", head + Layers(2))
      .Mistake(
          "the embedding stands in the loop, and wipes out what layer 0 has added to the "
          "stream",
          Hooked(0, StagesOf(0)) +
              Hooked(1, input_of_embeddings +
                            Calls{"attend(1)", "attention_output(1)", "feed_forward(1)"}) +
              head,
          kMathematics)
      .Mistake(
          "a stage went through all layers before the next began; layer 1 reads what all four "
          "stages of layer 0 have made",
          by_stage + head)
      .Mistake("LayerDone came before the stages, which still read the weights",
               wait_0 + done_0 + StagesOf(0) + wait_1 + done_1 + StagesOf(1) + head)
      .Mistake("WaitForLayer came after the stages, which have read the weights by then",
               StagesOf(0) + wait_0 + done_0 + StagesOf(1) + wait_1 + done_1 + head)
      .Mistake("LayerDone is missing: say so when a layer's last stage has been called",
               wait_0 + StagesOf(0) + wait_1 + StagesOf(1) + head)
      .Mistake("WaitForLayer is missing: ask for a layer's weights before its first stage",
               StagesOf(0) + done_0 + StagesOf(1) + done_1 + head);
  constexpr const char* kNames[] = {"attention_input", "attend", "attention_output",
                                    "feed_forward"};
  for (int i = 0; i < 4; ++i) {
    const auto Without = [&](int layer) {
      Calls stages = StagesOf(layer);
      if (i == 3 && layer == 1) stages[0] = input_of_embeddings[0];  // layer 0 left nothing
      stages.erase(stages.begin() + i);
      return Hooked(layer, stages);
    };
    guide.Mistake(StrCat("the stage ", kNames[i], " is missing"), Without(0) + Without(1) + head);
    Calls mixed = StagesOf(1);
    const size_t number = mixed[i].find("(1)");
    mixed[i][number + 1] = '0';
    guide.Mistake(StrCat("in layer 1, ", kNames[i], " was called for layer 0"),
                  Layers(1) + Hooked(1, mixed) + head);
    const auto Swapped = [&](int layer) {
      Calls stages = StagesOf(layer);
      if (i > 0) std::swap(stages[i], stages[i - 1]);
      return Hooked(layer, stages);
    };
    if (i > 0) {
      guide.Mistake(StrCat(kNames[i], " came before ", kNames[i - 1], ", whose result it reads"),
                    Swapped(0) + Swapped(1) + head);
    }
  }
  return guide
      .Otherwise(
          "go down the two lists to the first line that differs: what should be called "
          "there?")
      .Compare([] { return Recorder(Batch::WholeSequence(kTokens), true).calls; },
               Layers(2) + head);
}

TEST(ForwardPassFirstSteps, EachLayerHasItsFourStages) { EXPECT_TRUE(CheckLayers()); }

testing::AssertionResult CheckNoHead() {
  return Guide(kLoop)
      .Input("layers", 2)
      .Input("tokens", kTokens)
      .Input("logit_rows", "none: this is the first part of a longer prompt")
      .Mistake("the head ran, though the batch asks for no logits: it has no rows to work on",
               Layers(2) + Calls{"head"})
      .Compare(
          [] {
            Batch batch = Batch::WholeSequence(kTokens);
            batch.logit_rows.clear();
            return Recorder(batch, true).calls;
          },
          Layers(2));
}

TEST(ForwardPassFirstSteps, NoHeadWhereNoLogitsAreAskedFor) { EXPECT_TRUE(CheckNoHead()); }

// --- The configuration.

TEST(ModelConfig, ReadsHuggingFacesFields) {
  const ModelConfig config = ConfigWith({});
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.q_size(), 32);
  EXPECT_EQ(config.kv_size(), 16);
  EXPECT_EQ(config.qkv_size(), 64);
  EXPECT_FLOAT_EQ(config.rope.theta, 10000.0f);
  EXPECT_FALSE(config.rope.scaling.has_value());
  EXPECT_EQ(config.eos_token_ids, std::vector<int>{2});
  EXPECT_EQ(config.bos_token_id, 1);
}

TEST(ModelConfig, DefaultsAreHuggingFaces) {
  const ModelConfig config = ConfigWith({{"head_dim", "absent"},
                                         {"num_key_value_heads", "absent"},
                                         {"rope_theta", "absent"},
                                         {"eos_token_id", nullptr}});
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_FLOAT_EQ(config.rope.theta, 10000.0f);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(ModelConfig, HeadDimNeedNotBeHiddenSizeOverHeads) {
  const ModelConfig config = ConfigWith({{"head_dim", 64}});
  EXPECT_EQ(config.q_size(), 256);
  EXPECT_EQ(config.rope.head_dim, 64);
}

TEST(ModelConfig, BothSpellingsOfRopeScalingAreTheSame) {
  const nlohmann::json scaling = {{"factor", 32.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 8192},
                                  {"rope_type", "llama3"}};
  nlohmann::json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const ModelConfig older = ConfigWith({{"rope_theta", 500000.0}, {"rope_scaling", scaling}});
  const ModelConfig newer = ConfigWith({{"rope_theta", "absent"}, {"rope_parameters", parameters}});
  for (const ModelConfig& config : {older, newer}) {
    EXPECT_FLOAT_EQ(config.rope.theta, 500000.0f);
    ASSERT_TRUE(config.rope.scaling.has_value());
    EXPECT_FLOAT_EQ(config.rope.scaling->factor, 32.0f);
    EXPECT_EQ(config.rope.scaling->original_max_position_embeddings, 8192);
  }
}

TEST(ModelConfig, GenerationConfigsEndTokensCount) {
  const std::string folder = TinyCheckpoint().Write("generation");
  std::ofstream(folder + "/generation_config.json") << R"({"eos_token_id": [2, 3, 4]})";
  EXPECT_EQ(ModelConfig::FromFolder(folder).eos_token_ids, (std::vector<int>{2, 3, 4}));
}

TEST(ModelConfig, RefusesByNameWhatItDoesNotDo) {
  EXPECT_ERROR(ConfigWith({{"model_type", "qwen2"}}), "config.json", "model_type", "qwen2");
  EXPECT_ERROR(ConfigWith({{"hidden_act", "gelu"}}), "hidden_act", "gelu", "silu");
  EXPECT_ERROR(ConfigWith({{"attention_bias", true}}), "attention_bias");
  EXPECT_ERROR(ConfigWith({{"mlp_bias", true}}), "mlp_bias");
  EXPECT_ERROR(ConfigWith({{"sliding_window", 4096}}), "sliding_window", "4096");
  EXPECT_ERROR(ConfigWith({{"quantization_config", {{"quant_method", "awq"}}}}),
               "quantization_config", "awq");
  EXPECT_ERROR(ConfigWith({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
               "rope_scaling", "yarn", "llama3");
  EXPECT_ERROR(ConfigWith({{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}), "linear");
  EXPECT_ERROR(ConfigWith({{"rope_scaling", {{"factor", 4.0}}}}), "rope_scaling", "no rope_type");
  EXPECT_ERROR(ConfigWith({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor");
  EXPECT_ERROR(ConfigWith({{"model_type", "a\nb"}}), "model_type");
}

TEST(ModelConfig, RefusesWhatContradictsItself) {
  EXPECT_ERROR(ConfigWith({{"hidden_size", "absent"}}), "config.json", "no hidden_size");
  EXPECT_ERROR(ConfigWith({{"hidden_size", -1}}), "hidden_size is -1");
  EXPECT_ERROR(ConfigWith({{"hidden_size", "32"}}), "hidden_size is \"32\"");
  EXPECT_ERROR(ConfigWith({{"hidden_size", 1e30}}), "hidden_size");
  EXPECT_ERROR(ConfigWith({{"num_key_value_heads", 3}}), "num_attention_heads 4", "3");
  EXPECT_ERROR(ConfigWith({{"head_dim", 7}}), "head_dim 7 is odd");
  EXPECT_ERROR(ConfigWith({{"head_dim", "absent"}, {"hidden_size", 33}}), "hidden_size 33");
  EXPECT_ERROR(ConfigWith({{"rms_norm_eps", 0}}), "rms_norm_eps");
  EXPECT_ERROR(ConfigWith({{"rms_norm_eps", 1e-50}}), "rms_norm_eps is 1e-50");  // 0 in f32
  EXPECT_ERROR(ConfigWith({{"hidden_size", 18446744073709551615u}}), "hidden_size");
  EXPECT_ERROR(ConfigWith({{"eos_token_id", 50}}), "eos_token_id", "50");
  EXPECT_ERROR(ConfigWith({{"tie_word_embeddings", "yes"}}), "tie_word_embeddings");
  EXPECT_ERROR(ModelConfig::FromFolder("/no/such/folder"), "/no/such/folder", "config.json");
}

TEST(ModelConfig, RefusesWhatIsNotJson) {
  const std::string folder = TinyCheckpoint().Write("not_json");
  std::ofstream(folder + "/config.json") << "{\"hidden_size\": ";
  EXPECT_ERROR(ModelConfig::FromFolder(folder), "config.json", "not JSON");
  std::ofstream(folder + "/config.json") << "{\"hidden_size\": " << std::string(1 << 20, '[');
  EXPECT_ERROR(ModelConfig::FromFolder(folder), "config.json", "nests deeper");
  std::ofstream(folder + "/config.json") << "[]";
  EXPECT_ERROR(ModelConfig::FromFolder(folder), "config.json", "expected an object");
}

TEST(Batch, WholeSequenceAsksForItsLastToken) {
  const Batch batch = Batch::WholeSequence({7, 8, 9});
  EXPECT_EQ(batch.positions, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(batch.sequence_offsets, (std::vector<int>{0, 3}));
  EXPECT_EQ(batch.logit_rows, std::vector<int>{2});
}

TEST(Batch, ValidateNamesWhatIsWrong) {
  const auto validate = [](const std::function<void(Batch*)>& bend) {
    Batch batch = Batch::WholeSequence({7, 8, 9});
    bend(&batch);
    batch.Validate(50, 64, Limits(8));
  };
  EXPECT_NO_THROW(validate([](Batch*) {}));
  EXPECT_ERROR(validate([](Batch* b) { b->token_ids[1] = 50; }), "token_ids[1] is 50", "0 to 49");
  EXPECT_ERROR(validate([](Batch* b) { b->token_ids[2] = -1; }), "token_ids[2] is -1");
  EXPECT_ERROR(validate([](Batch* b) { b->positions[0] = 64; }), "positions[0] is 64");
  EXPECT_ERROR(validate([](Batch* b) { b->positions.pop_back(); }), "2 positions for 3 tokens");
  EXPECT_ERROR(validate([](Batch* b) { b->sequence_offsets[1] = 2; }), "sequence_offsets");
  EXPECT_ERROR(validate([](Batch* b) { b->sequence_offsets = {0, 2, 1, 3}; }), "sequence_offsets");
  EXPECT_ERROR(validate([](Batch* b) { b->logit_rows = {3}; }), "logit_rows[0] is 3");
  EXPECT_ERROR(validate([](Batch* b) { b->logit_rows.assign(9, 0); }), "9 logit rows");
  EXPECT_ERROR(validate([](Batch* b) { *b = Batch::WholeSequence(std::vector<int>(9)); }),
               "9 tokens", "1 to 8");
  EXPECT_ERROR(validate([](Batch* b) { b->sequence_offsets = {0, 1, 1, 2, 2, 3}; }), "5 sequences");
}

TEST(Activations, APlannedBufferHasItsShapesBytes) {
  const ModelConfig config = ConfigWith({});
  const std::vector<BufferPlan> plan = PlanActivations(config, Limits(10));
  const auto bytes = [&](const std::string& name) {
    for (const BufferPlan& buffer : plan) {
      if (buffer.name == name) return buffer.bytes();
    }
    return size_t{0};
  };
  EXPECT_EQ(bytes("hidden_state"), 10u * 32 * 2);
  EXPECT_EQ(bytes("qkv"), 10u * 64 * 2);
  EXPECT_EQ(bytes("gate_up"), 10u * 96 * 2);
  EXPECT_EQ(bytes("logits"), 8u * 50 * 4);
}

TEST(Activations, ReadingADeadBufferIsAnError) {
  const ModelConfig config = ConfigWith({});
  Activations activations(config, Limits(4), 0);
  EXPECT_ERROR(activations.Get(Buffer::kQkv), "qkv", "never written");
  bf16* qkv = activations.Begin(Buffer::kQkv, 4, nullptr);
  EXPECT_EQ(activations.Get(Buffer::kQkv), qkv);
  EXPECT_EQ(static_cast<void*>(activations.Begin(Buffer::kGateUp, 4, nullptr)),
            static_cast<void*>(qkv));
  EXPECT_ERROR(activations.Get(Buffer::kQkv), "qkv", "has become gate_up");
  EXPECT_ERROR(activations.Begin(Buffer::kQkv, 5, nullptr), "5 rows of qkv", "planned for 4");
}

TEST(Activations, TooLargeAPassIsRefusedWithARemedy) {
  const ModelConfig config = ConfigWith({{"intermediate_size", 1 << 20}});
  PassLimits limits = Limits(1 << 26);
  limits.max_sequence_len = limits.max_tokens;
  EXPECT_ERROR(Activations(config, limits, PlainAttendWorkspace(config, limits)), "67108864 tokens",
               "free", "--max-model-len");
}

std::vector<float> LogitsOf(const std::string& folder, const Batch& batch) {
  const Model model(folder);
  const Stream stream;
  ForwardPass pass(model.config, model.weights, Limits(32), stream.get());
  pass.Run(batch);
  return pass.LogitsToHost();
}

TEST(Weights, AMissingTensorIsNamed) {
  TinyCheckpoint checkpoint;
  checkpoint.tensors.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_ERROR(Model{checkpoint.Write("missing")}, "model.layers.1.mlp.up_proj.weight");
}

TEST(Weights, AWrongShapeIsNamed) {
  TinyCheckpoint checkpoint;
  checkpoint.shapes["model.layers.0.self_attn.k_proj.weight"] = {32, 16};
  EXPECT_ERROR(Model{checkpoint.Write("shape")}, "model.layers.0.self_attn.k_proj.weight");
}

TEST(Weights, ATensorWithoutAPlaceIsNamed) {
  TinyCheckpoint checkpoint;
  checkpoint.tensors["model.layers.0.self_attn.q_proj.bias"] = std::vector<float>(32);
  checkpoint.shapes["model.layers.0.self_attn.q_proj.bias"] = {32};
  EXPECT_ERROR(Model{checkpoint.Write("bias")}, "model.layers.0.self_attn.q_proj.bias");
}

TEST(Weights, UntiedNeedsItsOutputProjection) {
  TinyCheckpoint checkpoint;
  checkpoint.config["tie_word_embeddings"] = false;
  EXPECT_ERROR(Model{checkpoint.Write("untied")}, "lm_head.weight");
}

TEST(Weights, TiedEmbeddingsIgnoreACopyOfTheTable) {
  TinyCheckpoint checkpoint;
  const Batch batch = Batch::WholeSequence({1, 20, 30});
  const std::vector<float> without = LogitsOf(checkpoint.Write("without"), batch);
  checkpoint.tensors["lm_head.weight"] = checkpoint.tensors["model.embed_tokens.weight"];
  checkpoint.shapes["lm_head.weight"] = checkpoint.shapes["model.embed_tokens.weight"];
  EXPECT_EQ(LogitsOf(checkpoint.Write("with"), batch), without);
}

TEST(Weights, ShardsGiveTheSameLogitsAndAllOfThemAreNeeded) {
  const TinyCheckpoint whole;
  const Batch batch = Batch::WholeSequence({1, 20, 30});
  const std::string folder = whole.Write("sharded");
  const std::vector<float> expected = LogitsOf(folder, batch);
  std::filesystem::remove(folder + "/model.safetensors");
  // Every other tensor in the one file, the rest in the other.
  const std::string files[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  TinyCheckpoint parts[] = {whole, whole};
  nlohmann::json index;
  int number = 0;
  for (const auto& [tensor, values] : whole.tensors) {
    const int shard = number++ % 2;
    parts[1 - shard].tensors.erase(tensor);
    index["weight_map"][tensor] = files[shard];
  }
  for (int i = 0; i < 2; ++i) {
    std::filesystem::rename(parts[i].Write("part") + "/model.safetensors", folder + "/" + files[i]);
  }
  std::ofstream(folder + "/model.safetensors.index.json") << index.dump();
  EXPECT_EQ(LogitsOf(folder, batch), expected);
  std::filesystem::remove(folder + "/" + files[1]);
  EXPECT_ERROR(Model{folder}, files[1].c_str());
}

TEST(Weights, EveryStorageTypeGivesTheSameLogits) {
  TinyCheckpoint checkpoint;
  for (auto& [name, values] : checkpoint.tensors) {
    for (float& value : values) {
      if (std::abs(value) < 1e-4f) value = 0;  // below what F16 holds exactly
    }
  }
  const Batch batch = Batch::WholeSequence({1, 5, 49, 0});
  const std::vector<float> expected = LogitsOf(checkpoint.Write("bf16", DType::kBF16), batch);
  EXPECT_EQ(LogitsOf(checkpoint.Write("f32", DType::kF32), batch), expected);
  EXPECT_EQ(LogitsOf(checkpoint.Write("f16", DType::kF16), batch), expected);
}

TEST(ForwardPass, SequencesInABatchDoNotSeeEachOther) {
  const std::string folder = TinyCheckpoint().Write("crowd");
  const std::vector<float> first = LogitsOf(folder, Batch::WholeSequence({1, 20, 30, 40}));
  const std::vector<float> second = LogitsOf(folder, Batch::WholeSequence({1, 9}));
  Batch both;
  both.token_ids = {1, 20, 30, 40, 1, 9};
  both.positions = {0, 1, 2, 3, 0, 1};
  both.sequence_offsets = {0, 4, 6};
  both.logit_rows = {3, 5};
  const std::vector<float> together = LogitsOf(folder, both);
  ASSERT_EQ(together.size(), first.size() + second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    ASSERT_NEAR(together[i], first[i], 0.02) << "sequence 0, token " << i;
    ASSERT_NEAR(together[first.size() + i], second[i], 0.02) << "sequence 1, token " << i;
  }
}

TEST(ForwardPass, TheHeadMayRunAgainOverOtherRows) {
  const Model model(TinyCheckpoint().Write("head"));
  const Stream stream;
  ForwardPass pass(model.config, model.weights, Limits(32, 1, 2), stream.get());
  Batch batch = Batch::WholeSequence({1, 20, 30});
  pass.Run(batch);
  const std::vector<float> last = pass.LogitsToHost();
  pass.RunHead({0, 2});
  const std::vector<float> rows = pass.LogitsToHost();
  ASSERT_EQ(rows.size(), 2 * last.size());
  for (size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(rows[last.size() + i], last[i], 0.02);
  EXPECT_ERROR(pass.RunHead({3}), "row 3");
  EXPECT_ERROR(pass.RunHead({0, 1, 2}), "3 rows");
}

TEST(ForwardPass, LogitsThatAreNotNumbersAreAnError) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    TinyCheckpoint checkpoint;
    checkpoint.tensors["model.norm.weight"][3] = bad;
    EXPECT_ERROR(LogitsOf(checkpoint.Write("nan"), Batch::WholeSequence({1, 20, 30})), "logits",
                 "row 0");
  }
}

TEST(ForwardPass, TheAttendStageGetsTheWorkspaceItAsksFor) {
  const Model model(TinyCheckpoint().Write("workspace"));
  const Stream stream;
  const PassLimits limits = Limits(8);
  Stages stages = PlainStages();
  EXPECT_EQ(stages.attend_workspace(model.config, limits),
            PlainAttendWorkspace(model.config, limits));
  stages.attend_workspace = [&](const ModelConfig& config, const PassLimits& asked) {
    EXPECT_EQ(config.hidden_size, model.config.hidden_size);
    EXPECT_EQ(asked.max_tokens, limits.max_tokens);
    return size_t{4321};
  };
  size_t seen = 0;
  stages.attend = [&, attend = stages.attend](const PassContext& pass, int layer) {
    seen = pass.activations.bytes(Buffer::kWorkspace);
    attend(pass, layer);
  };
  ForwardPass pass(model.config, model.weights, limits, stream.get(), stages);
  pass.Run(Batch::WholeSequence({1, 20, 30}));
  EXPECT_EQ(seen, 4321u);
}

TEST(ForwardPass, HooksSurroundEveryLayer) {
  class Recorder : public OffloadHooks {
   public:
    std::string log;
    void BeforePass(cudaStream_t) override { log += "("; }
    void WaitForLayer(int layer, cudaStream_t) override { log += StrCat("w", layer); }
    void LayerDone(int layer, cudaStream_t) override { log += StrCat("d", layer); }
    void AfterPass(cudaStream_t) override { log += ")"; }
  };
  const Model model(TinyCheckpoint().Write("hooks"));
  const Stream stream;
  ForwardPass pass(model.config, model.weights, Limits(8), stream.get());
  Recorder recorder;
  pass.set_offload_hooks(&recorder);
  pass.Run(Batch::WholeSequence({1, 2}));
  EXPECT_EQ(recorder.log, "(w0d0w1d1)");
}

TEST(RecomputeGenerator, EndsWhereTheRequestSays) {
  const Model model(TinyCheckpoint().Write("ends"));
  RecomputeGenerator generator(model.config, model.weights, 16);
  GenerationRequest request;
  request.prompt_token_ids = {1, 20, 30};
  request.max_tokens = 5;
  request.ignore_eos = true;
  const Generation five = generator.Generate({request})[0];
  EXPECT_EQ(five.token_ids.size(), 5u);
  EXPECT_EQ(five.finish_reason, FinishReason::kLength);

  request.max_tokens = 100;  // the model's length ends it
  const Generation longest = generator.Generate({request})[0];
  EXPECT_EQ(longest.token_ids.size(), 13u);
  EXPECT_EQ(longest.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(std::equal(five.token_ids.begin(), five.token_ids.end(), longest.token_ids.begin()));
}

TEST(RecomputeGenerator, AnyEndTokenStopsAndIsNotShown) {
  TinyCheckpoint checkpoint;
  GenerationRequest request;
  request.prompt_token_ids = {1, 20, 30};
  request.max_tokens = 6;
  request.ignore_eos = true;
  std::vector<int> free_run;
  {
    const Model model(checkpoint.Write("free"));
    RecomputeGenerator generator(model.config, model.weights, 64);
    free_run = generator.Generate({request})[0].token_ids;
  }
  // The third token becomes one of three end tokens, in each place of the list.
  const int end = free_run[2];
  const size_t first = std::find(free_run.begin(), free_run.end(), end) - free_run.begin();
  for (int place = 0; place < 3; ++place) {
    std::vector<int> ids = {48, 49, 47};
    ids[place] = end;
    checkpoint.config["eos_token_id"] = ids;
    const Model model(checkpoint.Write("stopped"));
    RecomputeGenerator generator(model.config, model.weights, 64);
    request.ignore_eos = false;
    const Generation stopped = generator.Generate({request})[0];
    EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
    EXPECT_EQ(stopped.token_ids.size(), first);
    request.ignore_eos = true;
    EXPECT_EQ(generator.Generate({request})[0].token_ids, free_run);
  }
}

TEST(RecomputeGenerator, RefusesWhatItCannotGenerate) {
  const Model model(TinyCheckpoint().Write("refuses"));
  RecomputeGenerator generator(model.config, model.weights, 8);
  const auto generate = [&](std::vector<int> prompt, int max_tokens) {
    GenerationRequest request;
    request.prompt_token_ids = std::move(prompt);
    request.max_tokens = max_tokens;
    generator.Generate({request});
  };
  EXPECT_ERROR(generate({}, 4), "prompt", "empty");
  EXPECT_ERROR(generate({1}, 0), "max_tokens is 0");
  EXPECT_ERROR(generate(std::vector<int>(8, 1), 4), "8 tokens", "--max-model-len");
  EXPECT_ERROR(generate({1, 50}, 4), "token 50", "position 1");
  EXPECT_ERROR(RecomputeGenerator(model.config, model.weights, 65), "65", "64");
  EXPECT_NO_THROW(generate({1, 2}, 2));
}

TEST(RecomputeGenerator, ReportsTokensWithTheirLogits) {
  const Model model(TinyCheckpoint().Write("reports"));
  RecomputeGenerator generator(model.config, model.weights, 64);
  GenerationRequest request;
  request.prompt_token_ids = {1, 20, 30};
  request.max_tokens = 4;
  request.ignore_eos = true;
  std::vector<int> reported;
  const std::vector<Generation> generations =
      generator.Generate({request, request}, [&](const GeneratedToken& token) {
        if (token.request == 1) reported.push_back(token.token_id);
        const float* end = token.logits + model.config.vocab_size;
        EXPECT_EQ(std::max_element(token.logits, end) - token.logits, token.token_id);
      });
  EXPECT_EQ(reported, generations[1].token_ids);
  EXPECT_EQ(generations[0].token_ids, generations[1].token_ids);
}

TEST(RecomputeGenerator, PromptLogitsComeForEveryPosition) {
  const Model model(TinyCheckpoint().Write("prompt_logits"));
  RecomputeGenerator generator(model.config, model.weights, 64);
  const std::vector<int> prompt(50, 7);  // more than a portion of rows
  std::vector<int> positions;
  generator.PromptLogits(prompt, [&](int position, const float* logits) {
    positions.push_back(position);
    EXPECT_TRUE(std::isfinite(logits[0]) && std::isfinite(logits[model.config.vocab_size - 1]));
  });
  ASSERT_EQ(positions.size(), 50u);
  EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
}

}  // namespace
}  // namespace tinyvllm
