// RMSNorm to look at: the reduction tree step by step, the error of each version, and its speed.
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/buffer.h"
#include "common/cuda/counts.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/04_rmsnorm/reference.h"
#include "lessons/04_rmsnorm/rmsnorm.h"

namespace tinyvllm {
namespace {

constexpr float kEpsilon = 1e-5f;

std::vector<bf16> Compute(decltype(&RmsNorm) launch, const std::vector<bf16>& x,
                          const std::vector<bf16>& weight) {
  const Stream stream;
  DeviceBuffer<bf16> input(x), weights(weight), output(x.size());
  output.Fill(0xff);
  launch(input.data(), weights.data(), output.data(), x.size() / weight.size(), weight.size(),
         kEpsilon, stream.get());
  stream.Synchronize();
  return output.ToHost();
}

std::string Cell(const std::string& text) {
  const size_t width = DisplayWidth(text);
  return std::string(width < 7 ? 7 - width : 0, ' ') + text;
}

// What version 1 does in shared memory, re-enacted for a row of ten: the sums that are left after
// each step, and who adds which.
float DrawTree(const std::vector<bf16>& x) {
  const int size = x.size();
  std::vector<float> partial;
  std::string threads = "thread     ", values = "x          ", squares = "x squared  ";
  for (int i = 0; i < size; ++i) {
    const float value = __bfloat162float(x[i]);
    partial.push_back(value * value);
    threads += Cell(std::to_string(i));
    values += Cell(Fixed(value, 2));
    squares += Cell(Fixed(partial[i], 2));
  }
  std::cout << threads << "\n" << values << "\n" << squares << "\n";
  for (int active = size, step = 1; active > 1; ++step) {
    const int half = (active + 1) / 2;
    std::string adds(11, ' '), sums = StrCat("step ", step, "     ");
    for (int t = 0; t < half; ++t) {
      const bool has_partner = t < active - half;
      if (has_partner) partial[t] += partial[t + half];
      adds += Cell(has_partner ? StrCat("+ t", t + half) : "│");
      sums += Cell(Fixed(partial[t], 2));
    }
    std::cout << adds << "\n" << sums << "\n";
    active = half;
  }
  return partial[0];
}

void ShowTree() {
  std::vector<bf16> x;
  for (float value : {0.5f, -1.0f, 2.0f, 0.25f, -3.0f, 1.5f, 1.0f, -0.5f, 4.0f, -2.0f}) {
    x.push_back(__float2bfloat16(value));
  }
  const std::vector<bf16> weight(x.size(), __float2bfloat16(1.0f));
  std::cout
      << "One row of ten numbers, one block of ten threads. After each barrier the upper half\n"
         "of the sums is added to the lower half (`+ t5`: add the sum of thread 5).\n\n";
  const float sum = DrawTree(x);
  const float mean = sum / x.size();
  std::cout << "\nThe mean of the squares is " << Fixed(sum, 4) << " / 10 = " << Fixed(mean, 4)
            << "; each number is divided by its root, " << Fixed(std::sqrt(mean + kEpsilon), 4)
            << ".\n\nthe kernel ";
  for (bf16 value : Compute(kRmsNormVersions[0].launch, x, weight)) {
    std::cout << Cell(Fixed(__bfloat162float(value), 3));
  }
  std::cout << "\nin f64     ";
  for (double value : RmsNormReference(x, weight, kEpsilon)) std::cout << Cell(Fixed(value, 3));
  std::cout << "\n";
}

// How many of the elements are not the bf16 next to the exact value.
std::string ShareNotNearest(const std::vector<bf16>& output, const std::vector<double>& exact) {
  size_t count = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const bf16 nearest = __float2bfloat16(static_cast<float>(exact[i]));
    count += __bfloat162float(output[i]) != __bfloat162float(nearest);
  }
  return Fixed(100.0 * count / exact.size(), 2) + " %";
}

void ShowErrors() {
  constexpr int kTokens = 64, kHiddenSize = 2048;
  Random random(4);
  const std::vector<bf16> x = random.Bf16(kTokens * kHiddenSize), weight = random.Bf16(kHiddenSize);
  const std::vector<double> exact = RmsNormReference(x, weight, kEpsilon);
  std::cout << "\n"
            << kTokens << " random rows of " << kHiddenSize
            << " against f64. A bf16 holds 8 significant bits, so that even the nearest\n"
               "one is off by 0.16 % on average (root mean square): less is not to be had.\n\n";
  TextTable table({"version", "relative error", "not the nearest bf16", "idea"});
  const auto Row = [&](const std::string& name, const std::vector<bf16>& output,
                       const std::string& idea) {
    table.AddRow({name, Fixed(100 * RelativeError(output, exact), 4) + " %",
                  ShareNotNearest(output, exact), idea});
  };
  for (const RmsNormVersion& version : kRmsNormVersions) {
    Row(StrCat(version.number, " ", version.name), Compute(version.launch, x, weight),
        version.idea);
  }
  Row("rounded twice", RmsNormRoundedTwice(x, weight, kEpsilon),
      "to bf16 before the weight and after it, as Hugging Face does");
  std::cout << table.ToString();
}

// Without a GPU: the time of a CPU that plays one says nothing, but one can count.
void ShowCounts() {
  constexpr int kTokens = 64, kHiddenSize = 2048;
  std::cout << "\nWhy the fast one is fast: what the versions do for " << kTokens << " rows of "
            << kHiddenSize << ", as the simulator counts it.\n\n";
  Random random(5);
  const DeviceBuffer<bf16> input(random.Bf16(kTokens * kHiddenSize)),
      weight(random.Bf16(kHiddenSize));
  DeviceBuffer<bf16> output(kTokens * kHiddenSize);
  std::vector<std::string> header = CountColumns();
  header.insert(header.begin(), "version");
  TextTable table(header);
  for (const RmsNormVersion& version : kRmsNormVersions) {
    std::vector<std::string> row = CountCells([&] {
      version.launch(input.data(), weight.data(), output.data(), kTokens, kHiddenSize, kEpsilon,
                     nullptr);
    });
    row.insert(row.begin(), StrCat(version.number, " ", version.name));
    table.AddRow(row);
  }
  std::cout << table.ToString() << "\n" << kCountsLegend;
}

void ShowSpeed() {
  if (IsSimulator()) {
    ShowCounts();
    return;
  }
  Benchmark benchmark;
  const double limit = benchmark.CopyGigabytesPerSecond();
  std::cout
      << "\nSpeed, from a cold cache. Counted is what must move: every row read once and written\n"
         "once. The limit is a copy: "
      << Fixed(limit, 0) << " GB/s.\n\n";
  TextTable table({"tokens", "hidden", "version", "us", "GB/s", "of the limit"});
  Random random(5);
  for (int hidden_size : {2048, 8192}) {
    for (int num_tokens : {1, 64, 16384}) {
      const size_t size = static_cast<size_t>(num_tokens) * hidden_size;
      DeviceBuffer<bf16> input(size), output(size), weight(random.Bf16(hidden_size));
      input.Fill(0x3f);
      for (const RmsNormVersion& version : kRmsNormVersions) {
        const double ms = benchmark.MedianMilliseconds([&] {
          version.launch(input.data(), weight.data(), output.data(), num_tokens, hidden_size,
                         kEpsilon, benchmark.stream());
        });
        const double gigabytes = GigabytesPerSecond(sizeof(bf16) * (2.0 * size + hidden_size), ms);
        table.AddRow({std::to_string(num_tokens), std::to_string(hidden_size),
                      StrCat(version.number, " ", version.name), Fixed(1000 * ms, 1),
                      Fixed(gigabytes, 0), Fixed(100 * gigabytes / limit, 0) + " %"});
      }
    }
  }
  std::cout << table.ToString();
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 04: RMSNorm, and how the threads of a block add up a row.");
  if (!command_line.Parse(argc, argv)) return 0;
  std::cout << "Lesson 04, RMSNorm, on " << ToString(DescribeDevice()) << "\n\n";
  ShowTree();
  ShowErrors();
  ShowSpeed();
  std::cout << "\nThe page: docs/04_rmsnorm.md. Your turn: write the tree in\n"
               "lessons/04_rmsnorm/exercise/rmsnorm.cu, and check it with\n"
               "  bazel test --//:exercise=04_rmsnorm //tests:04_rmsnorm_test\n"
               "Next: bazel run //lessons/05_rope\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
