#include "common/cuda/benchmark.h"

#include <algorithm>
#include <vector>

#include "common/cuda/device.h"

namespace tinyvllm {
namespace {

constexpr int kWarmUpRuns = 3;
constexpr size_t kCopyBytesOnGpu = size_t{2} << 30;
constexpr size_t kCopyBytesOnSimulator = size_t{64} << 20;

}  // namespace

Benchmark::Benchmark() {
  const DeviceReport device = DescribeDevice();
  if (!device.simulated) flush_ = DeviceBuffer<char>(2 * device.l2_bytes);
}

double Benchmark::MedianMilliseconds(const std::function<void()>& launch, int runs) {
  std::vector<float> times;
  for (int run = -kWarmUpRuns; run < runs; ++run) {
    if (flush_.size() > 0) {
      CUDA_CHECK(cudaMemsetAsync(flush_.data(), run & 0xff, flush_.bytes(), stream_.get()));
    }
    start_.Record(stream_.get());
    launch();
    stop_.Record(stream_.get());
    stop_.Synchronize();
    if (run >= 0) times.push_back(stop_.MillisecondsSince(start_));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

double Benchmark::CopyGigabytesPerSecond() {
  if (copy_gigabytes_per_second_ > 0) return copy_gigabytes_per_second_;
  const size_t bytes = IsSimulator() ? kCopyBytesOnSimulator : kCopyBytesOnGpu;
  DeviceBuffer<char> source(bytes);
  DeviceBuffer<char> destination(bytes);
  source.Fill(0x5a);
  const double milliseconds = MedianMilliseconds([&] {
    CUDA_CHECK(cudaMemcpyAsync(destination.data(), source.data(), bytes, cudaMemcpyDeviceToDevice,
                               stream_.get()));
  });
  copy_gigabytes_per_second_ = GigabytesPerSecond(2.0 * bytes, milliseconds);
  return copy_gigabytes_per_second_;
}

}  // namespace tinyvllm
