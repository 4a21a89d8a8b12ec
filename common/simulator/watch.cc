#include "common/simulator/watch.h"

#include <link.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/simulator/access.h"
#include "common/simulator/block.h"
#include "common/simulator/memory.h"
#include "common/simulator/memory_check.h"
#include "common/simulator/race.h"
#include "cuda_simulator/atomic.h"
#include "cuda_simulator/checks.h"

// The program's own variables, `__device__` ones among them: set by the linker.
extern "C" char __data_start[], _end[];

namespace tinyvllm::simulator {

__thread unsigned watching;
__thread unsigned watchers_of_launch;

namespace {

// Of an OS thread: what its block has of shared memory, and where that lies.
struct OsThread {
  struct SharedVariable {
    uintptr_t begin;
    size_t bytes;
    const char* name;
  };

  OsThread() { dl_iterate_phdr(&FindThreadVariables, this); }

  // The bytes of this OS thread's own variables: shared memory among them.
  static int FindThreadVariables(dl_phdr_info* info, size_t, void* data) {
    OsThread* self = static_cast<OsThread*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
      self->begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
      self->bytes = info->dlpi_phdr[i].p_memsz;
    }
    return 1;  // the first is the program itself
  }

  bool HasShared(uintptr_t address) {
    const auto dynamic = reinterpret_cast<uintptr_t>(&tinyvllm_simulator_dynamic_shared);
    if (address - dynamic < dynamic_bytes || address - last.begin < last.bytes) return true;
    for (const SharedVariable& variable : shared) {
      if (address - variable.begin >= variable.bytes) continue;
      last = variable;
      return true;
    }
    return false;
  }

  BlockRunner* runner = nullptr;
  uintptr_t begin = 0;
  size_t bytes = 0;
  size_t dynamic_bytes = 0;  // of shared memory, in this launch
  std::vector<SharedVariable> shared;
  SharedVariable last = {};  // that was accessed
  MemoryMap memory;
};

std::atomic<bool> counting{false};  // by CountKernels

struct NamespaceShared {
  void* (*address)();
  size_t bytes;
  const char* name;
};

std::vector<NamespaceShared>& NamespaceSharedVariables() {
  static auto* variables = new std::vector<NamespaceShared>;  // static objects of others fill it
  return *variables;
}

thread_local std::unique_ptr<OsThread> owned_os_thread;
__thread OsThread* os_thread TINYVLLM_SIM_TLS;  // since its first block

bool IsProgramVariable(uintptr_t address) {
  return address >= reinterpret_cast<uintptr_t>(__data_start) &&
         address < reinterpret_cast<uintptr_t>(_end);
}

Space SpaceOf(uintptr_t address, bool in_thread_variables) {
  if (in_thread_variables) return os_thread->HasShared(address) ? Space::kShared : Space::kOther;
  if (os_thread->memory.Contains(address)) return Space::kGlobal;
  return IsProgramVariable(address) ? Space::kVariable : Space::kOther;
}

bool OnStack(const BlockRunner& runner, uintptr_t address) {
  const Fiber& fiber = runner.running();
  return address >= reinterpret_cast<uintptr_t>(fiber.stack_low) &&
         address < reinterpret_cast<uintptr_t>(fiber.stack_top);
}

std::string NameShared(uintptr_t address) {
  const auto dynamic = reinterpret_cast<uintptr_t>(&tinyvllm_simulator_dynamic_shared);
  if (address - dynamic < os_thread->dynamic_bytes) {
    return "dynamic shared memory, byte " + std::to_string(address - dynamic);
  }
  for (const OsThread::SharedVariable& variable : os_thread->shared) {
    if (address - variable.begin >= variable.bytes) continue;
    return "the __shared__ variable `" + std::string(variable.name) + "`, byte " +
           std::to_string(address - variable.begin);
  }
  return "";
}

}  // namespace

unsigned Watchers() {
  const Settings& settings = GetSettings();
  return (settings.watch_races ? kWatchRaces : 0) | (settings.watch_memory ? kWatchMemory : 0) |
         (settings.statistics || counting.load(std::memory_order_relaxed) ? kWatchStatistics : 0);
}

void SwitchStatistics(bool on) { counting = on; }

bool FindsRaces() { return GetSettings().watch_races; }
bool ChecksMemory() { return GetSettings().watch_memory; }

bool IsThreadVariable(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - os_thread->begin < os_thread->bytes;
}

std::string NameMemory(uintptr_t address, bool in_thread_variables) {
  if (in_thread_variables) return NameShared(address);
  const AddressInfo info = LookUp(reinterpret_cast<const void*>(address));
  if (info.kind == MemoryKind::kPageable) {
    return IsProgramVariable(address) ? "a __device__ variable" : "";
  }
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(info.begin);
  return "an allocation of " + std::to_string(offset + info.bytes_left) + " bytes, byte " +
         std::to_string(offset);
}

// --- What the engine tells.

WatchedLaunch::WatchedLaunch(const KernelLaunch& launch)
    : launch_(launch),
      watchers_(Watchers()),
      race_(uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z),
      statistics_(launch) {}

void WatchedLaunch::Begin() {
  watchers_of_launch = watchers_;
  if (watchers_ == 0) return;
  if (os_thread == nullptr) {
    owned_os_thread = std::make_unique<OsThread>();
    os_thread = owned_os_thread.get();
  }
  os_thread->memory.Update();
  os_thread->dynamic_bytes = launch_.shared_bytes;
  if (watchers_ & kWatchRaces) race_.Begin();
  if (watchers_ & kWatchStatistics) statistics_.Begin();
}

void WatchedLaunch::End() {
  if (watchers_ & kWatchStatistics) statistics_.End();
}

void WatchedLaunch::Finish() {
  if (watchers_ & kWatchStatistics) statistics_.Finish();
}

void TellBlockBegins(BlockRunner* runner, uint64_t number) {
  os_thread->runner = runner;
  os_thread->shared.clear();
  os_thread->last = {};
  if (watchers_of_launch & kWatchRaces) RaceBeginBlock(runner, number);
  if (watchers_of_launch & kWatchMemory) MemoryCheckBlockBegins(runner);
  if (watchers_of_launch & kWatchStatistics) StatisticsBeginBlock();
  watching = watchers_of_launch;
  for (const NamespaceShared& variable : NamespaceSharedVariables()) {
    TellShared(variable.address(), variable.bytes, variable.name);
  }
}

void TellBlockEnds(BlockRunner* runner) {
  const unsigned watchers = watching;
  watching = 0;
  if (watchers & kWatchStatistics) StatisticsEndBlock();
  if ((watchers & kWatchMemory) && !runner->failed()) MemoryCheckMeeting();
}

void TellBarrier() {
  const unsigned watchers = watching;
  const WatchPause pause;
  if ((watchers & kWatchMemory) && !MemoryCheckMeeting()) BlockRunner::Get().Leave();
  if (watchers & kWatchRaces) RaceBarrier();
  if (watchers & kWatchStatistics) StatisticsBarrier();
}

void TellMeeting(int warp, uint64_t lanes, const char* operation) {
  const unsigned watchers = watching;
  const WatchPause pause;
  if (watchers & kWatchRaces) RaceMeeting(warp, lanes, operation);
  if (watchers & kWatchStatistics) StatisticsMeeting(warp, lanes);
}

void TellShared(const void* variable, size_t bytes, const char* name) {
  const unsigned watchers = watching;
  const WatchPause pause;
  if (watchers & kWatchMemory) MemoryCheckShared(variable, bytes, name);
  os_thread->shared.push_back({reinterpret_cast<uintptr_t>(variable), bytes, name});
}

// --- What the hooks tell.

void TellAccess(const void* address, size_t bytes, AccessKind kind, bool reads, bool is_volatile,
                const void* place) {
  BlockRunner& runner = *os_thread->runner;
  if (__builtin_expect(runner.tick_wish(), 0)) {
    runner.FulfilTickWish(static_cast<const char*>(place) - 1);
  }
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (OnStack(runner, begin)) return;
  // The simulator's own, which its headers use in a kernel.
  if (begin - reinterpret_cast<uintptr_t>(&atomics_left) < sizeof(atomics_left)) return;

  const unsigned watchers = watching;
  watching = 0;  // the watchers' own copies and fills are none of the kernel's
  const bool in_thread_variables = begin - os_thread->begin < os_thread->bytes;
  const MemoryAccess access = {begin,
                               bytes,
                               kind,
                               reads,
                               is_volatile,
                               in_thread_variables,
                               SpaceOf(begin, in_thread_variables),
                               static_cast<int>(current_thread.thread),
                               place};
  bool go_on = true;
  if (watchers & kWatchStatistics) StatisticsAccess(access);
  if (watchers & kWatchMemory) go_on = MemoryCheckAccess(access);
  if (go_on && (watchers & kWatchRaces)) go_on = RaceAccess(access);
  if (!go_on) runner.Leave();
  watching = watchers;
}

void TellFence() {
  if (watching & kWatchRaces) RaceFence(static_cast<int>(current_thread.thread));
}

}  // namespace tinyvllm::simulator

extern "C" int tinyvllm_simulator_namespace_shared(void* (*address)(), unsigned long bytes,
                                                   const char* name) {
  tinyvllm::simulator::NamespaceSharedVariables().push_back({address, bytes, name});
  return 0;
}
