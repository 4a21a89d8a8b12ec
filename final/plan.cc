#include "final/plan.h"

#include <algorithm>
#include <map>

#include "common/base/text_table.h"
#include "lessons/09_forward_pass/activations.h"
#include "lessons/13_paged_attention/paged_kv_cache.h"

namespace tinyvllm {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

size_t Sum(const std::vector<PlannedBuffer>& plan, bool on_host) {
  size_t sum = 0;
  for (const PlannedBuffer& buffer : plan) sum += buffer.on_host == on_host ? buffer.bytes : 0;
  return sum;
}

size_t BytesOf(const std::vector<PlannedBuffer>& plan, const std::string& name) {
  for (const PlannedBuffer& buffer : plan) {
    if (buffer.name == name) return buffer.bytes;
  }
  return 0;
}

std::string PlainTable(const std::vector<PlannedBuffer>& plan) {
  TextTable table({"buffer", "shape", "size", "where"});
  for (const PlannedBuffer& buffer : plan) {
    table.AddRow(
        {buffer.name, buffer.shape, BinaryBytes(buffer.bytes), buffer.on_host ? "host" : "device"});
  }
  return table.ToString();
}

// The engine's buffers, and what their slots take: buffers of one slot share its memory.
struct EnginePlan {
  std::vector<BufferPlan> buffers;
  std::map<std::string, size_t> slots;

  size_t apart() const {
    size_t sum = 0;
    for (const BufferPlan& buffer : buffers) sum += buffer.bytes();
    return sum;
  }
  size_t shared() const {
    size_t sum = 0;
    for (const auto& [name, bytes] : slots) sum += bytes;
    return sum;
  }
  size_t bytes(const std::string& name) const {
    for (const BufferPlan& buffer : buffers) {
      if (buffer.name == name) return buffer.bytes();
    }
    return 0;
  }
};

EnginePlan PlanEngine(const ModelConfig& config, const EngineConfig& engine) {
  PassLimits limits;
  limits.max_tokens = engine.max_num_batched_tokens;
  limits.max_sequences = limits.max_logit_rows = engine.max_num_seqs;
  limits.max_sequence_len = engine.max_model_len;
  EnginePlan plan;
  plan.buffers = PlanActivations(config, limits, PagedKvCache::WorkspaceBytes(config, limits));
  for (const BufferPlan& buffer : plan.buffers) {
    size_t& slot = plan.slots[buffer.slot];
    slot = std::max(slot, buffer.bytes());
  }
  return plan;
}

std::string EngineTable(const EnginePlan& plan) {
  TextTable table({"buffer", "shape", "size", "shares memory of"});
  for (const BufferPlan& buffer : plan.buffers) {
    table.AddRow({buffer.name, buffer.shape, BinaryBytes(buffer.bytes()), buffer.slot});
  }
  return table.ToString();
}

std::string SavingsTable(const std::vector<PlannedBuffer>& plain, const EnginePlan& plan) {
  TextTable table({"what changes", "plain", "here", "saved"});
  const auto row = [&](const std::string& what, size_t before, size_t after) {
    const bool less = after <= before;
    table.AddRow({what, BinaryBytes(before), BinaryBytes(after),
                  (less ? "" : "-") + BinaryBytes(less ? before - after : after - before)});
  };
  row("logits of the last tokens alone (09)", BytesOf(plain, "embed_proj"), plan.bytes("logits"));
  row("the choice is made on the device (11)", BytesOf(plain, "embed_proj (copy)"), 0);
  row("no matrix of scores (13)", BytesOf(plain, "prefill_attn_scores"), plan.bytes("workspace"));
  const size_t named_before = BytesOf(plain, "embed_proj") + BytesOf(plain, "prefill_attn_scores");
  const size_t named_here = plan.bytes("logits") + plan.bytes("workspace");
  row("q|k|v and gate|up in one product, sums in f32 (09)", Sum(plain, false) - named_before,
      plan.apart() - named_here);
  row("buffers share memory (09)", plan.apart(), plan.shared());
  row("all device buffers", Sum(plain, false), plan.shared());
  row("all host buffers", Sum(plain, true), 0);
  return table.ToString();
}

// Pages as lesson 13 counts them, one layer at a time, and blocks of all layers.
std::string PoolArithmetic(const ModelConfig& config, int block_size) {
  const size_t page = 2 * sizeof(bf16) * block_size * config.kv_size();
  const size_t block = PagedKvCache::BytesPerBlock(config, block_size);
  const size_t blocks = 2 * kGiB / block;
  return StrCat("A page holds K and V of ", block_size, " tokens in one layer: 2 x ", block_size,
                " x ", config.kv_size(), " x 2 bytes = ", BinaryBytes(page), ". 2 GiB hold ",
                2 * kGiB / page, " of them.\nA block of this engine is that page in all ",
                config.num_hidden_layers, " layers, ", BinaryBytes(block), ": 2 GiB hold ", blocks,
                " blocks, or ", blocks * block_size, " tokens.\n");
}

}  // namespace

std::string BinaryBytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  std::string text = Fixed(value, 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " " + kUnits[unit];
}

std::vector<PlannedBuffer> PlainPlan(const ModelConfig& config, int longest_prompt, int batch) {
  const size_t tokens = longest_prompt;
  const size_t element = sizeof(bf16);
  std::vector<PlannedBuffer> plan;
  const auto add = [&](const std::string& name, const std::string& shape, size_t bytes,
                       bool on_host = false) {
    plan.push_back({name, shape, bytes, on_host});
  };
  const auto rows = [&](const std::string& name, const char* width_name, size_t width) {
    add(name, StrCat("(prompt, ", width_name, ")"), tokens * width * element);
  };
  add("gpu_input_tokens", "(prompt) int32", tokens * sizeof(int));
  rows("input_embeddings", "hidden_size", config.hidden_size);
  rows("hidden_state", "hidden_size", config.hidden_size);
  rows("rms_norms", "hidden_size", config.hidden_size);
  // One buffer for two tensors, one after the other.
  rows(StrCat("buf_", config.q_size(), "_1"), "q_proj, attention output", config.q_size());
  rows(StrCat("buf_", config.hidden_size, "_2"), "o_proj, down_proj", config.hidden_size);
  rows("k_proj_temp_buf", "kv_size", config.kv_size());
  rows("v_proj_temp_buf", "kv_size", config.kv_size());
  add("prefill_attn_scores", "(heads, prompt, prompt)",
      config.num_attention_heads * tokens * tokens * element);
  rows("gate", "intermediate_size", config.intermediate_size);
  rows("up", "intermediate_size", config.intermediate_size);
  rows("embed_proj", "vocab_size", config.vocab_size);
  add("embed_proj (copy)", "(prompt, vocab_size)", tokens * config.vocab_size * element,
      /*on_host=*/true);
  add("gpu_last_tokens", "(batch) int32", batch * sizeof(int));
  add("k_proj_batched_buffer", "(batch, kv_size)", batch * config.kv_size() * element);
  add("v_proj_batched_buffer", "(batch, kv_size)", batch * config.kv_size() * element);
  return plan;
}

std::string DescribePlan(const ModelConfig& config, const std::string& model_name,
                         const EngineConfig& engine) {
  const int prompt = engine.max_model_len, batch = engine.max_num_seqs;
  const std::vector<PlannedBuffer> plain = PlainPlan(config, prompt, batch);
  const EnginePlan plan = PlanEngine(config, engine);
  return StrCat(
      model_name, ", prompts of up to ", prompt, " tokens, ", batch,
      batch == 1 ? " sequence" : " sequences", " at a time\n\nA plain plan: a buffer a tensor, ",
      plain.size(), " buffers, ", BinaryBytes(Sum(plain, false)), " on the device and ",
      BinaryBytes(Sum(plain, true)), " on the host\n\n", PlainTable(plain),
      "\nThis engine's plan: steps of up to ", engine.max_num_batched_tokens, " tokens, ",
      BinaryBytes(plan.shared()), " on the device\n\n", EngineTable(plan),
      "\nWhat each change saves (numbers in brackets: the lesson)\n\n", SavingsTable(plain, plan),
      "\nThe KV cache\n\n", PoolArithmetic(config, engine.block_size),
      "\nOther sizes: --max-model-len, --max-num-seqs, --max-num-batched-tokens, --block-size\n");
}

}  // namespace tinyvllm
