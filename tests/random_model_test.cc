// Checks of tools/random_model: what it writes is a model, the same for the same seed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "tools/random_model/config.h"
#include "tools/random_model/random_model.h"
#include "tools/random_model/tokenizer.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The message of the Error that `call` throws; a failure when it throws none.
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

testing::AssertionResult Contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << "\n  should say: " << part;
}

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(Contains(text, part))

std::string TempFolder(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder = fs::path(testing::TempDir()) / "random_model" / test->name() / name;
  fs::remove_all(folder);
  return folder.string();
}

// A small shape of odd sizes, as flags.
const std::vector<std::string> kSmall = {
    "--hidden-size",         "72",  "--intermediate-size",   "100", "--num-hidden-layers", "3",
    "--num-attention-heads", "6",   "--num-key-value-heads", "2",   "--head-dim",          "16",
    "--vocab-size",          "1001"};

RandomModelOptions Options(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "random_model");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  return ParseRandomModelOptions(static_cast<int>(argv.size()), argv.data()).value();
}

// Writes the small model with `more` flags; returns its folder.
std::string Write(const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = kSmall;
  flags.insert(flags.end(), more.begin(), more.end());
  const std::string folder = TempFolder(name);
  flags.insert(flags.end(), {"--out", folder});
  WriteRandomModel(Options(flags));
  return folder;
}

Json ReadJson(const std::string& folder, const std::string& name) {
  return Json::parse(ReadTextFile((fs::path(folder) / name).string()));
}

std::vector<float> Values(const TensorView& tensor) {
  std::vector<float> values(tensor.element_count());
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&values[i], tensor.bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&half, tensor.bytes.data() + 2 * i, 2);
      values[i] = tensor.dtype == DType::kF16 ? F32FromF16(half) : F32FromBF16(half);
    }
  }
  return values;
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / values.size();
}

double Deviation(const std::vector<float>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const float value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / values.size());
}

TEST(RandomModel, HasTheTensorsOfItsConfig) {
  const std::string folder = Write("model");
  const Checkpoint checkpoint(folder);
  const LlamaShape shape =
      LlamaShapeFromConfig(ReadTextFile(folder + "/config.json"), "config.json");
  EXPECT_EQ(shape.hidden_size, 72u);
  EXPECT_EQ(shape.head_dim, 16u);
  EXPECT_EQ(shape.vocab_size, 1001u);
  const std::vector<TensorSpec> expected = LlamaTensors(shape, DType::kBF16);
  EXPECT_EQ(expected.size(), 2u + 9 * 3);
  EXPECT_EQ(checkpoint.tensors().size(), expected.size());
  for (const TensorSpec& spec : expected) {
    EXPECT_EQ(checkpoint.Get(spec.name, spec.shape).dtype, DType::kBF16);
  }
  EXPECT_EQ(checkpoint.Get("model.layers.2.self_attn.q_proj.weight").shape,
            (std::vector<size_t>{96, 72}));
  EXPECT_EQ(checkpoint.Find("lm_head.weight"), nullptr);  // tied
}

TEST(RandomModel, WeightsLookTrained) {
  const Checkpoint checkpoint(Write("model"));
  const std::vector<float> table = Values(checkpoint.Get("model.embed_tokens.weight"));
  EXPECT_NEAR(Mean(table), 0, 5e-4);
  EXPECT_NEAR(Deviation(table), 0.02, 5e-4);
  const std::vector<float> norm = Values(checkpoint.Get("model.norm.weight"));
  EXPECT_NEAR(Mean(norm), 1, 0.01);
  EXPECT_NEAR(Deviation(norm), 0.02, 0.008);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (const float value : Values(*tensor)) ASSERT_TRUE(std::abs(value) < 2) << name;
  }
}

TEST(RandomModel, SeedDecidesEveryByte) {
  const std::string first = Write("first");
  const std::string again = Write("again");
  const std::string other = Write("other", {"--seed", "1"});
  for (const char* file : {"model.safetensors", "config.json", "generation_config.json",
                           "tokenizer.json", "tokenizer_config.json"}) {
    const std::string name = std::string("/") + file;
    EXPECT_EQ(ReadTextFile(first + name), ReadTextFile(again + name)) << file;
  }
  EXPECT_EQ(ReadTextFile(first + "/tokenizer.json"), ReadTextFile(other + "/tokenizer.json"));
  const Checkpoint a(first), b(other);
  std::set<std::string_view> beginnings;
  for (const auto& [name, tensor] : a.tensors()) {
    EXPECT_NE(tensor->bytes, b.Get(name).bytes) << name;
    beginnings.insert(tensor->bytes.substr(0, 64));
  }
  EXPECT_EQ(beginnings.size(), a.tensors().size());  // no two tensors alike
}

TEST(RandomModel, ShardsHoldTheSameTensors) {
  const Checkpoint whole(Write("whole"));
  for (const char* count : {"2", "5", "29"}) {
    const std::string folder = Write(count, {"--shards", count});
    EXPECT_FALSE(fs::exists(folder + "/model.safetensors"));
    const Checkpoint sharded(folder);
    EXPECT_EQ(sharded.files().size(), static_cast<size_t>(std::stoi(count)));
    ASSERT_EQ(sharded.tensors().size(), whole.tensors().size());
    for (const auto& [name, tensor] : whole.tensors()) {
      EXPECT_EQ(sharded.Get(name).bytes, tensor->bytes) << name;
    }
  }
}

TEST(RandomModel, WritesF16AndF32OfTheSameValues) {
  const Checkpoint bf16(Write("bf16"));
  const std::string f32_folder = Write("f32", {"--dtype", "F32"});
  const Checkpoint f32(f32_folder), f16(Write("f16", {"--dtype", "F16"}));
  EXPECT_EQ(ReadJson(f32_folder, "config.json")["torch_dtype"], "float32");
  for (const auto& [name, tensor] : f32.tensors()) {
    ASSERT_EQ(tensor->dtype, DType::kF32);
    ASSERT_EQ(f16.Get(name).dtype, DType::kF16);
    const std::vector<float> exact = Values(*tensor);
    const std::vector<float> halves = Values(f16.Get(name)), brains = Values(bf16.Get(name));
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(halves[i], exact[i], std::max(std::abs(exact[i]) / 2048, 0x1p-25f)) << name;
      ASSERT_NEAR(brains[i], exact[i], std::abs(exact[i]) / 256) << name;
    }
  }
}

TEST(RandomModel, UntiedHasAnOutputProjection) {
  const Checkpoint checkpoint(Write("untied", {"--tie-word-embeddings", "false"}));
  EXPECT_EQ(checkpoint.Get("lm_head.weight").shape, (std::vector<size_t>{1001, 72}));
  EXPECT_NE(checkpoint.Get("lm_head.weight").bytes,
            checkpoint.Get("model.embed_tokens.weight").bytes);
}

TEST(RandomModel, HeaderOnlyTakesNoDisk) {
  const std::string folder = TempFolder("big");
  WriteRandomModel(Options({"--config", "llama3.2-1b", "--header-only", "--out", folder}));
  struct stat status;
  ASSERT_EQ(stat((folder + "/model.safetensors").c_str(), &status), 0);
  EXPECT_GT(status.st_size, 2'471'628'800);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
  const Checkpoint checkpoint(folder);
  EXPECT_EQ(checkpoint.tensors().size(), 146u);
  EXPECT_EQ(Values(checkpoint.Get("model.norm.weight")), std::vector<float>(2048, 0));
  const Json config = ReadJson(folder, "config.json");
  EXPECT_EQ(config["eos_token_id"], (Json{128001, 128008, 128009}));
  EXPECT_EQ(config["bos_token_id"], 128000);
}

TEST(RandomModel, EveryFieldCanBeOverridden) {
  const Json config = ReadJson(
      Write("model", {"--rope-theta", "10000.0", "--rope-scaling", "null", "--rms-norm-eps", "1e-6",
                      "--eos-token-id", "[5, 6]", "--hidden-act", "gelu", "--attention-bias",
                      "true", "--max-position-embeddings", "512"}),
      "config.json");
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_TRUE(config["rope_scaling"].is_null());
  EXPECT_EQ(config["rms_norm_eps"], 1e-6);
  EXPECT_EQ(config["eos_token_id"], (Json{5, 6}));
  EXPECT_EQ(config["hidden_act"], "gelu");
  EXPECT_EQ(config["attention_bias"], true);
  EXPECT_EQ(config["max_position_embeddings"], 512);
  const Json newer = ReadJson(
      Write("newer", {"--rope-parameters", R"({"rope_theta": 1e4, "rope_type": "default"})"}),
      "config.json");
  EXPECT_FALSE(newer.contains("rope_theta"));
  EXPECT_FALSE(newer.contains("rope_scaling"));
  EXPECT_EQ(newer["rope_parameters"]["rope_theta"], 1e4);
}

TEST(RandomModel, KnowsTheBundledModelsShape) {
  const auto ours = MakeConfig("pocket", {});
  EXPECT_EQ(ours["num_hidden_layers"], 6);
  EXPECT_EQ(ours["hidden_size"], 256);
  EXPECT_EQ(MakeConfig("pocket", {{"num_hidden_layers", "2"}})["num_hidden_layers"], 2);
}

TEST(RandomModel, SaysWhatIsWrong) {
  const std::string folder = TempFolder("never");
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--config", "llama9"}, "--config: found \"llama9\", expected one of pocket, llama3.2-1b"},
      {{"--hidden-size", "abc"}, "--hidden-size: found \"abc\", expected number"},
      {{"--hidden-size", "-4"}, "hidden_size is -4, expected a positive integer"},
      {{"--num-hidden-layers", "0"}, "num_hidden_layers is 0"},
      {{"--num-attention-heads", "7"}, "expected a multiple of --num-key-value-heads, 8"},
      {{"--head-dim", "63"}, "--head-dim: found 63, expected an even number"},
      {{"--vocab-size", "266"}, "--vocab-size: found 266, expected at least 267"},
      {{"--vocab-size", "99999999"}, "--vocab-size: found 99999999"},
      {{"--tie-word-embeddings", "3"}, "--tie-word-embeddings: found \"3\", expected boolean"},
      {{"--initializer-range", "-1"}, "--initializer-range: found -1"},
      {{"--dtype", "I16"}, "--dtype: found \"I16\", expected BF16, F16 or F32"},
      {{"--shards", "0"}, "--shards: found 0, expected 1 to 146"},
      {{"--shards", "147"}, "--shards: found 147"},
      {{"--no-such-flag", "1"}, "--no-such-flag"},
      {{"--seed", "x"}, "--seed"},
  };
  for (const auto& [flags, message] : bad) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--out", folder});
    EXPECT_CONTAINS(ErrorOf([&] { WriteRandomModel(Options(all)); }), message);
    EXPECT_FALSE(fs::exists(folder)) << message;
  }
  EXPECT_CONTAINS(ErrorOf([] { Options({}); }), "--out is required");
}

TEST(RandomModel, LeavesOtherModelsAlone) {
  const std::string folder = Write("own", {"--shards", "4"});
  std::vector<std::string> flags = kSmall;
  flags.insert(flags.end(), {"--out", folder});
  WriteRandomModel(Options(flags));  // over its own, and no shard is left of it
  EXPECT_EQ(Checkpoint(folder).files().size(), 1u);
  EXPECT_FALSE(fs::exists(folder + "/model-00001-of-00004.safetensors"));
  std::ofstream(folder + "/config.json") << R"({"model_type":"llama"})";
  EXPECT_CONTAINS(ErrorOf([&] { WriteRandomModel(Options(flags)); }),
                  "--out: " + folder + " holds files that are not a random model's");
  EXPECT_TRUE(fs::exists(folder + "/model.safetensors"));
}

TEST(RandomTokenizer, HasExactlyTheVocabulary) {
  for (const size_t size : {size_t{267}, size_t{1001}, size_t{4096}, size_t{128256}}) {
    const Json tokenizer = Json::parse(MakeTokenizerJson(size));
    const Json& vocab = tokenizer["model"]["vocab"];
    const Json& merges = tokenizer["model"]["merges"];
    const Json& added = tokenizer["added_tokens"];
    EXPECT_EQ(vocab.size() + added.size(), size);
    EXPECT_EQ(vocab.size(), 256 + merges.size());
    std::set<size_t> ids;
    for (const auto& [piece, id] : vocab.items()) ids.insert(id.get<size_t>());
    for (const Json& token : added) ids.insert(token["id"].get<size_t>());
    EXPECT_EQ(ids.size(), size);
    EXPECT_EQ(*ids.rbegin(), size - 1);
    // Every merge joins two pieces that exist by then.
    size_t next = 256;
    for (const Json& merge : merges) {
      const std::string text = merge;
      const size_t space = text.find(' ');
      const std::string left = text.substr(0, space), right = text.substr(space + 1);
      ASSERT_LT(vocab.at(left).get<size_t>(), next) << text;
      ASSERT_LT(vocab.at(right).get<size_t>(), next) << text;
      ASSERT_EQ(vocab.at(left + right).get<size_t>(), next) << text;
      ++next;
    }
  }
}

TEST(RandomTokenizer, SpecialTokensAreLlama3s) {
  const SpecialTokens llama3(128256);
  EXPECT_EQ(llama3.begin_of_text(), 128000u);
  EXPECT_EQ(llama3.end_tokens(), (std::vector<size_t>{128001, 128008, 128009}));
  EXPECT_EQ(llama3.texts().back(), "<|reserved_special_token_247|>");
  const SpecialTokens pocket(4096);
  EXPECT_EQ(pocket.begin_of_text(), 4080u);
  EXPECT_EQ(pocket.pad(), 4084u);
}

TEST(RandomTokenizer, EncodesEveryTextAndDecodesItAgain) {
  for (const size_t size : {size_t{267}, size_t{1001}, size_t{128256}}) {
    const Tokenizer tokenizer = Tokenizer::FromJson(MakeTokenizerJson(size));
    EXPECT_EQ(tokenizer.vocab_size(), static_cast<int>(size));
    for (const std::string text : {"", "What is 2+2?", "the  other\n\n  thing \t", "1234567",
                                   "Hà Nội, 서울, 😀", "<|eot_id|>"}) {
      EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text) << size;
    }
    EXPECT_EQ(tokenizer.SpecialTokenId("<|eot_id|>"),
              static_cast<int>(SpecialTokens(size).end_tokens()[2]));
  }
  const Tokenizer large = Tokenizer::FromJson(MakeTokenizerJson(128256));
  EXPECT_LT(large.Encode(" the other station").size(), 14u);  // pieces, not bytes
}

}  // namespace
}  // namespace tinyvllm
