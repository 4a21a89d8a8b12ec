#include "common/cuda/read_bandwidth.h"

#include <algorithm>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/device.h"

namespace tinyvllm {
namespace {

constexpr int kThreads = 512;
constexpr int kLoadsInFlight = 4;  // of each thread, 16 bytes each
constexpr size_t kBytesOnGpu = size_t{4} << 30;
constexpr size_t kBytesOnSimulator = size_t{16} << 20;

__global__ void ReadKernel(const uint4* __restrict__ data, size_t count,
                           unsigned* __restrict__ out) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned mixed = 0;
  for (; i + (kLoadsInFlight - 1) * stride < count; i += kLoadsInFlight * stride) {
    uint4 loaded[kLoadsInFlight];
    for (int k = 0; k < kLoadsInFlight; ++k) loaded[k] = data[i + k * stride];
    for (int k = 0; k < kLoadsInFlight; ++k) {
      mixed ^= loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
    }
  }
  for (; i < count; i += stride) {
    const uint4 one = data[i];
    mixed ^= one.x ^ one.y ^ one.z ^ one.w;
  }
  // Never so, all words being equal; but the compiler cannot know, and must keep the loads.
  if (mixed != 0) *out = mixed;
}

}  // namespace

double ReadGigabytesPerSecond(Benchmark* benchmark) {
  const DeviceReport device = DescribeDevice();
  const size_t bytes = device.simulated
                           ? kBytesOnSimulator
                           : std::min(kBytesOnGpu, device.free_memory / 2 / 4096 * 4096);
  DeviceBuffer<char> data(bytes);
  DeviceBuffer<unsigned> out(1);
  data.Fill(0x5a);
  const int runs = device.simulated ? 1 : 15;
  double best = 0;
  for (const int blocks_each : {2, 4, 8}) {
    const int blocks = device.multiprocessors * blocks_each;
    const double milliseconds = benchmark->MedianMilliseconds(
        [&] {
          ReadKernel<<<blocks, kThreads, 0, benchmark->stream()>>>(
              reinterpret_cast<const uint4*>(data.data()), bytes / sizeof(uint4), out.data());
          CUDA_CHECK_LAUNCH();
        },
        runs);
    best = std::max(best, GigabytesPerSecond(static_cast<double>(bytes), milliseconds));
  }
  return best;
}

}  // namespace tinyvllm
