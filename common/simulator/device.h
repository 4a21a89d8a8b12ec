// The simulated device: the limits of hardware of compute capability 8.0, with the shared memory of
// 9.0, so that a kernel for either runs.
#pragma once

#include <cstddef>

namespace tinyvllm::simulator {

constexpr int kComputeMajor = 8;
constexpr int kComputeMinor = 0;
constexpr unsigned kMaxBlockDimZ = 64;
constexpr unsigned kMaxGridDimX = 2147483647;
constexpr unsigned kMaxGridDimYZ = 65535;
constexpr int kMaxThreadsPerMultiprocessor = 2048;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr size_t kSharedBytesPerMultiprocessor = 228 * 1024;
constexpr size_t kReservedSharedBytes = 1024;
constexpr int kRegistersPerBlock = 65536;
constexpr size_t kConstantBytes = 64 * 1024;

// Of launch.cc: what cudaDeviceReset forgets.
void ForgetKernelAttributes();

}  // namespace tinyvllm::simulator
