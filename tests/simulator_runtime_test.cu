// The runtime's functions: memory, streams, events, properties, limits, error codes. Plain CUDA: on
// a GPU the same checks prove that the simulator tells the truth.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

__global__ void AddOneKernel(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}

__global__ void NothingKernel() {}

__global__ void SharedKernel(int* out) {
  extern __shared__ int values[];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

std::vector<int> Numbers(int n) {
  std::vector<int> numbers(n);
  for (int i = 0; i < n; ++i) numbers[i] = 7 * i - 3;
  return numbers;
}

// --- Memory.

TEST(SimulatorRuntime, CopiesInEveryDirection) {
  const std::vector<int> in = Numbers(1000);
  std::vector<int> out(1000);
  int *a, *b;
  CUDA_CHECK(cudaMalloc(&a, 4000));
  CUDA_CHECK(cudaMalloc(&b, 4000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  CUDA_CHECK(cudaMemcpy(a, in.data(), 4000, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(b, a, 4000, cudaMemcpyDeviceToDevice));
  CUDA_CHECK(cudaMemcpy(out.data(), b, 4000, cudaMemcpyDeviceToHost));
  EXPECT_EQ(out, in);
  std::vector<int> again(1000);
  CUDA_CHECK(cudaMemcpy(again.data(), b, 4000, cudaMemcpyDefault));
  EXPECT_EQ(again, in);
  CUDA_CHECK(cudaFree(a));
  CUDA_CHECK(cudaFree(b));
  CUDA_CHECK(cudaFree(nullptr));
}

TEST(SimulatorRuntime, FillsAndCopiesRectangles) {
  const size_t pitch = 64, width = 24, rows = 10;
  unsigned char* device;
  CUDA_CHECK(cudaMalloc(&device, pitch * rows));
  CUDA_CHECK(cudaMemset(device, 1, pitch * rows));
  CUDA_CHECK(cudaMemset2D(device + 8, pitch, 5, width, rows));
  std::vector<unsigned char> all(pitch * rows);
  CUDA_CHECK(cudaMemcpy(all.data(), device, all.size(), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < all.size(); ++i) {
    const bool inside = i % pitch >= 8 && i % pitch < 8 + width;
    ASSERT_EQ(all[i], inside ? 5 : 1) << i;
  }
  std::vector<unsigned char> part(width * rows);
  for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<unsigned char>(i);
  CUDA_CHECK(
      cudaMemcpy2D(device + 16, pitch, part.data(), width, width, rows, cudaMemcpyHostToDevice));
  std::vector<unsigned char> back(width * rows);
  CUDA_CHECK(
      cudaMemcpy2D(back.data(), width, device + 16, pitch, width, rows, cudaMemcpyDeviceToHost));
  EXPECT_EQ(back, part);
  EXPECT_EQ(
      cudaMemcpy2D(back.data(), width - 1, device, pitch, width, rows, cudaMemcpyDeviceToHost),
      cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidPitchValue);
  CUDA_CHECK(cudaFree(device));
}

TEST(SimulatorRuntime, KernelsReadMappedHostMemoryInPlace) {
  int *host, *device;
  CUDA_CHECK(cudaHostAlloc(&host, 4000, cudaHostAllocMapped | cudaHostAllocPortable));
  unsigned flags = 0;
  CUDA_CHECK(cudaHostGetFlags(&flags, host));
  EXPECT_EQ(flags & cudaHostAllocMapped, static_cast<unsigned>(cudaHostAllocMapped));
  CUDA_CHECK(cudaHostGetDevicePointer(&device, host, 0));
  for (int i = 0; i < 1000; ++i) host[i] = i;
  AddOneKernel<<<4, 256>>>(device, 1000);
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(host[i], i + 1);
  CUDA_CHECK(cudaFreeHost(host));

  std::vector<int> own(4096, 5);
  CUDA_CHECK(cudaHostRegister(own.data(), own.size() * sizeof(int), cudaHostRegisterMapped));
  CUDA_CHECK(cudaHostGetDevicePointer(&device, own.data(), 0));
  AddOneKernel<<<16, 256>>>(device, 4096);
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(own, std::vector<int>(4096, 6));
  EXPECT_EQ(cudaHostRegister(own.data(), 4, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  CUDA_CHECK(cudaHostUnregister(own.data()));
  cudaGetLastError();
}

TEST(SimulatorRuntime, PointersKnowTheirKind) {
  int *device, *pinned, plain = 0;
  CUDA_CHECK(cudaMalloc(&device, 400));
  CUDA_CHECK(cudaMallocHost(&pinned, 400));
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, device + 50));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, pinned + 50));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  CUDA_CHECK(cudaFree(device));
  CUDA_CHECK(cudaFreeHost(pinned));
}

TEST(SimulatorRuntime, MemoryIsCountedAndFinite) {
  size_t free_before, free_after, total;
  CUDA_CHECK(cudaMemGetInfo(&free_before, &total));
  EXPECT_LE(free_before, total);
  void* block;
  CUDA_CHECK(cudaMalloc(&block, 64 << 20));
  CUDA_CHECK(cudaMemGetInfo(&free_after, &total));
  EXPECT_LE(free_after + (64 << 20), free_before + (2 << 20));
  CUDA_CHECK(cudaFree(block));
  EXPECT_EQ(cudaMalloc(&block, total + (1 << 20)), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(SimulatorRuntime, BadCopiesAndFreesAreRefused) {
  int* device;
  int host[100] = {};
  CUDA_CHECK(cudaMalloc(&device, 400));
  EXPECT_EQ(cudaMemcpy(nullptr, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  CUDA_CHECK(cudaFree(device));
}

TEST(SimulatorRuntime, AsyncAllocationIsStreamOrdered) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  int* x;
  CUDA_CHECK(cudaMallocAsync(&x, 400, stream));
  CUDA_CHECK(cudaMemsetAsync(x, 0, 400, stream));
  AddOneKernel<<<1, 128, 0, stream>>>(x, 100);
  CUDA_CHECK_LAUNCH();
  std::vector<int> out(100);
  CUDA_CHECK(cudaMemcpyAsync(out.data(), x, 400, cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaFreeAsync(x, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(out, std::vector<int>(100, 1));
  CUDA_CHECK(cudaStreamDestroy(stream));
}

// --- Streams and events.

TEST(SimulatorRuntime, AnEventOrdersTwoStreams) {
  cudaStream_t first, second;
  CUDA_CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  cudaEvent_t ready;
  CUDA_CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  const int n = 1 << 16;
  PinnedBuffer<int> in(n), out(n);
  for (int i = 0; i < n; ++i) in[i] = i;
  DeviceBuffer<int> x(n);
  for (int round = 0; round < 10; ++round) {
    CUDA_CHECK(cudaMemcpyAsync(x.data(), in.data(), x.bytes(), cudaMemcpyHostToDevice, first));
    AddOneKernel<<<n / 256, 256, 0, first>>>(x.data(), n);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaEventRecord(ready, first));
    CUDA_CHECK(cudaStreamWaitEvent(second, ready, 0));
    AddOneKernel<<<n / 256, 256, 0, second>>>(x.data(), n);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaMemcpyAsync(out.data(), x.data(), x.bytes(), cudaMemcpyDeviceToHost, second));
    CUDA_CHECK(cudaStreamSynchronize(second));
    for (int i = 0; i < n; ++i) ASSERT_EQ(out[i], i + 2);
  }
  CUDA_CHECK(cudaEventDestroy(ready));
  CUDA_CHECK(cudaStreamDestroy(first));
  CUDA_CHECK(cudaStreamDestroy(second));
}

TEST(SimulatorRuntime, TheDefaultStreamWaitsForOthersAndTheyForIt) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  const int n = 10000;
  DeviceBuffer<int> x(n);
  CUDA_CHECK(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
  AddOneKernel<<<(n + 255) / 256, 256>>>(x.data(), n);
  CUDA_CHECK_LAUNCH();
  AddOneKernel<<<(n + 255) / 256, 256, 0, stream>>>(x.data(), n);
  CUDA_CHECK_LAUNCH();
  EXPECT_EQ(x.ToHost(), std::vector<int>(n, 2));
  CUDA_CHECK(cudaStreamDestroy(stream));
}

TEST(SimulatorRuntime, EventsTimeAndAnswer) {
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  CUDA_CHECK(cudaEventRecord(start));
  DeviceBuffer<int> x(1 << 20);
  x.Fill(0);
  AddOneKernel<<<4096, 256>>>(x.data(), 1 << 20);
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaEventRecord(end));
  while (cudaEventQuery(end) == cudaErrorNotReady) {
  }
  cudaGetLastError();
  CUDA_CHECK(cudaEventSynchronize(end));
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_LT(milliseconds, 60000);
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
}

void CUDART_CB Append(void* data) { static_cast<std::string*>(data)->push_back('h'); }

TEST(SimulatorRuntime, HostFunctionsRunInStreamOrder) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  std::string text;
  CUDA_CHECK(cudaLaunchHostFunc(stream, Append, &text));
  CUDA_CHECK(cudaLaunchHostFunc(stream, Append, &text));
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
  cudaGetLastError();
  CUDA_CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(text, "hh");
  CUDA_CHECK(cudaStreamDestroy(stream));
}

// --- The device.

TEST(SimulatorRuntime, PropertiesAgreeWithAttributes) {
  int count = 0, device = -1, value = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  EXPECT_GE(count, 1);
  CUDA_CHECK(cudaSetDevice(0));
  CUDA_CHECK(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDeviceProperties(&p, 0));
  EXPECT_GT(std::strlen(p.name), 0u);
  EXPECT_GE(p.major, 8);
  const struct {
    cudaDeviceAttr attribute;
    int expected;
  } kPairs[] = {
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(p.sharedMemPerBlockOptin)},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
  };
  for (const auto& pair : kPairs) {
    CUDA_CHECK(cudaDeviceGetAttribute(&value, pair.attribute, 0));
    EXPECT_EQ(value, pair.expected) << "attribute " << pair.attribute;
  }
  EXPECT_EQ(p.maxThreadsPerBlock, 1024);
  EXPECT_EQ(p.sharedMemPerBlock, 49152u);
  CUDA_CHECK(cudaRuntimeGetVersion(&value));
  EXPECT_GE(value, 12000);
  CUDA_CHECK(cudaDriverGetVersion(&value));
}

TEST(SimulatorRuntime, OccupancyFallsWithThreadsAndSharedMemory) {
  int blocks = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, SharedKernel, 1024, 0));
  EXPECT_GE(blocks, 1);
  EXPECT_LE(blocks, 2);
  int small = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&small, SharedKernel, 128, 0));
  EXPECT_GE(small, 8);
  int starved = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&starved, SharedKernel, 128, 40000));
  EXPECT_LT(starved, small);
}

// --- Limits and errors.

TEST(SimulatorRuntime, ImpossibleLaunchesAreRefused) {
  const struct {
    dim3 grid, block;
  } kImpossible[] = {
      {dim3(1), dim3(1025)},        {dim3(1), dim3(0)},        {dim3(0), dim3(32)},
      {dim3(1), dim3(32, 33)},      {dim3(1), dim3(1, 1, 65)}, {dim3(1, 65536), dim3(1)},
      {dim3(1, 1, 65536), dim3(1)}, {dim3(1, 0), dim3(1)},
  };
  for (const auto& launch : kImpossible) {
    NothingKernel<<<launch.grid, launch.block>>>();
    // CUDA 12 calls it an invalid configuration, CUDA 13 on Hopper an invalid argument.
    const cudaError_t error = cudaGetLastError();
    EXPECT_TRUE(error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue)
        << cudaGetErrorName(error);
  }
  // The next good launch is unharmed.
  NothingKernel<<<1, 1024>>>();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  CUDA_CHECK(cudaDeviceSynchronize());
}

TEST(SimulatorRuntime, DynamicSharedMemoryNeedsPermissionAbove48Kibibytes) {
  DeviceBuffer<int> out(32);
  SharedKernel<<<1, 32, 49152>>>(out.data());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  SharedKernel<<<1, 32, 49153>>>(out.data());
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  int most = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(
      cudaFuncSetAttribute(SharedKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1),
      cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  CUDA_CHECK(cudaFuncSetAttribute(SharedKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  SharedKernel<<<1, 32, most>>>(out.data());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  CUDA_CHECK(cudaDeviceSynchronize());
}

TEST(SimulatorRuntime, ErrorsHaveNamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure), "unspecified launch failure");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST(SimulatorRuntime, KernelsCanBeLaunchedByPointer) {
  DeviceBuffer<int> x(100);
  x.Fill(0);
  int* data = x.data();
  int n = 100;
  void* arguments[] = {&data, &n};
  CUDA_CHECK(cudaLaunchKernel(AddOneKernel, dim3(1), dim3(128), arguments, 0, nullptr));
  EXPECT_EQ(x.ToHost(), std::vector<int>(100, 1));
}

}  // namespace
}  // namespace tinyvllm
