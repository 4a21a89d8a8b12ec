// Kernels that never end, and kernels that only look like it. BUILD sets the watchdog to 0.6 s.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

std::string Line(int line) { return "simulator_watchdog_test.cu:" + std::to_string(line); }

void ExpectContains(const std::string& report, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

// Device memory that the reset after a report takes back.
int* Zeros(size_t count) {
  int* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(int)), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, count * sizeof(int)), cudaSuccess);
  return memory;
}

template <typename Launch>
std::string Report(Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  const cudaError_t found = cudaDeviceSynchronize();
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, cudaErrorLaunchTimeout) << report;
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return report;
}

// --- A wait that nobody ends, spelled in every way.

enum class Poll { kVolatile, kNanosleep, kAtomic };

constexpr int kWaitLine = __LINE__ + 5;
template <Poll kPoll>
__global__ void WaitKernel(volatile int* flag) {
  if (threadIdx.x == 3) {
    if (kPoll == Poll::kVolatile) {
      while (*flag == 0) continue;
    } else if (kPoll == Poll::kNanosleep) {
      while (*flag == 0) __nanosleep(100);
    } else {
      while (atomicAdd(const_cast<int*>(flag), 0) == 0) continue;
    }
  }
  __syncthreads();
}

TEST(SimulatorWatchdog, AWaitThatNobodyEnds) {
  ExpectContains(Report([] { WaitKernel<Poll::kVolatile><<<1, 64>>>(Zeros(1)); }),
                 {"kernel WaitKernel<Poll::kVolatile> (launched at ", "block (0,0,0)",
                  "no end: this block has run for 0.6 s", "1 thread running at ", Line(kWaitLine),
                  "(first: thread (3,0,0))", "63 threads waiting in __syncthreads at ",
                  Line(kWaitLine + 7), "TINYVLLM_SIM_WATCHDOG", "docs/simulator.md#watchdog"});
  ExpectContains(Report([] { WaitKernel<Poll::kNanosleep><<<1, 64>>>(Zeros(1)); }),
                 {"1 thread running at ", Line(kWaitLine + 2), "(first: thread (3,0,0))"});
  ExpectContains(Report([] { WaitKernel<Poll::kAtomic><<<1, 64>>>(Zeros(1)); }),
                 {"1 thread running at ", Line(kWaitLine + 4), "(first: thread (3,0,0))"});
}

constexpr int kForeverLine = __LINE__ + 6;
__global__ void ForeverKernel(int* out) {
  unsigned stride = blockDim.x / 2;
  int sum = 0;
  // An unsigned number is never below 0.
  while (stride >= 0) {
    sum += __syncthreads_count(stride);
    stride /= 2;
  }
  *out = sum;
}

TEST(SimulatorWatchdog, ALoopWithABarrierWithoutEnd) {
  ExpectContains(Report([] { ForeverKernel<<<1, 32>>>(Zeros(1)); }),
                 {"no end: this block", Line(kForeverLine)});
}

// --- Waits that end once the others have had their turn. A GPU runs all threads of a block at the
// same time, so these are correct.

template <Poll kPoll>
__global__ void RelayKernel(volatile int* turn, volatile int* out, bool backwards) {
  const int threads = blockDim.x;
  const int mine = backwards ? threads - 1 - threadIdx.x : threadIdx.x;
  if (kPoll == Poll::kVolatile) {
    while (*turn != mine) continue;
  } else if (kPoll == Poll::kNanosleep) {
    while (*turn != mine) __nanosleep(100);
  } else {
    while (atomicAdd(const_cast<int*>(turn), 0) != mine) continue;
  }
  *out = *out * 3 + mine;
  __threadfence();
  *turn = mine + 1;
}

template <Poll kPoll>
void ExpectRelay() {
  for (const bool backwards : {false, true}) {
    int* memory = Zeros(2);
    RelayKernel<kPoll><<<1, 6>>>(memory, memory + 1, backwards);
    CUDA_CHECK_LAUNCH();
    int result[2] = {};
    CUDA_CHECK(cudaMemcpy(result, memory, sizeof(result), cudaMemcpyDeviceToHost));
    EXPECT_EQ(result[0], 6);
    EXPECT_EQ(result[1], ((((0 * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 4) * 3 + 5);
    CUDA_CHECK(cudaFree(memory));
  }
}

TEST(SimulatorWatchdog, AWaitForAnotherThreadOfTheBlock) {
  ExpectRelay<Poll::kVolatile>();
  ExpectRelay<Poll::kNanosleep>();
  ExpectRelay<Poll::kAtomic>();
}

// --- Slow is not endless.

__global__ void SlowKernel(float* out, int rounds) {
  float x = 1.0f + static_cast<float>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) x = x * 0.999f + 0.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
  __syncthreads();
  for (int i = 0; i < rounds; ++i) x = x * 0.999f + 0.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] += x;
}

TEST(SimulatorWatchdog, ManyBlocksThatTakeLong) {
  constexpr int kBlocks = 30, kThreads = 4;
  DeviceBuffer<float> out(kBlocks * kThreads), again(kBlocks * kThreads);
  // About 0.03 s each, in all longer than the limit.
  SlowKernel<<<kBlocks, kThreads>>>(out.data(), 1000000);
  CUDA_CHECK_LAUNCH();
  SlowKernel<<<kBlocks, kThreads>>>(again.data(), 1000000);
  CUDA_CHECK_LAUNCH();
  EXPECT_EQ(out.ToHost(), again.ToHost());
}

// --- A signal in a kernel's own code is an error of the device, and the program goes on.

constexpr int kWildLine = __LINE__ + 1;
__global__ void WildKernel(int* out, long long offset) { out[offset] = 1; }

TEST(SimulatorWatchdog, TheTimerSurvivesOtherErrors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps faults for itself";
#endif
  for (int round = 0; round < 3; ++round) {
    testing::internal::CaptureStderr();
    WildKernel<<<4, 4>>>(Zeros(1), 1ll << 44);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    ExpectContains(testing::internal::GetCapturedStderr(),
                   {"kernel WildKernel", "illegal address", Line(kWildLine)});
    EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
    ExpectContains(Report([] { WaitKernel<Poll::kVolatile><<<2, 64>>>(Zeros(1)); }),
                   {Line(kWaitLine)});
  }
}

}  // namespace
}  // namespace tinyvllm
