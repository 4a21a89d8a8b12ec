// Token ids become vectors: what a bf16 is, the rows of the bundled model's table and which words
// lie close to each other in it, and the three versions of the gather.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
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
  Heading("1. bf16: the upper half of an f32, so its range, with two to three digits");
  TextTable table({"value", "f32: sign, exponent, fraction", "bf16", "as a number", "off by"});
  for (float value : {1.0f, 0.1f, 3.14159265f, -2.71828183f, 257.0f, 65504.0f, 1e30f}) {
    const float rounded = __bfloat162float(__float2bfloat16(value));
    table.AddRow({Digits(value, 7), Bits(value, 32), Bits(rounded, 16), Digits(rounded, 7),
                  Fixed(100 * std::abs(rounded / value - 1), 2) + " %"});
  }
  std::cout << table.ToString();
}

void ShowVersions() {
  const bool simulated = IsSimulator();
  const int num_tokens = simulated ? 64 : 8192;
  const int vocab_size = simulated ? 1000 : 128256;
  const int hidden_size = 2048;
  Heading(StrCat("3. The versions: ", num_tokens, " tokens of ", hidden_size, " bf16"));

  std::vector<int> ids(num_tokens);
  for (int t = 0; t < num_tokens; ++t) ids[t] = static_cast<int>(t * 7919LL % vocab_size);
  const DeviceBuffer<int> device_ids(ids);
  DeviceBuffer<bf16> table(static_cast<size_t>(vocab_size) * hidden_size);
  DeviceBuffer<bf16> output(static_cast<size_t>(num_tokens) * hidden_size);
  table.Fill(0x3f);

  Benchmark benchmark;
  std::vector<std::string> header = {"version", "a thread moves", "idea", "loads a token"};
  if (simulated) {
    header.push_back("CPU ms");
  } else {
    header.insert(header.end(), {"us", "GB/s", "of a copy's"});
  }
  TextTable rows(header);
  constexpr int kElementsALoad[] = {1, 2, 8};
  for (const EmbeddingGatherVersion& version : kEmbeddingGatherVersions) {
    const double milliseconds = benchmark.MedianMilliseconds(
        [&] {
          version.launch(device_ids.data(), table.data(), output.data(), num_tokens, hidden_size,
                         benchmark.stream());
        },
        simulated ? 5 : 30);
    std::vector<std::string> row = {
        std::to_string(version.number), version.name, version.idea,
        std::to_string(hidden_size / kElementsALoad[version.number - 1])};
    if (simulated) {
      row.push_back(Fixed(milliseconds, 2));
    } else {
      const double bytes = 2.0 * output.bytes() + device_ids.bytes();  // rows read, rows written
      const double speed = GigabytesPerSecond(bytes, milliseconds);
      row.push_back(Fixed(1000 * milliseconds, 1));
      row.push_back(Fixed(speed, 0));
      row.push_back(Fixed(100 * speed / benchmark.CopyGigabytesPerSecond(), 0) + " %");
    }
    rows.AddRow(row);
  }
  std::cout << rows.ToString();
  if (simulated) {
    std::cout
        << "CPU ms: how long this CPU took to play the GPU. On a GPU this demo prints GB/s.\n";
  }
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 03: token ids become vectors.");
  if (!command_line.Parse(argc, argv)) return 0;
  std::cout << "The device: " << ToString(DescribeDevice()) << "\n";
  ShowBf16();
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
