// How fast a kernel is, honestly: warmed up, from a cold L2 cache, the median of many runs, and as
// a share of a limit measured in the same run.
//
//   Benchmark benchmark;                                   // measures nothing yet
//   double ms = benchmark.MedianMilliseconds([&] { RmsNorm(..., stream); });
//   double gbs = GigabytesPerSecond(bytes_moved, ms);
//   double share = gbs / benchmark.CopyGigabytesPerSecond();
//
// Times from the simulator are times of a CPU that plays a GPU: they rank nothing. Demos say so.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"

namespace tinyvllm {

class Benchmark {
 public:
  Benchmark();

  // `launch` must queue its work on stream(). Median over `runs`, after three that do not count.
  double MedianMilliseconds(const std::function<void()>& launch, int runs = 30);

  // The limit of memory-bound kernels: bytes read plus written by a device-to-device copy much
  // larger than the cache. Measured at the first call.
  double CopyGigabytesPerSecond();

  cudaStream_t stream() const { return stream_.get(); }

 private:
  Stream stream_;
  Event start_;
  Event stop_;
  DeviceBuffer<char> flush_;  // larger than the L2 cache; empty on the simulator
  double copy_gigabytes_per_second_ = 0;
};

inline double GigabytesPerSecond(double bytes, double milliseconds) {
  return bytes / milliseconds * 1e-6;
}

}  // namespace tinyvllm
