#include "common/cuda/device.h"

#include <cuda_runtime.h>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/check.h"

namespace tinyvllm {

bool IsSimulator() {
#ifdef TINYVLLM_SIMULATOR
  return true;
#else
  return false;
#endif
}

DeviceReport DescribeDevice() {
  DeviceReport report;
  report.simulated = IsSimulator();
  const cudaError_t status = cudaGetDeviceCount(&report.count);
  if (status != cudaSuccess || report.count == 0) {
    throw Error("no CUDA device: ", cudaGetErrorString(status),
                "; check nvidia-smi, or build with --config=cpu to use the simulator");
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  report.name = properties.name;
  report.capability_major = properties.major;
  report.capability_minor = properties.minor;
  report.multiprocessors = properties.multiProcessorCount;
  report.l2_bytes = properties.l2CacheSize;
  CUDA_CHECK(cudaMemGetInfo(&report.free_memory, &report.total_memory));
  return report;
}

std::string ToString(const DeviceReport& report) {
  return StrCat(report.name, ", compute capability ", report.capability_major, ".",
                report.capability_minor, ", ", report.multiprocessors, " multiprocessors, ",
                HumanBytes(report.free_memory), " of ", HumanBytes(report.total_memory), " free");
}

}  // namespace tinyvllm
