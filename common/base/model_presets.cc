#include "common/base/model_presets.h"

#include "common/base/error.h"

namespace tinyvllm {
namespace {

struct Preset {
  const char* name;
  int hidden_size;
  int intermediate_size;
  int num_hidden_layers;
  int num_attention_heads;
  int num_key_value_heads;
  int head_dim;
  bool tie_word_embeddings;
  int rope_factor;
};

// What the Llama 3 models of these sizes differ in.
constexpr Preset kPresets[] = {
    {"llama3.2-1b", 2048, 8192, 16, 32, 8, 64, true, 32},
    {"llama3.2-3b", 3072, 8192, 28, 24, 8, 128, true, 32},
    {"llama3.1-8b", 4096, 14336, 32, 32, 8, 128, false, 8},
};

}  // namespace

const std::vector<std::string>& ModelPresetNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Preset& preset : kPresets) list.push_back(preset.name);
    return list;
  }();
  return names;
}

std::string ModelPreset(const std::string& name) {
  std::string names;
  for (const Preset& p : kPresets) {
    names += StrCat(names.empty() ? "" : ", ", p.name);
    if (name != p.name) continue;
    return StrCat(R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 128000,
  "eos_token_id": [128001, 128008, 128009],
  "head_dim": )",
                  p.head_dim, R"(,
  "hidden_act": "silu",
  "hidden_size": )",
                  p.hidden_size, R"(,
  "initializer_range": 0.02,
  "intermediate_size": )",
                  p.intermediate_size, R"(,
  "max_position_embeddings": 131072,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": )",
                  p.num_attention_heads, R"(,
  "num_hidden_layers": )",
                  p.num_hidden_layers, R"(,
  "num_key_value_heads": )",
                  p.num_key_value_heads, R"(,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": )",
                  p.rope_factor, R"(.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": )",
                  p.tie_word_embeddings ? "true" : "false", R"(,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "vocab_size": 128256
}
)");
  }
  throw Error("model shape ", name, " is unknown, expected one of ", names);
}

}  // namespace tinyvllm
