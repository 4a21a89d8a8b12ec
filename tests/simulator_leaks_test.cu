// What a program has not given back when it ends; BUILD switches the list on.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/stream.h"

namespace tinyvllm {
namespace {

std::string Line(int line) { return "simulator_leaks_test.cu:" + std::to_string(line); }

constexpr int kMallocLine = __LINE__ + 4;
void Leak() {
  for (int i = 0; i < 3; ++i) {
    int* memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, 100 * sizeof(int)));
  }
  void* pinned = nullptr;
  CUDA_CHECK(cudaMallocHost(&pinned, 50));
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  cudaEvent_t event;
  CUDA_CHECK(cudaEventCreate(&event));
}

TEST(SimulatorLeaksDeathTest, EachKindWithItsLine) {
  const auto line = [](int number, const std::string& what) {
    return Line(number) + ": " + what + "(.|\n)*";
  };
  EXPECT_EXIT((Leak(), std::exit(0)), testing::ExitedWithCode(1),
              "not given back when the program ended(.|\n)*" +
                  line(kMallocLine, "3 x device memory, 1200 bytes") +
                  line(kMallocLine + 3, "1 x pinned host memory, 50 bytes") +
                  line(kMallocLine + 5, "1 x stream") + line(kMallocLine + 7, "1 x event") +
                  "docs/simulator.md#leaks");
}

// The line is that of the owner, not of the buffer class.
constexpr int kOwnerLine = __LINE__ + 1;
void LeakABuffer() { new DeviceBuffer<int>(7); }

TEST(SimulatorLeaksDeathTest, TheLineOfABuffersOwner) {
  EXPECT_EXIT((LeakABuffer(), std::exit(0)), testing::ExitedWithCode(1),
              Line(kOwnerLine) + ": 1 x device memory, 28 bytes");
}

DeviceBuffer<int>& StaticBuffer() {
  static DeviceBuffer<int> buffer(10);
  return buffer;
}

TEST(SimulatorLeaksDeathTest, WhatIsGivenBackInTime) {
  const auto use = [] {
    const DeviceBuffer<int> buffer(100);
    const PinnedBuffer<int> pinned(100);
    const Stream stream;
    const Event event;
    StaticBuffer();
  };
  EXPECT_EXIT((use(), std::exit(0)), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace tinyvllm
