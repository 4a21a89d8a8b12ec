#include "tools/random_model/config.h"

#include <algorithm>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/model_presets.h"
#include "common/base/quote.h"
#include "tools/random_model/tokenizer.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPocket[] = "pocket";

std::string FlagOf(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

// Whether `value` may stand where the preset has `present`.
bool SameKind(const Json& present, const Json& value) {
  if (present.is_boolean()) return value.is_boolean();
  if (present.is_number_integer()) return value.is_number_integer() || value.is_array();
  if (present.is_number()) return value.is_number();
  if (present.is_string()) return value.is_string();
  return true;  // a list, an object, null: whatever the field may be elsewhere
}

Json ParseValue(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

void Override(const std::string& field, const std::string& text, Json* config) {
  const Json value = ParseValue(text);
  const bool may_be_null = field == "rope_scaling" || field == "head_dim";
  if (config->contains(field) && !(value.is_null() && may_be_null) &&
      !SameKind((*config)[field], value)) {
    throw Error(FlagOf(field), ": found ", Quote(text), ", expected ", (*config)[field].type_name(),
                " like ", (*config)[field].dump());
  }
  (*config)[field] = value;
}

void CheckShape(const LlamaShape& shape) {
  const std::pair<const char*, size_t> sizes[] = {
      {"hidden_size", shape.hidden_size},
      {"intermediate_size", shape.intermediate_size},
      {"num_hidden_layers", shape.num_hidden_layers},
      {"num_attention_heads", shape.num_attention_heads},
      {"num_key_value_heads", shape.num_key_value_heads},
      {"head_dim", shape.head_dim},
      {"vocab_size", shape.vocab_size},
  };
  for (const auto& [field, size] : sizes) {
    if (size == 0 || size > 10'000'000) {
      throw Error(FlagOf(field), ": found ", size, ", expected 1 to 10000000");
    }
  }
  if (shape.num_attention_heads % shape.num_key_value_heads != 0) {
    throw Error("--num-attention-heads: found ", shape.num_attention_heads,
                ", expected a multiple of --num-key-value-heads, ", shape.num_key_value_heads);
  }
  if (shape.head_dim % 2 != 0) {
    throw Error("--head-dim: found ", shape.head_dim,
                ", expected an even number: RoPE rotates pairs");
  }
}

}  // namespace

std::vector<std::string> RandomModelPresets() {
  std::vector<std::string> names = ModelPresetNames();
  names.insert(names.begin(), kPocket);
  return names;
}

std::vector<std::string> OverridableFields() {
  std::vector<std::string> fields = {"pad_token_id", "rope_parameters"};
  const Json preset = Json::parse(ModelPreset(ModelPresetNames()[0]));
  for (const auto& [field, value] : preset.items()) {
    if (field != "torch_dtype") fields.push_back(field);  // --dtype says that
  }
  return fields;
}

Json MakeConfig(const std::string& preset, const std::map<std::string, std::string>& overrides) {
  const std::string text =
      preset == kPocket ? ReadTextFile(DataPath("models/pocket/config.json")) : ModelPreset(preset);
  Json config = Json::parse(text);
  if (overrides.count("rope_parameters") > 0) {  // takes the place of both
    config.erase("rope_theta");
    config.erase("rope_scaling");
  }
  for (const auto& [field, value] : overrides) Override(field, value, &config);
  const LlamaShape shape = LlamaShapeFromConfig(config.dump(), "--config " + preset);
  CheckShape(shape);
  const SpecialTokens special(shape.vocab_size);
  const std::pair<const char*, Json> ids[] = {{"bos_token_id", special.begin_of_text()},
                                              {"eos_token_id", special.end_tokens()},
                                              {"pad_token_id", special.pad()}};
  for (const auto& [field, id] : ids) {
    if (overrides.count(field) == 0) config[field] = id;
  }
  return config;
}

WeightConfig WeightConfigOf(const Json& config) {
  const double initializer_range = config.value("initializer_range", 0.02);
  if (!(initializer_range >= 0 && initializer_range <= 1)) {
    throw Error("--initializer-range: found ", initializer_range, ", expected 0 to 1");
  }
  return {LlamaShapeFromConfig(config.dump(), "config.json"), initializer_range};
}

}  // namespace tinyvllm
