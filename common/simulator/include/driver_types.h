// The runtime's enumerations, flags and structures, with CUDA's own values. Part of the simulator's
// cuda_runtime.h. What the simulator does not do is left out, so that its use fails to compile.
#pragma once

#include <cstddef>

#include "cuda_simulator/error_codes.h"
#include "vector_types.h"

#define TINYVLLM_SIM_ENUMERATOR(name, value, text) name = value,
enum cudaError { TINYVLLM_SIM_ERRORS(TINYVLLM_SIM_ENUMERATOR) };
#undef TINYVLLM_SIM_ENUMERATOR
typedef cudaError cudaError_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef void (*cudaHostFn_t)(void* user_data);

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01

#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventRecordDefault 0x00
#define cudaEventWaitDefault 0x00

#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01
#define cudaHostRegisterMapped 0x02
#define cudaHostRegisterIoMemory 0x04
#define cudaHostRegisterReadOnly 0x08
#define cudaMemAttachGlobal 0x01
#define cudaMemAttachHost 0x02

#define cudaDeviceScheduleAuto 0x00
#define cudaDeviceScheduleSpin 0x01
#define cudaDeviceScheduleYield 0x02
#define cudaDeviceScheduleBlockingSync 0x04
#define cudaDeviceMapHost 0x08

#define cudaCpuDeviceId ((int)-1)
#define cudaInvalidDeviceId ((int)-2)

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100,
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
};

// X(name, value, what the simulated device answers). The answers are in device.cc.
#define TINYVLLM_SIM_DEVICE_ATTRIBUTES(X)             \
  X(cudaDevAttrMaxThreadsPerBlock, 1)                 \
  X(cudaDevAttrMaxBlockDimX, 2)                       \
  X(cudaDevAttrMaxBlockDimY, 3)                       \
  X(cudaDevAttrMaxBlockDimZ, 4)                       \
  X(cudaDevAttrMaxGridDimX, 5)                        \
  X(cudaDevAttrMaxGridDimY, 6)                        \
  X(cudaDevAttrMaxGridDimZ, 7)                        \
  X(cudaDevAttrMaxSharedMemoryPerBlock, 8)            \
  X(cudaDevAttrTotalConstantMemory, 9)                \
  X(cudaDevAttrWarpSize, 10)                          \
  X(cudaDevAttrMaxRegistersPerBlock, 12)              \
  X(cudaDevAttrClockRate, 13)                         \
  X(cudaDevAttrMultiProcessorCount, 16)               \
  X(cudaDevAttrIntegrated, 18)                        \
  X(cudaDevAttrCanMapHostMemory, 19)                  \
  X(cudaDevAttrConcurrentKernels, 31)                 \
  X(cudaDevAttrEccEnabled, 32)                        \
  X(cudaDevAttrMemoryClockRate, 36)                   \
  X(cudaDevAttrGlobalMemoryBusWidth, 37)              \
  X(cudaDevAttrL2CacheSize, 38)                       \
  X(cudaDevAttrMaxThreadsPerMultiProcessor, 39)       \
  X(cudaDevAttrAsyncEngineCount, 40)                  \
  X(cudaDevAttrUnifiedAddressing, 41)                 \
  X(cudaDevAttrComputeCapabilityMajor, 75)            \
  X(cudaDevAttrComputeCapabilityMinor, 76)            \
  X(cudaDevAttrStreamPrioritiesSupported, 78)         \
  X(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81)  \
  X(cudaDevAttrMaxRegistersPerMultiprocessor, 82)     \
  X(cudaDevAttrManagedMemory, 83)                     \
  X(cudaDevAttrCanUseHostPointerForRegisteredMem, 91) \
  X(cudaDevAttrCooperativeLaunch, 95)                 \
  X(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97)      \
  X(cudaDevAttrHostRegisterSupported, 99)             \
  X(cudaDevAttrMaxBlocksPerMultiprocessor, 106)       \
  X(cudaDevAttrReservedSharedMemoryPerBlock, 111)     \
  X(cudaDevAttrMemoryPoolsSupported, 115)

#define TINYVLLM_SIM_ENUMERATOR(name, value) name = value,
enum cudaDeviceAttr { TINYVLLM_SIM_DEVICE_ATTRIBUTES(TINYVLLM_SIM_ENUMERATOR) };
#undef TINYVLLM_SIM_ENUMERATOR

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  size_t totalConstMem;
  int major;
  int minor;
  int multiProcessorCount;
  int integrated;
  int canMapHostMemory;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
  int maxBlocksPerMultiProcessor;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported;
  int memoryPoolsSupported;
  int clusterLaunch;
};
