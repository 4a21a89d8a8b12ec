// The demo of lesson 06: one product three ways, a proof that cuBLAS needs no transposed copy, and
// what each way costs.
#include "lessons/06_matmul/matmul.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/buffer.h"
#include "common/cuda/counts.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"

namespace tinyvllm {
namespace {

// --- small matrices

constexpr int kTokens = 2, kIn = 3, kOut = 4;
const std::vector<float> kInput = {1, 2, 3,    //
                                   4, 5, 6};   // (kTokens, kIn)
const std::vector<float> kWeight = {1, 0, -1,  //
                                    2, 1, 0,   //
                                    0, 3, 1,   //
                                    1, 1, 1};  // (kOut, kIn)

std::vector<bf16> ToBf16(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (float value : values) result.push_back(__float2bfloat16(value));
  return result;
}

// A matrix as lines of text. Element (r, c) is values[r * row_step + c * column_step].
std::vector<std::string> Draw(const std::vector<float>& values, int rows, int columns, int row_step,
                              int column_step) {
  std::vector<std::string> lines;
  for (int r = 0; r < rows; ++r) {
    std::string line = "[";
    for (int c = 0; c < columns; ++c) {
      char cell[16];
      std::snprintf(cell, sizeof cell, " %3g", values[r * row_step + c * column_step]);
      line += cell;
    }
    lines.push_back(line + " ]");
  }
  return lines;
}

std::vector<std::string> DrawRowMajor(const std::vector<float>& values, int rows, int columns) {
  return Draw(values, rows, columns, /*row_step=*/columns, /*column_step=*/1);
}

std::vector<std::string> DrawColumnMajor(const std::vector<float>& values, int rows, int columns,
                                         int leading_dimension) {
  return Draw(values, rows, columns, /*row_step=*/1, /*column_step=*/leading_dimension);
}

struct Picture {
  std::string title;
  std::vector<std::string> lines;
};

std::string Padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, DisplayWidth(text)), ' ');
}

// Pictures next to each other, their titles above.
void PrintSideBySide(const std::vector<Picture>& pictures) {
  size_t height = 0;
  for (const Picture& picture : pictures) height = std::max(height, picture.lines.size());
  for (size_t row = 0; row < height + 1; ++row) {
    std::string text = " ";
    for (const Picture& picture : pictures) {
      size_t width = DisplayWidth(picture.title);
      for (const std::string& line : picture.lines) width = std::max(width, DisplayWidth(line));
      const std::string cell = row == 0                         ? picture.title
                               : row - 1 < picture.lines.size() ? picture.lines[row - 1]
                                                                : "";
      text += " " + Padded(cell, width + 3);
    }
    std::cout << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
  }
}

// The output as it lies in memory.
std::vector<float> MultiplySmall(GemmBackend backend) {
  const DeviceBuffer<bf16> input(ToBf16(kInput)), weight(ToBf16(kWeight));
  DeviceBuffer<float> output(kTokens * kOut);
  output.Fill(0xff);
  const Linear linear(nullptr, backend);
  linear(input.data(), weight.data(), output.data(), kTokens, kIn, kOut);
  return output.ToHost();
}

void ShowTheProduct(const std::vector<float>& product) {
  std::cout << "1. The product: two tokens of three numbers, a layer of four features.\n"
            << "   output[t][f] = sum over k of input[t][k] * weight[f][k]\n\n";
  PrintSideBySide({{"input (2, 3)", DrawRowMajor(kInput, kTokens, kIn)},
                   {"weight (4, 3)", DrawRowMajor(kWeight, kOut, kIn)},
                   {"output (2, 4)", DrawRowMajor(product, kTokens, kOut)}});
  std::cout << "\n   output[1][2] = 4*0 + 5*3 + 6*1 = " << product[1 * kOut + 2] << "\n\n";
}

void ShowTheTrick(const std::vector<float>& product) {
  std::cout << "2. The trick: memory has no rows. The six numbers of the input, in a line:\n\n    ";
  for (float value : kInput) std::cout << " " << value;
  std::cout << "\n\n";
  PrintSideBySide({{"we: rows of 3", DrawRowMajor(kInput, kTokens, kIn)},
                   {"cuBLAS: columns of 3 (lda = 3)", DrawColumnMajor(kInput, kIn, kTokens, kIn)}});
  std::cout
      << "\n   What cuBLAS sees is the transpose, for free. So we ask it for the transpose of\n"
         "   what we want, outputT = weight * inputT, and read its columns as our rows:\n\n";
  PrintSideBySide({{"weight: op T, lda = 3", DrawRowMajor(kWeight, kOut, kIn)},
                   {"inputT: op N, ldb = 3", DrawColumnMajor(kInput, kIn, kTokens, kIn)},
                   {"outputT: ldc = 4", DrawColumnMajor(product, kOut, kTokens, kOut)}});
  std::cout << "\n   cublasGemmEx(T, N, m = 4, n = 2, k = 3, weight, 3, input, 3, output, 4)\n"
               "   writes this line:    ";
  for (float value : product) std::cout << " " << value;
  std::cout << "\n   which is, row by row, our output (2, 4).\n\n";
}

// --- the proof

// FNV-1a: changes when any byte does.
uint64_t Hash(const std::vector<bf16>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(bf16); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

size_t FreeBytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

// Multiplies the same device memory three ways.
void ProveNothingMoved() {
  const DeviceBuffer<bf16> input(ToBf16(kInput)), weight(ToBf16(kWeight));
  TextTable table(
      {"version", "input", "hash after", "weight", "hash after", "allocated", "output"});
  const auto address = [](const void* pointer) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", pointer);
    return std::string(text);
  };
  const auto hash = [](const DeviceBuffer<bf16>& buffer) {
    char text[32];
    std::snprintf(text, sizeof text, "%08x", unsigned(Hash(buffer.ToHost())));
    return std::string(text);
  };
  table.AddRow({"(before)", address(input.data()), hash(input), address(weight.data()),
                hash(weight), "", ""});
  for (const MatmulVersion& version : kMatmulVersions) {
    const Linear linear(nullptr, version.backend);
    DeviceBuffer<float> output(kTokens * kOut);
    // The first call lets a GPU load the kernel's code, which takes memory of its own.
    for (int run = 0; run < 2; ++run) {
      output.Fill(0xff);
      CUDA_CHECK(cudaDeviceSynchronize());
      const size_t free_before = FreeBytes();
      linear(input.data(), weight.data(), output.data(), kTokens, kIn, kOut);
      CUDA_CHECK(cudaDeviceSynchronize());
      const size_t free_after = FreeBytes();
      if (run == 0) continue;
      std::string numbers;
      for (float value : output.ToHost()) numbers += StrCat(numbers.empty() ? "" : " ", value);
      table.AddRow({version.name, address(input.data()), hash(input), address(weight.data()),
                    hash(weight), StrCat(free_before - free_after, " B"), numbers});
    }
  }
  std::cout << "3. The proof: three ways over the same memory. Where it lies, what is in it, and\n"
               "   how much memory a call takes; a transposed copy would show.\n\n"
            << table.ToString() << "\n";
}

// --- what it costs

// `size` random numbers; a block of them repeated, as only their bits' variety matters here.
std::vector<bf16> Repeated(Random& random, size_t size) {
  std::vector<bf16> values = random.Bf16(std::min(size, size_t{1} << 20));
  values.reserve(size);
  while (values.size() < size) {
    const size_t count = std::min(size - values.size(), size_t{1} << 20);
    values.insert(values.end(), values.begin(), values.begin() + count);
  }
  return values;
}

struct Timed {
  double milliseconds;
  double error;  // against the plain loops
};

// The largest multiply that we time: what cuBLAS reaches there is the limit that shares refer to.
double MeasuredTeraflops(Benchmark& benchmark, Random& random) {
  constexpr int kSide = 8192;
  const DeviceBuffer<bf16> a(Repeated(random, size_t{kSide} * kSide)),
      b(Repeated(random, size_t{kSide} * kSide));
  DeviceBuffer<bf16> c(size_t{kSide} * kSide);
  CUDA_CHECK(cudaDeviceSynchronize());
  const Linear linear(benchmark.stream());
  const double milliseconds = benchmark.MedianMilliseconds(
      [&] { linear(a.data(), b.data(), c.data(), kSide, kSide, kSide); }, 10);
  return 2.0 * kSide * kSide * kSide / milliseconds * 1e-9;
}

void Time(const std::vector<int>& token_counts, int in_features, int out_features) {
  const bool simulated = IsSimulator();
  Benchmark benchmark;
  Random random(1);
  const double peak_tflops = simulated ? 0 : MeasuredTeraflops(benchmark, random);
  std::cout << "4. The cost: a projection of " << in_features << " to " << out_features
            << " features.\n";
  if (simulated) {
    std::cout
        << "   The time of a CPU that plays a GPU says nothing, but the simulator can count.\n";
  } else {
    std::cout << "   Limits, measured now: " << Fixed(benchmark.CopyGigabytesPerSecond(), 0)
              << " GB/s for a copy, " << Fixed(peak_tflops, 0)
              << " TFLOP/s for cuBLAS at 8192 cubed.\n";
  }
  std::cout << "\n";

  const int most = token_counts.back();
  const DeviceBuffer<bf16> input(Repeated(random, size_t(most) * in_features));
  const DeviceBuffer<bf16> weight(Repeated(random, size_t(out_features) * in_features));
  DeviceBuffer<bf16> output(size_t(most) * out_features);
  std::vector<std::string> header =
      simulated ? CountColumns()
                : std::vector<std::string>{"ms", "GB/s", "share", "TFLOP/s", "share"};
  header.insert(header.begin(), {"tokens", "version"});
  header.push_back("off by");
  TextTable table(header);
  for (int num_tokens : token_counts) {
    std::vector<bf16> loops;
    for (const MatmulVersion& version : kMatmulVersions) {
      const Linear linear(benchmark.stream(), version.backend);
      const auto launch = [&] {
        linear(input.data(), weight.data(), output.data(), num_tokens, in_features, out_features);
      };
      output.Fill(0xff);
      CUDA_CHECK(cudaDeviceSynchronize());
      std::vector<std::string> row;
      if (simulated) {
        row = CountCells(launch);
      } else {
        const double ms = benchmark.MedianMilliseconds(launch, 20);
        const double elements = double(num_tokens) * in_features +
                                double(out_features) * in_features +
                                double(num_tokens) * out_features;
        const double gbs = GigabytesPerSecond(elements * sizeof(bf16), ms);
        const double tflops = 2.0 * num_tokens * in_features * out_features / ms * 1e-9;
        row = {Fixed(ms, 3), Fixed(gbs, 0),
               Fixed(100 * gbs / benchmark.CopyGigabytesPerSecond(), 0) + " %", Fixed(tflops, 1),
               Fixed(100 * tflops / peak_tflops, 0) + " %"};
      }
      row.insert(row.begin(), {StrCat(num_tokens), version.name});
      std::vector<bf16> result = output.ToHost();
      result.resize(size_t(num_tokens) * out_features);
      if (loops.empty()) loops = result;
      char off[16];
      std::snprintf(off, sizeof off, "%.1e", RelativeError(result, loops));
      row.push_back(off);
      table.AddRow(row);
    }
  }
  std::cout << table.ToString() << (simulated ? StrCat("\n", kCountsLegend) : "")
            << "\n   \"off by\": distance from the loops' product, relative; a bf16 is rounded to "
               "0.4 %.\n\n";
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 06: one matrix product by loops, by tiles and by cuBLAS.");
  int in_features = IsSimulator() ? 256 : 2048;
  int out_features = IsSimulator() ? 1024 : 16384;
  std::vector<int> tokens =
      IsSimulator() ? std::vector<int>{1, 64} : std::vector<int>{1, 16, 256, 4096};
  auto& app = command_line.app();
  app.add_option("--tokens", tokens, "numbers of tokens to time")->check(AtLeast(1));
  app.add_option("--in", in_features, "in_features to time")->check(AtLeast(1));
  app.add_option("--out", out_features, "out_features to time")->check(AtLeast(1));
  if (!command_line.Parse(argc, argv)) return 0;
  std::sort(tokens.begin(), tokens.end());

  std::cout << "Lesson 06: matrix multiplication, on " << ToString(DescribeDevice()) << "\n\n";
  std::cout << "The three ways:\n";
  for (const MatmulVersion& version : kMatmulVersions) {
    std::cout << "  " << version.number << " " << version.name << ": " << version.idea << "\n";
  }
  std::cout << "\n";
  ShowTheProduct(MultiplySmall(GemmBackend::kLoops));
  ShowTheTrick(MultiplySmall(GemmBackend::kCublas));
  ProveNothingMoved();
  Time(tokens, in_features, out_features);
  std::cout << "The page: docs/06_matmul.md. Your turn: write the call and the tiles in\n"
               "lessons/06_matmul/exercise/matmul.cu, and check them with\n"
               "  bazel test --//:exercise=06_matmul //tests:06_matmul_test\n"
               "Next: bazel run //lessons/07_attention\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
