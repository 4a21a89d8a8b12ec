#include "lessons/09_forward_pass/weights.h"

#include <map>
#include <string>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "lessons/01_safetensors/arena.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/01_safetensors/upload.h"

namespace tinyvllm {
namespace {

using Offsets = std::map<std::string, size_t>;  // tensor name: where it lies in the arena

LlamaShape ShapeOf(const ModelConfig& config) {
  LlamaShape shape;
  shape.hidden_size = config.hidden_size;
  shape.intermediate_size = config.intermediate_size;
  shape.num_hidden_layers = config.num_hidden_layers;
  shape.num_attention_heads = config.num_attention_heads;
  shape.num_key_value_heads = config.num_key_value_heads;
  shape.head_dim = config.head_dim;
  shape.vocab_size = config.vocab_size;
  shape.tie_word_embeddings = config.tie_word_embeddings;
  return shape;
}

// What follows the last dot but one: "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string ModuleName(const std::string& tensor) {
  const size_t end = tensor.rfind('.');
  return tensor.substr(tensor.rfind('.', end - 1) + 1, end - tensor.rfind('.', end - 1) - 1);
}

// tag::plan[]
// Model order. q|k|v and gate|up go into the arena as groups, so that each is one matrix.
ArenaPlan PlanArena(const std::vector<TensorSpec>& tensors, Offsets* offsets) {
  ArenaPlan plan;
  std::vector<std::pair<std::string, size_t>> group;
  for (const TensorSpec& tensor : tensors) {
    group.emplace_back(tensor.name, TensorBytes(tensor));
    const std::string module = ModuleName(tensor.name);
    if (module == "q_proj" || module == "k_proj" || module == "gate_proj") continue;
    const std::vector<size_t> members = plan.AddGroup(group);
    for (size_t i = 0; i < group.size(); ++i) (*offsets)[group[i].first] = members[i];
    group.clear();
  }
  return plan;
}
// end::plan[]

// A tensor without a place would be a part of the model left out in silence.
void RefuseUnknownTensors(const Checkpoint& checkpoint, const Offsets& known) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool harmless = name == "lm_head.weight" ||        // a copy of the tied embedding table
                          ModuleName(name) == "rotary_emb";  // frequencies, computed from config
    Check(known.count(name) != 0 || harmless, checkpoint.path(), ": tensor ", name,
          " has no place in the Llama model that config.json describes");
  }
}

}  // namespace

Weights::Weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::vector<TensorSpec> tensors = LlamaTensors(ShapeOf(config), DType::kBF16);
  Offsets offsets;
  const ArenaPlan plan = PlanArena(tensors, &offsets);
  RefuseUnknownTensors(checkpoint, offsets);

  std::vector<UploadItem> items;
  for (const TensorSpec& tensor : tensors) {
    UploadItem item;
    item.tensor = &checkpoint.Get(tensor.name, tensor.shape);
    items.push_back(item);
  }
  // Every name and shape is known to be right before the first byte of memory is asked for.
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  Check(plan.total_bytes() <= free, checkpoint.path(), ": the weights take ",
        HumanBytes(plan.total_bytes()), ", and the device has ", HumanBytes(free), " of ",
        HumanBytes(total), " free");
  arena_ = DeviceBuffer<char>(plan.total_bytes());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].destination = arena_.data() + offsets.at(tensors[i].name);
  }
  Upload(items);

  const auto view = [&](const std::string& name) {
    return reinterpret_cast<const bf16*>(arena_.data() + offsets.at(name + ".weight"));
  };
  embed_tokens = view("model.embed_tokens");
  norm = view("model.norm");
  lm_head = config.tie_word_embeddings ? embed_tokens : view("lm_head");
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = StrCat("model.layers.", layer, ".");
    layers.push_back({view(prefix + "input_layernorm"), view(prefix + "self_attn.q_proj"),
                      view(prefix + "self_attn.o_proj"), view(prefix + "post_attention_layernorm"),
                      view(prefix + "mlp.gate_proj"), view(prefix + "mlp.down_proj")});
  }
}

}  // namespace tinyvllm
