// The memory checker, bazel test --config=check: kernels that touch memory which is not theirs to
// touch, each found at the right line, and beside each the same kernel put right, on which the
// checker must stay silent.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"

namespace tinyvllm {
namespace {

// Runs a kernel that has a bug: one report, an error that sticks until the device is reset.
template <typename Launch>
std::string Report(cudaError_t error, Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  const cudaError_t found = cudaDeviceSynchronize();
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, error) << report;
  EXPECT_EQ(cudaGetLastError(), error);
  EXPECT_EQ(cudaGetLastError(), error);
  EXPECT_EQ(report.find("error"), report.rfind("error")) << "more than one report: " << report;
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return report;
}

template <typename Launch>
void ExpectSilent(Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  cudaDeviceReset();
}

void ExpectContains(const std::string& report, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

// With the colon that follows the place in a report.
std::string Line(int line) { return "simulator_check_test.cu:" + std::to_string(line) + ":"; }

// Device memory that the reset after a report takes back.
template <typename T>
T* Fresh(size_t count) {
  T* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  return memory;
}
template <typename T>
T* Zeros(size_t count) {
  T* memory = Fresh<T>(count);
  EXPECT_EQ(cudaMemset(memory, 0, count * sizeof(T)), cudaSuccess);
  return memory;
}

// --- Out of bounds: global memory.

constexpr int kScaleLine = __LINE__ + 5;
template <bool kCorrect>
__global__ void ScaleKernel(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (kCorrect && i >= n) return;
  x[i] *= 2.0f;
}

TEST(SimulatorCheck, GlobalMemoryBeyondTheEnd) {
  const std::string report = Report(cudaErrorIllegalAddress,
                                    [] { ScaleKernel<false><<<4, 32>>>(Zeros<float>(100), 100); });
  ExpectContains(report, {"error in kernel ScaleKernel<false> (launched at ", "block (3,0,0)",
                          "out of bounds\n", Line(kScaleLine), "reads 4 bytes at byte ",
                          "of an allocation of 400 bytes", "the memory was allocated here",
                          "advice: compare the index", "docs/simulator.md#out-of-bounds"});
  ExpectSilent([] { ScaleKernel<true><<<4, 32>>>(Zeros<float>(100), 100); });
}

constexpr int kNeighbourLine = __LINE__ + 3;
template <bool kCorrect>
__global__ void NeighbourKernel(const float* in, float* out) {
  out[threadIdx.x] = kCorrect && threadIdx.x == 0 ? 0.0f : in[static_cast<int>(threadIdx.x) - 1];
}

TEST(SimulatorCheck, GlobalMemoryBeforeTheBeginning) {
  const std::string report = Report(cudaErrorIllegalAddress, [] {
    NeighbourKernel<false><<<1, 32>>>(Zeros<float>(32), Zeros<float>(32));
  });
  ExpectContains(report, {Line(kNeighbourLine), "thread (0,0,0) reads 4 bytes",
                          "4 bytes before the beginning of an allocation of 128 bytes"});
  ExpectSilent([] { NeighbourKernel<true><<<1, 32>>>(Zeros<float>(32), Zeros<float>(32)); });
}

constexpr int kWideLine = __LINE__ + 4;
__global__ void WideKernel(float* x) {
  const int i = threadIdx.x;
  // The last load begins within the allocation and ends beyond it.
  const float4 four = reinterpret_cast<const float4*>(x)[i];
  x[i] = four.x + four.w;
}

TEST(SimulatorCheck, HalfOfAVectorBeyondTheEnd) {
  const std::string report =
      Report(cudaErrorIllegalAddress, [] { WideKernel<<<1, 1>>>(Zeros<float>(2)); });
  ExpectContains(report, {"out of bounds", Line(kWideLine)});
  ExpectSilent([] { WideKernel<<<1, 1>>>(Zeros<float>(4)); });
}

// --- Out of bounds: shared memory.

constexpr int kStaticLine = __LINE__ + 6;
__global__ void StaticKernel(float* out, int shift) {
  __shared__ float before[32];
  __shared__ float tile[32];
  __shared__ float after[32];
  float* mine = tile + threadIdx.x;
  mine[shift] = 1.0f;  // through a pointer: the compiler cannot know the array
  before[threadIdx.x] = after[threadIdx.x] = 0.0f;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x] + before[threadIdx.x] + after[threadIdx.x];
}

TEST(SimulatorCheck, SharedMemoryByOneElement) {
  ExpectContains(
      Report(cudaErrorIllegalAddress, [] { StaticKernel<<<1, 32>>>(Fresh<float>(32), 1); }),
      {"out of bounds", Line(kStaticLine), "thread (31,0,0) writes 4 bytes at byte 128 of",
       "the __shared__ variable `tile` of 128 bytes", "docs/simulator.md#out-of-bounds"});
  ExpectContains(
      Report(cudaErrorIllegalAddress, [] { StaticKernel<<<1, 32>>>(Fresh<float>(32), -1); }),
      {"out of bounds", Line(kStaticLine), "thread (0,0,0)",
       "4 bytes before the beginning of the __shared__ variable `tile`"});
  ExpectSilent([] { StaticKernel<<<2, 32>>>(Fresh<float>(64), 0); });
}

// Outside functions, where no thread comes past the declaration.
__shared__ float outside[32];

constexpr int kOutsideLine = __LINE__ + 5;
__global__ void OutsideKernel(float* out, int shift) {
  __shared__ float inside[32];
  inside[threadIdx.x] = 1.0f;
  float* mine = outside + threadIdx.x;
  mine[shift] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = outside[31 - threadIdx.x] + inside[threadIdx.x];
}

TEST(SimulatorCheck, SharedMemoryOutsideFunctions) {
  const std::string beyond =
      Report(cudaErrorIllegalAddress, [] { OutsideKernel<<<1, 32>>>(Zeros<float>(32), 1); });
  ExpectContains(beyond, {"out of bounds", Line(kOutsideLine), "writes 4 bytes at byte 128 of",
                          "the __shared__ variable `outside` of 128 bytes"});
  const std::string unwritten =
      Report(cudaErrorLaunchFailure, [] { OutsideKernel<<<1, 16>>>(Zeros<float>(32), 0); });
  ExpectContains(unwritten, {"nothing has written", "`outside` of 128 bytes"});
  ExpectSilent([] { OutsideKernel<<<1, 32>>>(Zeros<float>(32), 0); });
}

constexpr int kRowLine = __LINE__ + 5;
template <bool kCorrect>
__global__ void RowKernel(float* out) {
  __shared__ float tile[4][8];
  for (int i = threadIdx.x; i < 32; i += blockDim.x) tile[i / 8][i % 8] = 1.0f;
  __syncthreads();
  const int column = kCorrect ? threadIdx.x % 8 : threadIdx.x;
  out[threadIdx.x] = tile[0][column];
}

TEST(SimulatorCheck, AnIndexThatRunsIntoTheNextRow) {
  ExpectContains(
      Report(cudaErrorIllegalAddress, [] { RowKernel<false><<<1, 16>>>(Fresh<float>(16)); }),
      {"out of bounds", Line(kRowLine + 2), "uses index ", "of an array of type `float [8]`",
       "each dimension"});
  ExpectSilent([] { RowKernel<true><<<1, 16>>>(Fresh<float>(16)); });
}

constexpr int kDynamicLine = __LINE__ + 4;
__global__ void DynamicKernel(float* out) {
  extern __shared__ float scratch[];
  const int i = threadIdx.x;
  scratch[i] = 1.0f;
  __syncthreads();
  out[i] = scratch[i];
}

TEST(SimulatorCheck, DynamicSharedMemory) {
  const std::string report = Report(cudaErrorIllegalAddress, [] {
    DynamicKernel<<<1, 32, 31 * sizeof(float)>>>(Fresh<float>(32));
  });
  ExpectContains(report, {Line(kDynamicLine), "thread (31,0,0) writes 4 bytes at byte 124",
                          "of 124 bytes of dynamic shared memory", "<<<grid, block, bytes>>>"});
  ExpectSilent([] { DynamicKernel<<<1, 32, 32 * sizeof(float)>>>(Fresh<float>(32)); });
}

// --- Use after free.

constexpr int kFreedLine = __LINE__ + 1;
__global__ void CopyKernel(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

TEST(SimulatorCheck, UseAfterFree) {
  int free_line = 0;
  const std::string report = Report(cudaErrorIllegalAddress, [&] {
    int* in = Zeros<int>(32);
    int* out = Zeros<int>(32);
    CopyKernel<<<1, 32>>>(in, out);
    free_line = __LINE__ + 1;
    EXPECT_EQ(cudaFree(in), cudaSuccess);
    Zeros<int>(32);  // does not get the same memory
    CopyKernel<<<1, 32>>>(in, out);
  });
  ExpectContains(report, {"use after free", Line(kFreedLine), "of an allocation of 128 bytes",
                          Line(free_line), "and freed here", "docs/simulator.md#use-after-free"});
}

// --- Memory of the host.

TEST(SimulatorCheck, APointerOfTheHost) {
  const std::vector<int> host(32);
  const std::string report =
      Report(cudaErrorIllegalAddress, [&] { CopyKernel<<<1, 32>>>(host.data(), Zeros<int>(32)); });
  ExpectContains(report, {"illegal address", Line(kFreedLine), "cudaMemcpy",
                          "docs/simulator.md#illegal-address"});
}

TEST(SimulatorCheck, MemoryThatHostAndDeviceShare) {
  ExpectSilent([] {
    int *pinned = nullptr, *managed = nullptr;
    CUDA_CHECK(cudaMallocHost(&pinned, 32 * sizeof(int)));
    CUDA_CHECK(cudaMallocManaged(&managed, 32 * sizeof(int)));
    CopyKernel<<<1, 32>>>(pinned, managed);
  });
}

// --- Misaligned.

constexpr int kVectorLine = __LINE__ + 3;
__global__ void VectorKernel(const float* in, float* out, int shift) {
  // Four loads of four bytes to the processor: only the type says that it should be one.
  const float4 four = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x + shift);
  out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

TEST(SimulatorCheck, MisalignedVector) {
  const std::string report = Report(cudaErrorMisalignedAddress, [] {
    VectorKernel<<<1, 8>>>(Zeros<float>(64), Zeros<float>(8), 1);
  });
  ExpectContains(
      report, {"misaligned access", Line(kVectorLine), "`float4`", "4 bytes past a multiple of 16",
               "an allocation of 256 bytes", "docs/simulator.md#misaligned-access"});
  ExpectSilent([] { VectorKernel<<<1, 8>>>(Zeros<float>(64), Zeros<float>(8), 4); });
}

constexpr int kStoreLine = __LINE__ + 3;
__global__ void StoreKernel(bf16* out, int row) {
  // Rows of an odd length.
  *reinterpret_cast<uint4*>(out + threadIdx.x * row) = make_uint4(1, 2, 3, 4);
}

TEST(SimulatorCheck, MisalignedStore) {
  ExpectContains(
      Report(cudaErrorMisalignedAddress, [] { StoreKernel<<<1, 2>>>(Zeros<bf16>(64), 9); }),
      {"misaligned access", Line(kStoreLine), "thread (1,0,0)", "uint4"});
  ExpectSilent([] { StoreKernel<<<1, 2>>>(Zeros<bf16>(64), 8); });
}

// --- Memory that nothing has written.

constexpr int kTailLine = __LINE__ + 3;
__global__ void SumKernel(const float* x, float* sum, int n) {
  float mine = 0.0f;
  for (int i = 0; i < n; ++i) mine += x[i];
  *sum = mine;
}
__global__ void FillKernel(float* x, int n) {
  if (static_cast<int>(threadIdx.x) < n) x[threadIdx.x] = 1.0f;
}

TEST(SimulatorCheck, GlobalMemoryThatNothingHasWritten) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    float* x = Fresh<float>(32);
    FillKernel<<<1, 32>>>(x, 31);
    SumKernel<<<1, 1>>>(x, Fresh<float>(1), 32);
  });
  ExpectContains(report, {"kernel SumKernel", "read of memory that nothing has written",
                          Line(kTailLine), "reads 4 bytes: byte 124 of an allocation of 128 bytes",
                          "docs/simulator.md#unwritten-memory"});
  ExpectSilent([] {
    float* x = Fresh<float>(32);
    FillKernel<<<1, 32>>>(x, 32);
    SumKernel<<<1, 1>>>(x, Fresh<float>(1), 32);
  });
}

TEST(SimulatorCheck, WhatCountsAsWriting) {
  ExpectSilent([] {
    const std::vector<float> host(32, 1.0f);
    float* x = Fresh<float>(32);
    CUDA_CHECK(cudaMemcpy(x, host.data(), 64, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemset(x + 16, 0, 60));
    CUDA_CHECK(cudaMemcpy(x + 31, x, 4, cudaMemcpyDeviceToDevice));
    SumKernel<<<1, 1>>>(x, Fresh<float>(1), 32);
  });
}

TEST(SimulatorCheck, ACopyOfUnwrittenMemoryIsUnwritten) {
  ExpectContains(Report(cudaErrorLaunchFailure,
                        [] {
                          float* x = Fresh<float>(32);
                          float* copy = Fresh<float>(40);
                          FillKernel<<<1, 32>>>(x, 30);
                          CUDA_CHECK(cudaMemcpy(copy + 3, x, 128, cudaMemcpyDeviceToDevice));
                          SumKernel<<<1, 1>>>(copy + 3, Fresh<float>(1), 31);
                        }),
                 {Line(kTailLine), "byte 132 of an allocation of 160 bytes"});
}

TEST(SimulatorCheck, ACopyToTheHostOfUnwrittenMemory) {
  std::vector<float> host(32);
  const std::string report = Report(cudaErrorLaunchFailure, [&] {
    float* x = Fresh<float>(32);
    FillKernel<<<1, 32>>>(x, 31);
    EXPECT_EQ(cudaMemcpy(host.data(), x, 128, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
  });
  ExpectContains(report,
                 {"cudaMemcpy reads 128 bytes", "nothing has written",
                  "byte 124 is the first unwritten one", "docs/simulator.md#unwritten-memory"});
}

constexpr int kCountLine = __LINE__ + 1;
__global__ void CountKernel(int* count) { atomicAdd(count, 1); }
__global__ void ResetKernel(int* count) { atomicExch(count, 0); }

TEST(SimulatorCheck, AnAtomicOnUnwrittenMemory) {
  ExpectContains(Report(cudaErrorLaunchFailure, [] { CountKernel<<<1, 32>>>(Fresh<int>(1)); }),
                 {Line(kCountLine), "changes by an atomic 4 bytes"});
  ExpectSilent([] {
    int* count = Fresh<int>(1);
    ResetKernel<<<1, 1>>>(count);
    CountKernel<<<1, 32>>>(count);
  });
}

constexpr int kPartialLine = __LINE__ + 8;
template <bool kCorrect>
__global__ void PartialKernel(const float* x, float* sum) {
  __shared__ float partial[kMaxWarpsPerBlock];
  const int warp = threadIdx.x / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) partial[warp] = x[warp];
  __syncthreads();
  if (threadIdx.x > 0) return;
  const int count = kCorrect ? blockDim.x / kWarpSize : kMaxWarpsPerBlock;
  float total = 0.0f;
  for (int i = 0; i < count; ++i) total += partial[i];
  sum[blockIdx.x] = total;
}

TEST(SimulatorCheck, SharedMemoryThatNothingHasWritten) {
  const std::string report = Report(cudaErrorLaunchFailure, [] {
    PartialKernel<false><<<2, 4 * 64>>>(Zeros<float>(32), Fresh<float>(2));
  });
  ExpectContains(report, {"read of memory that nothing has written", Line(kPartialLine + 2),
                          "of the __shared__ variable `partial` of 128 bytes", "__syncthreads"});
  ExpectSilent([] { PartialKernel<true><<<2, 4 * 64>>>(Zeros<float>(32), Fresh<float>(2)); });
}

// What a block has written does not serve the next one on the same OS thread.
constexpr int kOnceLine = __LINE__ + 4;
__global__ void OnceKernel(int* out) {
  extern __shared__ int values[];
  if (blockIdx.x % 2 == 0) values[threadIdx.x] = 1;
  out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}

TEST(SimulatorCheck, SharedMemoryThatAnotherBlockHasWritten) {
  ExpectContains(Report(cudaErrorLaunchFailure, [] { OnceKernel<<<2, 8, 32>>>(Fresh<int>(16)); }),
                 {Line(kOnceLine), "block (1,0,0)", "of dynamic shared memory"});
}

TEST(SimulatorCheck, CublasOnUnwrittenMemory) {
  cublasHandle_t handle;
  CUBLAS_CHECK(cublasCreate(&handle));
  const float one = 1.0f, zero = 0.0f;
  for (const bool correct : {false, true}) {
    const auto multiply = [&] {
      float* a = Zeros<float>(64);
      float* b = correct ? Zeros<float>(64) : Fresh<float>(64);
      float* c = Fresh<float>(64);
      CUBLAS_CHECK(
          cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a, 8, b, 8, &zero, c, 8));
      if (correct) SumKernel<<<1, 1>>>(c, Fresh<float>(1), 64);
    };
    if (correct) {
      ExpectSilent(multiply);
    } else {
      ExpectContains(Report(cudaErrorLaunchFailure, multiply),
                     {"a matrix product of cuBLAS reads", "nothing has written"});
    }
  }
  CUBLAS_CHECK(cublasDestroy(handle));
}

// --- What a kernel may do with what the engine keeps elsewhere.

__device__ int table[4] = {1, 2, 3, 4};
__constant__ float factors[4] = {1, 2, 3, 4};

struct Parameters {
  float values[16];
  const float* more;
};

template <int kRounds>
__global__ void EverythingKernel(Parameters parameters, float* out) {
  __shared__ float scratch[64];
  float local[8];
  for (int i = 0; i < 8; ++i) local[i] = parameters.values[(i + threadIdx.x) % 16];
  float sum = 0.0f;
  for (int round = 0; round < kRounds; ++round) {
    scratch[threadIdx.x] = local[round] * factors[round % 4] + parameters.more[0];
    if (__syncthreads_or(round == 1)) sum += table[round % 4];
    sum += __shfl_xor_sync(kFullWarpMask, scratch[63 - threadIdx.x], 1);
    sum += __popcll(__ballot_sync(kFullWarpMask, sum > 1.0f));
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum + (__any_sync(kFullWarpMask, sum > 0) ? 1 : 0);
  atomicAdd(&table[0], 0);
}

TEST(SimulatorCheck, EverythingThatIsAllowed) {
  ExpectSilent([] {
    Parameters parameters = {};
    parameters.more = Zeros<float>(1);
    EverythingKernel<4><<<3, 64>>>(parameters, Fresh<float>(3 * 64));
  });
}

}  // namespace
}  // namespace tinyvllm
