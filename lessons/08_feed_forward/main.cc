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

struct Layer {
  int hidden_size;
  int intermediate_size;
  std::vector<bf16> gate_up_weight;  // (2 * intermediate_size, hidden_size)
  std::vector<bf16> down_weight;     // (hidden_size, intermediate_size)
};

// residual + down(SwiGLU(gate_up(normed))), the way the engine does it.
std::vector<bf16> RunLayer(const Layer& layer, const std::vector<bf16>& normed,
                           const std::vector<bf16>& residual_before) {
  const int hidden_size = layer.hidden_size, intermediate_size = layer.intermediate_size;
  const int num_tokens = static_cast<int>(normed.size() / hidden_size);
  const DeviceBuffer<bf16> x(normed), gate_up_weight(layer.gate_up_weight),
      down_weight(layer.down_weight);
  DeviceBuffer<bf16> residual(residual_before);
  DeviceBuffer<bf16> gate_up(size_t(num_tokens) * 2 * intermediate_size);
  DeviceBuffer<bf16> activated(size_t(num_tokens) * intermediate_size);
  DeviceBuffer<bf16> update(size_t(num_tokens) * hidden_size);
  const Stream stream;
  const Linear linear(stream.get());
  CUDA_CHECK(cudaDeviceSynchronize());  // the uploads are done
  // tag::layer[]
  linear(x.data(), gate_up_weight.data(), gate_up.data(), num_tokens, hidden_size,
         2 * intermediate_size);
  SwiGlu(gate_up.data(), activated.data(), num_tokens, intermediate_size, stream.get());
  linear(activated.data(), down_weight.data(), update.data(), num_tokens, intermediate_size,
         hidden_size);
  ResidualAdd(residual.data(), update.data(), int64_t{num_tokens} * hidden_size, stream.get());
  // end::layer[]
  stream.Synchronize();
  return residual.ToHost();
}

// The same in f64, with no rounding in between.
std::vector<double> LayerReference(const Layer& layer, const std::vector<bf16>& normed,
                                   const std::vector<bf16>& residual_before) {
  const int hidden_size = layer.hidden_size, intermediate_size = layer.intermediate_size;
  const int num_tokens = static_cast<int>(normed.size() / hidden_size);
  std::vector<double> result;
  for (int token = 0; token < num_tokens; ++token) {
    const bf16* x = &normed[size_t(token) * hidden_size];
    const auto project = [&](int row) {
      double sum = 0;
      for (int k = 0; k < hidden_size; ++k) {
        sum += ToDouble(x[k]) * ToDouble(layer.gate_up_weight[size_t(row) * hidden_size + k]);
      }
      return sum;
    };
    std::vector<double> activated;
    for (int i = 0; i < intermediate_size; ++i) {
      const double gate = project(i), up = project(intermediate_size + i);
      activated.push_back(gate / (1 + std::exp(-gate)) * up);
    }
    for (int h = 0; h < hidden_size; ++h) {
      double sum = ToDouble(residual_before[size_t(token) * hidden_size + h]);
      for (int i = 0; i < intermediate_size; ++i) {
        sum += activated[i] * ToDouble(layer.down_weight[size_t(h) * intermediate_size + i]);
      }
      result.push_back(sum);
    }
  }
  return result;
}

void CompareALayer() {
  Layer layer;
  layer.hidden_size = 256;
  layer.intermediate_size = 768;
  constexpr int kTokens = 8;
  Random random(8);
  // Weights scaled so that each product keeps the variance of its input, as trained ones do.
  const auto weights = [&](int rows, int columns) {
    return random.Bf16(size_t(rows) * columns, 1 / std::sqrt(double(columns)));
  };
  layer.gate_up_weight = weights(2 * layer.intermediate_size, layer.hidden_size);
  layer.down_weight = weights(layer.hidden_size, layer.intermediate_size);
  const std::vector<bf16> normed = random.Bf16(size_t(kTokens) * layer.hidden_size);
  const std::vector<bf16> residual = random.Bf16(size_t(kTokens) * layer.hidden_size);
  const std::vector<bf16> ours = RunLayer(layer, normed, residual);
  const std::vector<double> reference = LayerReference(layer, normed, residual);
  std::cout << "3. A whole feed-forward layer of random weights, hidden " << layer.hidden_size
            << ", intermediate " << layer.intermediate_size << ", " << kTokens
            << " tokens,\n   against f64. The first numbers of token 0:\n\n";
  TextTable table({"", "h = 0", "1", "2", "3", "4", "5"});
  std::vector<std::string> before = {"residual before"}, after = {"ours, after"},
                           expected = {"f64, after"};
  for (int h = 0; h < 6; ++h) {
    before.push_back(Fixed(ToDouble(residual[h]), 4));
    after.push_back(Fixed(ToDouble(ours[h]), 4));
    expected.push_back(Fixed(reference[h], 4));
  }
  table.AddRow(before);
  table.AddRow(after);
  table.AddRow(expected);
  std::cout << table.ToString() << "\n   Relative distance over all " << ours.size()
            << " numbers: " << Fixed(100 * RelativeError(ours, reference), 2)
            << " %. A single bf16 is rounded by up to 0.39 %.\n\n";
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
  gate_up.Fill(0x3c);
  output.Fill(0x3c);
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
    add("residual", version.name, version.idea, 3.0 * count * sizeof(bf16),
        [&] { version.launch(output.data(), gate_up.data(), count, benchmark.stream()); });
  }
  std::cout << table.ToString() << "\n";
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 08: the feed-forward half of a layer.");
  int num_tokens = IsSimulator() ? 16 : 8192;
  int intermediate_size = IsSimulator() ? 768 : 8192;
  auto& app = command_line.app();
  app.add_option("--tokens", num_tokens, "tokens to time")->check(CLI::PositiveNumber);
  app.add_option("--size", intermediate_size, "intermediate_size to time")
      ->check(CLI::PositiveNumber);
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "Lesson 08: feed-forward, on " << ToString(DescribeDevice()) << "\n\n";
  DrawTheGate();
  ShowNeurons();
  CompareALayer();
  Time(num_tokens, intermediate_size);
  std::cout << "Next: docs/08_feed_forward.md explains each step. Then write it yourself, in\n"
               "lessons/08_feed_forward/exercise/feed_forward.cu, and check it:\n"
               "  bazel test //tests:08_feed_forward_test --//:exercise=08_feed_forward\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
