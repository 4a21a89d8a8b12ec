// The simulator's statistics, exact for kernels whose accesses one can count by hand. The checks
// hold for warps of 32 and of 64, in every order of threads, and run in all of these.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"
#include "cuda_simulator/statistics.h"

namespace tinyvllm {
namespace {

using simulator::CountKernels;
using simulator::KernelStatistics;

constexpr int kThreads = 128;
constexpr int kBlocks = 3;
const int kWarps = kBlocks * kThreads / kWarpSize;  // of a launch

// What the one kernel did that `launch` launches.
template <typename Launch>
KernelStatistics Count(Launch launch) {
  const std::vector<KernelStatistics> kernels = CountKernels([&] {
    launch();
    CUDA_CHECK_LAUNCH();
  });
  EXPECT_EQ(kernels.size(), 1u);
  return kernels.empty() ? KernelStatistics() : kernels[0];
}

// --- Launches, threads, meetings.

__global__ void MeetKernel(int* out) {
  const int thread = threadIdx.x + threadIdx.y * blockDim.x;
  __syncthreads();
  const int sum = __shfl_xor_sync(kFullWarpMask, 1, 1);
  if (thread < 8) __syncwarp(0xff);
  __syncthreads();
  out[blockIdx.x * blockDim.x * blockDim.y + thread] = sum;
}

TEST(SimulatorStatistics, LaunchesThreadsAndMeetings) {
  DeviceBuffer<int> out(kBlocks * 100);
  const auto kernels = CountKernels([&] {
    for (int i = 0; i < 5; ++i) MeetKernel<<<dim3(kBlocks), dim3(50, 2)>>>(out.data());
  });
  ASSERT_EQ(kernels.size(), 1u);
  const KernelStatistics& k = kernels[0];
  const int warps = (100 + kWarpSize - 1) / kWarpSize;
  EXPECT_EQ(k.kernel, "MeetKernel");
  EXPECT_EQ(k.file, "tests/simulator_statistics_test.cu");
  EXPECT_EQ(k.launches, 5u);
  EXPECT_EQ(k.blocks, 5u * kBlocks);
  EXPECT_EQ(k.threads, 5u * kBlocks * 100);
  EXPECT_EQ(k.barriers, 5u * kBlocks * 2);
  EXPECT_EQ(k.exchanges, 5u * kBlocks * (warps + 1));
  EXPECT_EQ(k.partial_exchanges, 5u * kBlocks);
}

// --- Global memory.

// Thread i reads element `offset + i * stride` and writes element i.
template <typename T>
__global__ void StrideKernel(const T* in, T* out, int stride, int offset) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[offset + static_cast<size_t>(i) * stride];
}

template <typename T>
KernelStatistics CountStride(int stride, int offset) {
  const size_t count = kBlocks * kThreads;
  const DeviceBuffer<T> in(count * stride + offset + 1);
  DeviceBuffer<T> out(count);
  CUDA_CHECK(cudaMemset(const_cast<T*>(in.data()), 0, in.bytes()));
  const KernelStatistics k =
      Count([&] { StrideKernel<<<kBlocks, kThreads>>>(in.data(), out.data(), stride, offset); });
  EXPECT_EQ(k.accesses, 2u * kWarps);
  EXPECT_EQ(k.bytes_read, count * sizeof(T));
  EXPECT_EQ(k.bytes_written, count * sizeof(T));
  EXPECT_EQ(k.lanes, 2 * count);
  EXPECT_EQ(k.possible_lanes, 2 * count);
  EXPECT_EQ(k.shared_accesses, 0u);
  EXPECT_EQ(k.fewest_sectors, 2u * kWarps * kWarpSize * sizeof(T) / 32);
  return k;
}

TEST(SimulatorStatistics, Coalesced) {
  const KernelStatistics k = CountStride<float>(1, 0);
  EXPECT_EQ(k.sectors, k.fewest_sectors);
}

TEST(SimulatorStatistics, EveryOtherElement) {
  const uint64_t write = kWarps * kWarpSize * 4 / 32;
  EXPECT_EQ(CountStride<float>(2, 0).sectors, write + 2 * write);
}

TEST(SimulatorStatistics, ASectorForEachLane) {
  const uint64_t write = kWarps * kWarpSize * 4 / 32;
  EXPECT_EQ(CountStride<float>(32, 0).sectors, write + kWarps * kWarpSize);
  EXPECT_EQ(CountStride<float>(8, 0).sectors, write + kWarps * kWarpSize);
}

TEST(SimulatorStatistics, MisalignedByOne) {
  const uint64_t write = kWarps * kWarpSize * 4 / 32;
  EXPECT_EQ(CountStride<float>(1, 1).sectors, write + write + kWarps);
}

TEST(SimulatorStatistics, TwoBytesAThread) {
  const KernelStatistics k = CountStride<unsigned short>(1, 0);
  EXPECT_EQ(k.sectors, 2u * kWarps * kWarpSize * 2 / 32);
}

TEST(SimulatorStatistics, SixteenBytesAThread) {
  const KernelStatistics k = CountStride<float4>(1, 0);
  EXPECT_EQ(k.sectors, k.fewest_sectors);
  EXPECT_EQ(k.sectors, 2u * kWarps * kWarpSize / 2);
  EXPECT_EQ(CountStride<float4>(2, 0).sectors, kWarps * kWarpSize / 2u + kWarps * kWarpSize);
}

// All lanes read one element, a tile of a row each time: the loop's executions are told apart.
__global__ void BroadcastKernel(const float* in, float* out, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += in[8 * i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

TEST(SimulatorStatistics, Broadcast) {
  constexpr int kCount = 7;
  const DeviceBuffer<float> in(std::vector<float>(8 * kCount, 1.0f));
  DeviceBuffer<float> out(kBlocks * kThreads);
  const KernelStatistics k =
      Count([&] { BroadcastKernel<<<kBlocks, kThreads>>>(in.data(), out.data(), kCount); });
  const uint64_t write = kWarps * kWarpSize * 4 / 32;
  EXPECT_EQ(k.accesses, kWarps * (kCount + 1u));
  EXPECT_EQ(k.sectors, kWarps * kCount + write);
  EXPECT_EQ(k.fewest_sectors, kWarps * kCount + write);
  EXPECT_EQ(k.bytes_read, 4u * kCount * kWarps);  // what all lanes want is read once
}

// A quarter of the lanes takes part, those whose number is a multiple of four, in every other
// round.
__global__ void DivergeKernel(const float* in, float* out, int rounds) {
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == 1 && threadIdx.x % 4 == 0) sum += in[threadIdx.x];
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}

TEST(SimulatorStatistics, LanesThatStayAway) {
  const DeviceBuffer<float> in(std::vector<float>(kThreads, 1.0f));
  DeviceBuffer<float> out(kThreads);
  const KernelStatistics k =
      Count([&] { DivergeKernel<<<1, kThreads>>>(in.data(), out.data(), 6); });
  EXPECT_EQ(k.accesses, 3u * kThreads / kWarpSize + kThreads / kWarpSize);
  EXPECT_EQ(k.lanes, 3u * kThreads / 4 + kThreads);
  EXPECT_EQ(k.possible_lanes, 4u * kThreads);
  // One element in sixteen bytes: every sector is asked for, half as many would do, rounded up.
  EXPECT_EQ(k.sectors, 4u * kThreads * 4 / 32);
  EXPECT_EQ(k.fewest_sectors, 3 * (kThreads * 4 / 32 / 4) + kThreads * 4u / 32);
}

__global__ void AtomicKernel(int* count, float* sum) {
  atomicAdd(count, 1);
  if (threadIdx.x == 0) atomicAdd(sum, 1.0f);
}

TEST(SimulatorStatistics, Atomics) {
  DeviceBuffer<int> count(std::vector<int>{0});
  DeviceBuffer<float> sum(std::vector<float>{0.0f});
  const KernelStatistics k =
      Count([&] { AtomicKernel<<<1, kThreads>>>(count.data(), sum.data()); });
  EXPECT_EQ(k.atomics, kThreads + 1u);
  EXPECT_EQ(k.accesses, 0u);
}

// --- Shared memory.

// Thread i writes word i * stride and reads it again.
template <typename T, bool kDynamic>
__global__ void SharedKernel(T* out, T value, int stride) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ __align__(16) T fixed[kDynamic ? 1 : 32 * 64];
  T* words = kDynamic ? reinterpret_cast<T*>(dynamic) : fixed;
  words[threadIdx.x * stride] = value;
  __syncthreads();
  out[threadIdx.x] = words[threadIdx.x * stride];
}

template <typename T, bool kDynamic>
KernelStatistics CountShared(int stride) {
  DeviceBuffer<T> out(64);
  const size_t bytes = kDynamic ? sizeof(T) * 32 * 64 : 0;
  const KernelStatistics k =
      Count([&] { SharedKernel<T, kDynamic><<<1, 64, bytes>>>(out.data(), T(), stride); });
  EXPECT_EQ(k.shared_accesses, 2u * 64 / kWarpSize);
  EXPECT_EQ(k.fewest_shared_passes, 2u * 64 * std::max<size_t>(4, sizeof(T)) / 128);
  EXPECT_EQ(k.accesses, 64u / kWarpSize);
  return k;
}

// How many times as many passes as without conflicts.
template <typename T>
double Conflicts(int stride) {
  const KernelStatistics fixed = CountShared<T, false>(stride);
  const KernelStatistics dynamic = CountShared<T, true>(stride);
  EXPECT_EQ(fixed.shared_passes, dynamic.shared_passes);
  return static_cast<double>(fixed.shared_passes) / static_cast<double>(fixed.fewest_shared_passes);
}

TEST(SimulatorStatistics, BankConflicts) {
  EXPECT_EQ(Conflicts<float>(1), 1);
  EXPECT_EQ(Conflicts<float>(2), 2);
  EXPECT_EQ(Conflicts<float>(3), 1);
  EXPECT_EQ(Conflicts<float>(8), 8);
  EXPECT_EQ(Conflicts<float>(31), 1);
  EXPECT_EQ(Conflicts<float>(32), 32);
}

TEST(SimulatorStatistics, BankConflictsOfNarrowAndWideWords) {
  EXPECT_EQ(Conflicts<unsigned char>(1), 1);   // four lanes a word
  EXPECT_EQ(Conflicts<unsigned short>(1), 1);  // two
  EXPECT_EQ(Conflicts<unsigned short>(4), 2);
  EXPECT_EQ(Conflicts<double>(1), 1);  // by halves of a warp
  EXPECT_EQ(Conflicts<double>(2), 2);
  EXPECT_EQ(Conflicts<double>(16), 16);
  EXPECT_EQ(Conflicts<float4>(1), 1);  // by quarters
  EXPECT_EQ(Conflicts<float4>(2), 2);
  EXPECT_EQ(Conflicts<float4>(8), 8);
}

// One thread writes a word, all read it.
__global__ void SharedBroadcastKernel(float* out) {
  __shared__ float word;
  if (threadIdx.x == 0) word = 1.0f;
  __syncthreads();
  out[threadIdx.x] = word;
}

TEST(SimulatorStatistics, SharedBroadcast) {
  DeviceBuffer<float> out(64);
  const KernelStatistics k = Count([&] { SharedBroadcastKernel<<<1, 64>>>(out.data()); });
  EXPECT_EQ(k.shared_accesses, 1u + 64 / kWarpSize);
  EXPECT_EQ(k.shared_passes, 1u + 2);
  EXPECT_EQ(k.fewest_shared_passes, 1u + 2);
}

// A matrix is written by rows and read by columns; one unused word at the end of each row helps.
template <int kRowWords>
__global__ void TransposeKernel(const float* in, float* out) {
  __shared__ float tile[32][kRowWords];
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < 32; row += blockDim.x / 32) {
    tile[row][lane] = in[row * 32 + lane];
  }
  __syncthreads();
  for (int row = threadIdx.x / 32; row < 32; row += blockDim.x / 32) {
    out[row * 32 + lane] = tile[lane][row];
  }
}

TEST(SimulatorStatistics, APaddedColumn) {
  const DeviceBuffer<float> in(std::vector<float>(32 * 32, 1.0f));
  DeviceBuffer<float> out(32 * 32);
  const KernelStatistics plain =
      Count([&] { TransposeKernel<32><<<1, 128>>>(in.data(), out.data()); });
  EXPECT_EQ(plain.fewest_shared_passes, 2u * 32);
  EXPECT_EQ(plain.shared_passes, 32u + 32 * 32);
  EXPECT_EQ(plain.sectors, plain.fewest_sectors);
  EXPECT_EQ(plain.sectors, 2u * 32 * 32 * 4 / 32);
  const KernelStatistics padded =
      Count([&] { TransposeKernel<33><<<1, 128>>>(in.data(), out.data()); });
  EXPECT_EQ(padded.shared_passes, padded.fewest_shared_passes);
  EXPECT_EQ(padded.fewest_shared_passes, 2u * 32);
}

// What is longer than an instruction can move goes 16 bytes at a time.
struct Row {
  float values[12];
};

__global__ void CopyKernel(const Row* in, Row* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

TEST(SimulatorStatistics, CopiesOfRows) {
  constexpr int kCount = kBlocks * kThreads;
  DeviceBuffer<Row> in(kCount), out(kCount);
  in.Fill(0);
  const KernelStatistics k =
      Count([&] { CopyKernel<<<kBlocks, kThreads>>>(in.data(), out.data()); });
  EXPECT_EQ(k.accesses, 2u * 3 * kWarps);
  EXPECT_EQ(k.bytes_read, in.bytes());
  EXPECT_EQ(k.bytes_written, in.bytes());
  EXPECT_EQ(k.sectors, 2u * 3 * kCount);  // each lane's 16 bytes lie 48 from the next lane's
  EXPECT_EQ(k.fewest_sectors, 2u * 3 * kCount / 2);
}

// --- What does not count.

__global__ void LocalKernel(float* out) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[i] = threadIdx.x * i;
  __syncwarp();
  float sum = 0.0f;
  for (int i = 0; i < 8; ++i) sum += values[(i + threadIdx.x) % 8];
  out[threadIdx.x] = sum / kWarpSize;
}

TEST(SimulatorStatistics, LocalVariablesAndConstants) {
  DeviceBuffer<float> out(kThreads);
  const KernelStatistics k = Count([&] { LocalKernel<<<1, kThreads>>>(out.data()); });
  EXPECT_EQ(k.accesses, 1u * kThreads / kWarpSize);
  EXPECT_EQ(k.bytes_read, 0u);
  EXPECT_EQ(k.shared_accesses, 0u);
}

// --- Scopes and the table.

TEST(SimulatorStatistics, EachKernelByItsName) {
  DeviceBuffer<float> out(kThreads);
  LocalKernel<<<1, kThreads>>>(out.data());  // outside
  const auto kernels = CountKernels([&] {
    SharedKernel<float, false><<<1, 64>>>(out.data(), 1.0f, 1);
    LocalKernel<<<1, kThreads>>>(out.data());
    LocalKernel<<<1, kThreads>>>(out.data());
  });
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].kernel, "SharedKernel<float,false>");
  EXPECT_EQ(kernels[0].launches, 1u);
  EXPECT_EQ(kernels[1].kernel, "LocalKernel");
  EXPECT_EQ(kernels[1].launches, 2u);
  EXPECT_TRUE(CountKernels([] {}).empty());
}

TEST(SimulatorStatistics, Table) {
  KernelStatistics kernel;
  kernel.kernel = "Scale";
  kernel.launches = 2;
  kernel.threads = 1234567;
  kernel.barriers = 8;
  kernel.bytes_read = 3 << 19;
  kernel.bytes_written = 100;
  kernel.accesses = 10;
  kernel.sectors = 80;
  kernel.fewest_sectors = 40;
  kernel.lanes = 160;
  kernel.possible_lanes = 320;
  KernelStatistics uncounted;
  uncounted.kernel = "Other";
  uncounted.launches = 1;
  EXPECT_EQ(
      simulator::StatisticsTable({kernel, uncounted}),
      "kernel  launches    threads  barriers  exchanges     read  written  sectors  of fewest  "
      "shared passes  of fewest  lanes  atomics\n"
      "Scale          2  1,234,567         8          0  1.5 MiB    100 B       80     2.00 x  "
      "            0          -   50 %        0\n"
      "Other          1          0         0          0        -        -        -          -  "
      "            -          -      -        -\n");
}

TEST(SimulatorStatistics, TheTableTellsFilesApart) {
  KernelStatistics one, two, three;
  one.kernel = two.kernel = "kernel";
  one.file = "lessons/a/first.cu";
  two.file = "lessons/b/second.cu";
  three.kernel = "Scale";
  three.file = "lessons/a/first.cu";
  const std::string table = simulator::StatisticsTable({one, two, three});
  for (const char* name : {"\nkernel (first.cu) ", "\nkernel (second.cu) ", "\nScale  "}) {
    EXPECT_NE(table.find(name), std::string::npos) << name << " is not in\n" << table;
  }
}

}  // namespace
}  // namespace tinyvllm
