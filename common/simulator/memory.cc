#include "common/simulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/simulator/call_place.h"
#include "common/simulator/error.h"
#include "common/simulator/fiber.h"
#include "common/simulator/host_guard.h"
#include "common/simulator/leaks.h"
#include "common/simulator/memory_check.h"
#include "common/simulator/settings.h"
#include "common/simulator/stream.h"

namespace tinyvllm::simulator {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kHugePageBytes = 2 << 20;
// Allocations this large get huge pages, which spares most page faults and TLB misses.
constexpr size_t kHugeAllocationBytes = 2 * kHugePageBytes;
// Beyond this, poison would touch memory that the program may never use.
constexpr size_t kPoisonAutoBytes = 64 << 20;

struct Allocation {
  size_t bytes;
  MemoryKind kind;
  unsigned flags;
  CallPlace where;
};

struct Table {
  std::mutex mutex;
  uint64_t version = 1;                         // of `allocations`
  std::map<uintptr_t, Allocation> allocations;  // by address
  size_t device_bytes = 0;
};

Table& GetTable() {
  static Table* table = new Table;  // outlives every static object that may still free memory
  return *table;
}

bool CountsAsDevice(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
}

// What lies before and after each allocation, out of bounds of both neighbours.
size_t GapBytes(bool own_pages) {
  return own_pages ? kPageBytes : CheckingMemory() ? kGapBytes : 0;
}

bool NeedsOwnPages(MemoryKind kind) { return kind == MemoryKind::kPinned && GuardsHost(); }

void* AllocateBytes(size_t bytes, bool own_pages) {
  const bool huge = bytes >= kHugeAllocationBytes && !TINYVLLM_SIM_ASAN;
  const size_t gap = GapBytes(own_pages);
  const size_t alignment = huge ? kHugePageBytes : own_pages ? kPageBytes : kAlignment;
  // Pages of their own end where a page ends; otherwise no byte follows that AddressSanitizer would
  // have to take for part of the allocation.
  const size_t whole = own_pages ? (bytes + kPageBytes - 1) / kPageBytes * kPageBytes : bytes;
  const size_t padded = whole + 2 * gap;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, padded) != 0) return nullptr;
  if (huge) madvise(memory, padded, MADV_HUGEPAGE);
  memory = static_cast<char*>(memory) + gap;
  const Poison poison = GetSettings().poison;
  if (poison == Poison::kOn || (poison == Poison::kAuto && bytes <= kPoisonAutoBytes)) {
    std::memset(memory, 0xff, bytes);
  }
  return memory;
}

template <bool kOwnPages>
void FreeBytes(const void* memory) {
  std::free(static_cast<char*>(const_cast<void*>(memory)) - GapBytes(kOwnPages));
}

void GiveBack(const void* memory, MemoryKind kind) {
  const auto release = NeedsOwnPages(kind) ? &FreeBytes<true> : &FreeBytes<false>;
  if (CheckingMemory()) {
    MemoryFreed(memory, CallPlace::Here(), release);
  } else {
    release(memory);
  }
}

cudaError_t Allocate(void** pointer, size_t bytes, MemoryKind kind, unsigned flags) {
  if (pointer == nullptr) return Report(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Table& table = GetTable();
  if (CountsAsDevice(kind)) {
    std::lock_guard<std::mutex> lock(table.mutex);
    const size_t total = GetSettings().memory_bytes;
    if (bytes > total || table.device_bytes > total - bytes)
      return Report(cudaErrorMemoryAllocation);
    table.device_bytes += bytes;
  }
  void* memory = AllocateBytes(bytes, NeedsOwnPages(kind));
  std::lock_guard<std::mutex> lock(table.mutex);
  if (memory == nullptr) {
    if (CountsAsDevice(kind)) table.device_bytes -= bytes;
    return Report(cudaErrorMemoryAllocation);
  }
  const CallPlace where = CallPlace::Here();
  table.allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, kind, flags, where};
  ++table.version;
  if (CheckingMemory()) MemoryAllocated(memory, bytes, kind != MemoryKind::kDevice, where);
  *pointer = memory;
  WatchForLeaks();
  return cudaSuccess;
}

// Frees an allocation of one of two kinds; false where `pointer` is none.
bool Free(void* pointer, MemoryKind kind, MemoryKind other_kind) {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == table.allocations.end()) return false;
  const Allocation& allocation = found->second;
  if (allocation.kind != kind && allocation.kind != other_kind) return false;
  if (CountsAsDevice(allocation.kind)) table.device_bytes -= allocation.bytes;
  const MemoryKind freed_kind = allocation.kind;
  table.allocations.erase(found);
  ++table.version;
  GiveBack(pointer, freed_kind);
  return true;
}

const char* KindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
      return "pageable host memory";
    case MemoryKind::kPinned:
    case MemoryKind::kRegistered:
      return "pinned host memory";
    case MemoryKind::kDevice:
    case MemoryKind::kSymbol:
      return "device memory";
    case MemoryKind::kManaged:
      return "managed memory";
  }
  return "";
}

// --- Copies.

bool OnDeviceOnly(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kSymbol;
}

// Whether a copy's kind may name such memory as the device's side, or as the host's. Pinned and
// managed memory can be either.
bool FitsSide(MemoryKind kind, bool device_side) {
  return device_side ? kind != MemoryKind::kPageable : !OnDeviceOnly(kind);
}

cudaError_t CheckSide(const char* function, const char* side, const void* pointer, size_t bytes,
                      cudaMemcpyKind kind, bool device_side, AddressInfo* info) {
  *info = LookUp(pointer);
  if (kind != cudaMemcpyDefault && !FitsSide(info->kind, device_side)) {
    return Report(cudaErrorInvalidValue,
                  "%s: the %s %p is %s, but the copy's kind says %s: docs/simulator.md#copies",
                  function, side, pointer, KindName(info->kind), device_side ? "device" : "host");
  }
  if (info->kind != MemoryKind::kPageable && bytes > info->bytes_left) {
    return Report(
        cudaErrorInvalidValue,
        "%s: %zu bytes at the %s %p, but its allocation ends after %zu: docs/simulator.md#copies",
        function, bytes, side, pointer, info->bytes_left);
  }
  return cudaSuccess;
}

// A copy of `height` rows.
struct Copy {
  char* to;
  size_t to_pitch;
  const char* from;
  size_t from_pitch;
  size_t width;
  size_t height;

  void Do(const char* function, const CallPlace& asked) const {
    const bool whole = to_pitch == width && from_pitch == width;
    const size_t rows = whole ? 1 : height;
    const size_t bytes = whole ? width * height : width;
    for (size_t row = 0; row < rows; ++row) {
      std::memmove(to + row * to_pitch, from + row * from_pitch, bytes);
      if (CheckingMemory())
        Note(function, asked, to + row * to_pitch, from + row * from_pitch, bytes);
    }
  }

 private:
  // A copy on the device may copy what nothing has written; to the host it has come too far.
  static void Note(const char* function, const CallPlace& asked, const char* to, const char* from,
                   size_t bytes) {
    MemoryCopied(to, from, bytes);
    if (!OnDeviceOnly(LookUp(to).kind)) MemoryRead(function, asked, from, bytes);
  }
};

size_t Extent(size_t pitch, size_t width, size_t height) { return (height - 1) * pitch + width; }

// Whether a byte that the copy writes is one that it reads. Rows may interleave without harm.
bool Overlaps(const Copy& copy) {
  const auto overlap = [](uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
  };
  const auto to = reinterpret_cast<uintptr_t>(copy.to);
  const auto from = reinterpret_cast<uintptr_t>(copy.from);
  if (!overlap(to, Extent(copy.to_pitch, copy.width, copy.height), from,
               Extent(copy.from_pitch, copy.width, copy.height))) {
    return false;
  }
  for (size_t i = 0; i < copy.height; ++i) {
    for (size_t j = 0; j < copy.height; ++j) {
      if (overlap(to + i * copy.to_pitch, copy.width, from + j * copy.from_pitch, copy.width)) {
        return true;
      }
    }
  }
  return false;
}

// Puts pinned memory under guard that a queued copy will write or read.
uint64_t Guard(const char* function, const void* begin, size_t bytes, const AddressInfo& info,
               bool will_write) {
  if (info.kind != MemoryKind::kPinned) return 0;
  return GuardBegin(function, begin, bytes, bytes == info.bytes_left, will_write);
}

cudaError_t CopyRows(const char* function, const Copy& copy, cudaMemcpyKind kind,
                     cudaStream_t stream, bool wait) {
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (copy.to == nullptr || copy.from == nullptr || kind < 0 || kind > cudaMemcpyDefault) {
    return Report(kind < 0 || kind > cudaMemcpyDefault ? cudaErrorInvalidMemcpyDirection
                                                       : cudaErrorInvalidValue);
  }
  if (copy.to_pitch < copy.width || copy.from_pitch < copy.width) {
    return Report(cudaErrorInvalidPitchValue);
  }
  AddressInfo to, from;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  cudaError_t error =
      CheckSide(function, "destination", copy.to, Extent(copy.to_pitch, copy.width, copy.height),
                kind, to_device, &to);
  if (error != cudaSuccess) return error;
  error = CheckSide(function, "source", copy.from, Extent(copy.from_pitch, copy.width, copy.height),
                    kind, from_device, &from);
  if (error != cudaSuccess) return error;
  if (Overlaps(copy)) {
    return Report(
        cudaErrorInvalidValue,
        "%s: the source %p and the destination %p overlap; CUDA does not say what such a copy "
        "gives. Copy through other memory, or use a kernel: docs/simulator.md#copies",
        function, static_cast<const void*>(copy.from), static_cast<void*>(copy.to));
  }
  if (RunsNow(stream)) {
    copy.Do(function, CallPlace::Here());
    return Report(StickyError());
  }
  if (from.kind == MemoryKind::kPageable) {
    // CUDA has read pageable memory by the time the call returns.
    std::vector<char> staged(Extent(copy.from_pitch, copy.width, copy.height));
    std::memcpy(staged.data(), copy.from, staged.size());
    Enqueue(stream, [copy = Copy(copy), function, asked = CallPlace::Here(),
                     staged = std::move(staged)]() mutable {
      copy.from = staged.data();
      copy.Do(function, asked);
    });
  } else {
    const bool waits = wait || to.kind == MemoryKind::kPageable;
    const uint64_t guards[2] = {
        waits ? 0
              : Guard(function, copy.to, Extent(copy.to_pitch, copy.width, copy.height), to, true),
        waits ? 0
              : Guard(function, copy.from, Extent(copy.from_pitch, copy.width, copy.height), from,
                      false)};
    Enqueue(
        stream, [copy, function, asked = CallPlace::Here(), read = guards[1], write = guards[0]] {
          GuardEnd(read);
          GuardEnd(write);
          const GuardPause open_to(copy.to, Extent(copy.to_pitch, copy.width, copy.height));
          const GuardPause open_from(copy.from, Extent(copy.from_pitch, copy.width, copy.height));
          copy.Do(function, asked);
        });
  }
  // Nor does it return before pageable memory has been written.
  if (wait || to.kind == MemoryKind::kPageable) FinishStream(stream);
  return Report(StickyError());
}

cudaError_t SetRows(char* to, size_t pitch, int value, size_t width, size_t height,
                    cudaStream_t stream, const char* function) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (pitch < width) return Report(cudaErrorInvalidPitchValue);
  AddressInfo info;
  const cudaError_t error = CheckSide(function, "destination", to, Extent(pitch, width, height),
                                      cudaMemcpyHostToDevice, true, &info);
  if (error != cudaSuccess) return error;
  RunInOrder(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memset(to + row * pitch, value, width);
      if (CheckingMemory()) MemoryWritten(to + row * pitch, width);
    }
  });
  return cudaSuccess;
}

// A queued copy needs its pinned memory. (The runtime may wait for it, but does not promise to.)
cudaError_t CheckNoCopyPending(const char* function, const void* pointer) {
  const AddressInfo info = LookUp(pointer);
  const char* copy;
  CallPlace where;
  if (info.kind != MemoryKind::kPinned || !FindGuard(pointer, info.bytes_left, &copy, &where)) {
    return cudaSuccess;
  }
  const std::string place = where.ToString();
  return Report(
      cudaErrorInvalidValue,
      "%s: %p is freed while a copy needs it: %s%s%s has not run; wait for its stream first: "
      "docs/simulator.md#host-does-not-wait",
      function, pointer, copy, place.empty() ? "" : " at ", place.c_str());
}

}  // namespace

AddressInfo LookUp(const void* address) {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto place = reinterpret_cast<uintptr_t>(address);
  auto next = table.allocations.upper_bound(place);
  if (next == table.allocations.begin()) return {};
  const auto& [begin, allocation] = *std::prev(next);
  if (place >= begin + allocation.bytes) return {};
  return {allocation.kind, reinterpret_cast<char*>(begin), begin + allocation.bytes - place,
          allocation.flags};
}

void MemoryMap::Update() {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  if (version_ == table.version) return;
  version_ = table.version;
  std::fill_n(cache_, kCached, Range());
  ranges_.clear();
  for (const auto& [begin, allocation] : table.allocations) {
    ranges_.push_back({begin, allocation.bytes});
  }
}

bool MemoryMap::Find(uintptr_t address, Range* found) const {
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uintptr_t at, const Range& range) { return at < range.begin; });
  if (next == ranges_.begin() || address - std::prev(next)->begin >= std::prev(next)->bytes) {
    return false;
  }
  *found = *std::prev(next);
  return true;
}

void CollectMemory(Leaks* leaks) {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  for (const auto& [begin, allocation] : table.allocations) {
    if (allocation.kind == MemoryKind::kSymbol) continue;
    leaks->Add(allocation.where, KindName(allocation.kind), allocation.bytes);
  }
}

void FreeAllMemory() {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  for (const auto& [begin, allocation] : table.allocations) {
    if (allocation.kind == MemoryKind::kDevice || allocation.kind == MemoryKind::kManaged ||
        allocation.kind == MemoryKind::kPinned) {
      GiveBack(reinterpret_cast<void*>(begin), allocation.kind);
    } else if (CheckingMemory()) {
      MemoryForgotten(reinterpret_cast<void*>(begin));
    }
  }
  table.allocations.clear();
  ++table.version;
  table.device_bytes = 0;
}

cudaError_t SymbolAddress(void** pointer, const void* symbol, size_t bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (pointer == nullptr) return Report(cudaErrorInvalidValue);
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  table.allocations[reinterpret_cast<uintptr_t>(symbol)] = {bytes, MemoryKind::kSymbol, 0, {}};
  ++table.version;
  *pointer = const_cast<void*>(symbol);
  return cudaSuccess;
}

cudaError_t CopySymbol(void* to, const void* from, size_t bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return Report(cudaErrorInvalidValue);
  FinishStream(nullptr);
  std::memcpy(to, from, bytes);
  if (CheckingMemory()) MemoryWritten(to, bytes);
  return Report(StickyError());
}

}  // namespace tinyvllm::simulator

using namespace tinyvllm::simulator;

// --- Allocation.

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  return Allocate(pointer, bytes, MemoryKind::kDevice, 0);
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  TINYVLLM_SIM_BEGIN_CALL();
  return Allocate(pointer, bytes, MemoryKind::kDevice, 0);
}

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) {
    return Report(cudaErrorInvalidValue);
  }
  return Allocate(pointer, bytes, MemoryKind::kManaged, flags);
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (pitch == nullptr) return Report(cudaErrorInvalidValue);
  *pitch = (width + 511) / 512 * 512;
  return Allocate(pointer, *pitch * height, MemoryKind::kDevice, 0);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned int flags) {
  return cudaHostAlloc(pointer, bytes, flags);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  constexpr unsigned kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (flags & ~kKnown) return Report(cudaErrorInvalidValue);
  return Allocate(pointer, bytes, MemoryKind::kPinned, flags);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  const AddressInfo info = LookUp(host);
  if (device == nullptr || flags != 0 ||
      (info.kind != MemoryKind::kPinned && info.kind != MemoryKind::kRegistered)) {
    return Report(cudaErrorInvalidValue);
  }
  *device = host;
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaFree(void* pointer) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (pointer == nullptr) return cudaSuccess;
  FinishDevice();
  if (!Free(pointer, MemoryKind::kDevice, MemoryKind::kManaged)) {
    return Report(cudaErrorInvalidValue,
                  "cudaFree: %p is not the start of a live allocation of "
                  "cudaMalloc",
                  pointer);
  }
  return Report(StickyError());
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (pointer == nullptr) return cudaSuccess;
  if (LookUp(pointer).begin != pointer) return Report(cudaErrorInvalidValue);
  RunInOrder(stream, [pointer] { Free(pointer, MemoryKind::kDevice, MemoryKind::kManaged); });
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (pointer == nullptr) return cudaSuccess;
  const cudaError_t pending = CheckNoCopyPending("cudaFreeHost", pointer);
  FinishDevice();
  if (!Free(pointer, MemoryKind::kPinned, MemoryKind::kPinned)) {
    return Report(cudaErrorInvalidValue,
                  "cudaFreeHost: %p is not the start of a live allocation of "
                  "cudaMallocHost or cudaHostAlloc",
                  pointer);
  }
  return pending != cudaSuccess ? pending : Report(StickyError());
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                              cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown)) return Report(cudaErrorInvalidValue);
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const auto next = table.allocations.lower_bound(begin);
  const bool reaches_next = next != table.allocations.end() && next->first < begin + bytes;
  const bool within_previous = next != table.allocations.begin() &&
                               std::prev(next)->first + std::prev(next)->second.bytes > begin;
  if (reaches_next || within_previous) return Report(cudaErrorHostMemoryAlreadyRegistered);
  const CallPlace where = CallPlace::Here();
  table.allocations[begin] = {bytes, MemoryKind::kRegistered, flags, where};
  ++table.version;
  if (CheckingMemory()) MemoryAllocated(pointer, bytes, true, where);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  TINYVLLM_SIM_BEGIN_CALL();
  FinishDevice();
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == table.allocations.end() || found->second.kind != MemoryKind::kRegistered) {
    return Report(cudaErrorHostMemoryNotRegistered);
  }
  if (CheckingMemory()) MemoryForgotten(pointer);
  table.allocations.erase(found);
  ++table.version;
  return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  TINYVLLM_SIM_BEGIN_CALL();
  const AddressInfo info = LookUp(host);
  if (flags == nullptr ||
      (info.kind != MemoryKind::kPinned && info.kind != MemoryKind::kRegistered)) {
    return Report(cudaErrorInvalidValue);
  }
  *flags = info.flags;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (attributes == nullptr) return Report(cudaErrorInvalidValue);
  const AddressInfo info = LookUp(pointer);
  void* address = const_cast<void*>(pointer);
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
  switch (info.kind) {
    case MemoryKind::kPageable:
      break;
    case MemoryKind::kPinned:
    case MemoryKind::kRegistered:
      *attributes = {cudaMemoryTypeHost, 0, address, address};
      break;
    case MemoryKind::kDevice:
    case MemoryKind::kSymbol:
      *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
      break;
    case MemoryKind::kManaged:
      *attributes = {cudaMemoryTypeManaged, 0, address, address};
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (free_bytes == nullptr || total_bytes == nullptr) return Report(cudaErrorInvalidValue);
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  *total_bytes = GetSettings().memory_bytes;
  *free_bytes = *total_bytes - table.device_bytes;
  return cudaSuccess;
}

// --- Copying and filling.

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  TINYVLLM_SIM_BEGIN_CALL();
  const Copy copy = {
      static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1};
  return CopyRows("cudaMemcpy", copy, kind, nullptr, true);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  TINYVLLM_SIM_BEGIN_CALL();
  const Copy copy = {
      static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width, height};
  return CopyRows("cudaMemcpy2D", copy, kind, nullptr, true);
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  TINYVLLM_SIM_BEGIN_CALL();
  return SetRows(static_cast<char*>(pointer), bytes, value, bytes, 1, nullptr, "cudaMemset");
}

cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  TINYVLLM_SIM_BEGIN_CALL();
  return SetRows(static_cast<char*>(pointer), pitch, value, width, height, nullptr, "cudaMemset2D");
}
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  const Copy copy = {
      static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1};
  return CopyRows("cudaMemcpyAsync", copy, kind, stream, false);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  const Copy copy = {
      static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width, height};
  return CopyRows("cudaMemcpy2DAsync", copy, kind, stream, false);
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  return SetRows(static_cast<char*>(pointer), bytes, value, bytes, 1, stream, "cudaMemsetAsync");
}

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  return SetRows(static_cast<char*>(pointer), pitch, value, width, height, stream,
                 "cudaMemset2DAsync");
}
