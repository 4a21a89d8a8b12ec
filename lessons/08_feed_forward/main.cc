// The demo of lesson 08: the gate's curve, one neuron in numbers, a whole feed-forward layer
// against its reference, and what the kernels cost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/08_feed_forward/feed_forward.h"
#include "lessons/08_feed_forward/pocket_layer.h"

namespace tinyvllm {
namespace {

std::vector<bf16> ToBf16(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (float value : values) result.push_back(__float2bfloat16(value));
  return result;
}

// SwiGLU of one token, by the kernel.
std::vector<float> RunSwiGlu(std::vector<float> gate, const std::vector<float>& up) {
  const int size = static_cast<int>(gate.size());
  gate.insert(gate.end(), up.begin(), up.end());
  const DeviceBuffer<bf16> gate_up(ToBf16(gate));
  DeviceBuffer<bf16> output(size);
  output.Fill(0xff);
  SwiGlu(gate_up.data(), output.data(), 1, size, nullptr);
  std::vector<float> result;
  for (bf16 value : output.ToHost()) result.push_back(__bfloat162float(value));
  return result;
}

// --- 1. the curve

void DrawTheGate() {
  constexpr int kWidth = 65;     // columns, from -6 to 4
  constexpr double kRow = 0.25;  // a row's height
  constexpr int kTop = 16, kBottom = -2;
  std::vector<float> gates;
  for (int column = 0; column < kWidth; ++column) {
    gates.push_back(-6 + 10.0f * column / (kWidth - 1));
  }
  const std::vector<float> silu = RunSwiGlu(gates, std::vector<float>(kWidth, 1.0f));
  std::cout << "1. The gate. Each * went through the kernel: SiLU(x) = x / (1 + exp(-x)).\n"
               "   ReLU, the older gate, is drawn with dots: max(x, 0), a hard corner at 0.\n\n";
  for (int row = kTop; row >= kBottom; --row) {
    std::string line = row % 4 == 0 ? StrCat(row / 4 < 0 ? "" : " ", row / 4, " |") : "   |";
    for (int column = 0; column < kWidth; ++column) {
      const bool on_silu = std::lround(silu[column] / kRow) == row;
      const bool on_relu = std::lround(std::max(gates[column], 0.0f) / kRow) == row;
      line += on_silu ? '*' : on_relu ? '.' : ' ';
    }
    std::cout << "   " << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
  std::cout << "      ";
  for (int column = 0; column < kWidth; ++column) {
    std::cout << (gates[column] == std::round(gates[column]) && column % 13 == 0 ? '+' : '-');
  }
  std::cout << "\n      -6" << std::string(36, ' ') << "0" << std::string(25, ' ') << "4\n\n";
  const auto lowest = std::min_element(silu.begin(), silu.end());
  std::cout << "   Lowest: " << Fixed(*lowest, 3)
            << " at x = " << Fixed(gates[lowest - silu.begin()], 2)
            << ". Below, it comes back to 0: a very negative gate shuts.\n\n";
}

// --- 2. one neuron

void ShowNeurons() {
  const std::vector<float> x = {1.0f, -0.5f, 2.0f};
  struct Neuron {
    std::vector<float> gate, up;
  };
  const std::vector<Neuron> neurons = {{{0.5f, 1.0f, 1.5f}, {1.0f, 0.0f, 0.25f}},
                                       {{-1.0f, 2.0f, -1.0f}, {2.0f, 1.0f, 1.0f}},
                                       {{0.25f, 0.5f, 0.25f}, {-1.0f, 2.0f, 1.5f}}};
  const auto dot = [&](const std::vector<float>& w) {
    return x[0] * w[0] + x[1] * w[1] + x[2] * w[2];
  };
  std::vector<float> gate, up;
  for (const Neuron& neuron : neurons) {
    gate.push_back(dot(neuron.gate));
    up.push_back(dot(neuron.up));
  }
  const std::vector<float> output = RunSwiGlu(gate, up);
  std::cout
      << "2. Three neurons that read x = (1, -0.5, 2). Each has two rows of weights: one asks\n"
         "   whether to speak (gate), the other what to say (up).\n\n";
  TextTable table({"neuron", "gate = x . w_gate", "SiLU(gate)", "up = x . w_up", "output"});
  for (size_t i = 0; i < neurons.size(); ++i) {
    table.AddRow({StrCat(i), Fixed(gate[i], 3), Fixed(gate[i] / (1 + std::exp(-gate[i])), 3),
                  Fixed(up[i], 3), Fixed(output[i], 3)});
  }
  std::cout << table.ToString() << "\n   Neuron 1's gate is nearly shut: of its up, "
            << Fixed(up[1], 1) << ", little passes.\n\n";
}

// --- 3. a layer

// residual + down(SwiGLU(gate_up(normed))), the way the engine does it.
std::vector<bf16> RunLayer(const PocketLayer& layer) {
  const int num_tokens = layer.num_tokens, hidden_size = layer.hidden_size,
            intermediate_size = layer.intermediate_size;
  const DeviceBuffer<bf16> normed(layer.normed), gate_up_weight(layer.gate_up_weight),
      down_weight(layer.down_weight);
  DeviceBuffer<bf16> residual(layer.residual);
  DeviceBuffer<bf16> remainder(residual.size());
  remainder.Fill(0);
  DeviceBuffer<bf16> gate_up(size_t(num_tokens) * 2 * intermediate_size);
  DeviceBuffer<bf16> activated(size_t(num_tokens) * intermediate_size);
  DeviceBuffer<float> update(size_t(num_tokens) * hidden_size);
  const Stream stream;
  const Linear linear(stream.get());
  CUDA_CHECK(cudaDeviceSynchronize());  // the uploads are done
  // tag::layer[]
  linear(normed.data(), gate_up_weight.data(), gate_up.data(), num_tokens, hidden_size,
         2 * intermediate_size);
  SwiGlu(gate_up.data(), activated.data(), num_tokens, intermediate_size, stream.get());
  linear(activated.data(), down_weight.data(), update.data(), num_tokens, intermediate_size,
         hidden_size);
  ResidualAdd(residual.data(), remainder.data(), update.data(), int64_t{num_tokens} * hidden_size,
              stream.get());
  // end::layer[]
  stream.Synchronize();
  return residual.ToHost();
}

void CompareALayer() {
  const PocketLayer layer = LoadPocketLayer(0);
  const std::vector<bf16> ours = RunLayer(layer);
  const std::vector<float>& reference = layer.f32.output;
  std::cout << "3. The feed-forward half of the bundled model's first layer (hidden "
            << layer.hidden_size << ", intermediate " << layer.intermediate_size << ")\n   on the "
            << layer.num_tokens
            << " tokens of \"What is 2+2?\", against Hugging Face transformers. The last token's\n"
               "   first numbers:\n\n";
  TextTable table({"", "0", "1", "2", "3", "4", "5", "distance"});
  const size_t last = size_t(layer.num_tokens - 1) * layer.hidden_size;
  const auto add = [&](const char* name, const auto& values, const std::string& distance) {
    std::vector<std::string> row = {name};
    for (size_t i = last; i < last + 6; ++i) row.push_back(Fixed(ToDouble(values[i]), 4));
    row.push_back(distance);
    table.AddRow(row);
  };
  const auto distance = [&](const auto& values) {
    return Fixed(100 * RelativeError(values, reference), 2) + " %";
  };
  add("residual before", layer.residual, "");
  add("transformers, f32", reference, "");
  add("transformers, bf16", layer.bf16_run.output, distance(layer.bf16_run.output));
  add("ours", ours, distance(ours));
  std::cout << table.ToString() << "\n   Distance: from the f32 run, over all " << ours.size()
            << " numbers. Transformers' bf16 run carries the\n"
               "   roundings of the attention before it as well.\n\n";
}

// --- 4. the cost

std::string Share(double gbs, Benchmark& benchmark) {
  return Fixed(100 * gbs / benchmark.CopyGigabytesPerSecond(), 0) + " %";
}

void Time(int num_tokens, int intermediate_size) {
  const bool simulated = IsSimulator();
  Benchmark benchmark;
  Random random(1);
  const size_t count = size_t(num_tokens) * intermediate_size;
  DeviceBuffer<bf16> gate_up(2 * count), output(count);
  DeviceBuffer<float> update(count);
  gate_up.Fill(0x3c);
  output.Fill(0x3c);
  update.Fill(0x3c);
  CUDA_CHECK(cudaDeviceSynchronize());
  std::cout << "4. The cost, for " << num_tokens << " tokens of " << intermediate_size << ".\n";
  if (simulated) {
    std::cout
        << "   These are times of a CPU that plays a GPU. They rank nothing: a GPU's are what\n"
           "   counts, and the same command shows them there.\n";
  } else {
    std::cout << "   Limit, measured now: " << Fixed(benchmark.CopyGigabytesPerSecond(), 0)
              << " GB/s for a copy.\n";
  }
  std::cout << "\n";
  TextTable table(
      simulated ? std::vector<std::string>{"kernel", "version", "ms (CPU)", "idea"}
                : std::vector<std::string>{"kernel", "version", "ms", "GB/s", "share", "idea"});
  const auto add = [&](const char* kernel, const char* version, const char* idea, double bytes,
                       const std::function<void()>& launch) {
    const double ms = benchmark.MedianMilliseconds(launch, simulated ? 3 : 30);
    std::vector<std::string> row = {kernel, version, Fixed(ms, 3)};
    if (!simulated) {
      row.push_back(Fixed(GigabytesPerSecond(bytes, ms), 0));
      row.push_back(Share(GigabytesPerSecond(bytes, ms), benchmark));
    }
    row.push_back(idea);
    table.AddRow(row);
  };
  for (const SwiGluVersion& version : kSwiGluVersions) {
    add("SwiGLU", version.name, version.idea, 3.0 * count * sizeof(bf16), [&] {
      version.launch(gate_up.data(), output.data(), num_tokens, intermediate_size,
                     benchmark.stream());
    });
  }
  for (const ResidualAddVersion& version : kResidualAddVersions) {
    // Two bf16 read and written, an f32 read.
    add("residual", version.name, version.idea, count * (4.0 * sizeof(bf16) + sizeof(float)), [&] {
      version.launch(output.data(), gate_up.data(), update.data(), count, benchmark.stream());
    });
  }
  std::cout << table.ToString() << "\n";
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 08: the feed-forward half of a layer.");
  int num_tokens = IsSimulator() ? 16 : 8192;
  int intermediate_size = IsSimulator() ? 1024 : 8192;
  auto& app = command_line.app();
  app.add_option("--tokens", num_tokens, "tokens to time")->check(AtLeast(1));
  app.add_option("--size", intermediate_size, "intermediate_size to time")->check(AtLeast(1));
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "Lesson 08: feed-forward, on " << ToString(DescribeDevice()) << "\n\n";
  DrawTheGate();
  ShowNeurons();
  CompareALayer();
  Time(num_tokens, intermediate_size);
  std::cout << "The page: docs/08_feed_forward.md. Your turn: write the gate in\n"
               "lessons/08_feed_forward/exercise/feed_forward.cu, and check it with\n"
               "  bazel test --//:exercise=08_feed_forward //tests:08_feed_forward_test\n"
               "Next: bazel run //lessons/09_forward_pass\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
