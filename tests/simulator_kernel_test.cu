// What a kernel can say: indices, shared memory, barriers, warps, atomics, intrinsics. Plain CUDA,
// so that on a GPU the same checks prove that the simulator tells the truth.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"

namespace tinyvllm {
namespace {

// A kernel's output of `count` elements, filled with ones before the kernel runs.
template <typename T, typename Launch>
std::vector<T> RunKernel(size_t count, Launch launch) {
  DeviceBuffer<T> out(count);
  CUDA_CHECK(cudaMemset(out.data(), 0xff, count * sizeof(T)));
  launch(out.data());
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaDeviceSynchronize());
  return out.ToHost();
}

// --- Indices.

__global__ void IndexKernel(uint3* threads, uint3* blocks, uint3* sizes) {
  const unsigned in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + in_block;
  threads[i] = threadIdx;
  blocks[i] = blockIdx;
  if (i == 0) {
    sizes[0] = make_uint3(blockDim.x, blockDim.y, blockDim.z);
    sizes[1] = make_uint3(gridDim.x, gridDim.y, gridDim.z);
  }
}

TEST(SimulatorKernel, IndicesCoverTheGrid) {
  const dim3 block(5, 3, 2), grid(3, 2, 4);
  const size_t count = 30 * 24;
  DeviceBuffer<uint3> threads(count), blocks(count), sizes(2);
  IndexKernel<<<grid, block>>>(threads.data(), blocks.data(), sizes.data());
  CUDA_CHECK_LAUNCH();
  const std::vector<uint3> t = threads.ToHost(), b = blocks.ToHost(), s = sizes.ToHost();
  EXPECT_EQ(s[0].x, 5u);
  EXPECT_EQ(s[0].y, 3u);
  EXPECT_EQ(s[0].z, 2u);
  EXPECT_EQ(s[1].x, 3u);
  EXPECT_EQ(s[1].y, 2u);
  EXPECT_EQ(s[1].z, 4u);
  for (size_t i = 0; i < count; ++i) {
    const unsigned in_block = i % 30, number = i / 30;
    ASSERT_EQ(t[i].x, in_block % 5);
    ASSERT_EQ(t[i].y, in_block / 5 % 3);
    ASSERT_EQ(t[i].z, in_block / 15);
    ASSERT_EQ(b[i].x, number % 3);
    ASSERT_EQ(b[i].y, number / 3 % 2);
    ASSERT_EQ(b[i].z, number / 6);
  }
}

// --- Shared memory and the block's barrier.

template <typename T, int kSize>
__global__ void ReverseKernel(const T* in, T* out) {
  __shared__ T values[kSize];
  values[threadIdx.x] = in[blockIdx.x * kSize + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * kSize + threadIdx.x] = values[kSize - 1 - threadIdx.x];
}

TEST(SimulatorKernel, StaticSharedMemoryIsOneBlocksOwn) {
  constexpr int kSize = 192, kBlocks = 50;
  std::vector<double> in(kSize * kBlocks);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 0.5 * i;
  const DeviceBuffer<double> device(in);
  const auto out = RunKernel<double>(in.size(), [&](double* result) {
    ReverseKernel<double, kSize><<<kBlocks, kSize>>>(device.data(), result);
  });
  for (int b = 0; b < kBlocks; ++b) {
    for (int i = 0; i < kSize; ++i) {
      ASSERT_EQ(out[b * kSize + i], in[b * kSize + kSize - 1 - i]);
    }
  }
}

// Two arrays in one dynamic allocation, and a static one beside it.
__global__ void DynamicKernel(int* out) {
  extern __shared__ __align__(16) unsigned char scratch[];
  __shared__ int first, last;
  int* squares = reinterpret_cast<int*>(scratch);
  short* negatives = reinterpret_cast<short*>(scratch + blockDim.x * sizeof(int));
  squares[threadIdx.x] = threadIdx.x * threadIdx.x;
  negatives[threadIdx.x] = -static_cast<short>(threadIdx.x);
  if (threadIdx.x == 0) first = 1000;
  if (threadIdx.x == blockDim.x - 1) last = 2000;
  __syncthreads();
  const unsigned other = blockDim.x - 1 - threadIdx.x;
  out[threadIdx.x] = squares[other] + negatives[other] + first + last;
}

TEST(SimulatorKernel, DynamicSharedMemory) {
  const int n = 700;
  const auto out = RunKernel<int>(
      n, [&](int* result) { DynamicKernel<<<1, n, n*(sizeof(int) + sizeof(short))>>>(result); });
  for (int i = 0; i < n; ++i) {
    const int other = n - 1 - i;
    ASSERT_EQ(out[i], other * other - other + 3000);
  }
}

__global__ void LargeDynamicKernel(int* out, int count) {
  extern __shared__ int values[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) values[i] = 3 * i;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = values[count - 1 - i];
}

TEST(SimulatorKernel, NinetySixKibibytesOfSharedMemoryByAttribute) {
  const int count = 96 * 1024 / sizeof(int);
  CUDA_CHECK(cudaFuncSetAttribute(LargeDynamicKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  count * sizeof(int)));
  const auto out = RunKernel<int>(count, [&](int* result) {
    LargeDynamicKernel<<<1, 256, count * sizeof(int)>>>(result, count);
  });
  for (int i = 0; i < count; ++i) ASSERT_EQ(out[i], 3 * (count - 1 - i));
}

// A value passed from hand to hand round the block, one barrier a step.
__global__ void RingKernel(int* out, int steps) {
  __shared__ int ring[2][1024];
  int value = threadIdx.x;
  for (int step = 0; step < steps; ++step) {
    ring[step % 2][threadIdx.x] = value;
    __syncthreads();
    value = ring[step % 2][(threadIdx.x + 1) % blockDim.x] + 1;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

TEST(SimulatorKernel, BarriersInALoop) {
  const int threads = 1024, steps = 50;
  const auto out =
      RunKernel<int>(2 * threads, [&](int* result) { RingKernel<<<2, threads>>>(result, steps); });
  for (int i = 0; i < 2 * threads; ++i) {
    ASSERT_EQ(out[i], (i % threads + steps) % threads + steps);
  }
}

__global__ void BlockVoteKernel(int* out, int limit) {
  const int below = static_cast<int>(threadIdx.x) < limit;
  const int count = __syncthreads_count(below);
  const int all = __syncthreads_and(below);
  const int any = __syncthreads_or(below);
  out[threadIdx.x] = count * 4 + (all != 0) * 2 + (any != 0);
}

TEST(SimulatorKernel, BlockVotes) {
  const int threads = 97;
  for (const int limit : {0, 1, 40, 96, 97}) {
    const auto out = RunKernel<int>(
        threads, [&](int* result) { BlockVoteKernel<<<1, threads>>>(result, limit); });
    const int expected = limit * 4 + (limit == threads) * 2 + (limit > 0);
    for (const int value : out) ASSERT_EQ(value, expected) << limit;
  }
}

// --- Warps.

__global__ void ShuffleKernel(int* out, int width) {
  const int lane = threadIdx.x % kWarpSize, n = blockDim.x;
  const int value = 100 + threadIdx.x;
  int* row = out + threadIdx.x;
  row[0 * n] = __shfl_sync(kFullWarpMask, value, 3, width);
  row[1 * n] = __shfl_sync(kFullWarpMask, value, lane + 5, width);
  row[2 * n] = __shfl_up_sync(kFullWarpMask, value, 2, width);
  row[3 * n] = __shfl_down_sync(kFullWarpMask, value, 3, width);
  row[4 * n] = __shfl_xor_sync(kFullWarpMask, value, 5, width);
}

TEST(SimulatorKernel, ShufflesOfEveryWidth) {
  const int threads = 2 * kWarpSize;
  for (int width = 1; width <= kWarpSize; width *= 2) {
    const auto out = RunKernel<int>(
        5 * threads, [&](int* result) { ShuffleKernel<<<1, threads>>>(result, width); });
    for (int i = 0; i < threads; ++i) {
      const int begin = i / width * width, in_segment = i - begin, warp = i / kWarpSize * kWarpSize;
      ASSERT_EQ(out[i], 100 + begin + 3 % width) << width;
      ASSERT_EQ(out[threads + i], 100 + begin + (i % kWarpSize + 5) % width) << width;
      ASSERT_EQ(out[2 * threads + i], 100 + (in_segment >= 2 ? i - 2 : i)) << width;
      ASSERT_EQ(out[3 * threads + i], 100 + (in_segment + 3 < width ? i + 3 : i)) << width;
      // A lane may read an earlier segment through xor, never a later one.
      const int partner = warp + ((i - warp) ^ 5);
      ASSERT_EQ(out[4 * threads + i], 100 + (partner < begin + width ? partner : i)) << width;
    }
  }
}

template <typename T>
__global__ void ShuffleTypeKernel(T* out) {
  const T value = static_cast<T>(threadIdx.x * 3 + 1);
  out[threadIdx.x] = __shfl_xor_sync(kFullWarpMask, value, 1);
}

template <typename T>
void CheckShuffleType() {
  const auto out = RunKernel<T>(kWarpSize, [](T* r) { ShuffleTypeKernel<T><<<1, kWarpSize>>>(r); });
  for (int i = 0; i < kWarpSize; ++i) ASSERT_EQ(out[i], static_cast<T>((i ^ 1) * 3 + 1));
}

TEST(SimulatorKernel, ShufflesOfEveryType) {
  CheckShuffleType<int>();
  CheckShuffleType<unsigned>();
  CheckShuffleType<long>();
  CheckShuffleType<unsigned long>();
  CheckShuffleType<long long>();
  CheckShuffleType<unsigned long long>();
  CheckShuffleType<float>();
  CheckShuffleType<double>();
}

// Many shuffles on end, all warps of a block, while other warps are ahead or behind.
__global__ void ButterflyKernel(float* out, int rounds) {
  float value = 1.0f + threadIdx.x % kWarpSize;
  for (int round = 0; round < rounds; ++round) {
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(kFullWarpMask, value, offset);
    }
    value = value / kWarpSize + round % 3;
  }
  out[threadIdx.x] = value;
}

TEST(SimulatorKernel, ButterflySums) {
  const int threads = 512, rounds = 20;
  const auto out = RunKernel<float>(
      threads, [&](float* result) { ButterflyKernel<<<1, threads>>>(result, rounds); });
  float expected = (1.0f + kWarpSize) / 2;
  for (int round = 0; round < rounds; ++round) expected += round % 3;
  for (const float value : out) ASSERT_FLOAT_EQ(value, expected);
}

// Each half of a warp exchanges on its own, in different loops.
__global__ void HalfWarpKernel(int* out) {
  const int half = kWarpSize / 2;
  const int lane = threadIdx.x % kWarpSize;
  const WarpMask low = (static_cast<WarpMask>(1) << half) - 1;
  int value = lane;
  if (lane < half) {
    for (int offset = half / 2; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(low, value, offset);
    }
  } else {
    for (int i = 0; i < 3; ++i) value = __shfl_sync(kFullWarpMask ^ low, value + 1, half + i);
  }
  __syncwarp();
  out[threadIdx.x] = value;
}

TEST(SimulatorKernel, PartsOfAWarp) {
  const auto out = RunKernel<int>(kWarpSize, [](int* r) { HalfWarpKernel<<<1, kWarpSize>>>(r); });
  const int half = kWarpSize / 2;
  for (int i = 0; i < half; ++i) ASSERT_EQ(out[i], half * (half - 1) / 2);
  for (int i = half; i < kWarpSize; ++i) ASSERT_EQ(out[i], half + 3);
}

__global__ void VoteKernel(unsigned long long* out, int limit) {
  const int lane = threadIdx.x % kWarpSize;
  unsigned long long* row = out + threadIdx.x * 4;
  row[0] = __ballot_sync(kFullWarpMask, lane < limit);
  row[1] = __any_sync(kFullWarpMask, lane < limit) != 0;
  row[2] = __all_sync(kFullWarpMask, lane < limit) != 0;
  row[3] = __activemask() != 0;
}

TEST(SimulatorKernel, WarpVotes) {
  for (const int limit : {0, 1, 7, static_cast<int>(kWarpSize)}) {
    const auto out = RunKernel<unsigned long long>(
        4 * kWarpSize, [&](unsigned long long* r) { VoteKernel<<<1, kWarpSize>>>(r, limit); });
    const unsigned long long ballot = limit == 64 ? ~0ull : (1ull << limit) - 1;
    for (int i = 0; i < kWarpSize; ++i) {
      ASSERT_EQ(out[4 * i], ballot) << limit;
      ASSERT_EQ(out[4 * i + 1], limit > 0) << limit;
      ASSERT_EQ(out[4 * i + 2], limit == kWarpSize) << limit;
      ASSERT_EQ(out[4 * i + 3], 1u);
    }
  }
}

__global__ void MatchAndReduceKernel(unsigned long long* masks, int* sums) {
  const int lane = threadIdx.x;
  int equal;
  masks[lane] = __match_any_sync(kFullWarpMask, lane % 3);
  masks[kWarpSize + lane] = __match_all_sync(kFullWarpMask, lane / kWarpSize, &equal);
  masks[2 * kWarpSize + lane] = equal != 0;
  masks[3 * kWarpSize + lane] = __match_all_sync(kFullWarpMask, lane, &equal);
  masks[4 * kWarpSize + lane] = equal != 0;
  sums[lane] = __reduce_add_sync(kFullWarpMask, -lane);
  sums[kWarpSize + lane] = __reduce_min_sync(kFullWarpMask, 5 - lane);
  sums[2 * kWarpSize + lane] = __reduce_max_sync(kFullWarpMask, lane - 9);
  sums[3 * kWarpSize + lane] = __reduce_and_sync(kFullWarpMask, 0xf0u | lane);
  sums[4 * kWarpSize + lane] = __reduce_or_sync(kFullWarpMask, 1u << lane % 4);
  sums[5 * kWarpSize + lane] = __reduce_xor_sync(kFullWarpMask, 1u << lane % 31);
}

TEST(SimulatorKernel, MatchesAndReductions) {
  DeviceBuffer<unsigned long long> masks(5 * kWarpSize);
  DeviceBuffer<int> sums(6 * kWarpSize);
  MatchAndReduceKernel<<<1, kWarpSize>>>(masks.data(), sums.data());
  CUDA_CHECK_LAUNCH();
  const auto m = masks.ToHost();
  const auto s = sums.ToHost();
  unsigned xored = 0;
  for (int i = 0; i < kWarpSize; ++i) xored ^= 1u << i % 31;
  for (int i = 0; i < kWarpSize; ++i) {
    unsigned long long same = 0;
    for (int j = 0; j < kWarpSize; ++j)
      same |= static_cast<unsigned long long>(j % 3 == i % 3) << j;
    ASSERT_EQ(m[i], same);
    ASSERT_EQ(m[kWarpSize + i], static_cast<unsigned long long>(kFullWarpMask));
    ASSERT_EQ(m[2 * kWarpSize + i], 1u);
    ASSERT_EQ(m[3 * kWarpSize + i], 0u);
    ASSERT_EQ(m[4 * kWarpSize + i], 0u);
    ASSERT_EQ(s[i], -kWarpSize * (kWarpSize - 1) / 2);
    ASSERT_EQ(s[kWarpSize + i], 5 - (kWarpSize - 1));
    ASSERT_EQ(s[2 * kWarpSize + i], kWarpSize - 1 - 9);
    ASSERT_EQ(s[3 * kWarpSize + i], 0xf0 & (0xf0 | (kWarpSize - 1)));
    ASSERT_EQ(s[4 * kWarpSize + i], 15);
    ASSERT_EQ(s[5 * kWarpSize + i], static_cast<int>(xored));
  }
}

// --- Atomics.

template <typename T>
__global__ void AtomicKernel(T* cells) {
  const T mine = static_cast<T>(blockIdx.x * blockDim.x + threadIdx.x + 1);
  atomicAdd(&cells[0], static_cast<T>(3));
  atomicMin(&cells[1], mine);
  atomicMax(&cells[2], mine);
  atomicExch(&cells[3], mine);
  atomicOr(&cells[4], static_cast<T>(1) << (mine % static_cast<T>(20)));
  atomicAnd(&cells[5], ~(static_cast<T>(1) << (mine % static_cast<T>(20))));
  atomicXor(&cells[6], mine);
  // A counter by compare and swap.
  T seen = atomicCAS(&cells[7], static_cast<T>(0), static_cast<T>(0)), assumed;
  do {
    assumed = seen;
    seen = atomicCAS(&cells[7], assumed, assumed + static_cast<T>(2));
  } while (seen != assumed);
}

template <typename T>
void CheckAtomics() {
  const int blocks = 40, threads = 96, total = blocks * threads;
  DeviceBuffer<T> cells(
      std::vector<T>{0, static_cast<T>(total + 5), 0, 0, 0, static_cast<T>(0xfffff), 0, 0});
  AtomicKernel<T><<<blocks, threads>>>(cells.data());
  CUDA_CHECK_LAUNCH();
  const auto c = cells.ToHost();
  T xored = 0;
  for (int i = 1; i <= total; ++i) xored ^= static_cast<T>(i);
  EXPECT_EQ(c[0], static_cast<T>(3 * total));
  EXPECT_EQ(c[1], static_cast<T>(1));
  EXPECT_EQ(c[2], static_cast<T>(total));
  EXPECT_GE(c[3], static_cast<T>(1));
  EXPECT_LE(c[3], static_cast<T>(total));
  EXPECT_EQ(c[4], static_cast<T>(0xfffff));
  EXPECT_EQ(c[5], static_cast<T>(0));
  EXPECT_EQ(c[6], xored);
  EXPECT_EQ(c[7], static_cast<T>(2 * total));
}

TEST(SimulatorKernel, IntegerAtomics) {
  CheckAtomics<int>();
  CheckAtomics<unsigned>();
  CheckAtomics<unsigned long long>();
}

__global__ void OtherAtomicKernel(float* f, double* d, unsigned* u, long long* l) {
  atomicAdd(f, 0.25f);
  atomicAdd(d, 0.5);
  atomicInc(&u[0], 6);
  atomicDec(&u[1], 6);
  atomicSub(&u[2], 2u);
  const long long mine = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMin(&l[0], -mine);
  atomicMax(&l[1], mine - 1000000000000ll);
  if (mine == 17) u[3] = __float_as_uint(atomicExch(&f[1], 9.0f));
}

TEST(SimulatorKernel, OtherAtomics) {
  const int blocks = 30, threads = 64, total = blocks * threads;
  DeviceBuffer<float> f(std::vector<float>{1.0f, 2.0f});
  DeviceBuffer<double> d(std::vector<double>{1.0});
  DeviceBuffer<unsigned> u(std::vector<unsigned>{0, 3, 2 * total + 7, 0});
  DeviceBuffer<long long> l(std::vector<long long>{0, -2000000000000ll});
  OtherAtomicKernel<<<blocks, threads>>>(f.data(), d.data(), u.data(), l.data());
  CUDA_CHECK_LAUNCH();
  EXPECT_EQ(f.ToHost()[0], 1.0f + 0.25f * total);
  EXPECT_EQ(f.ToHost()[1], 9.0f);
  EXPECT_EQ(d.ToHost()[0], 1.0 + 0.5 * total);
  EXPECT_EQ(u.ToHost()[0], static_cast<unsigned>(total % 7));
  EXPECT_EQ(u.ToHost()[1], static_cast<unsigned>(((3 - total) % 7 + 7) % 7));
  EXPECT_EQ(u.ToHost()[2], 7u);
  EXPECT_EQ(u.ToHost()[3], 0x40000000u);  // 2.0f
  EXPECT_EQ(l.ToHost()[0], -(total - 1));
  EXPECT_EQ(l.ToHost()[1], total - 1 - 1000000000000ll);
}

// The last block to finish adds up what all have written: a fence, then a counter.
__global__ void LastBlockKernel(float* partial, unsigned* finished, float* sum) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = blockIdx.x + 0.5f;
    __threadfence();
    is_last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += static_cast<volatile float*>(partial)[i];
    *sum = total;
  }
}

TEST(SimulatorKernel, LastBlockAddsUp) {
  const int blocks = 300;
  DeviceBuffer<float> partial(blocks), sum(1);
  DeviceBuffer<unsigned> finished(std::vector<unsigned>{0});
  LastBlockKernel<<<blocks, 64>>>(partial.data(), finished.data(), sum.data());
  CUDA_CHECK_LAUNCH();
  EXPECT_EQ(sum.ToHost()[0], blocks * (blocks - 1) / 2 + 0.5f * blocks);
}

// Threads of one block that wait for each other by polling an atomic.
__global__ void SpinKernel(int* turn, int* order) {
  while (atomicAdd(turn, 0) != static_cast<int>(blockDim.x - 1 - threadIdx.x)) {
  }
  order[threadIdx.x] = atomicAdd(turn, 1);
}

TEST(SimulatorKernel, ThreadsWaitByPolling) {
  const int threads = 8;
  DeviceBuffer<int> turn(std::vector<int>{0});
  const auto order =
      RunKernel<int>(threads, [&](int* r) { SpinKernel<<<1, threads>>>(turn.data(), r); });
  for (int i = 0; i < threads; ++i) ASSERT_EQ(order[i], threads - 1 - i);
}

// --- Intrinsics.

__global__ void IntegerIntrinsicKernel(int* out) {
  int i = 0;
  out[i++] = __popc(0xf0f0f0f0u);
  out[i++] = __popcll(0xffffffff00000001ull);
  out[i++] = __clz(1);
  out[i++] = __clz(0);
  out[i++] = __clzll(1ll << 40);
  out[i++] = __ffs(0);
  out[i++] = __ffs(0x80);
  out[i++] = __ffsll(1ll << 50);
  out[i++] = __brev(1u) == 0x80000000u;
  out[i++] = __brevll(2ull) == 0x4000000000000000ull;
  out[i++] = __umulhi(0x80000000u, 6u);
  out[i++] = __mulhi(-0x40000000, 8);
  out[i++] = __umul64hi(1ull << 63, 10ull);
  out[i++] = __mul24(-3, 5);
  out[i++] = __byte_perm(0x44332211, 0x88776655, 0x7520) == 0x88663311u;
  out[i++] = __byte_perm(0x44332211, 0x88776655, 0x4602);
  out[i++] = __funnelshift_l(0x80000000u, 1u, 4);
  out[i++] = __funnelshift_r(0x80000000u, 1u, 4);
  out[i++] = __dp4a(0x01020304, 0x02ff0201, 10);
  out[i++] = min(-3, 4) + max(-3, 4);
  out[i++] = max(3u, 2u) + min(5ll, 4ll);
}

TEST(SimulatorKernel, IntegerIntrinsics) {
  const std::vector<int> expected = {16,
                                     33,
                                     31,
                                     32,
                                     23,
                                     0,
                                     8,
                                     51,
                                     1,
                                     1,
                                     3,
                                     -2,
                                     5,
                                     -15,
                                     1,
                                     0x55771133,
                                     0x18,
                                     0x18000000,
                                     1 * 2 + 2 * -1 + 3 * 2 + 4 * 1 + 10,
                                     1,
                                     7};
  const auto out = RunKernel<int>(expected.size(),
                                  [](int* result) { IntegerIntrinsicKernel<<<1, 1>>>(result); });
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out[i], expected[i]) << "element " << i;
}

__global__ void FloatIntrinsicKernel(float* out, float x) {
  int i = 0;
  float s, c;
  out[i++] = __expf(x);
  out[i++] = expf(x);
  out[i++] = exp2f(x);
  out[i++] = __logf(x);
  out[i++] = log2f(x);
  out[i++] = rsqrtf(x);
  out[i++] = __fdividef(1.0f, x);
  out[i++] = __powf(x, 1.5f);
  sincosf(x, &s, &c);
  out[i++] = s;
  out[i++] = c;
  __sincosf(x, &s, &c);
  out[i++] = s;
  out[i++] = c;
  out[i++] = tanhf(x);
  out[i++] = erff(x);
  out[i++] = cospif(x);
  out[i++] = fmaf(x, 3.0f, -1.0f);
  out[i++] = fminf(x, NAN);
  out[i++] = fmaxf(NAN, x);
  out[i++] = max(x, 0.5f);
  out[i++] = __saturatef(x);
  out[i++] = __frcp_rn(x);
  out[i++] = __fadd_rn(x, 1.0f);
}

TEST(SimulatorKernel, FloatIntrinsics) {
  const double x = 1.25;
  const std::vector<double> expected = {std::exp(x),
                                        std::exp(x),
                                        std::exp2(x),
                                        std::log(x),
                                        std::log2(x),
                                        1 / std::sqrt(x),
                                        1 / x,
                                        std::pow(x, 1.5),
                                        std::sin(x),
                                        std::cos(x),
                                        std::sin(x),
                                        std::cos(x),
                                        std::tanh(x),
                                        std::erf(x),
                                        std::cos(x * M_PI),
                                        3 * x - 1,
                                        x,
                                        x,
                                        x,
                                        1,
                                        1 / x,
                                        x + 1};
  const auto out = RunKernel<float>(expected.size(), [&](float* result) {
    FloatIntrinsicKernel<<<1, 1>>>(result, static_cast<float>(x));
  });
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-6 * std::fabs(expected[i]) + 1e-6) << "element " << i;
  }
}

__global__ void RoundingKernel(int* out, float a, float b, float huge) {
  int i = 0;
  out[i++] = __float2int_rn(2.5f);
  out[i++] = __float2int_rz(-2.7f);
  out[i++] = __float2int_rd(-2.2f);
  out[i++] = __float2int_ru(2.2f);
  out[i++] = __float2int_rn(huge);
  out[i++] = __float2int_rn(-huge);
  out[i++] = __float2uint_rn(-1.0f);
  out[i++] = __float2ll_rn(-3.5f);
  out[i++] = __double2int_rn(1e3 + 0.5);
  out[i++] = __float_as_int(__int_as_float(123456789));
  out[i++] = __float_as_int(__fadd_rz(a, b));
  out[i++] = __float_as_int(__fadd_ru(a, b));
  out[i++] = __float_as_int(__fadd_rd(-a, -b));
  out[i++] = __float_as_int(__fdiv_rn(a, 3.0f));
}

TEST(SimulatorKernel, Rounding) {
  const float tiny = std::ldexp(1.0f, -30);
  const int one = 0x3f800000;
  const std::vector<int> expected = {2,
                                     -2,
                                     -3,
                                     3,
                                     INT32_MAX,
                                     INT32_MIN,
                                     0,
                                     -4,
                                     1000,
                                     123456789,
                                     one,
                                     one + 1,
                                     static_cast<int>(0xbf800001u),
                                     0x3eaaaaab};
  const auto out = RunKernel<int>(
      expected.size(), [&](int* result) { RoundingKernel<<<1, 1>>>(result, 1.0f, tiny, 1e20f); });
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out[i], expected[i]) << "element " << i;
}

// --- Memory, vectors, constants.

static_assert(sizeof(float3) == 12 && alignof(float3) == 4, "");
static_assert(sizeof(float4) == 16 && alignof(float4) == 16, "");
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4, "");
static_assert(sizeof(short4) == 8 && alignof(short4) == 8, "");
static_assert(sizeof(int2) == 8 && alignof(int2) == 8, "");
static_assert(sizeof(double2) == 16 && alignof(double2) == 16, "");
static_assert(sizeof(ulonglong2) == 16 && alignof(ulonglong2) == 16, "");

__constant__ float weights[4];
__device__ int launches;

__global__ void ConstantKernel(const float4* in, float4* out) {
  const int i = threadIdx.x;
  const float4 v = __ldg(&in[i]);
  const float4 w = __ldcs(&in[i]);
  __stcs(&out[i],
         make_float4(v.x * weights[0], w.y * weights[1], v.z * weights[2], w.w * weights[3]));
  if (i == 0) atomicAdd(&launches, 1);
}

TEST(SimulatorKernel, ConstantsSymbolsAndVectors) {
  const float host_weights[4] = {1, 2, 3, 4};
  const int zero = 0;
  CUDA_CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights)));
  CUDA_CHECK(cudaMemcpyToSymbol(launches, &zero, sizeof(zero)));
  std::vector<float4> in(64);
  for (int i = 0; i < 64; ++i) in[i] = make_float4(i, i + 1, i + 2, i + 3);
  const DeviceBuffer<float4> device(in);
  for (int round = 0; round < 3; ++round) {
    const auto out =
        RunKernel<float4>(64, [&](float4* r) { ConstantKernel<<<1, 64>>>(device.data(), r); });
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(out[i].x, i);
      ASSERT_EQ(out[i].y, 2 * (i + 1));
      ASSERT_EQ(out[i].z, 3 * (i + 2));
      ASSERT_EQ(out[i].w, 4 * (i + 3));
    }
  }
  int count = 0;
  CUDA_CHECK(cudaMemcpyFromSymbol(&count, launches, sizeof(count)));
  EXPECT_EQ(count, 3);
}

__global__ void ClockKernel(long long* out) {
  const long long before = clock64();
  out[1] = blockIdx.x;
  out[0] = clock64() - before;
}

TEST(SimulatorKernel, TheClockAdvances) {
  EXPECT_GE(RunKernel<long long>(2, [](long long* r) { ClockKernel<<<1, 1>>>(r); })[0], 0);
}

__global__ void PrintKernel(int value) {
  if (threadIdx.x == 3) printf("thread %d of block %d says %d\n", 3, blockIdx.x, value);
}

TEST(SimulatorKernel, KernelsPrint) {
  testing::internal::CaptureStdout();
  PrintKernel<<<2, 32>>>(77);
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaDeviceSynchronize());
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("thread 3 of block 0 says 77\n"), std::string::npos) << text;
  EXPECT_NE(text.find("thread 3 of block 1 says 77\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace tinyvllm
