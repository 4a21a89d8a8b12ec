#include "lessons/09_forward_pass/model_config.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/quote.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

constexpr int kMaxInt = std::numeric_limits<int>::max();

// A JSON object with the path that an error message shows: "config.json: rope_scaling.factor".
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    Check(object.is_object(), where_, ": is ", object.type_name(), ", expected an object");
  }

  // Absent and null are the same to Hugging Face.
  bool Has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }

  const Json& At(const char* name) const {
    Check(Has(name), where_, ": has no ", name);
    return object_[name];
  }

  int Int(const char* name, int low, int high = kMaxInt) const {
    const Json& value = At(name);
    Check(IsIntIn(value, low, high), where_, ": ", name, " is ", ShowJson(value),
          ", expected a whole number from ", low, " to ", high);
    return value;
  }

  float Positive(const char* name) const {
    const Json& value = At(name);
    const float number = value.is_number() ? value.get<float>() : 0;  // 1e-50 becomes 0
    Check(number > 0 && std::isfinite(number), where_, ": ", name, " is ", ShowJson(value),
          ", expected a positive number that f32 can hold");
    return number;
  }

  bool Bool(const char* name, bool absent) const {
    if (!Has(name)) return absent;
    Check(At(name).is_boolean(), where_, ": ", name, " is ", ShowJson(At(name)),
          ", expected true or false");
    return At(name);
  }

  std::string String(const char* name, const char* absent) const {
    if (!Has(name)) return absent;
    Check(At(name).is_string(), where_, ": ", name, " is ", ShowJson(At(name)),
          ", expected a string");
    return At(name);
  }

  // What would silently change the result if it were ignored.
  void Refuse(const char* name, bool asks_for_it) const {
    if (!asks_for_it) return;
    throw Error(where_, ": ", name, " ", ShowJson(At(name)),
                " is not supported; expected a Llama model without it");
  }

  void ExpectOne(const char* name) const {
    Check(!Has(name) || At(name) == 1, where_, ": ", name, " is not supported; expected 1");
  }

  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  const std::string where_;
};

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

Json Parse(const std::string& text, const std::string& path) {
  try {
    return ParseJson(text);
  } catch (const Error& error) {
    throw Error(path, ": ", error.what());
  }
}

Llama3Scaling ParseLlama3Scaling(const Fields& fields) {
  Llama3Scaling scaling;
  scaling.factor = fields.Positive("factor");
  scaling.low_freq_factor = fields.Positive("low_freq_factor");
  scaling.high_freq_factor = fields.Positive("high_freq_factor");
  scaling.original_max_position_embeddings = fields.Int("original_max_position_embeddings", 1);
  Check(scaling.low_freq_factor < scaling.high_freq_factor, fields.where(), ": low_freq_factor ",
        scaling.low_freq_factor, " is not below high_freq_factor ", scaling.high_freq_factor);
  return scaling;
}

// Older files hold rope_theta and rope_scaling; transformers 5 writes both into rope_parameters.
RopeConfig ParseRope(const Fields& config, int head_dim) {
  RopeConfig rope;
  rope.head_dim = head_dim;
  const bool newer = config.Has("rope_parameters");
  const char* name = newer ? "rope_parameters" : "rope_scaling";
  if (!newer) rope.theta = config.Has("rope_theta") ? config.Positive("rope_theta") : 10000.0f;
  if (!config.Has(name)) return rope;

  const Fields fields(config.At(name), config.where() + ": " + name);
  if (newer) rope.theta = fields.Positive("rope_theta");
  const char* type_name = fields.Has("rope_type") ? "rope_type" : "type";
  // A factor with no type to apply it by must not be passed over.
  Check(fields.Has(type_name) || !fields.Has("factor"), fields.where(),
        ": has a factor and no rope_type; expected \"llama3\" or \"default\"");
  const std::string type = fields.String(type_name, "default");
  Check(type == "default" || type == "llama3", fields.where(), ": ", type_name, " ", Quote(type),
        " is not supported; expected \"llama3\" or \"default\"");
  fields.ExpectOne("partial_rotary_factor");
  if (type == "llama3") rope.scaling = ParseLlama3Scaling(fields);
  return rope;
}

// A token id, a list of them, or nothing.
std::vector<int> TokenIds(const Fields& fields, const char* name, int vocab_size) {
  if (!fields.Has(name)) return {};
  const Json& value = fields.At(name);
  std::vector<int> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    Check(IsIntIn(id, 0, vocab_size - 1), fields.where(), ": ", name, " ", ShowJson(id),
          " is not a token of a vocabulary of ", vocab_size);
    ids.push_back(id);
  }
  return ids;
}

void RefuseWhatWeDoNotDo(const Fields& config) {
  const std::string type = config.String("model_type", "llama");
  Check(type == "llama", config.where(), ": model_type ", Quote(type),
        " is not supported; expected \"llama\"");
  const std::string activation = config.String("hidden_act", "silu");
  Check(activation == "silu", config.where(), ": hidden_act ", Quote(activation),
        " is not supported; expected \"silu\"");
  for (const char* name : {"attention_bias", "mlp_bias"}) {
    config.Refuse(name, config.Bool(name, false));
  }
  for (const char* name : {"quantization_config", "sliding_window"}) {
    config.Refuse(name, config.Has(name));
  }
  config.ExpectOne("pretraining_tp");
  config.ExpectOne("partial_rotary_factor");
}

}  // namespace

ModelConfig ModelConfig::FromJson(const std::string& json_text, const std::string& path) {
  const Json json = Parse(json_text, path);
  const Fields fields(json, path);
  RefuseWhatWeDoNotDo(fields);

  // Caps far above any model keep products of two dimensions inside 32 bits.
  constexpr int kMaxWidth = 1 << 20;
  ModelConfig config;
  config.hidden_size = fields.Int("hidden_size", 1, kMaxWidth);
  config.intermediate_size = fields.Int("intermediate_size", 1, kMaxWidth);
  config.num_hidden_layers = fields.Int("num_hidden_layers", 1, 1 << 12);
  config.num_attention_heads = fields.Int("num_attention_heads", 1, 1 << 12);
  config.num_key_value_heads = fields.Has("num_key_value_heads")
                                   ? fields.Int("num_key_value_heads", 1, 1 << 12)
                                   : config.num_attention_heads;
  Check(config.num_attention_heads % config.num_key_value_heads == 0, path,
        ": num_attention_heads ", config.num_attention_heads,
        " is not a multiple of num_key_value_heads ", config.num_key_value_heads);
  if (fields.Has("head_dim")) {
    config.head_dim = fields.Int("head_dim", 2, 1 << 10);
  } else {
    Check(config.hidden_size % config.num_attention_heads == 0, path, ": hidden_size ",
          config.hidden_size, " is not a multiple of num_attention_heads ",
          config.num_attention_heads, ", and there is no head_dim");
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  Check(config.head_dim % 2 == 0, path, ": head_dim ", config.head_dim,
        " is odd; RoPE rotates pairs");
  config.vocab_size = fields.Int("vocab_size", 1, 1 << 24);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 1, 1 << 26);
  config.rms_norm_eps = fields.Has("rms_norm_eps") ? fields.Positive("rms_norm_eps") : 1e-6f;
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  config.rope = ParseRope(fields, config.head_dim);

  const std::vector<int> bos = TokenIds(fields, "bos_token_id", config.vocab_size);
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = TokenIds(fields, "eos_token_id", config.vocab_size);
  return config;
}

ModelConfig ModelConfig::FromFolder(const std::string& folder) {
  Check(std::filesystem::is_directory(folder), folder,
        ": is not a folder; expected a Hugging Face checkpoint with config.json");
  const std::string path = folder + "/config.json";
  ModelConfig config = FromJson(ReadTextFile(path, kMaxConfigBytes), path);
  const std::string generation_path = folder + "/generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const Json generation = Parse(ReadTextFile(generation_path, kMaxConfigBytes), generation_path);
    const std::vector<int> eos =
        TokenIds(Fields(generation, generation_path), "eos_token_id", config.vocab_size);
    if (!eos.empty()) config.eos_token_ids = eos;
  }
  return config;
}

AttentionShape AttentionShapeOf(const ModelConfig& config) {
  AttentionShape shape;
  shape.num_heads = config.num_attention_heads;
  shape.num_kv_heads = config.num_key_value_heads;
  shape.head_dim = config.head_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return shape;
}

}  // namespace tinyvllm
