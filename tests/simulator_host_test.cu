// A host that does not wait for the device, found by late streams (BUILD sets them): each bug with
// its line, and beside it the same code with the wait, on which the simulator must stay silent.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/stream.h"

namespace tinyvllm {
namespace {

void ExpectContains(const std::string& report, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(report.find(part), std::string::npos) << "missing: " << part << "\nin: " << report;
  }
}

std::string Line(int line) { return "simulator_host_test.cu:" + std::to_string(line) + ":"; }

// What `act` makes the simulator say, and the error that it leaves.
template <typename Act>
std::string Report(Act act) {
  testing::internal::CaptureStderr();
  act();
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  return testing::internal::GetCapturedStderr();
}

template <typename Act>
void ExpectSilent(Act act) {
  testing::internal::CaptureStderr();
  act();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
}

__global__ void FillKernel(int* x, int value) { x[threadIdx.x] = value; }

template <typename T>
T* Pinned(size_t count) {
  T* memory = nullptr;
  EXPECT_EQ(cudaMallocHost(&memory, count * sizeof(T)), cudaSuccess);
  return memory;
}
template <typename T>
T* Device(size_t count) {
  T* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  return memory;
}

// --- The host reads what a copy has not written.

volatile int seen;

constexpr int kCopyLine = __LINE__ + 5;
void ReadResult(bool wait) {
  int* device = Device<int>(32);
  int* host = Pinned<int>(32);
  FillKernel<<<1, 32>>>(device, 7);
  CUDA_CHECK(cudaMemcpyAsync(host, device, 32 * sizeof(int), cudaMemcpyDeviceToHost));
  if (wait) CUDA_CHECK(cudaStreamSynchronize(nullptr));
  seen = host[3];
}
constexpr int kReadLine = __LINE__ - 2;

#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer keeps faults for itself

TEST(SimulatorHost, ReadsBeforeTheCopyHasRun) {
  ExpectContains(
      Report([] { ReadResult(false); }),
      {"the host does not wait", Line(kReadLine), "the host reads pinned memory, byte 12 of",
       Line(kCopyLine), "cudaMemcpyAsync was given to a stream, and has not run",
       "missing between them: cudaStreamSynchronize", "docs/simulator.md#host-does-not-wait"});
  EXPECT_NE(seen, 7);
  ExpectSilent([] { ReadResult(true); });
  EXPECT_EQ(seen, 7);
}

TEST(SimulatorHost, ReadsAnotherPart) {
  ExpectSilent([] {
    int* device = Device<int>(4096);
    int* host = Pinned<int>(4096);
    host[2000] = 5;
    CUDA_CHECK(cudaMemset(device, 0, 4096 * sizeof(int)));
    // Half of the buffer, which ends within a page.
    CUDA_CHECK(cudaMemcpyAsync(host, device, 1500 * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(host[2000], 5);
  });
}

// The first of the copies runs while the second still waits for the same memory.
TEST(SimulatorHost, TwoCopiesMayWaitForOneBuffer) {
  ExpectSilent([] {
    int* device = Device<int>(64);
    int* host = Pinned<int>(32);
    FillKernel<<<1, 32>>>(device, 7);
    CUDA_CHECK(cudaMemcpyAsync(host, device, 32 * sizeof(int), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaMemcpyAsync(device + 32, host, 32 * sizeof(int), cudaMemcpyHostToDevice));
    FillKernel<<<1, 32>>>(device, 8);
    CUDA_CHECK(cudaMemcpyAsync(host, device, 32 * sizeof(int), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(host[3], 8);
    int sent = 0;
    CUDA_CHECK(cudaMemcpy(&sent, device + 35, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(sent, 7);
  });
}

// --- The host changes what a copy has not read.

constexpr int kChangeLine = __LINE__ + 8;
int SendTwice(bool wait) {
  int* device = Device<int>(2);
  int* host = Pinned<int>(1);
  host[0] = 1;
  CUDA_CHECK(cudaMemcpyAsync(device, host, sizeof(int), cudaMemcpyHostToDevice));
  EXPECT_EQ(host[0], 1);  // reading does no harm
  if (wait) CUDA_CHECK(cudaStreamSynchronize(nullptr));
  host[0] = 2;
  cudaMemcpyAsync(device + 1, host, sizeof(int), cudaMemcpyHostToDevice);
  int both[2] = {};
  cudaMemcpy(both, device, sizeof(both), cudaMemcpyDeviceToHost);
  return both[0];
}

// The C library changes it, on behalf of the line that calls it.
constexpr int kRefillLine = __LINE__ + 8;
void Refill(bool wait) {
  volatile size_t size = 8000;  // unknown to the compiler, which would write the bytes itself
  const std::vector<char> numbers(size);
  char* device = Device<char>(size);
  char* host = Pinned<char>(size);
  CUDA_CHECK(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice));
  if (wait) CUDA_CHECK(cudaStreamSynchronize(nullptr));
  std::memcpy(host, numbers.data(), size);
  cudaDeviceSynchronize();
}

TEST(SimulatorHost, ChangesItThroughTheLibrary) {
  ExpectContains(Report([] { Refill(false); }),
                 {Line(kRefillLine) + " the host changes pinned memory",
                  "wait for its stream before you change what it reads, or use a second buffer"});
  ExpectSilent([] { Refill(true); });
}

TEST(SimulatorHost, ChangesWhatACopyHasNotRead) {
  ExpectContains(
      Report([] { SendTwice(false); }),
      {"the host does not wait", Line(kChangeLine),
       "the host changes pinned memory, byte 0 of what a copy will read", Line(kChangeLine - 3)});
  ExpectSilent([] { EXPECT_EQ(SendTwice(true), 1); });
}

#endif

// --- Pinned memory freed under a copy.

constexpr int kQueuedLine = __LINE__ + 4;
cudaError_t FreeAfterCopy(bool wait) {
  int* device = Device<int>(1);
  int* host = Pinned<int>(1);
  CUDA_CHECK(cudaMemcpyAsync(device, host, sizeof(int), cudaMemcpyHostToDevice));
  if (wait) CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return cudaFreeHost(host);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(SimulatorHost, FreesWhatACopyNeeds) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(FreeAfterCopy(false), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  ExpectContains(testing::internal::GetCapturedStderr(),
                 {"cudaFreeHost: ", "is freed while a copy needs it: cudaMemcpyAsync at ",
                  "simulator_host_test.cu:" + std::to_string(kQueuedLine)});
  ExpectSilent([] { EXPECT_EQ(FreeAfterCopy(true), cudaSuccess); });
}
#endif

// --- Two streams that nothing orders: the later one runs first.

int CopyInAnotherStream(bool wait) {
  const Stream first, second;
  const Event done;
  DeviceBuffer<int> from(std::vector<int>(32, 0)), to(32);
  FillKernel<<<1, 32, 0, first.get()>>>(from.data(), 7);
  done.Record(first.get());
  if (wait) CUDA_CHECK(cudaStreamWaitEvent(second.get(), done.get()));
  CUDA_CHECK(
      cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, second.get()));
  CUDA_CHECK(cudaDeviceSynchronize());
  return to.ToHost()[0];
}

TEST(SimulatorHost, MissingEventBetweenStreams) {
  EXPECT_EQ(CopyInAnotherStream(false), 0);
  EXPECT_EQ(CopyInAnotherStream(true), 7);
}

// --- Copies onto themselves.

TEST(SimulatorHost, CopiesThatOverlap) {
  DeviceBuffer<int> buffer(std::vector<int>(40, 1));
  int* x = buffer.data();
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemcpy(x + 1, x, 8, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, x + 1, 8, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(x + 1, 16, x, 16, 8, 3, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  ExpectContains(testing::internal::GetCapturedStderr(),
                 {"cudaMemcpy: the source ", "cudaMemcpy2D: the source ", "overlap",
                  "docs/simulator.md#copies"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  ExpectSilent([] {
    int* y = Device<int>(40);
    EXPECT_EQ(cudaMemset(y, 0, 160), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(y + 2, y, 8, cudaMemcpyDeviceToDevice), cudaSuccess);
    // Rows that lie between each other.
    EXPECT_EQ(cudaMemcpy2D(y + 2, 16, y, 16, 8, 3, cudaMemcpyDeviceToDevice), cudaSuccess);
  });
}

}  // namespace
}  // namespace tinyvllm
