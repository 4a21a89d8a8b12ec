// Kernel launches: the device's limits, and blocks spread over the OS threads.
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <numeric>

#include "common/simulator/block.h"
#include "common/simulator/crash.h"
#include "common/simulator/device.h"
#include "common/simulator/error.h"
#include "common/simulator/order.h"
#include "common/simulator/pool.h"
#include "common/simulator/watch.h"
#include "common/simulator/watchdog.h"

namespace tinyvllm::simulator {
namespace {

// Dynamic shared memory that a kernel has been allowed by cudaFuncSetAttribute.
std::mutex shared_limits_mutex;
std::map<const void*, size_t> shared_limits;

size_t SharedLimit(const void* kernel) {
  std::lock_guard<std::mutex> lock(shared_limits_mutex);
  if (kernel == nullptr) {
    // A launch whose kernel only overload resolution knows: whatever any kernel was allowed.
    size_t limit = kMaxStaticSharedBytes;
    for (const auto& entry : shared_limits) limit = std::max(limit, entry.second);
    return limit;
  }
  const auto found = shared_limits.find(kernel);
  return found == shared_limits.end() ? kMaxStaticSharedBytes : found->second;
}

cudaError_t Refuse(const KernelLaunch& launch, cudaError_t error, const char* what,
                   unsigned long long value, const char* expected) {
  return Report(error, "kernel %s not launched at %s:%d: %s is %llu; expected %s", launch.name,
                launch.file, launch.line, what, value, expected);
}

cudaError_t CheckLimits(const KernelLaunch& launch) {
  const dim3& block = launch.block;
  const dim3& grid = launch.grid;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (block.x > kMaxThreadsPerBlock || block.y > kMaxThreadsPerBlock || threads == 0 ||
      threads > kMaxThreadsPerBlock) {
    return Refuse(launch, cudaErrorInvalidConfiguration, "the number of threads a block", threads,
                  "1 to 1024");
  }
  if (block.z > kMaxBlockDimZ) {
    return Refuse(launch, cudaErrorInvalidConfiguration, "blockDim.z", block.z, "at most 64");
  }
  if (grid.x == 0 || grid.x > kMaxGridDimX) {
    return Refuse(launch, cudaErrorInvalidConfiguration, "gridDim.x", grid.x, "1 to 2147483647");
  }
  if (grid.y == 0 || grid.y > kMaxGridDimYZ) {
    return Refuse(launch, cudaErrorInvalidConfiguration, "gridDim.y", grid.y, "1 to 65535");
  }
  if (grid.z == 0 || grid.z > kMaxGridDimYZ) {
    return Refuse(launch, cudaErrorInvalidConfiguration, "gridDim.z", grid.z, "1 to 65535");
  }
  if (launch.shared_bytes > kMaxStaticSharedBytes &&
      launch.shared_bytes > SharedLimit(launch.address)) {
    return Refuse(
        launch, cudaErrorInvalidValue, "the dynamic shared memory in bytes", launch.shared_bytes,
        "at most 49152, or what cudaFuncSetAttribute(kernel, "
        "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) has allowed, at most 232448");
  }
  return cudaSuccess;
}

// The block that comes `position`-th, so that each comes once.
class BlockOrder {
 public:
  explicit BlockOrder(uint64_t num_blocks) : num_blocks_(num_blocks) {
    const Settings& settings = GetSettings();
    order_ = OrderNow();
    if (order_ != ThreadOrder::kShuffle) return;
    // Multiplying by a number without common divisor permutes the blocks.
    stride_ = (settings.seed * 0x9e3779b97f4a7c15u >> 32 | 1) % num_blocks;
    while (std::gcd(stride_, num_blocks) != 1) ++stride_;
    offset_ = settings.seed % num_blocks;
  }

  uint64_t operator[](uint64_t position) const {
    if (order_ == ThreadOrder::kNatural) return position;
    if (order_ == ThreadOrder::kReverse) return num_blocks_ - 1 - position;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(position) * stride_ + offset_) %
                                 num_blocks_);
  }

 private:
  uint64_t num_blocks_;
  ThreadOrder order_;
  uint64_t stride_ = 1;
  uint64_t offset_ = 0;
};

}  // namespace

bool CheckLaunch(const KernelLaunch& launch) {
  if (BeginCall("a kernel launch") != cudaSuccess) return false;
  return CheckLimits(launch) == cudaSuccess;
}

void RunKernel(const KernelLaunch& launch) {
  if (StickyError() != cudaSuccess) return;
  InstallCrashReports();
  const uint64_t num_blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const BlockOrder order(num_blocks);
  std::atomic<bool> failed{false};
  WatchedLaunch watched(launch);
  WorkerPool::Get().Run(num_blocks, WorkerPool::Wake::kIfLong, [&](PoolJob& job) {
    PrepareOsThread();
    ArmWatchdog();
    watched.Begin();
    BlockRunner& runner = BlockRunner::Get();
    runner.Begin(launch);
    for (uint64_t i; job.Next(&i);) {
      const cudaError_t error = runner.Run(order[i]);
      if (error == cudaSuccess) continue;
      job.Stop();
      if (failed.exchange(true)) break;  // one report a launch
      SetStickyError(error);
      std::fprintf(stderr, "CUDA simulator: %s\n", runner.report().c_str());
      break;
    }
    watched.End();
  });
  watched.Finish();
}

cudaError_t SetKernelAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    return Report(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || kernel == nullptr) {
    return Report(cudaErrorInvalidValue);
  }
  if (value < 0 || static_cast<size_t>(value) > kMaxDynamicSharedBytes) {
    return Report(
        cudaErrorInvalidValue,
        "cudaFuncSetAttribute: %d bytes of dynamic shared memory; the device has 232448 a "
        "block",
        value);
  }
  std::lock_guard<std::mutex> lock(shared_limits_mutex);
  shared_limits[kernel] = value;
  return cudaSuccess;
}

cudaError_t GetKernelAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (attributes == nullptr || kernel == nullptr) return Report(cudaErrorInvalidValue);
  *attributes = {};
  attributes->maxThreadsPerBlock = kMaxThreadsPerBlock;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 10 * kComputeMajor + kComputeMinor;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(SharedLimit(kernel));
  return cudaSuccess;
}

cudaError_t BlocksPerMultiprocessor(int* blocks, int threads, size_t shared_bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (blocks == nullptr || threads <= 0) return Report(cudaErrorInvalidValue);
  *blocks = 0;
  if (threads > kMaxThreadsPerBlock || shared_bytes > kMaxDynamicSharedBytes) return cudaSuccess;
  *blocks = std::min(kMaxThreadsPerMultiprocessor / threads, kMaxBlocksPerMultiprocessor);
  const size_t reserved = shared_bytes + kReservedSharedBytes;
  *blocks = std::min(*blocks, static_cast<int>(kSharedBytesPerMultiprocessor / reserved));
  return cudaSuccess;
}

void ForgetKernelAttributes() {
  std::lock_guard<std::mutex> lock(shared_limits_mutex);
  shared_limits.clear();
}

}  // namespace tinyvllm::simulator
