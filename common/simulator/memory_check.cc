#include "common/simulator/memory_check.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/simulator/block.h"
#include "common/simulator/error.h"
#include "common/simulator/source_place.h"
#include "cuda_simulator/atomic.h"
#include "cuda_simulator/launch.h"

// The program with its variables, `__device__` ones among them: set by the linker.
extern "C" char __executable_start[], _end[];

namespace tinyvllm::simulator {
namespace {

// --- Which bytes have been written: a bit a byte.

class WrittenBytes {
 public:
  explicit WrittenBytes(size_t bytes)
      : bytes_(bytes),
        words_(static_cast<uint64_t*>(std::calloc(bytes / 64 + 1, sizeof(uint64_t)))) {
    if (words_ == nullptr) {
      std::fputs("CUDA simulator: no memory for the memory checker's shadow\n", stderr);
      std::abort();
    }
  }
  ~WrittenBytes() { std::free(words_); }
  WrittenBytes(const WrittenBytes&) = delete;
  WrittenBytes& operator=(const WrittenBytes&) = delete;

  // Forgets what is known of the first `bytes`; of those beyond nothing may be asked.
  void Clear(size_t bytes) {
    std::fill_n(words_, bytes / 64 + 1, 0);
    all_ = false;
  }

  // Blocks that share a word may come at the same time.
  void Set(size_t begin, size_t bytes) {
    if (all_.load(std::memory_order_relaxed)) return;
    if (begin == 0 && bytes == bytes_) {
      all_.store(true, std::memory_order_relaxed);
      return;
    }
    ForEachWord(begin, bytes, [&](size_t word, uint64_t bits) {
      if ((__atomic_load_n(&words_[word], __ATOMIC_RELAXED) & bits) != bits) {
        __atomic_fetch_or(&words_[word], bits, __ATOMIC_RELAXED);
      }
      return true;
    });
  }

  // The first byte of the range that has not been written; its end where all have.
  size_t FirstUnwritten(size_t begin, size_t bytes) const {
    if (all_.load(std::memory_order_relaxed)) return begin + bytes;
    size_t first = begin + bytes;
    ForEachWord(begin, bytes, [&](size_t word, uint64_t bits) {
      const uint64_t missing = bits & ~__atomic_load_n(&words_[word], __ATOMIC_RELAXED);
      if (missing != 0) first = word * 64 + __builtin_ctzll(missing);
      return missing == 0;
    });
    return first;
  }

 private:
  template <typename Act>
  static void ForEachWord(size_t begin, size_t bytes, Act act) {
    const size_t end = begin + bytes;
    while (begin < end) {
      const size_t bit = begin % 64;
      const size_t count = std::min(end - begin, 64 - bit);
      if (!act(begin / 64, ~uint64_t{0} >> (64 - count) << bit)) return;
      begin += count;
    }
  }

  const size_t bytes_;
  uint64_t* const words_;
  std::atomic<bool> all_{false};
};

// --- The allocations.

struct Region {
  uintptr_t begin;
  size_t bytes;
  bool on_host;  // counts as written
  bool freed = false;
  CallPlace allocated_at, freed_at;
  void (*release)(const void*) = nullptr;
  std::unique_ptr<WrittenBytes> written;

  bool Holds(uintptr_t address, size_t count) const {
    return address >= begin && count <= bytes && address - begin <= bytes - count;
  }
};

// Freed memory lies idle until so much of it has come together.
constexpr size_t kIdleBytes = 256 << 20;

struct Regions {
  std::mutex mutex;
  std::map<uintptr_t, std::unique_ptr<Region>> all;  // by address
  std::deque<uintptr_t> idle;
  size_t idle_bytes = 0;
  std::atomic<uint64_t> generation{1};  // changes with `all`

  // The region that holds the address, or ends or begins within a gap of it; or null.
  Region* Near(uintptr_t address) {
    const auto after = all.upper_bound(address);
    if (after != all.begin()) {
      Region* before = std::prev(after)->second.get();
      if (address - before->begin < before->bytes + kGapBytes) return before;
    }
    if (after != all.end() && after->first - address <= kGapBytes) return after->second.get();
    return nullptr;
  }

  void Erase(std::map<uintptr_t, std::unique_ptr<Region>>::iterator region) {
    ++generation;
    all.erase(region);
  }

  void ReleaseOldest() {
    const auto oldest = all.find(idle.front());
    idle.pop_front();
    idle_bytes -= oldest->second->bytes;
    oldest->second->release(reinterpret_cast<const void*>(oldest->first));
    Erase(oldest);
  }
};

Regions& GetRegions() {
  static Regions* regions = new Regions;  // outlives every static object that may still free memory
  return *regions;
}

// --- Of an OS thread: the regions it used last, and its block's shared memory.

struct SharedVariable {
  SharedVariable(uintptr_t b, size_t n, const char* of)
      : begin(b), bytes(n), name(of), written(n) {}

  const uintptr_t begin;
  const size_t bytes;
  const char* const name;
  uint64_t serial = 0;  // of the block that it was last part of
  WrittenBytes written;
};

constexpr size_t kCachedPages = 1024;
constexpr int kPageShift = 12;
constexpr size_t kCachedLines = 1024;
constexpr int kLineShift = 6;

struct Checker {
  struct CachedPage {
    uintptr_t number = 0;
    uint64_t generation = 0;
    Region* region = nullptr;
  };

  BlockRunner* runner = nullptr;
  CachedPage pages[kCachedPages];
  uintptr_t engine_lines[kCachedLines] = {};  // memory of the engine, which its headers use
  WrittenBytes dynamic{kMaxDynamicSharedBytes};
  std::vector<std::unique_ptr<SharedVariable>> shared;
  SharedVariable* last = nullptr;
  std::string unwritten;  // the report of a read, or empty
  int unwritten_thread = 0;
};

thread_local std::unique_ptr<Checker> owned_checker;
__thread Checker* checker;

// --- Reports.

std::string Bytes(size_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

const char* Verb(const MemoryAccess& access) {
  if (IsAtomic(access.kind))
    return IsWrite(access.kind) ? "changes by an atomic" : "reads by an atomic";
  return IsWrite(access.kind) ? "writes" : "reads";
}

struct Problem {
  cudaError_t error;
  const char* title;
  std::string memory;   // after "thread (0,0,0) writes 4 bytes"
  std::string history;  // more lines
  const char* advice;
  const char* anchor;
};

std::string Describe(const MemoryAccess& access, const Problem& problem) {
  return std::string(problem.title) + "\n    " +
         SourcePlace(static_cast<const char*>(access.place) - 1) + ": thread " +
         checker->runner->ThreadName(access.thread) + " " + Verb(access) + " " +
         Bytes(access.bytes) + problem.memory + problem.history + "\n  advice: " + problem.advice +
         "\n  more: docs/simulator.md#" + problem.anchor;
}

bool Fail(const MemoryAccess& access, const Problem& problem) {
  checker->runner->Fail(problem.error, Describe(access, problem));
  return false;
}

std::string HistoryLine(const CallPlace& where, const char* what) {
  const std::string place = where.ToString();
  return place.empty() ? "" : "\n    " + place + ": " + what;
}

// Where `access` lies, which does not lie within the `bytes` at `begin`.
std::string Distance(const MemoryAccess& access, uintptr_t begin, const std::string& memory) {
  if (access.address < begin) {
    return ", " + Bytes(begin - access.address) + " before the beginning of " + memory;
  }
  return " at byte " + std::to_string(access.address - begin) + " of " + memory;
}

constexpr char kBoundsAdvice[] =
    "compare the index with the size before the access: if (i < n). A grid of whole blocks has "
    "more "
    "threads than there are elements";

bool FailBounds(const MemoryAccess& access, const Region& region) {
  return Fail(access, {cudaErrorIllegalAddress, "out of bounds",
                       Distance(access, region.begin, "an allocation of " + Bytes(region.bytes)),
                       HistoryLine(region.allocated_at, "the memory was allocated here"),
                       kBoundsAdvice, "out-of-bounds"});
}

bool FailFreed(const MemoryAccess& access, const Region& region) {
  return Fail(
      access,
      {cudaErrorIllegalAddress, "use after free",
       " at byte " + std::to_string(access.address - region.begin) + " of an allocation of " +
           Bytes(region.bytes) + " that has been freed",
       HistoryLine(region.allocated_at, "the memory was allocated here") +
           HistoryLine(region.freed_at, "and freed here"),
       "free memory when the last kernel that uses it has finished, and keep no pointer to it",
       "use-after-free"});
}

Problem Unwritten(size_t byte, const std::string& memory, const std::string& history,
                  const char* advice) {
  return {cudaErrorLaunchFailure,
          "read of memory that nothing has written",
          ": byte " + std::to_string(byte) + " of " + memory,
          history,
          advice,
          "unwritten-memory"};
}

uintptr_t& EngineLine(uintptr_t address) {
  return checker->engine_lines[(address >> kLineShift) % kCachedLines];
}

bool FailHost(const MemoryAccess& access) {
  // The engine and the C++ library work on the host's memory, and their templates may be shared
  // with a kernel's.
  const std::string place = ProgramPlace(static_cast<const char*>(access.place) - 1);
  // Nor does the kernel read its own name: `this->kernel<<<...>>>(...)`.
  const KernelLaunch& launch = checker->runner->launch();
  if (place.empty() || place == std::string(launch.file) + ":" + std::to_string(launch.line)) {
    EngineLine(access.address) = access.address >> kLineShift;
    return true;
  }
  char address[32];
  std::snprintf(address, sizeof(address), "%p", reinterpret_cast<void*>(access.address));
  return Fail(access,
              {cudaErrorIllegalAddress, "illegal address",
               std::string(" at ") + address +
                   ", which is no memory of the device: the host's, or nobody's",
               "",
               "a kernel needs a pointer from cudaMalloc: copy the host's data with cudaMemcpy, "
               "and pass the copy. An index far out of bounds looks the same",
               "illegal-address"});
}

// --- Accesses to global memory.

// Memory of the engine that its headers read in a kernel's code: what lanes exchange, votes, the
// arguments of the launch.
bool IsEngines(const MemoryAccess& access) {
  uintptr_t& line = EngineLine(access.address);
  if (line == access.address >> kLineShift) return true;
  if (!checker->runner->Owns(reinterpret_cast<const void*>(access.address))) return false;
  line = access.address >> kLineShift;
  return true;
}

bool CheckInRegion(const MemoryAccess& access, const Region& region) {
  const size_t offset = access.address - region.begin;
  if (region.freed) return FailFreed(access, region);
  if (region.on_host) return true;
  if (access.reads) {
    const size_t first = region.written->FirstUnwritten(offset, access.bytes);
    if (first < offset + access.bytes) {
      return Fail(
          access,
          Unwritten(first, "an allocation of " + Bytes(region.bytes),
                    HistoryLine(region.allocated_at, "the memory was allocated here"),
                    "fresh memory holds anything: write it first, by a kernel, cudaMemcpy or "
                    "cudaMemset. Or the index is wrong: nobody wrote there, and nobody should "
                    "read there"));
    }
  }
  if (IsWrite(access.kind)) region.written->Set(offset, access.bytes);
  return true;
}

bool CheckGlobal(const MemoryAccess& access) {
  Regions& regions = GetRegions();
  const uintptr_t number = access.address >> kPageShift;
  Checker::CachedPage& cached = checker->pages[number % kCachedPages];
  const uint64_t generation = regions.generation.load(std::memory_order_acquire);
  if (cached.number == number && cached.generation == generation &&
      cached.region->Holds(access.address, access.bytes)) {
    return CheckInRegion(access, *cached.region);
  }
  const auto in_program =
      reinterpret_cast<uintptr_t>(_end) - reinterpret_cast<uintptr_t>(__executable_start);
  if (access.address - reinterpret_cast<uintptr_t>(__executable_start) < in_program) return true;
  Region* region;
  {
    std::lock_guard<std::mutex> lock(regions.mutex);
    region = regions.Near(access.address);
  }
  if (region == nullptr) return IsEngines(access) || FailHost(access);
  if (!region->Holds(access.address, access.bytes)) {
    return IsEngines(access) || FailBounds(access, *region);
  }
  cached = {number, generation, region};
  return CheckInRegion(access, *region);
}

// --- Accesses to shared memory.

// What the simulator itself keeps for each OS thread, and its headers use.
bool IsEnginesVariable(uintptr_t address) {
  const auto within = [&](const auto& variable) {
    return address - reinterpret_cast<uintptr_t>(&variable) < sizeof(variable);
  };
  return within(threadIdx) || within(blockIdx) || within(blockDim) || within(gridDim) ||
         within(current_thread) || within(atomics_left) || within(block_serial);
}

std::string NameOf(const SharedVariable& variable) {
  return "the __shared__ variable `" + std::string(variable.name) + "` of " + Bytes(variable.bytes);
}

// `name` gives the memory's name. A read of shared memory that nothing has written is reported when
// the block's threads next meet: if one of them writes there before that, it is a race, and the
// race detector's report says more.
template <typename Name>
bool CheckWritten(const MemoryAccess& access, size_t offset, WrittenBytes* written, Name name) {
  if (access.reads) {
    const size_t first = written->FirstUnwritten(offset, access.bytes);
    if (first < offset + access.bytes) {
      if (checker->unwritten.empty()) {
        checker->unwritten_thread = access.thread;
        checker->unwritten = Describe(
            access, Unwritten(first, name(), "",
                              "shared memory holds anything when a block begins: write all "
                              "that is read, and wait for the writers with __syncthreads"));
      }
    }
  }
  if (IsWrite(access.kind)) written->Set(offset, access.bytes);
  return true;
}

bool CheckVariable(const MemoryAccess& access, SharedVariable* variable) {
  checker->last = variable;
  return CheckWritten(access, access.address - variable->begin, &variable->written,
                      [&] { return NameOf(*variable); });
}

bool IsOfThisBlock(const SharedVariable& variable) { return variable.serial == block_serial; }

bool FailShared(const MemoryAccess& access) {
  const auto dynamic = reinterpret_cast<uintptr_t>(&tinyvllm_simulator_dynamic_shared);
  if (access.address - dynamic < kMaxDynamicSharedBytes + kGapBytes) {
    const size_t bytes = checker->runner->launch().shared_bytes;
    return Fail(access, {cudaErrorIllegalAddress, "out of bounds",
                         " at byte " + std::to_string(access.address - dynamic) + " of " +
                             Bytes(bytes) + " of dynamic shared memory",
                         "",
                         "the launch says how much dynamic shared memory a block has, in bytes: "
                         "kernel<<<grid, block, bytes>>>. Compare it with what the kernel uses",
                         "out-of-bounds"});
  }
  // Name the nearest variable of this block.
  const SharedVariable* nearest = nullptr;
  uintptr_t distance = UINTPTR_MAX;
  for (const auto& variable : checker->shared) {
    if (!IsOfThisBlock(*variable)) continue;
    const uintptr_t away = access.address < variable->begin
                               ? variable->begin - access.address
                               : access.address - variable->begin - variable->bytes;
    if (away >= distance) continue;
    distance = away;
    nearest = variable.get();
  }
  if (nearest == nullptr) return true;  // of a __shared__ variable outside functions, for instance
  return Fail(access, {cudaErrorIllegalAddress, "out of bounds",
                       Distance(access, nearest->begin, NameOf(*nearest)), "", kBoundsAdvice,
                       "out-of-bounds"});
}

bool CheckShared(const MemoryAccess& access) {
  const auto holds = [&](const SharedVariable& variable) {
    return access.address - variable.begin < variable.bytes &&
           access.bytes <= variable.bytes - (access.address - variable.begin) &&
           IsOfThisBlock(variable);
  };
  if (checker->last != nullptr && holds(*checker->last))
    return CheckVariable(access, checker->last);
  const uintptr_t offset =
      access.address - reinterpret_cast<uintptr_t>(&tinyvllm_simulator_dynamic_shared);
  const size_t dynamic_bytes = checker->runner->launch().shared_bytes;
  if (offset < dynamic_bytes && access.bytes <= dynamic_bytes - offset) {
    return CheckWritten(access, offset, &checker->dynamic,
                        [] { return std::string("dynamic shared memory"); });
  }
  for (const auto& variable : checker->shared) {
    if (holds(*variable)) return CheckVariable(access, variable.get());
  }
  return IsEnginesVariable(access.address) || FailShared(access);
}

}  // namespace

// --- What the runtime tells.

void MemoryAllocated(const void* begin, size_t bytes, bool on_host, const CallPlace& where) {
  auto region = std::make_unique<Region>();
  region->begin = reinterpret_cast<uintptr_t>(begin);
  region->bytes = bytes;
  region->on_host = on_host;
  region->allocated_at = where;
  if (!on_host) region->written = std::make_unique<WrittenBytes>(bytes);
  Regions& regions = GetRegions();
  std::lock_guard<std::mutex> lock(regions.mutex);
  ++regions.generation;
  regions.all[region->begin] = std::move(region);
}

void MemoryFreed(const void* begin, const CallPlace& where, void (*release)(const void*)) {
  Regions& regions = GetRegions();
  std::lock_guard<std::mutex> lock(regions.mutex);
  Region& region = *regions.all.at(reinterpret_cast<uintptr_t>(begin));
  region.freed = true;
  region.freed_at = where;
  region.release = release;
  ++regions.generation;
  regions.idle.push_back(region.begin);
  regions.idle_bytes += region.bytes;
  while (regions.idle_bytes > kIdleBytes) regions.ReleaseOldest();
}

void MemoryForgotten(const void* begin) {
  Regions& regions = GetRegions();
  std::lock_guard<std::mutex> lock(regions.mutex);
  const auto found = regions.all.find(reinterpret_cast<uintptr_t>(begin));
  if (found != regions.all.end()) regions.Erase(found);
}

namespace {

// The device's memory at `begin`, or null.
Region* DeviceRegion(const void* begin, size_t bytes) {
  Regions& regions = GetRegions();
  std::lock_guard<std::mutex> lock(regions.mutex);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Region* region = regions.Near(address);
  const bool holds = region != nullptr && region->Holds(address, bytes) && !region->on_host;
  return holds ? region : nullptr;
}

}  // namespace

void MemoryWritten(const void* begin, size_t bytes) {
  if (Region* region = DeviceRegion(begin, bytes)) {
    region->written->Set(reinterpret_cast<uintptr_t>(begin) - region->begin, bytes);
  }
}

void MemoryCopied(const void* to, const void* from, size_t bytes) {
  Region* target = DeviceRegion(to, bytes);
  if (target == nullptr) return;
  const size_t offset = reinterpret_cast<uintptr_t>(to) - target->begin;
  const Region* source = DeviceRegion(from, bytes);
  if (source == nullptr) {
    target->written->Set(offset, bytes);
    return;
  }
  // What nothing has written stays so in the copy: no harm is done until a kernel reads it.
  const size_t begin = reinterpret_cast<uintptr_t>(from) - source->begin;
  for (size_t at = 0; at < bytes;) {
    const size_t unwritten = source->written->FirstUnwritten(begin + at, bytes - at) - begin;
    target->written->Set(offset + at, unwritten - at);
    at = unwritten;
    while (at < bytes && source->written->FirstUnwritten(begin + at, 1) == begin + at) ++at;
  }
}

bool MemoryRead(const char* function, const CallPlace& asked, const void* begin, size_t bytes) {
  // After an error it would be no news: the kernel that was to write them has been ended.
  if (StickyError() != cudaSuccess) return true;
  const Region* region = DeviceRegion(begin, bytes);
  if (region == nullptr) return true;
  const size_t offset = reinterpret_cast<uintptr_t>(begin) - region->begin;
  const size_t first = region->written->FirstUnwritten(offset, bytes);
  if (first == offset + bytes) return true;
  const std::string place = asked.ToString();
  SetStickyError(cudaErrorLaunchFailure);
  Report(
      cudaErrorLaunchFailure,
      "error: read of memory that nothing has written\n"
      "    %s%s reads %zu bytes, from byte %zu on, of an allocation of %zu bytes; byte %zu is the "
      "first unwritten one%s\n"
      "  advice: what should have written them leaves some out: check the kernel's grid, and its "
      "condition for the last elements\n"
      "  more: docs/simulator.md#unwritten-memory",
      place.empty() ? "" : (place + ": ").c_str(), function, bytes, offset, region->bytes, first,
      HistoryLine(region->allocated_at, "the memory was allocated here").c_str());
  return false;
}

// --- What watch.cc tells.

void MemoryCheckBlockBegins(BlockRunner* runner) {
  if (checker == nullptr) {
    owned_checker = std::make_unique<Checker>();
    checker = owned_checker.get();
  }
  checker->runner = runner;
  checker->unwritten.clear();
  checker->dynamic.Clear(runner->launch().shared_bytes);
}

void MemoryCheckShared(const void* variable, size_t bytes, const char* name) {
  const auto begin = reinterpret_cast<uintptr_t>(variable);
  for (const auto& known : checker->shared) {
    if (known->begin != begin || known->bytes != bytes) continue;
    known->serial = block_serial;
    known->written.Clear(bytes);
    return;
  }
  checker->shared.push_back(std::make_unique<SharedVariable>(begin, bytes, name));
  checker->shared.back()->serial = block_serial;
}

bool MemoryCheckMeeting() {
  if (checker->unwritten.empty()) return true;
  checker->runner->Fail(cudaErrorLaunchFailure, checker->unwritten, checker->unwritten_thread);
  return false;
}

bool MemoryCheckAccess(const MemoryAccess& access) {
  return access.in_thread_variables ? CheckShared(access) : CheckGlobal(access);
}

}  // namespace tinyvllm::simulator
