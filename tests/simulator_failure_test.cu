// What the simulator makes of kernels that are wrong: one report with the place, a sticky error,
// never a hang. (On a GPU such kernels hang or return anything, so these checks are for the
// simulator alone.)
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cassert>
#include <cmath>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"

namespace tinyvllm {
namespace {

// Runs `launch`, which must fail with `error`, and returns what was reported. Also checks that the
// error sticks until the device is reset.
template <typename Launch>
std::string Report(cudaError_t error, Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  const cudaError_t found = cudaDeviceSynchronize();
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, error) << report;
  EXPECT_EQ(cudaGetLastError(), error);
  EXPECT_EQ(cudaGetLastError(), error);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), error);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), error);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  return report;
}

void ExpectContains(const std::string& report, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

std::string Line(int line) { return "simulator_failure_test.cu:" + std::to_string(line); }

// --- Barriers.

constexpr int kDivergentLine = __LINE__ + 5;
__global__ void DivergentKernel() {
  if (threadIdx.x < 3) {
    // Three threads wait here, the others below.
    __nanosleep(1);
    __syncthreads();
  } else {
    __syncthreads();
  }
}

constexpr int kLaunchLine = __LINE__ + 1;
void LaunchDivergent() { DivergentKernel<<<2, 64>>>(); }

TEST(SimulatorFailure, BarriersAtDifferentPlaces) {
  const std::string report = Report(cudaErrorLaunchFailure, LaunchDivergent);
  ExpectContains(report,
                 {"kernel DivergentKernel (launched at ", Line(kLaunchLine), "barrier divergence",
                  Line(kDivergentLine), Line(kDivergentLine + 2), "block (", "thread ("});
}

constexpr int kMissedLine = __LINE__ + 3;
__global__ void MissedKernel(int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
}

TEST(SimulatorFailure, SomeThreadsHaveReturnedBeforeABarrier) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { MissedKernel<<<1, 96>>>(70); });
  ExpectContains(report, {"kernel MissedKernel", "barrier divergence",
                          "70 threads waiting in __syncthreads at ", Line(kMissedLine),
                          "26 threads returned from the kernel", "(70,0,0)"});
}

__global__ void SkippedKernel() {
  if (threadIdx.x != 5) __syncthreads();
}

TEST(SimulatorFailure, OneThreadSkipsTheBarrier) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { SkippedKernel<<<1, 32>>>(); });
  ExpectContains(report, {"31 threads waiting in __syncthreads", "1 thread returned", "(5,0,0)"});
}

__global__ void MixedKernel() {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

TEST(SimulatorFailure, ABarrierAndAWarpWait) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { MixedKernel<<<1, 32>>>(); });
  ExpectContains(report,
                 {"31 threads waiting in __syncthreads at ", "1 thread waiting in __syncwarp at "});
}

// --- Warps.

constexpr int kShuffleLine = __LINE__ + 4;
__global__ void HalfShuffleKernel(int* out) {
  int value = threadIdx.x;
  const int lane = threadIdx.x % kWarpSize;
  if (lane < kWarpSize / 2) value = __shfl_xor_sync(kFullWarpMask, value, 1);
  out[threadIdx.x] = value;
}

TEST(SimulatorFailure, AMaskNamesThreadsThatDoNotCome) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    DeviceBuffer<int> out(64);
    HalfShuffleKernel<<<1, kWarpSize>>>(out.data());
  });
  ExpectContains(report, {"kernel HalfShuffleKernel", "__shfl_xor_sync", Line(kShuffleLine)});
}

__global__ void NotInMaskKernel() { __syncwarp(1); }

TEST(SimulatorFailure, AThreadLeavesItselfOutOfTheMask) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { NotInMaskKernel<<<1, 2>>>(); });
  ExpectContains(report, {"__syncwarp at ", "the mask leaves out lane 1"});
}

__global__ void TwoOperationsKernel(int* out) {
  if (threadIdx.x < 4) {
    out[threadIdx.x] = __shfl_sync(kFullWarpMask, 1, 0);
  } else {
    out[threadIdx.x] = __any_sync(kFullWarpMask, 1);
  }
}

TEST(SimulatorFailure, LanesCallDifferentFunctions) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    DeviceBuffer<int> out(64);
    TwoOperationsKernel<<<1, kWarpSize>>>(out.data());
  });
  ExpectContains(report, {"warp divergence", "__shfl_sync", "__any_sync"});
}

__global__ void BadWidthKernel(int* out) { *out = __shfl_sync(kFullWarpMask, 1, 0, 12); }

TEST(SimulatorFailure, AShuffleWidthThatIsNoPowerOfTwo) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    DeviceBuffer<int> out(1);
    BadWidthKernel<<<1, kWarpSize>>>(out.data());
  });
  ExpectContains(report, {"width is 12", "power of two"});
}

// --- The rest.

#undef NDEBUG
#include <cassert>
__global__ void AssertKernel(int limit) { assert(static_cast<int>(threadIdx.x) < limit); }

TEST(SimulatorFailure, AnAssertInAKernel) {
  const std::string report = Report(cudaErrorAssert, [] { AssertKernel<<<1, 8>>>(7); });
  ExpectContains(report, {"kernel AssertKernel", "thread (7,0,0)", "assertion failed at ",
                          "static_cast<int>(threadIdx.x) < limit"});
}

__global__ void TrapKernel() {
  if (blockIdx.x == 3) __trap();
}

TEST(SimulatorFailure, ATrap) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { TrapKernel<<<4, 1>>>(); });
  ExpectContains(report, {"block (3,0,0)", "__trap at "});
}

__global__ void GreedyKernel(int* out) {
  __shared__ int first[10000];
  __shared__ int second[3000];
  first[threadIdx.x] = second[threadIdx.x] = 1;
  *out = first[0] + second[0];
}

TEST(SimulatorFailure, TooMuchStaticSharedMemory) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    DeviceBuffer<int> out(1);
    GreedyKernel<<<1, 1>>>(out.data());
  });
  ExpectContains(report, {"__shared__ second at ", "52000 bytes of static shared memory"});
}

// Every block fails; one report is enough.
__global__ void AlwaysKernel() { __trap(); }

TEST(SimulatorFailure, OneReportALaunch) {
  const std::string report = Report(cudaErrorLaunchFailure, [] { AlwaysKernel<<<100, 64>>>(); });
  EXPECT_EQ(report.find("error in"), report.rfind("error in")) << report;
}

// The engine is as good as new after a block was given up halfway.
__global__ void SumKernel(int* out) {
  __shared__ int values[256];
  values[threadIdx.x] = threadIdx.x;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}

TEST(SimulatorFailure, KernelsRunAfterAFailure) {
  for (int round = 0; round < 3; ++round) {
    Report(cudaErrorLaunchFailure, [] { DivergentKernel<<<8, 256>>>(); });
    DeviceBuffer<int> out(20);
    SumKernel<<<20, 256>>>(out.data());
    CUDA_CHECK_LAUNCH();
    EXPECT_EQ(out.ToHost(), std::vector<int>(20, 255 * 128));
  }
}

// --- Fresh memory holds no zeros.

__global__ void UninitialisedKernel(float* out) {
  __shared__ float fixed[32];
  extern __shared__ float dynamic[];
  out[threadIdx.x] = fixed[threadIdx.x];
  out[32 + threadIdx.x] = dynamic[threadIdx.x];
  __syncthreads();
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;  // the next block must not see this
}

TEST(SimulatorFailure, FreshMemoryIsPoisoned) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the memory checker reports such reads: simulator_check_test";
#endif
  for (int round = 0; round < 2; ++round) {
    DeviceBuffer<float> out(64);
    for (const float value : out.ToHost()) EXPECT_TRUE(std::isnan(value));
    out.Fill(0);
    UninitialisedKernel<<<1, 32, 128>>>(out.data());
    CUDA_CHECK_LAUNCH();
    for (const float value : out.ToHost()) EXPECT_TRUE(std::isnan(value));
  }
}

// --- Copies.

TEST(SimulatorFailure, CopiesThatDoNotFitTheirMemory) {
  DeviceBuffer<int> device(10);
  std::vector<int> host(100);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), 44, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device.data() + 5, 24, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device.data(), 40, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device.data(), 0, 41), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host.data(), 0, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ExpectContains(testing::internal::GetCapturedStderr(),
                 {"cudaMemcpy: 44 bytes at the destination", "its allocation ends after 40",
                  "24 bytes at the source", "ends after 20", "the copy's kind says device"});
}

__global__ void HostCallKernel(cudaError_t* out) { *out = cudaDeviceSynchronize(); }

TEST(SimulatorFailure, KernelsCannotCallTheHost) {
  DeviceBuffer<cudaError_t> out(1);
  testing::internal::CaptureStderr();
  HostCallKernel<<<1, 1>>>(out.data());
  EXPECT_EQ(out.ToHost()[0], cudaErrorNotPermitted);
  cudaGetLastError();
  ExpectContains(testing::internal::GetCapturedStderr(),
                 {"cudaDeviceSynchronize called inside a kernel"});
}

// --- What the processor finds.

#if !defined(__SANITIZE_ADDRESS__)

__device__ __attribute__((noinline)) int Deep(volatile int* x, int depth) {
  volatile char local[4096];
  local[depth % 4096] = static_cast<char>(*x);
  return depth == 0 ? local[0] : Deep(x, depth - 1) + local[depth % 4096];
}
__global__ void OverflowKernel(int* out) {
  __syncthreads();
  *out = Deep(out, 1000);
}
constexpr int kWildLine = __LINE__ + 1;
__global__ void WildKernel(int* out, long long offset) { out[offset] = 1; }
constexpr int kDivideLine = __LINE__ + 1;
__global__ void DivideKernel(int* out) { *out = 7 / *out; }

TEST(SimulatorFailure, StackOverflow) {
  const std::string report = Report(cudaErrorIllegalAddress, [] {
    int* out = nullptr;
    EXPECT_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemset(out, 0, sizeof(int)), cudaSuccess);
    OverflowKernel<<<2, 3>>>(out);
  });
  ExpectContains(report, {"kernel OverflowKernel", "thread (", "stack overflow at ",
                          "simulator_failure_test.cu:", "KiB", "docs/simulator.md#stack-overflow"});
}

TEST(SimulatorFailure, WildAddress) {
  const std::string report = Report(cudaErrorIllegalAddress, [] {
    int* out = nullptr;
    EXPECT_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
    WildKernel<<<1, 1>>>(out, -(1ll << 43));
  });
  ExpectContains(report, {"kernel WildKernel", "illegal address", Line(kWildLine),
                          "docs/simulator.md#illegal-address"});
}

#ifdef __x86_64__
// The processor says the same of this address and of one that is misaligned for 16 bytes.
TEST(SimulatorFailure, NoAddressAtAll) {
  if (simulator::ChecksMemory()) GTEST_SKIP() << "the memory checker comes before the processor";
  const std::string report = Report(cudaErrorIllegalAddress, [] {
    int* out = nullptr;
    EXPECT_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
    WildKernel<<<1, 1>>>(out, 1ll << 44);
  });
  ExpectContains(report,
                 {"kernel WildKernel", "no multiple of 16", "docs/simulator.md#misaligned-access"});
}
#endif

TEST(SimulatorFailure, DivisionByZero) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    int* out = nullptr;
    EXPECT_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemset(out, 0, sizeof(int)), cudaSuccess);
    DivideKernel<<<1, 1>>>(out);
  });
  ExpectContains(report, {"kernel DivideKernel", "division by zero at ", Line(kDivideLine)});
}

#else

// The line is the first frame of the sanitizer's own report.

constexpr int kGlobalLine = __LINE__ + 1;
__global__ void GlobalKernel(float* x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x + n] = 1; }
constexpr int kDynamicLine = __LINE__ + 4;
__global__ void DynamicKernel(float* x) {
  extern __shared__ float scratch[];
  const int i = threadIdx.x;
  scratch[i + 1] = 1;
  __syncthreads();
  x[i] = scratch[i];
}
constexpr int kStaticLine = __LINE__ + 4;
__global__ void StaticKernel(float* x, int size) {
  __shared__ float scratch[32];
  const int i = threadIdx.x;
  scratch[i + size] = 1;
  __syncthreads();
  x[i] = scratch[i];
}

TEST(SimulatorFailureDeathTest, AsanNamesKernelThreadAndLine) {
  DeviceBuffer<float> out(64);
  EXPECT_DEATH(
      (GlobalKernel<<<2, 32>>>(out.data(), 1), cudaDeviceSynchronize()),
      "kernel GlobalKernel .*block \\(1,0,0\\), thread \\(31,0,0\\)(.|\n)*heap-buffer-overflow"
      "(.|\n)*simulator_failure_test.cu:" +
          std::to_string(kGlobalLine));
  EXPECT_DEATH((DynamicKernel<<<1, 32, 128>>>(out.data()), cudaDeviceSynchronize()),
               "kernel DynamicKernel .*thread \\(31,0,0\\)(.|\n)*simulator_failure_test.cu:" +
                   std::to_string(kDynamicLine));
}

TEST(SimulatorFailureDeathTest, UbsanNamesKernelThreadAndLine) {
  DeviceBuffer<float> out(64);
  EXPECT_DEATH(
      (StaticKernel<<<1, 32>>>(out.data(), 1), cudaDeviceSynchronize()),
      "simulator_failure_test.cu:" + std::to_string(kStaticLine) + ".*index 32 out of bounds");
}

#endif

}  // namespace
}  // namespace tinyvllm
