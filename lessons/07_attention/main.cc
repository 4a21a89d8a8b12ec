// The demo of lesson 07: one look-up by hand, what the heads of the bundled model's first layer
// look at in a sentence, and what each version of the kernel costs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/buffer.h"
#include "common/cuda/counts.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/upload.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/03_embedding/embedding.h"
#include "lessons/04_rmsnorm/rmsnorm.h"
#include "lessons/05_rope/rope.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/07_attention/attention.h"

namespace tinyvllm {
namespace {

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

std::vector<bf16> ToBf16(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (float value : values) result.push_back(__float2bfloat16(value));
  return result;
}

AttentionShape MakeShape(int num_heads, int num_kv_heads, int head_dim) {
  return {num_heads, num_kv_heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim))};
}

// Sequences of q_len queries and kv_len keys each, and their offsets on the device.
struct EvenBatch {
  EvenBatch(int num_sequences, int q_len, int kv_len)
      : query_offsets(Multiples(num_sequences, q_len)),
        kv_offsets(Multiples(num_sequences, kv_len)) {
    batch.num_sequences = num_sequences;
    batch.num_queries = num_sequences * q_len;
    batch.max_query_len = q_len;
    batch.max_kv_len = kv_len;
    batch.query_offsets = query_offsets.data();
    batch.kv_offsets = kv_offsets.data();
  }

  static std::vector<int> Multiples(int count, int step) {
    std::vector<int> multiples;
    for (int i = 0; i <= count; ++i) multiples.push_back(i * step);
    return multiples;
  }

  DeviceBuffer<int> query_offsets;
  DeviceBuffer<int> kv_offsets;
  AttentionBatch batch;
};

void RunAttention(const AttentionShape& shape, const AttentionBatch& batch,
                  const AttentionTensors& tensors, cudaStream_t stream) {
  DeviceBuffer<char> workspace(AttentionWorkspaceBytes(shape, batch.num_queries, batch.max_kv_len));
  Attention(shape, batch, tensors, workspace.data(), workspace.bytes(), stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

// --- 1. by hand

void LookUpByHand() {
  Heading("1. A look-up by hand: one query, three keys, vectors of 4 numbers");
  const std::vector<float> query = {1, 2, 0, 1};
  const std::vector<float> keys = {1, 1, 0, 1, 0, 1, 3, 0, -1, 0, 1, 1};
  const std::vector<float> values = {10, 0, 0, 0, 0, 10, 0, 0, 5, 5, 0, 0};
  const AttentionShape shape = MakeShape(1, 1, 4);

  double scores[3], sum = 0;
  for (int j = 0; j < 3; ++j) {
    scores[j] = 0;
    for (int d = 0; d < 4; ++d) scores[j] += query[d] * keys[4 * j + d];
  }
  const double largest = *std::max_element(scores, scores + 3) * shape.scale;
  for (double score : scores) sum += std::exp(score * shape.scale - largest);
  TextTable table({"key", "value", "query . key", "/ sqrt(4)", "exp(score - largest)", "weight"});
  for (int j = 0; j < 3; ++j) {
    const auto row = [&](const std::vector<float>& m) {
      return StrCat("(", m[4 * j], " ", m[4 * j + 1], " ", m[4 * j + 2], " ", m[4 * j + 3], ")");
    };
    const double exponential = std::exp(scores[j] * shape.scale - largest);
    table.AddRow({row(keys), row(values), Fixed(scores[j], 0), Fixed(scores[j] * shape.scale, 0),
                  Fixed(exponential, 4), Fixed(exponential / sum, 4)});
  }

  const DeviceBuffer<bf16> q(ToBf16(query)), k(ToBf16(keys)), v(ToBf16(values));
  DeviceBuffer<bf16> output(4);
  const EvenBatch one(1, 1, 3);
  RunAttention(shape, one.batch, {q.data(), k.data(), v.data(), 4, 4, output.data()}, nullptr);
  std::cout << table.ToString() << "\nquery (1 2 0 1): the kernel's answer, in bf16, is (";
  for (int d = 0; d < 4; ++d) {
    std::cout << (d > 0 ? " " : "") << __bfloat162float(output.ToHost()[d]);
  }
  std::cout << ")\n";
}

// --- 2. the first layer of a real model

struct Model {
  int hidden_size, num_heads, num_kv_heads, head_dim;
  float epsilon;
  RopeConfig rope;

  int QkvWidth() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// As much of config.json as one layer's queries and keys need; lesson 09 reads and checks it all.
Model ReadModel(const std::string& path) {
  std::ifstream file(path);
  Check(file.good(), path, ": cannot be opened");
  try {
    const nlohmann::json config = nlohmann::json::parse(file);
    const nlohmann::json rope =
        config.contains("rope_parameters") ? config["rope_parameters"] : config["rope_scaling"];
    Model model;
    model.hidden_size = config.at("hidden_size");
    model.num_heads = config.at("num_attention_heads");
    model.num_kv_heads = config.at("num_key_value_heads");
    model.head_dim = config.value("head_dim", model.hidden_size / model.num_heads);
    model.epsilon = config.at("rms_norm_eps");
    model.rope.head_dim = model.head_dim;
    model.rope.theta = (config.contains("rope_theta") ? config : rope).at("rope_theta");
    if (rope.is_object() && rope.value("rope_type", "default") == "llama3") {
      model.rope.scaling =
          Llama3Scaling{rope.at("factor"), rope.at("low_freq_factor"), rope.at("high_freq_factor"),
                        rope.at("original_max_position_embeddings")};
    }
    return model;
  } catch (const nlohmann::json::exception& error) {
    throw Error(path, ": ", error.what());
  }
}

// Matrices of equal width, one below the other.
DeviceBuffer<bf16> LoadRows(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  size_t elements = 0;
  for (const std::string& name : names) elements += checkpoint.Get(name).element_count();
  DeviceBuffer<bf16> rows(elements);
  std::vector<UploadItem> items;
  size_t offset = 0;
  for (const std::string& name : names) {
    items.push_back({&checkpoint.Get(name), rows.data() + offset});
    offset += checkpoint.Get(name).element_count();
  }
  UploadPlain(items, nullptr);
  return rows;
}

// Lessons 01 to 06 in a row: ids to the rotated q and k, and v, of layer 0.
DeviceBuffer<bf16> FirstLayerQkv(const Model& model, const Checkpoint& checkpoint,
                                 const std::vector<int>& ids, cudaStream_t stream) {
  const int num_tokens = static_cast<int>(ids.size());
  const std::string layer = "model.layers.0.";
  const DeviceBuffer<bf16> table = LoadRows(checkpoint, {"model.embed_tokens.weight"});
  const DeviceBuffer<bf16> norm = LoadRows(checkpoint, {layer + "input_layernorm.weight"});
  const DeviceBuffer<bf16> projection =
      LoadRows(checkpoint, {layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
                            layer + "self_attn.v_proj.weight"});
  const DeviceBuffer<int> token_ids(ids), positions(EvenBatch::Multiples(num_tokens - 1, 1));
  DeviceBuffer<bf16> hidden(static_cast<size_t>(num_tokens) * model.hidden_size);
  DeviceBuffer<bf16> qkv(static_cast<size_t>(num_tokens) * model.QkvWidth());
  const Linear linear(stream);
  const RopeTable rope_table(model.rope, num_tokens);

  EmbeddingGather(token_ids.data(), table.data(), hidden.data(), num_tokens, model.hidden_size,
                  stream);
  RmsNorm(hidden.data(), norm.data(), hidden.data(), num_tokens, model.hidden_size, model.epsilon,
          stream);
  linear(hidden.data(), projection.data(), qkv.data(), num_tokens, model.hidden_size,
         model.QkvWidth());
  Rope(qkv.data(), positions.data(), rope_table, num_tokens, model.num_heads + model.num_kv_heads,
       model.head_dim, model.QkvWidth(), stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return qkv;
}

// tag::ask[]
// The weights of every head, (tokens, heads, head_dim), the last index being the key's.
//
// The kernel never shows its weights, but it can be made to tell them: let value j be the vector
// that is 1 at place j and 0 elsewhere. The average of the values, each times its weight, then is
// the list of the weights.
std::vector<float> AskForWeights(const AttentionShape& shape, const DeviceBuffer<bf16>& qkv,
                                 int num_tokens, cudaStream_t stream) {
  const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  std::vector<bf16> rows = qkv.ToHost();
  for (int j = 0; j < num_tokens; ++j) {
    bf16* value = &rows[j * width + (shape.num_heads + shape.num_kv_heads) * shape.head_dim];
    for (int i = 0; i < shape.num_kv_heads * shape.head_dim; ++i) {
      value[i] = __float2bfloat16(i % shape.head_dim == j ? 1 : 0);
    }
  }
  const DeviceBuffer<bf16> unit(rows);
  DeviceBuffer<bf16> output(static_cast<size_t>(num_tokens) * shape.num_heads * shape.head_dim);
  const bf16* k = unit.data() + shape.num_heads * shape.head_dim;
  const bf16* v = k + shape.num_kv_heads * shape.head_dim;
  const EvenBatch one(1, num_tokens, num_tokens);
  RunAttention(shape, one.batch, {unit.data(), k, v, width, width, output.data()}, stream);
  std::vector<float> weights;
  for (bf16 weight : output.ToHost()) weights.push_back(__bfloat162float(weight));
  return weights;
}
// end::ask[]

// The same weights in f64, straight from the formula; returns the largest difference.
double LargestError(const AttentionShape& shape, const std::vector<bf16>& qkv, int num_tokens,
                    const std::vector<float>& weights) {
  const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  double largest_error = 0;
  for (int i = 0; i < num_tokens; ++i) {
    for (int head = 0; head < shape.num_heads; ++head) {
      const int kv_head = head / (shape.num_heads / shape.num_kv_heads);
      std::vector<double> expected(i + 1);
      double sum = 0;
      for (int j = 0; j <= i; ++j) {
        double dot = 0;
        for (int d = 0; d < shape.head_dim; ++d) {
          dot +=
              double{__bfloat162float(qkv[i * width + head * shape.head_dim + d])} *
              __bfloat162float(qkv[j * width + (shape.num_heads + kv_head) * shape.head_dim + d]);
        }
        sum += expected[j] = std::exp(shape.scale * dot);
      }
      for (int j = 0; j <= i; ++j) {
        const double weight = weights[(i * shape.num_heads + head) * shape.head_dim + j];
        largest_error = std::max(largest_error, std::abs(weight - expected[j] / sum));
      }
    }
  }
  return largest_error;
}

constexpr size_t kLongestLabel = 12;

// A token's text as the characters of a label; the space before a word is left out.
std::vector<std::string> Label(const Tokenizer& tokenizer, int id) {
  const std::string text = tokenizer.IsSpecial(id) ? "<begin>" : tokenizer.Decode({id});
  std::vector<std::string> characters;
  for (const char byte : text) {
    const bool continues = (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
    if (continues && !characters.empty()) {
      characters.back() += byte;
    } else if (byte != ' ' || !characters.empty()) {
      characters.push_back(std::string(1, byte < ' ' && byte >= 0 ? ' ' : byte));
    }
  }
  if (characters.empty()) characters = {"_"};
  if (characters.size() > kLongestLabel) characters.resize(kLongestLabel);
  return characters;
}

std::string Join(const std::vector<std::string>& characters) {
  std::string text;
  for (const std::string& character : characters) text += character;
  return text;
}

const char* Shade(float weight) {
  if (weight >= 0.5) return "██";
  if (weight >= 0.25) return "▓▓";
  if (weight >= 0.1) return "▒▒";
  if (weight >= 0.03) return "░░";
  return " ·";
}

std::string PadLeft(const std::string& text, size_t width) {
  return std::string(width - std::min(width, DisplayWidth(text)), ' ') + text;
}

// One head's weights: a row a query, a column a key, the keys' texts written downwards.
void DrawHead(const AttentionShape& shape, const std::vector<float>& weights, int head,
              const std::vector<std::vector<std::string>>& labels) {
  size_t longest = 0;
  for (const auto& label : labels) longest = std::max(longest, label.size());
  for (size_t line = 0; line < longest; ++line) {
    std::string text(longest + 3, ' ');
    for (const auto& label : labels) {
      const size_t skipped = longest - label.size();
      const std::string character = line < skipped ? " " : label[line - skipped];
      text += character + (DisplayWidth(character) < 2 ? " " : "");
    }
    std::cout << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    std::cout << PadLeft(Join(labels[i]), longest + 1) << "  ";
    for (size_t j = 0; j <= i; ++j) {
      std::cout << Shade(weights[(i * shape.num_heads + head) * shape.head_dim + j]);
    }
    std::cout << "\n";
  }
}

// What each head does with the last token, in words.
void ListStrongest(const AttentionShape& shape, const std::vector<float>& weights,
                   const std::vector<std::vector<std::string>>& labels) {
  const int last = static_cast<int>(labels.size()) - 1;
  TextTable table({"head", "KV head", "\"" + Join(labels[last]) + "\" takes most from"});
  for (int head = 0; head < shape.num_heads; ++head) {
    const float* row = &weights[(last * shape.num_heads + head) * shape.head_dim];
    std::vector<int> order = EvenBatch::Multiples(last, 1);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
    std::string text;
    for (int n = 0; n < std::min(4, last + 1); ++n) {
      text += StrCat(n > 0 ? ", " : "", Join(labels[order[n]]), " ", Fixed(100 * row[order[n]], 0),
                     " %");
    }
    table.AddRow({StrCat(head), StrCat(head / (shape.num_heads / shape.num_kv_heads)), text});
  }
  std::cout << table.ToString();
}

void ShowRealWeights(const std::string& folder, const std::string& sentence, int head) {
  const Model model = ReadModel(folder + "/config.json");
  const AttentionShape shape = MakeShape(model.num_heads, model.num_kv_heads, model.head_dim);
  Check(head >= 0 && head < shape.num_heads, "--head ", head, ": the model has heads 0 to ",
        shape.num_heads - 1);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  EncodeOptions options;
  options.add_special_tokens = true;
  const std::vector<int> ids = tokenizer.Encode(sentence, options);
  const int num_tokens = static_cast<int>(ids.size());
  Check(num_tokens >= 1 && num_tokens <= shape.head_dim, "--text: ", num_tokens,
        " tokens; the picture has room for 1 to ", shape.head_dim);

  Stream stream;
  const Checkpoint checkpoint(folder);
  const DeviceBuffer<bf16> qkv = FirstLayerQkv(model, checkpoint, ids, stream.get());
  const std::vector<float> weights = AskForWeights(shape, qkv, num_tokens, stream.get());
  std::vector<std::vector<std::string>> labels;
  for (int id : ids) labels.push_back(Label(tokenizer, id));

  Heading(StrCat("2. Layer 0, head ", head, ": each row is a query, each column a key"));
  DrawHead(shape, weights, head, labels);
  std::cout << "\n   · less than 3 %   ░░ 3 %   ▒▒ 10 %   ▓▓ 25 %   ██ 50 % or more\n\n";
  ListStrongest(shape, weights, labels);
  std::cout << "\nAll weights of all heads lie within "
            << Fixed(1e3 * LargestError(shape, qkv.ToHost(), num_tokens, weights), 2)
            << "e-3 of the formula in f64 (a bf16 near 1 is off by up to 1.95e-3).\n";
}

// --- 3. the versions

// Multiplications and additions of a second that the plain f32 units can do, by the data sheet:
// 64 units a multiprocessor on compute capability 8.0, else 128, each with one of both a clock.
double PeakGigaflops(const DeviceReport& device) {
  int kilohertz = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  const bool is_a100 = device.capability_major == 8 && device.capability_minor == 0;
  return 2.0 * (is_a100 ? 64 : 128) * device.multiprocessors * kilohertz * 1e-6;
}

void TimeVersions(const std::string& title, const AttentionShape& shape, int num_sequences,
                  int q_len, int kv_len, Benchmark* benchmark) {
  const DeviceReport device = DescribeDevice();
  const EvenBatch even(num_sequences, q_len, kv_len);
  const int64_t q_width = shape.num_heads * shape.head_dim;
  const int64_t kv_width = shape.num_kv_heads * shape.head_dim;
  const int64_t num_queries = even.batch.num_queries, num_keys = int64_t{num_sequences} * kv_len;
  Random random(7);
  const DeviceBuffer<bf16> q(random.Bf16(num_queries * q_width));
  const DeviceBuffer<bf16> k(random.Bf16(num_keys * kv_width)), v(random.Bf16(num_keys * kv_width));
  DeviceBuffer<bf16> output(num_queries * q_width);
  const AttentionTensors tensors = {q.data(), k.data(), v.data(), q_width, kv_width, output.data()};

  const double bytes = 2.0 * (2 * num_queries * q_width + 2 * num_keys * kv_width);
  const double visible = num_sequences * (q_len * (kv_len - q_len + 0.5 * (q_len + 1)));
  const double operations = 4 * visible * q_width;  // a multiplication, an addition; q·k and w·v
  std::cout << title << ": " << num_sequences << " x " << q_len << " queries, " << kv_len
            << " keys each, " << shape.num_heads << " heads, " << shape.num_kv_heads
            << " KV heads of " << shape.head_dim << "\n\n";
  std::vector<std::string> header =
      device.simulated ? CountColumns()
                       : std::vector<std::string>{"ms",   "GFLOP/s", "of f32 peak",
                                                  "GB/s", "of copy", "adds the idea"};
  header.insert(header.begin(), "version");
  TextTable table(header);
  for (const AttentionVersion& version : kAttentionVersions) {
    DeviceBuffer<char> workspace(
        version.workspace_bytes(shape, even.batch.num_queries, even.batch.max_kv_len));
    const auto launch = [&] {
      version.launch(shape, even.batch, tensors, workspace.data(), workspace.bytes(),
                     benchmark->stream());
    };
    const std::string name = StrCat(version.number, " ", version.name);
    if (device.simulated) {
      std::vector<std::string> row = CountCells(launch);
      row.insert(row.begin(), name);
      table.AddRow(row);
      continue;
    }
    const double ms = benchmark->MedianMilliseconds(launch);
    const double gigaflops = operations / ms * 1e-6, gigabytes = GigabytesPerSecond(bytes, ms);
    table.AddRow({name, Fixed(ms, 3), Fixed(gigaflops, 0),
                  Fixed(100 * gigaflops / PeakGigaflops(device), 1) + " %", Fixed(gigabytes, 0),
                  Fixed(100 * gigabytes / benchmark->CopyGigabytesPerSecond(), 1) + " %",
                  version.idea});
  }
  std::cout << table.ToString() << "\n";
}

void ShowVersions() {
  Benchmark benchmark;
  Heading("3. The versions");
  if (IsSimulator()) {
    TimeVersions("A prompt", MakeShape(4, 2, 64), 1, 48, 48, &benchmark);
    TimeVersions("A decode step", MakeShape(4, 2, 64), 4, 1, 48, &benchmark);
    std::cout << kCountsLegend;
    return;
  }
  TimeVersions("A prompt", MakeShape(32, 8, 64), 1, 2048, 2048, &benchmark);
  TimeVersions("A decode step", MakeShape(32, 8, 64), 64, 1, 2048, &benchmark);
  std::cout << "Copy: " << Fixed(benchmark.CopyGigabytesPerSecond(), 0)
            << " GB/s, measured now. GB/s counts each byte of q, k, v and output once.\n";
}

int Demo(int argc, char** argv) {
  CommandLine command_line("Attention: who looks at whom, and what it costs.");
  std::string model, sentence = "What is 27+41? 27+41=68.";
  int head = 1;
  command_line.app().add_option("--model", model, "folder of the model (default: the bundled one)");
  command_line.app().add_option("--text", sentence, "the sentence")->capture_default_str();
  command_line.app().add_option("--head", head, "the head to draw")->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "07 attention, on " << ToString(DescribeDevice()) << "\n";
  LookUpByHand();
  ShowRealWeights(model.empty() ? DataPath("models/pocket") : model, sentence, head);
  ShowVersions();
  std::cout
      << "\nYour own: bazel run //lessons/07_attention -- --head 3 --text \"your own sentence\"\n"
         "The page: docs/07_attention.md. Your turn: write the softmax and the average in\n"
         "lessons/07_attention/exercise/attention.cu, and check them with\n"
         "  bazel test --//:exercise=07_attention //tests:07_attention_test\n"
         "Next: bazel run //lessons/08_feed_forward\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Demo); }
