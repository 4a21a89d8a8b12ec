// RoPE to look at: pairs of coordinates that turn with the position, the frequencies with and
// without llama3 scaling, what the rotation does to a score, and the speed of each version.
#include <algorithm>
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
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/05_rope/rope.h"

namespace tinyvllm {
namespace {

// Llama 3.2 1B.
constexpr int kHeadDim = 64, kHalf = kHeadDim / 2;
constexpr int kNumHeads = 32, kNumKvHeads = 8;
const RopeConfig kConfig{500000, kHeadDim, Llama3Scaling{32, 1, 4, 8192}};

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

// One head, rotated to each of the positions: (positions, kHeadDim).
std::vector<bf16> RotatedTo(const std::vector<int>& positions, const std::vector<bf16>& head,
                            const RopeTable& table) {
  std::vector<bf16> x;
  for (size_t token = 0; token < positions.size(); ++token) {
    x.insert(x.end(), head.begin(), head.end());
  }
  const Stream stream;
  DeviceBuffer<bf16> device_x(x);
  DeviceBuffer<int> device_positions(positions);
  Rope(device_x.data(), device_positions.data(), table, positions.size(), 1, kHeadDim, kHeadDim,
       stream.get());
  stream.Synchronize();
  return device_x.ToHost();
}

// --- 1. points on circles

constexpr int kCircleRows = 13, kCircleColumns = 27;

// Where the point (a, b) of the unit circle stands in the picture.
char& At(std::vector<std::string>& picture, double a, double b) {
  const int row = std::lround((1 - b) / 2 * (kCircleRows - 1));
  const int column = std::lround((1 + a) / 2 * (kCircleColumns - 1));
  return picture[row][column];
}

void ShowCircles(const RopeTable& table) {
  const std::vector<int> positions = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const int pairs[] = {0, 4, 8};
  Heading(
      "1. Ten tokens, positions 0 to 9. Each pair of a head begins at (1, 0), marked 0, and is\n"
      "   turned through position times its frequency:");
  std::vector<bf16> head(kHeadDim, __float2bfloat16(0.0f));
  for (int i = 0; i < kHalf; ++i) head[i] = __float2bfloat16(1.0f);
  const std::vector<bf16> rotated = RotatedTo(positions, head, table);
  std::vector<std::string> lines(kCircleRows + 1);
  const std::vector<float> frequencies = InverseFrequencies(kConfig);
  for (int pair : pairs) {
    std::vector<std::string> picture(kCircleRows, std::string(kCircleColumns, ' '));
    for (int step = 0; step < 120; ++step) {
      At(picture, std::cos(step * M_PI / 60), std::sin(step * M_PI / 60)) = '.';
    }
    At(picture, 0, 0) = '+';
    for (int position = 9; position >= 0; --position) {  // the earlier one stays where two meet
      const bf16* token = &rotated[position * kHeadDim];
      At(picture, ToDouble(token[pair]), ToDouble(token[pair + kHalf])) = '0' + position;
    }
    for (int row = 0; row < kCircleRows; ++row) lines[row] += "  " + picture[row];
    std::string title = StrCat("  pair ", pair, ": elements ", pair, " and ", pair + kHalf);
    title.resize(kCircleColumns + 2, ' ');
    lines[kCircleRows] += title;
  }
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << "\n";
  }
  for (int pair : pairs) {
    std::cout << "  " << Fixed(frequencies[pair], 4) << " radians a token     ";
  }
  std::cout << "\n\n   Fast pairs tell neighbours apart; slow ones tell near from far.\n";
}

// --- 2. frequencies

void ShowFrequencies() {
  const Llama3Scaling& scaling = *kConfig.scaling;
  Heading(StrCat("2. Frequencies of Llama 3.2 1B: theta ", kConfig.theta, ", head_dim ", kHeadDim,
                 ", llama3 scaling by ", scaling.factor,
                 ".\n   A wavelength is the number of tokens in one full turn."));
  const std::vector<float> before =
      InverseFrequencies({kConfig.theta, kConfig.head_dim, std::nullopt});
  const std::vector<float> after = InverseFrequencies(kConfig);
  TextTable table({"pair", "radians a token", "wavelength", "turns in 8,192", "scaled wavelength",
                   "slowed", ""});
  for (int i : {0, 4, 8, 12, 13, 14, 15, 16, 17, 18, 19, 24, 31}) {
    const double wavelength = 2 * M_PI / before[i], scaled = 2 * M_PI / after[i];
    const double slowed = before[i] / after[i];
    table.AddRow({std::to_string(i), Fixed(before[i], 7), Fixed(wavelength, 1),
                  Fixed(scaling.original_max_position_embeddings / wavelength, 3), Fixed(scaled, 1),
                  Fixed(slowed, 2) + " x",
                  slowed == 1                ? "fast: left alone"
                  : slowed == scaling.factor ? "slow: all of the factor"
                                             : "in between"});
  }
  std::cout << table.ToString();
}

// --- 3. scores

double Dot(const bf16* a, const bf16* b) {
  double sum = 0;
  for (int i = 0; i < kHeadDim; ++i) sum += ToDouble(a[i]) * ToDouble(b[i]);
  return sum;
}

void ShowScores(const RopeTable& table) {
  Heading(
      "3. The score q . k of one random query and key, rotated to many places. Along a row the\n"
      "   distance is the same, and so is the score, but for the rounding of bf16:");
  Random random(8);
  const std::vector<bf16> q = random.Bf16(kHeadDim), k = random.Bf16(kHeadDim);
  const std::vector<int> shifts = {0, 1, 10, 500, 4000};
  std::vector<std::string> header = {"distance"};
  for (int shift : shifts) header.push_back(StrCat("key at ", shift));
  TextTable scores(header);
  const std::vector<bf16> keys = RotatedTo(shifts, k, table);
  for (int distance : {0, 1, 2, 5, 20, 1000}) {
    std::vector<int> q_positions;
    for (int shift : shifts) q_positions.push_back(shift + distance);
    const std::vector<bf16> queries = RotatedTo(q_positions, q, table);
    std::vector<std::string> row = {std::to_string(distance)};
    for (size_t s = 0; s < shifts.size(); ++s) {
      row.push_back(Fixed(Dot(&queries[s * kHeadDim], &keys[s * kHeadDim]), 2));
    }
    scores.AddRow(row);
  }
  std::cout << scores.ToString() << "   Without rotation every entry would be "
            << Fixed(Dot(q.data(), k.data()), 2) << ".\n";
}

// --- 4. speed

void ShowSpeed() {
  Heading("4. Speed");
  if (IsSimulator()) {
    std::cout << "   There is no GPU here, and the time of a CPU that plays one says nothing. With "
                 "a GPU\n"
                 "   this prints GB/s of each version, and its share of what a copy reaches.\n";
    return;
  }
  constexpr int kHeads = kNumHeads + kNumKvHeads, kRow = (kNumHeads + 2 * kNumKvHeads) * kHeadDim;
  constexpr int kMaxPositions = 131072;
  const RopeTable table(kConfig, kMaxPositions);
  Benchmark benchmark;
  const double limit = benchmark.CopyGigabytesPerSecond();
  std::cout
      << "From a cold cache, " << kHeads << " heads of " << kHeadDim << " in rows of " << kRow
      << ". Counted is what must move: the heads, read and\nwritten once. The limit is a copy: "
      << Fixed(limit, 0) << " GB/s.\n\n";
  TextTable times({"tokens", "version", "us", "GB/s", "of the limit"});
  for (int num_tokens : {1, 64, 32768}) {
    DeviceBuffer<bf16> x(static_cast<size_t>(num_tokens) * kRow);
    x.Fill(0x3f);
    std::vector<int> host_positions(num_tokens);
    for (int i = 0; i < num_tokens; ++i) host_positions[i] = (i + 50000) % kMaxPositions;
    DeviceBuffer<int> positions(host_positions);
    for (const RopeVersion& version : kRopeVersions) {
      const double ms = benchmark.MedianMilliseconds([&] {
        version.launch(x.data(), positions.data(), table, num_tokens, kHeads, kHeadDim, kRow,
                       benchmark.stream());
      });
      const double gigabytes =
          GigabytesPerSecond(2.0 * sizeof(bf16) * num_tokens * kHeads * kHeadDim, ms);
      times.AddRow({std::to_string(num_tokens), StrCat(version.number, " ", version.name),
                    Fixed(1000 * ms, 1), Fixed(gigabytes, 0),
                    Fixed(100 * gigabytes / limit, 0) + " %"});
    }
  }
  std::cout << times.ToString();
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 05: rotary position embedding.");
  if (!command_line.Parse(argc, argv)) return 0;
  std::cout << "Lesson 05, RoPE, on " << ToString(DescribeDevice()) << "\n";
  const RopeTable table(kConfig, 5001);
  ShowCircles(table);
  ShowFrequencies();
  ShowScores(table);
  ShowSpeed();
  std::cout << "\nThe page: docs/05_rope.md. Your turn: write the rotation in\n"
               "lessons/05_rope/exercise/rope.cu, and check it with\n"
               "  bazel test --//:exercise=05_rope //tests:05_rope_test\n"
               "Next: bazel run //lessons/06_matmul\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
