// Questions about the device, and its reset.
#include "common/simulator/device.h"

#include <cstdio>
#include <cstring>

#include "common/simulator/block.h"
#include "common/simulator/error.h"
#include "common/simulator/memory.h"
#include "common/simulator/settings.h"
#include "common/simulator/stream.h"

using namespace tinyvllm::simulator;

namespace {

// The clock of clock64 in kHz, and the size of the cache that stands for L2.
constexpr int kClockKhz = 1000000;
constexpr int kL2Bytes = 32 << 20;

int Multiprocessors() { return GetSettings().threads; }

bool GetAttribute(cudaDeviceAttr attribute, int* value) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = kMaxThreadsPerBlock;
      return true;
    case cudaDevAttrMaxBlockDimZ:
      *value = kMaxBlockDimZ;
      return true;
    case cudaDevAttrMaxGridDimX:
      *value = kMaxGridDimX;
      return true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = kMaxGridDimYZ;
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kMaxStaticSharedBytes;
      return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kMaxDynamicSharedBytes;
      return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedBytesPerMultiprocessor;
      return true;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = kReservedSharedBytes;
      return true;
    case cudaDevAttrTotalConstantMemory:
      *value = kConstantBytes;
      return true;
    case cudaDevAttrWarpSize:
      *value = warpSize;
      return true;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = kRegistersPerBlock;
      return true;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      *value = kClockKhz;
      return true;
    case cudaDevAttrMultiProcessorCount:
      *value = Multiprocessors();
      return true;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 64;
      return true;
    case cudaDevAttrL2CacheSize:
      *value = kL2Bytes;
      return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kMaxThreadsPerMultiprocessor;
      return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = kMaxBlocksPerMultiprocessor;
      return true;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kComputeMajor;
      return true;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kComputeMinor;
      return true;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrAsyncEngineCount:
      *value = 1;
      return true;
    case cudaDevAttrIntegrated:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCooperativeLaunch:
      *value = 0;
      return true;
  }
  return false;
}

cudaError_t CheckDevice(int device) {
  return Report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (count == nullptr) return Report(cudaErrorInvalidValue);
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (device == nullptr) return Report(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  TINYVLLM_SIM_BEGIN_CALL();
  return CheckDevice(device);
}

cudaError_t cudaSetDeviceFlags(unsigned int) {
  TINYVLLM_SIM_BEGIN_CALL();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (properties == nullptr) return Report(cudaErrorInvalidValue);
  if (cudaError_t error = CheckDevice(device)) return error;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CUDA simulator (%d CPU thread%s)",
                GetSettings().threads, GetSettings().threads == 1 ? "" : "s");
  properties->totalGlobalMem = GetSettings().memory_bytes;
  properties->sharedMemPerBlock = kMaxStaticSharedBytes;
  properties->regsPerBlock = kRegistersPerBlock;
  properties->warpSize = warpSize;
  properties->memPitch = 2147483647;
  properties->maxThreadsPerBlock = kMaxThreadsPerBlock;
  properties->maxThreadsDim[0] = kMaxThreadsPerBlock;
  properties->maxThreadsDim[1] = kMaxThreadsPerBlock;
  properties->maxThreadsDim[2] = kMaxBlockDimZ;
  properties->maxGridSize[0] = kMaxGridDimX;
  properties->maxGridSize[1] = kMaxGridDimYZ;
  properties->maxGridSize[2] = kMaxGridDimYZ;
  properties->totalConstMem = kConstantBytes;
  properties->major = kComputeMajor;
  properties->minor = kComputeMinor;
  properties->multiProcessorCount = Multiprocessors();
  properties->canMapHostMemory = 1;
  properties->asyncEngineCount = 1;
  properties->unifiedAddressing = 1;
  properties->memoryBusWidth = 64;
  properties->l2CacheSize = kL2Bytes;
  properties->maxThreadsPerMultiProcessor = kMaxThreadsPerMultiprocessor;
  properties->sharedMemPerMultiprocessor = kSharedBytesPerMultiprocessor;
  properties->regsPerMultiprocessor = kRegistersPerBlock;
  properties->managedMemory = 1;
  properties->canUseHostPointerForRegisteredMem = 1;
  properties->sharedMemPerBlockOptin = kMaxDynamicSharedBytes;
  properties->maxBlocksPerMultiProcessor = kMaxBlocksPerMultiprocessor;
  properties->reservedSharedMemPerBlock = kReservedSharedBytes;
  properties->hostRegisterSupported = 1;
  properties->memoryPoolsSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (value == nullptr) return Report(cudaErrorInvalidValue);
  if (cudaError_t error = CheckDevice(device)) return error;
  return Report(GetAttribute(attribute, value) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return Report(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceReset() {
  if (InsideKernel()) return BeginCall();
  FinishDevice();
  DestroyAllStreams();
  FreeAllMemory();
  ForgetKernelAttributes();
  ClearErrors();
  return cudaSuccess;
}
}
