// A first look at CUDA: who does what in a grid, a vector add, a sum that threads make together,
// what an asynchronous launch is, and two errors that are caught.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "lessons/00_first_kernel/first_kernel.h"
#include "lessons/00_first_kernel/planted_bugs.h"

namespace tinyvllm {
namespace {

// A GPU works later than it is told to; so does the simulator with this setting, which it reads
// before main begins.
__attribute__((constructor(101))) void LetTheSimulatorWorkLate() {
  setenv("TINYVLLM_SIM_LAZY_STREAMS", "1", /*overwrite=*/0);
}

// Flushed, so that what the simulator has to say on standard error comes in its place.
void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n" << std::flush; }

// 0, step, 2 step, ...
std::vector<float> Steps(int n, float step) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = step * i;
  return values;
}

void ShowGrid(cudaStream_t stream) {
  constexpr int kElements = 10, kThreads = 4;
  Heading("1. Who does what: 10 elements, blocks of 4 threads");
  DeviceBuffer<int> block_of(kElements), thread_of(kElements);
  WhoDoesWhat(block_of.data(), thread_of.data(), kElements, kThreads, stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const std::vector<int> blocks = block_of.ToHost(), threads = thread_of.ToHost();
  std::string rows[3] = {"   element ", "   block   ", "   thread  "};
  for (int i = 0; i < BlocksFor(kElements, kThreads) * kThreads; ++i) {
    const std::string gap = i % kThreads == 0 ? " │ " : "  ";
    rows[0] += gap + (i < kElements ? std::to_string(i) : "-");
    rows[1] += gap + (i < kElements ? std::to_string(blocks[i]) : "-");
    rows[2] += gap + (i < kElements ? std::to_string(threads[i]) : "-");
  }
  for (const std::string& row : rows) std::cout << row << " │\n";
  std::cout
      << "\n   Each thread wrote down its blockIdx.x and threadIdx.x. The last two threads of\n"
         "   block 2 found no element left, and the guard `if (i < n)` kept them quiet.\n";
}

void ShowVectorAdd(cudaStream_t stream) {
  constexpr int kElements = 1000;
  Heading("2. A vector add: 1,000 elements, 4 blocks of 256 threads");
  const std::vector<float> a = Steps(kElements, 1.0f), b = Steps(kElements, 0.5f);
  // tag::host[]
  DeviceBuffer<float> device_a(a), device_b(b), device_sum(kElements);  // allocates and copies
  VectorAdd(device_a.data(), device_b.data(), device_sum.data(), kElements, stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));           // waits until the kernel is done
  const std::vector<float> sum = device_sum.ToHost();  // copies back
  // end::host[]
  TextTable table({"i", "block", "thread", "a[i]", "b[i]", "a[i] + b[i]"});
  for (int i : {0, 1, 255, 256, 999}) {
    table.AddRow({std::to_string(i), std::to_string(i / kThreadsPerBlock),
                  std::to_string(i % kThreadsPerBlock), Fixed(a[i], 1), Fixed(b[i], 1),
                  Fixed(sum[i], 1)});
  }
  std::cout << table.ToString();
  int right = 0;
  for (int i = 0; i < kElements; ++i) right += sum[i] == a[i] + b[i];
  std::cout << right << " of " << kElements << " sums are right.\n";
}

void ShowBlockSums(cudaStream_t stream) {
  constexpr int kElements = 1000;
  Heading("3. Threads work together: each block adds up its share of 0 + 1 + ... + 999");
  const std::vector<float> input = Steps(kElements, 1.0f);
  const int blocks = BlocksFor(kElements, kThreadsPerBlock);
  DeviceBuffer<float> device_input(input), device_sums(blocks);
  BlockSums(device_input.data(), device_sums.data(), kElements, stream);
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const std::vector<float> sums = device_sums.ToHost();
  TextTable table({"block", "adds", "its sum"});
  for (int k = 0; k < blocks; ++k) {
    const int first = k * kThreadsPerBlock;
    const int last = std::min(first + kThreadsPerBlock, kElements) - 1;
    table.AddRow({std::to_string(k), StrCat(first, " to ", last), Fixed(sums[k], 0)});
  }
  std::cout << table.ToString() << "together "
            << Fixed(std::accumulate(sums.begin(), sums.end(), 0.0), 0)
            << "; 999 * 1000 / 2 is 499500.\n";
}

void ShowAsynchronousLaunch(cudaStream_t stream) {
  const int elements = IsSimulator() ? 1000000 : 100000000;
  Heading(StrCat("4. A launch is an order, not the work: adding ", elements / 1000000,
                 " million elements"));
  DeviceBuffer<float> a(elements), b(elements), sum(elements);
  a.Fill(0);
  b.Fill(0);
  VectorAdd(a.data(), b.data(), sum.data(), elements, stream);  // the first launch loads the code
  CUDA_CHECK(cudaStreamSynchronize(stream));

  using Clock = std::chrono::steady_clock;
  const auto Microseconds = [](Clock::duration time) {
    return Fixed(std::chrono::duration<double, std::micro>(time).count(), 1);
  };
  const Clock::time_point start = Clock::now();
  VectorAdd(a.data(), b.data(), sum.data(), elements, stream);
  const Clock::time_point ordered = Clock::now();
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const Clock::time_point done = Clock::now();
  TextTable table({"", "microseconds"});
  table.AddRow({"VectorAdd(...) returned after", Microseconds(ordered - start)});
  table.AddRow({"cudaStreamSynchronize(...) returned after", Microseconds(done - start)});
  std::cout << table.ToString();
  if (IsSimulator()) std::cout << "The second is the time of a CPU that plays a GPU.\n";
}

void ShowRefusedLaunch(cudaStream_t stream) {
  constexpr int kElements = 2000;
  Heading("5. Every launch is checked: one block of 2,000 threads");
  DeviceBuffer<int> block_of(kElements), thread_of(kElements);
  try {
    WhoDoesWhat(block_of.data(), thread_of.data(), kElements, kElements, stream);
    throw std::logic_error("a block of 2,000 threads was launched, though 1,024 is the most");
  } catch (const Error& error) {
    std::cout << "   " << error.what() << "\n\n"
              << "   A block has at most 1,024 threads. Without CUDA_CHECK_LAUNCH() nobody would\n"
                 "   have said so, and the output would be whatever was there before.\n";
  }
}

struct PlantedBug {
  const char* name;
  const char* title;
  const char* config;  // in which the simulator names it
  bool named;          // this is such a build
  const char* unnamed;
};

const PlantedBug& FindPlantedBug(const std::string& name) {
  static const PlantedBug kBugs[] = {
      {"barrier", "the same sum with __syncthreads() inside the `if`", "cpu", true, ""},
      {"guard", "the same add without `if (i < n)`", "check", ChecksMemory(),
       "Without the memory checker it would write over other memory, unnoticed."},
      {"race", "the same sum without __syncthreads() in the loop", "check", FindsRaces(),
       "Without the race detector it gives wrong sums, or right ones, by luck."},
  };
  return *std::find_if(std::begin(kBugs), std::end(kBugs),
                       [&](const PlantedBug& bug) { return bug.name == name; });
}

// The last act: an error inside a kernel is sticky, so nothing else can run on the device in this
// process.
void ShowPlantedBug(const PlantedBug& bug, cudaStream_t stream) {
  constexpr int kElements = 1000;
  const std::string name = bug.name;
  Heading(std::string("6. A planted bug: ") + bug.title);
  if (!IsSimulator() || !bug.named) {
    std::cout << "   "
              << (IsSimulator() ? bug.unnamed
                                : "On this GPU it may hang, give wrong results, or seem to work.")
              << "\n   The simulator names kernel, line and thread; see for yourself:\n"
              << "     bazel run --config=" << bug.config << " //lessons/00_first_kernel -- --bug "
              << name << "\n";
    return;
  }
  const std::vector<float> input = Steps(kElements, 1.0f);
  DeviceBuffer<float> a(input), b(input), output(kElements);
  try {
    if (name == "barrier") {
      BlockSumsWithBarrierInIf(a.data(), output.data(), kElements, stream);
    } else if (name == "guard") {
      VectorAddWithoutGuard(a.data(), b.data(), output.data(), kElements, stream);
    } else {
      BlockSumsWithoutBarrier(a.data(), output.data(), kElements, stream);
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    throw std::logic_error("the simulator overlooked a planted bug");
  } catch (const Error& error) {
    std::cout << "   " << error.what() << "\n";
  }
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 00: a first kernel.");
  std::string bug = "barrier";
  command_line.app()
      .add_option("--bug", bug, "the planted bug to run on the simulator")
      ->check(CLI::IsMember({"barrier", "guard", "race"}))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "The device: " << ToString(DescribeDevice()) << "\n";
  const Stream stream;
  ShowGrid(stream.get());
  ShowVectorAdd(stream.get());
  ShowBlockSums(stream.get());
  ShowAsynchronousLaunch(stream.get());
  ShowRefusedLaunch(stream.get());
  ShowPlantedBug(FindPlantedBug(bug), stream.get());
  std::cout << "\nThe page: docs/00_first_kernel.md. Your turn: write these kernels in\n"
               "lessons/00_first_kernel/exercise/first_kernel.cu, and check them with\n"
               "  bazel test --//:exercise=00_first_kernel //tests:00_first_kernel_test\n"
               "Next: bazel run //lessons/01_safetensors\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
