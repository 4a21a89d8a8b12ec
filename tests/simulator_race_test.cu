// The race detector, bazel test --config=race: kernels that lack a barrier, each found at the right
// lines, and beside each the same kernel put right, on which the detector must stay silent.
//
// Elsewhere nothing watches the accesses, and the build leaves these checks out.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"

namespace tinyvllm {
namespace {

constexpr int kThreads = 128;

// Runs a kernel that has a race: one report, an error that sticks until the device is reset.
template <typename Launch>
std::string Report(Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  const cudaError_t found = cudaDeviceSynchronize();
  const std::string report = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, cudaErrorLaunchFailure) << report;
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return report;
}

void ExpectContains(const std::string& report, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

template <typename Launch>
void ExpectSilent(Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  cudaDeviceReset();
}

// With the colon that follows the place in a report.
std::string Line(int line) { return "simulator_race_test.cu:" + std::to_string(line) + ":"; }

// Device memory that the reset after a report has already taken back: no owner may free it again.
template <typename T>
T* Zeros(size_t count) {
  T* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, count * sizeof(T)), cudaSuccess);
  return memory;
}

// --- A value from shared memory before its writer is known to have written it.

constexpr int kReverseLine = __LINE__ + 5;
template <bool kCorrect>
__global__ void ReverseKernel(float* x) {
  __shared__ float tile[kThreads];
  float* mine = x + blockIdx.x * kThreads;
  tile[threadIdx.x] = mine[threadIdx.x];
  if (kCorrect) __syncthreads();
  mine[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

TEST(SimulatorRace, MissingBarrierAfterASharedStore) {
  const std::string report =
      Report([] { ReverseKernel<false><<<1, kThreads>>>(Zeros<float>(kThreads)); });
  ExpectContains(report,
                 {"error in kernel ReverseKernel<false> (launched at ", "block (0,0,0), thread (",
                  Line(kReverseLine), Line(kReverseLine + 2), "wrote", "read", "variable `tile`",
                  "missing between them: __syncthreads", "advice: ", "docs/simulator.md#races"});
}

TEST(SimulatorRace, ABarrierAfterASharedStore) {
  ExpectSilent([] { ReverseKernel<true><<<3, kThreads>>>(Zeros<float>(kThreads * 3)); });
}

// --- A reduction whose scratch is used again while slow threads still read it.

constexpr int kSumsLine = __LINE__ + 7;
template <bool kCorrect>
__global__ void SumsKernel(const float* x, float* sums, int rows) {
  extern __shared__ float partial[];
  for (int row = 0; row < rows; ++row) {
    if (kCorrect) __syncthreads();
    // The first line of the next round overwrites what the last line of this round still reads.
    partial[threadIdx.x] = x[row * blockDim.x + threadIdx.x];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < static_cast<int>(blockDim.x); ++i) sum += partial[i];
    sums[row * blockDim.x + threadIdx.x] = sum;
  }
}

TEST(SimulatorRace, MissingSecondBarrierInALoop) {
  const std::string report = Report([] {
    SumsKernel<false><<<1, kThreads, kThreads * sizeof(float)>>>(Zeros<float>(kThreads * 2),
                                                                 Zeros<float>(kThreads * 2), 2);
  });
  ExpectContains(report, {"race: ", Line(kSumsLine), Line(kSumsLine + 3), "dynamic shared memory",
                          "missing between them: __sync"});
}

TEST(SimulatorRace, BothBarriersInALoop) {
  ExpectSilent([] {
    SumsKernel<true><<<1, kThreads, kThreads * sizeof(float)>>>(Zeros<float>(kThreads * 5),
                                                                Zeros<float>(kThreads * 5), 5);
  });
}

// --- Within a warp. A shuffle moves values between lanes, but orders no memory.

enum class WarpWait { kNone, kShuffle, kSyncWarp };

constexpr int kNeighbourLine = __LINE__ + 4;
template <WarpWait kWait>
__global__ void NeighbourKernel(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  if (kWait == WarpWait::kShuffle) out[threadIdx.x] = __shfl_xor_sync(kFullWarpMask, 1, 1);
  if (kWait == WarpWait::kSyncWarp) __syncwarp();
  out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x ^ 1];
}

TEST(SimulatorRace, MissingSyncWarp) {
  for (const bool shuffle : {false, true}) {
    const std::string report = Report([=] {
      int* out = Zeros<int>(64);
      if (shuffle) {
        NeighbourKernel<WarpWait::kShuffle><<<1, 64>>>(out);
      } else {
        NeighbourKernel<WarpWait::kNone><<<1, 64>>>(out);
      }
    });
    ExpectContains(report, {Line(kNeighbourLine), Line(kNeighbourLine + 3),
                            "missing between them: __syncwarp"});
  }
}

TEST(SimulatorRace, ASyncWarp) {
  ExpectSilent([] { NeighbourKernel<WarpWait::kSyncWarp><<<2, 64>>>(Zeros<int>(64 * 2)); });
}

// A warp's barrier says nothing of another warp, and one of half a warp nothing of the other half.
constexpr int kHalvesLine = __LINE__ + 4;
template <bool kCorrect>
__global__ void HalvesKernel(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  const bool low = threadIdx.x < 16;
  const unsigned half = 0xffffu;
  if (low) {
    __syncwarp(half);
    out[threadIdx.x] = values[threadIdx.x ^ (kCorrect ? 1 : 16)];
  }
}

TEST(SimulatorRace, SyncWarpOfAMask) {
  if (kWarpSize != 32) GTEST_SKIP() << "the masks are for warps of 32";
  const std::string report = Report([] { HalvesKernel<false><<<1, 32>>>(Zeros<int>(32)); });
  ExpectContains(report, {Line(kHalvesLine), "missing between them: __syncwarp"});
  ExpectSilent([] { HalvesKernel<true><<<1, 32>>>(Zeros<int>(32)); });
}

// --- Several threads write one element.

constexpr int kSameElementLine = __LINE__ + 4;
template <bool kCorrect, typename T>
__global__ void HistogramKernel(T* bins) {
  const int bin = kCorrect ? threadIdx.x : threadIdx.x / 64;
  bins[bin] = static_cast<T>(threadIdx.x);
}

TEST(SimulatorRace, TwoThreadsWriteOneElement) {
  const std::string report =
      Report([] { HistogramKernel<false><<<1, kThreads>>>(Zeros<int>(kThreads)); });
  ExpectContains(report, {"race: write after write", Line(kSameElementLine), "the same line",
                          "an allocation of 512 bytes", "two threads write one element"});
}

TEST(SimulatorRace, NeighboursOfOneByteAreNotOneElement) {
  ExpectSilent([] { HistogramKernel<true><<<1, kThreads>>>(Zeros<int>(kThreads)); });
  ExpectSilent([] { HistogramKernel<true><<<1, kThreads>>>(Zeros<short>(kThreads)); });
  ExpectSilent([] { HistogramKernel<true><<<1, kThreads>>>(Zeros<char>(kThreads)); });
}

TEST(SimulatorRace, OneElementOfOneByte) {
  ExpectContains(Report([] { HistogramKernel<false><<<1, kThreads>>>(Zeros<char>(kThreads)); }),
                 {"race: write after write", Line(kSameElementLine)});
}

// A vector of four is written, one of its elements read.
constexpr int kVectorLine = __LINE__ + 4;
template <bool kCorrect>
__global__ void VectorKernel(float* out) {
  __shared__ __align__(16) float values[4 * 64];
  reinterpret_cast<float4*>(values)[threadIdx.x] = make_float4(1, 2, 3, 4);
  if (kCorrect) __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

TEST(SimulatorRace, AVectorAndItsElement) {
  ExpectContains(Report([] { VectorKernel<false><<<1, 64>>>(Zeros<float>(64)); }),
                 {Line(kVectorLine), Line(kVectorLine + 2), "variable `values`"});
  ExpectSilent([] { VectorKernel<true><<<1, 64>>>(Zeros<float>(64)); });
}

// --- Between blocks.

constexpr int kShiftLine = __LINE__ + 4;
template <bool kCorrect>
__global__ void ShiftKernel(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float left = i == 0 ? 0.0f : in[i - 1];
  if (!kCorrect) __syncthreads();  // waits for this block alone
  out[i] = left;
}

TEST(SimulatorRace, BetweenBlocksOnGlobalMemory) {
  const std::string report = Report([] {
    float* x = Zeros<float>(4 * kThreads);
    ShiftKernel<false><<<4, kThreads>>>(x, x);
  });
  ExpectContains(report, {Line(kShiftLine), Line(kShiftLine + 2), "of block (",
                          "nothing orders two blocks of one launch"});
}

TEST(SimulatorRace, BlocksWithMemoryOfTheirOwn) {
  ExpectSilent([] {
    float* x = Zeros<float>(4 * kThreads);
    float* y = Zeros<float>(4 * kThreads);
    ShiftKernel<true><<<4, kThreads>>>(x, y);
    // The next launch comes after this one, whatever it reads and writes.
    ShiftKernel<true><<<4, kThreads>>>(y, x);
  });
}

// --- Atomics.

constexpr int kCountLine = __LINE__ + 4;
template <bool kCorrect>
__global__ void CountKernel(int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  if (kCorrect) __syncthreads();
  atomicAdd(&count, 1);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = count;
}

TEST(SimulatorRace, AnAtomicAndAPlainAccess) {
  ExpectContains(Report([] { CountKernel<false><<<1, kThreads>>>(Zeros<int>(kThreads)); }),
                 {"an atomic access and a plain one", Line(kCountLine), Line(kCountLine + 2),
                  "variable `count`", "missing between them: __sync"});
  ExpectSilent([] { CountKernel<true><<<2, kThreads>>>(Zeros<int>(kThreads * 2)); });
}

__global__ void AddKernel(float* sum, unsigned long long* largest) {
  atomicAdd(sum, 1.0f);
  atomicMax(largest, static_cast<unsigned long long>(threadIdx.x));
}

TEST(SimulatorRace, AtomicsOfAllBlocks) {
  ExpectSilent([] { AddKernel<<<8, kThreads>>>(Zeros<float>(1), Zeros<unsigned long long>(1)); });
}

// --- The last block to finish adds up what the others have written.

enum class Fence { kNone, kBlockOnly, kAfterTheTicket, kEachThread, kOneThread };

constexpr int kMergeLine = __LINE__ + 5;
template <Fence kFence>
__global__ void MergeKernel(float* partial, unsigned* tickets, float* sum) {
  __shared__ bool last;
  const int threads = blockDim.x;
  partial[blockIdx.x * threads + threadIdx.x] = 1.0f;
  if (kFence == Fence::kEachThread) __threadfence();
  if (kFence == Fence::kBlockOnly) __threadfence_block();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kFence == Fence::kOneThread) __threadfence();
    last = atomicAdd(tickets, 1) == gridDim.x - 1;
    if (kFence == Fence::kAfterTheTicket) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  float mine = 0.0f;
  for (int block = 0; block < static_cast<int>(gridDim.x); ++block) {
    mine += partial[block * threads + threadIdx.x];
  }
  atomicAdd(sum, mine);
  if (threadIdx.x == 0) *tickets = 0;
}
constexpr int kMergeReadLine = __LINE__ - 5;

template <Fence kFence>
void LaunchMerge() {
  float* partial = Zeros<float>(6 * 64);
  unsigned* tickets = Zeros<unsigned>(1);
  float* sum = Zeros<float>(1);
  MergeKernel<kFence><<<6, 64>>>(partial, tickets, sum);
  MergeKernel<kFence><<<6, 64>>>(partial, tickets, sum);
  float result = 0.0f;
  if (cudaMemcpy(&result, sum, sizeof(result), cudaMemcpyDeviceToHost) == cudaSuccess) {
    EXPECT_EQ(result, 2 * 6 * 64);
  }
}

TEST(SimulatorRace, LastBlockWithoutAFence) {
  for (const std::string& report :
       {Report(LaunchMerge<Fence::kNone>), Report(LaunchMerge<Fence::kBlockOnly>),
        Report(LaunchMerge<Fence::kAfterTheTicket>)}) {
    ExpectContains(report, {"race: read after write", Line(kMergeLine), Line(kMergeReadLine),
                            "nothing orders two blocks", "__threadfence()"});
  }
}

TEST(SimulatorRace, LastBlockWithAFence) {
  ExpectSilent(LaunchMerge<Fence::kEachThread>);
  ExpectSilent(LaunchMerge<Fence::kOneThread>);
}

// The ticket is drawn before all threads of the block have written.
template <bool kCorrect>
__global__ void EarlyTicketKernel(float* partial, unsigned* tickets, float* out) {
  __shared__ bool last;
  partial[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  __threadfence();
  if (kCorrect) __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(tickets, 1) == gridDim.x - 1;
  __syncthreads();
  if (last) out[threadIdx.x] = partial[threadIdx.x] + partial[blockDim.x + threadIdx.x];
}

TEST(SimulatorRace, ATicketBeforeTheBarrier) {
  ExpectContains(Report([] {
                   EarlyTicketKernel<false>
                       <<<2, 64>>>(Zeros<float>(128), Zeros<unsigned>(1), Zeros<float>(64));
                 }),
                 {"race: read after write", "nothing orders two blocks"});
  ExpectSilent([] {
    EarlyTicketKernel<true><<<2, 64>>>(Zeros<float>(128), Zeros<unsigned>(1), Zeros<float>(64));
  });
}

// What a block knows of all others is remembered in a few words, so this takes no longer than many
// kernels of few blocks.
TEST(SimulatorRace, LastOfManyBlocks) {
  constexpr int kManyBlocks = 4000;
  ExpectSilent([] {
    MergeKernel<Fence::kOneThread>
        <<<kManyBlocks, 64>>>(Zeros<float>(kManyBlocks * 64), Zeros<unsigned>(1), Zeros<float>(1));
  });
}

// A chain: each block waits for the flag of the one that began before it. What the first wrote is
// known to the third, as each passes on what it knows.
template <bool kCorrect>
__global__ void ChainKernel(unsigned* tickets, volatile int* flags, int* data) {
  if (threadIdx.x != 0) return;
  const int place = static_cast<int>(atomicAdd(tickets, 1));
  while (place > 0 && flags[place - 1] == 0) __nanosleep(100);
  data[place] = place == 0 ? 1 : data[place - 1] + data[0];
  if (kCorrect || place != 1) __threadfence();
  flags[place] = 1;
}

template <bool kCorrect>
void LaunchChain() {
  int* data = Zeros<int>(4);
  ChainKernel<kCorrect><<<4, 32>>>(Zeros<unsigned>(1), Zeros<int>(4), data);
  int last = 0;
  if (cudaMemcpy(&last, data + 3, sizeof(last), cudaMemcpyDeviceToHost) == cudaSuccess) {
    EXPECT_EQ(last, 4);
  }
}

TEST(SimulatorRace, AChainOfBlocks) {
  ExpectSilent(LaunchChain<true>);
  ExpectContains(Report(LaunchChain<false>),
                 {"race: read after write", "nothing orders two blocks"});
}

// --- Shared memory that is declared outside functions.

__shared__ int outside[kThreads];

template <bool kCorrect>
__global__ void OutsideKernel(int* out) {
  outside[threadIdx.x] = threadIdx.x;
  if (kCorrect) __syncthreads();
  out[threadIdx.x] = outside[kThreads - 1 - threadIdx.x];
}

TEST(SimulatorRace, SharedMemoryOutsideFunctions) {
  ExpectSilent([] { OutsideKernel<true><<<1, kThreads>>>(Zeros<int>(kThreads)); });
  ExpectContains(Report([] { OutsideKernel<false><<<1, kThreads>>>(Zeros<int>(kThreads)); }),
                 {"race: ", "the __shared__ variable `outside`", "missing between them"});
}

// --- What is nobody's business: a thread's own variables, and pointers to them.

__device__ int Sum(const int* values, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}

__global__ void LocalKernel(int* out) {
  int values[8];
  for (int i = 0; i < 8; ++i) values[i] = i + threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = Sum(values, 1 + threadIdx.x % 8);
}

TEST(SimulatorRace, LocalVariables) {
  ExpectSilent([] { LocalKernel<<<1, kThreads>>>(Zeros<int>(kThreads)); });
}

}  // namespace
}  // namespace tinyvllm
