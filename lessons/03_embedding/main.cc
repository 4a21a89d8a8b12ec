// Token ids become vectors: what a bf16 is, the rows of the bundled model's
// table and which words lie close to each other in it, and the three versions
// of the gather.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "common/cuda/counts.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/dtype.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/03_embedding/embedding.h"

namespace tinyvllm {
namespace {

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

std::string Digits(double value, int significant) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", significant, value);
  return text;
}

// The upper `count` bits of `value`, grouped as sign, exponent and fraction.
std::string Bits(float value, int count) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i == 1 || i == 9) text += ' ';
    text += (bits >> (31 - i) & 1) != 0 ? '1' : '0';
  }
  return text;
}

void ShowBf16() {
  Heading(
      "1. bf16: the upper half of an f32, so its range, with two to three "
      "digits");
  TextTable table({"value", "f32: sign, exponent, fraction", "bf16", "as a number", "off by"});
  for (float value : {1.0f, 0.1f, 3.14159265f, -2.71828183f, 257.0f, 65504.0f, 1e30f}) {
    const float rounded = __bfloat162float(__float2bfloat16(value));
    table.AddRow({Digits(value, 7), Bits(value, 32), Bits(rounded, 16), Digits(rounded, 7),
                  Fixed(100 * std::abs(rounded / value - 1), 2) + " %"});
  }
  std::cout << table.ToString();
}

// The embedding table of a model, on the host.
struct Table {
  int vocab_size;
  int hidden_size;
  std::vector<bf16> rows;  // (vocab_size, hidden_size)
};

Table ReadTable(const std::string& model) {
  const Checkpoint checkpoint(model);
  const TensorView& view = checkpoint.Get("model.embed_tokens.weight");
  Check(view.shape.size() == 2, model, ": model.embed_tokens.weight has the shape ",
        ShapeText(view.shape), ", expected (vocab_size, hidden_size)");
  Table table{static_cast<int>(view.shape[0]), static_cast<int>(view.shape[1]), {}};
  table.rows.resize(view.element_count());
  ConvertToBF16(view.dtype, view.bytes.data(), table.rows.size(),
                reinterpret_cast<uint16_t*>(table.rows.data()));
  return table;
}

// A piece of text as the table shows it: quoted, with its line ends visible.
std::string Quoted(const std::string& piece) {
  std::string text = "'";
  for (char c : piece) text += c == '\n' ? std::string("\\n") : std::string(1, c);
  return text + "'";
}

void ShowRows(const Table& table, const Tokenizer& tokenizer, const std::string& text) {
  Heading(StrCat("2. Text, ids, rows: a table of ", table.vocab_size, " rows of ",
                 table.hidden_size, " bf16, ", HumanBytes(table.rows.size() * sizeof(bf16))));
  const std::vector<int> ids = tokenizer.Encode(text);
  // tag::precondition[]
  for (int id : ids) {
    Check(id >= 0 && id < table.vocab_size, "token id ", id, " has no row: the table has ",
          table.vocab_size, "; is this tokenizer.json another model's?");
  }
  // end::precondition[]
  const Stream stream;
  const DeviceBuffer<int> device_ids(ids);
  const DeviceBuffer<bf16> device_table(table.rows);
  DeviceBuffer<bf16> device_output(ids.size() * table.hidden_size);
  EmbeddingGather(device_ids.data(), device_table.data(), device_output.data(),
                  static_cast<int>(ids.size()), table.hidden_size, stream.get());
  stream.Synchronize();
  const std::vector<bf16> output = device_output.ToHost();

  constexpr int kShown = 5;
  TextTable rows({"piece", "id", "[0]", "[1]", "[2]", "[3]", "[4]", ""});
  for (size_t t = 0; t < ids.size(); ++t) {
    std::vector<std::string> row = {Quoted(tokenizer.Decode({ids[t]})), std::to_string(ids[t])};
    for (int i = 0; i < kShown; ++i) {
      const size_t place = t * table.hidden_size + i;
      row.push_back(i < table.hidden_size ? Fixed(__bfloat162float(output[place]), 4) : "");
    }
    row.push_back("...");
    rows.AddRow(row);
  }
  std::cout << rows.ToString()
            << "Equal pieces have equal rows, wherever they stand. With a space in front it is "
               "another piece.\n";
}

// The rows in f32, each scaled to length 1, so that a dot product of two is
// their cosine.
std::vector<float> Directions(const Table& table) {
  std::vector<float> directions(table.rows.size());
  for (int r = 0; r < table.vocab_size; ++r) {
    const size_t begin = static_cast<size_t>(r) * table.hidden_size;
    double squares = 0;
    for (int i = 0; i < table.hidden_size; ++i) {
      directions[begin + i] = __bfloat162float(table.rows[begin + i]);
      squares += directions[begin + i] * directions[begin + i];
    }
    const float scale = squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0.0f;
    for (int i = 0; i < table.hidden_size; ++i) directions[begin + i] *= scale;
  }
  return directions;
}

void ShowNeighbours(const Table& table, const Tokenizer& tokenizer,
                    const std::vector<std::string>& words) {
  Heading(
      "3. What training put there: the rows that point in the most similar "
      "direction");
  constexpr int kNeighbours = 5;
  const std::vector<float> directions = Directions(table);
  TextTable rows({"word", "its nearest in the table (cosine; 1 is the same direction)"});
  for (const std::string& word : words) {
    const std::optional<int> id = tokenizer.TokenId(" " + word);
    if (!id || *id >= table.vocab_size) {
      rows.AddRow({word, "(not one piece in this vocabulary)"});
      continue;
    }
    const float* own = &directions[static_cast<size_t>(*id) * table.hidden_size];
    std::vector<std::pair<float, int>> nearest;
    for (int r = 0; r < table.vocab_size; ++r) {
      if (r == *id || !tokenizer.Contains(r)) continue;
      const float* other = &directions[static_cast<size_t>(r) * table.hidden_size];
      nearest.emplace_back(std::inner_product(own, own + table.hidden_size, other, 0.0f), r);
    }
    const size_t count = std::min<size_t>(kNeighbours, nearest.size());
    std::partial_sort(nearest.begin(), nearest.begin() + count, nearest.end(), std::greater<>());
    std::string line;
    for (size_t k = 0; k < count; ++k) {
      line += StrCat(k > 0 ? "  " : "", Quoted(tokenizer.Decode({nearest[k].second})), " ",
                     Fixed(nearest[k].first, 2));
    }
    rows.AddRow({word, line});
  }
  std::cout << rows.ToString();
}

void ShowVersions() {
  const bool simulated = IsSimulator();
  const int num_tokens = simulated ? 64 : 8192;
  const int vocab_size = simulated ? 1000 : 128256;
  const int hidden_size = 2048;
  Heading(StrCat("4. The versions: ", num_tokens, " tokens of ", hidden_size, " bf16"));

  std::vector<int> ids(num_tokens);
  for (int t = 0; t < num_tokens; ++t) ids[t] = static_cast<int>(t * 7919LL % vocab_size);
  const DeviceBuffer<int> device_ids(ids);
  DeviceBuffer<bf16> table(static_cast<size_t>(vocab_size) * hidden_size);
  DeviceBuffer<bf16> output(static_cast<size_t>(num_tokens) * hidden_size);
  table.Fill(0x3f);

  Benchmark benchmark;
  const std::vector<std::string> measured =
      simulated ? CountColumns() : std::vector<std::string>{"us", "GB/s", "of a copy's"};
  std::vector<std::string> header = {"", "a thread moves"};
  header.insert(header.end(), measured.begin(), measured.end());
  TextTable rows(header);
  for (const EmbeddingGatherVersion& version : kEmbeddingGatherVersions) {
    std::cout << version.number << ": " << version.idea << "\n";
    const auto launch = [&] {
      version.launch(device_ids.data(), table.data(), output.data(), num_tokens, hidden_size,
                     benchmark.stream());
    };
    std::vector<std::string> row;
    if (simulated) {
      row = CountCells(launch);
    } else {
      const double milliseconds = benchmark.MedianMilliseconds(launch);
      const double bytes = 2.0 * output.bytes() + device_ids.bytes();  // rows read, rows written
      const double speed = GigabytesPerSecond(bytes, milliseconds);
      row = {Fixed(1000 * milliseconds, 1), Fixed(speed, 0),
             Fixed(100 * speed / benchmark.CopyGigabytesPerSecond(), 0) + " %"};
    }
    row.insert(row.begin(), {std::to_string(version.number), version.name});
    rows.AddRow(row);
  }
  std::cout << "\n" << rows.ToString();
  if (simulated) std::cout << "\n" << kCountsLegend;
}

// What happens to an id that the host did not check. On a GPU it may be anything.
void ShowBadId() {
#ifdef __SANITIZE_ADDRESS__
  constexpr int kRows = 10, kHiddenSize = 256;
  Heading(StrCat("5. Ids 0 and ", kRows, ", gathered from a table of ", kRows, " rows"));
  std::cout << std::flush;
  const Stream stream;
  const DeviceBuffer<int> ids(std::vector<int>{0, kRows});
  const DeviceBuffer<bf16> table(kRows * kHiddenSize);
  DeviceBuffer<bf16> output(2 * kHiddenSize);
  EmbeddingGather(ids.data(), table.data(), output.data(), 2, kHiddenSize, stream.get());
  stream.Synchronize();
#else
  throw Error(
      "--bad-id reads beyond a table, and only AddressSanitizer notices; use bazel run "
      "--config=asan");
#endif
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 03: token ids become vectors.");
  std::string model;
  std::string text = "a cat and a dog and a bird";
  std::vector<std::string> words = {"cat", "green", "seven", "January", "happy", "river", "kernel"};
  command_line.app().add_option("--model", model, "a model's folder; default: models/pocket");
  command_line.app().add_option("--text", text, "whose rows to show")->capture_default_str();
  command_line.app().add_option("--word", words, "whose neighbours to show; may be repeated");
  bool bad_id = false;
  command_line.app().add_flag("--bad-id", bad_id, "gather a row that is not there, for asan");
  if (!command_line.Parse(argc, argv)) return 0;
  if (bad_id) {
    ShowBadId();
    return 0;
  }
  if (model.empty()) model = DataPath("models/pocket");
  const Table table = ReadTable(model);
  const Tokenizer tokenizer = Tokenizer::FromFile(model + "/tokenizer.json");
  std::cout << "The device: " << ToString(DescribeDevice()) << "\n";
  ShowBf16();
  ShowRows(table, tokenizer, text);
  ShowNeighbours(table, tokenizer, words);
  ShowVersions();
  std::cout << "\nThe page: docs/03_embedding.md. Your turn: write the gather in\n"
               "lessons/03_embedding/exercise/embedding.cu, and check it with\n"
               "  bazel test --//:exercise=03_embedding //tests:03_embedding_test\n"
               "Next: bazel run //lessons/04_rmsnorm\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
