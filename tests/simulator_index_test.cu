// An index beyond an array, where nothing watches the accesses: in the plain build, as a learner's
// file is compiled (check_indices of bazel/cuda.bzl). Without that the first kernel writes over the
// simulator's own variables, and the program ends somewhere else without a word.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

namespace tinyvllm {
namespace {

constexpr int kThreads = 64;

constexpr int kIndexLine = __LINE__ + 4;
__global__ void SumKernel(float* sums, bool global) {
  __shared__ float partial[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  partial[global ? i : t] = 1;
  __syncthreads();
  if (t == 0) sums[blockIdx.x] = partial[0] + partial[kThreads - 1];
}

class SimulatorIndex : public testing::Test {
 protected:
  void TearDown() override { cudaDeviceReset(); }

  // What the simulator prints about three blocks, and what it returns.
  std::string Report(bool global, cudaError_t expected) {
    float* sums = nullptr;
    EXPECT_EQ(cudaMalloc(&sums, 3 * sizeof(float)), cudaSuccess);
    testing::internal::CaptureStderr();
    SumKernel<<<3, kThreads>>>(sums, global);
    EXPECT_EQ(cudaDeviceSynchronize(), expected);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(SimulatorIndex, BeyondASharedArrayIsNamed) {
  const std::string report = Report(true, cudaErrorIllegalAddress);
  const std::string line = "simulator_index_test.cu:" + std::to_string(kIndexLine) + ": thread (";
  for (const std::string& part :
       {line, std::string("uses index "), std::string("of an array of type `float [64]`")}) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

TEST_F(SimulatorIndex, TheThreadsOwnPlaceIsRight) { EXPECT_EQ(Report(false, cudaSuccess), ""); }

}  // namespace
}  // namespace tinyvllm
