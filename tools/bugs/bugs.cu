// A gallery of bugs: each kernel has one, and the simulator names it. docs/simulator.md shows what
// it says, and the cure.
//
//   bazel run --config=check //tools/bugs -- out-of-bounds
#include <cuda_runtime.h>

#include <iostream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/run_main.h"
#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/warp.h"

namespace tinyvllm {
namespace {

// 100 elements are no whole number of blocks.
__global__ void ScaleKernel(float* x, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] *= factor;
}
void OutOfBounds() {
  DeviceBuffer<float> x(std::vector<float>(100, 1.0f));
  ScaleKernel<<<4, 32>>>(x.data(), 2.0f);
  CUDA_CHECK(cudaDeviceSynchronize());
}

// The tile has a row for each thread, of 32 columns, and one loop runs to 33.
__global__ void TileKernel(float* sums) {
  __shared__ float tile[8][32];
  for (int column = 0; column <= 32; ++column) tile[threadIdx.x][column] = 1.0f;
  sums[threadIdx.x] = tile[threadIdx.x][0];
}
void OutOfTheRow() {
  DeviceBuffer<float> sums(8);
  TileKernel<<<1, 8>>>(sums.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

void UseAfterFree() {
  float* x = nullptr;
  CUDA_CHECK(cudaMalloc(&x, 32 * sizeof(float)));
  CUDA_CHECK(cudaMemset(x, 0, 32 * sizeof(float)));
  CUDA_CHECK(cudaFree(x));
  ScaleKernel<<<1, 32>>>(x, 2.0f);
  CUDA_CHECK(cudaDeviceSynchronize());
}

// Only each warp's first lane has written its warp's sum, but all 32 places are added.
__global__ void SumKernel(const float* x, float* sum) {
  __shared__ float partial[kMaxWarpsPerBlock];
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = x[threadIdx.x];
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kMaxWarpsPerBlock; ++warp) total += partial[warp];
  if (threadIdx.x == 0) *sum = total;
}
void UnwrittenMemory() {
  DeviceBuffer<float> x(std::vector<float>(256, 1.0f)), sum(1);
  SumKernel<<<1, 256>>>(x.data(), sum.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

// Rows of 10 floats: every second one begins at no multiple of 16 bytes.
__global__ void FirstOfRowKernel(const float* rows, int length, float4* first) {
  first[threadIdx.x] = *reinterpret_cast<const float4*>(rows + threadIdx.x * length);
}
void MisalignedAccess() {
  DeviceBuffer<float> rows(std::vector<float>(80, 1.0f));
  DeviceBuffer<float4> first(8);
  FirstOfRowKernel<<<1, 8>>>(rows.data(), 10, first.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

void HostPointer() {
  std::vector<float> x(32, 1.0f);
  ScaleKernel<<<1, 32>>>(x.data(), 2.0f);
  CUDA_CHECK(cudaDeviceSynchronize());
}

// Half of the lanes skip the shuffle whose mask names them.
__global__ void NeighbourKernel(float* x) {
  float mine = x[threadIdx.x];
  if (static_cast<int>(threadIdx.x) < kWarpSize / 2)
    mine += __shfl_down_sync(kFullWarpMask, mine, 1);
  x[threadIdx.x] = mine;
}
void WarpMask() {
  DeviceBuffer<float> x(std::vector<float>(kWarpSize, 1.0f));
  NeighbourKernel<<<1, kWarpSize>>>(x.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

// A barrier between blocks, made by hand: it waits for blocks that have not begun.
__global__ void EveryBlockKernel(int* arrived) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < static_cast<int>(gridDim.x)) continue;
  }
  __syncthreads();
}
void Endless() {
  DeviceBuffer<int> arrived(std::vector<int>(1, 0));
  EveryBlockKernel<<<100, 64>>>(arrived.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

__device__ __attribute__((noinline)) int Fibonacci(volatile int* n) {
  volatile int smaller = *n + 1;  // BUG: grows
  return Fibonacci(&smaller) + smaller;
}
__global__ void FibonacciKernel(int* out) {
  volatile int n = 10;
  *out = Fibonacci(&n);
}
void StackOverflow() {
  DeviceBuffer<int> out(1);
  FibonacciKernel<<<1, 1>>>(out.data());
  CUDA_CHECK(cudaDeviceSynchronize());
}

void HostDoesNotWait() {
  DeviceBuffer<float> x(std::vector<float>(32, 1.0f));
  PinnedBuffer<float> result(32);
  ScaleKernel<<<1, 32>>>(x.data(), 2.0f);
  CUDA_CHECK(cudaMemcpyAsync(result.data(), x.data(), x.bytes(), cudaMemcpyDeviceToHost));
  std::cout << "the first element: " << result[0] << std::endl;
  CUDA_CHECK(cudaDeviceSynchronize());
}

void WrongDirection() {
  DeviceBuffer<float> x(32);
  std::vector<float> host(32);
  CUDA_CHECK(cudaMemcpy(host.data(), x.data(), x.bytes(), cudaMemcpyHostToDevice));
}

void Leak() {
  for (int layer = 0; layer < 4; ++layer) {
    float* scratch = nullptr;
    CUDA_CHECK(cudaMalloc(&scratch, 1024 * sizeof(float)));
  }
}

struct Bug {
  const char* name;
  void (*run)();
};
constexpr Bug kBugs[] = {
    {"out-of-bounds", OutOfBounds},
    {"out-of-the-row", OutOfTheRow},
    {"use-after-free", UseAfterFree},
    {"unwritten-memory", UnwrittenMemory},
    {"misaligned-access", MisalignedAccess},
    {"host-pointer", HostPointer},
    {"warp-mask", WarpMask},
    {"endless", Endless},
    {"stack-overflow", StackOverflow},
    {"host-does-not-wait", HostDoesNotWait},
    {"wrong-direction", WrongDirection},
    {"leak", Leak},
};

int Run(int argc, char** argv) {
  for (const Bug& bug : kBugs) {
    if (argc != 2 || bug.name != std::string(argv[1])) continue;
    bug.run();
    return 0;
  }
  std::string names;
  for (const Bug& bug : kBugs) names += std::string(" ") + bug.name;
  throw Error("bugs: expected one argument, the name of a bug:" + names);
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
