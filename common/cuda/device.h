// The device at hand: a GPU, or the simulator.
#pragma once

#include <cstddef>
#include <string>

namespace tinyvllm {

struct DeviceReport {
  int count = 0;             // devices visible; device 0 is used
  std::string name;          // "NVIDIA H200", or the simulator's
  int capability_major = 0;  // 9 of 9.0
  int capability_minor = 0;
  int multiprocessors = 0;
  size_t total_memory = 0;  // bytes
  size_t free_memory = 0;   // bytes
  size_t l2_bytes = 0;
  bool simulated = false;  // no GPU: kernels run on the CPU
};

// Throws Error when there is no device, with the remedy.
DeviceReport DescribeDevice();

// One line: "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GB of 141 GB free".
std::string ToString(const DeviceReport& report);

// True where the kernels run on the simulator. Known at compile time; asks no device.
bool IsSimulator();

}  // namespace tinyvllm
