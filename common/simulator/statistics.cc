#include "common/simulator/statistics.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/simulator/access.h"
#include "common/simulator/block.h"
#include "common/simulator/settings.h"
#include "common/simulator/watch.h"

namespace tinyvllm::simulator {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr int kBanks = 32;
constexpr int kBankBytes = 4;
// No instruction of a GPU moves more for a thread; what g++ copies at once is taken apart.
constexpr size_t kLargestAccess = 16;

// What the lanes of a warp did in one execution of one instruction.
struct Access {
  uint64_t lanes;
  uintptr_t address[kMaxWarpSize];
};

// The addresses of an access, in order and each once, in units of `unit` bytes.
class Units {
 public:
  Units(const Access& access, uint64_t lanes, size_t bytes, uintptr_t unit) {
    for (uint64_t rest = lanes; rest != 0; rest &= rest - 1) {
      const uintptr_t address = access.address[__builtin_ctzll(rest)];
      for (uintptr_t i = address / unit; i <= (address + bytes - 1) / unit; ++i) Add(i);
    }
    if (!sorted_) {
      std::sort(units_, units_ + count_);
      count_ = static_cast<int>(std::unique(units_, units_ + count_) - units_);
    }
  }
  int count() const { return count_; }
  const uintptr_t* begin() const { return units_; }
  const uintptr_t* end() const { return units_ + count_; }

 private:
  void Add(uintptr_t unit) {
    if (count_ > 0) {
      if (units_[count_ - 1] == unit) return;
      sorted_ &= units_[count_ - 1] < unit;
    }
    units_[count_++] = unit;
  }

  int count_ = 0;
  bool sorted_ = true;
  uintptr_t units_[kMaxWarpSize * (kLargestAccess / kBankBytes + 1)];
};

// Bytes that at least one lane asked for.
uintptr_t DistinctBytes(const Access& access, size_t bytes) {
  uintptr_t begins[kMaxWarpSize];
  int count = 0;
  bool sorted = true;
  for (uint64_t rest = access.lanes; rest != 0; rest &= rest - 1) {
    const uintptr_t address = access.address[__builtin_ctzll(rest)];
    sorted &= count == 0 || begins[count - 1] <= address;
    begins[count++] = address;
  }
  if (!sorted) std::sort(begins, begins + count);
  uintptr_t distinct = 0, end = 0;
  for (int i = 0; i < count; ++i) {
    const uintptr_t begin = std::max(begins[i], end);
    end = std::max(end, begins[i] + bytes);
    distinct += end - begin;
  }
  return distinct;
}

void CountGlobal(const Access& access, size_t bytes, bool is_write, KernelStatistics* total) {
  const uintptr_t distinct = DistinctBytes(access, bytes);
  ++total->accesses;
  (is_write ? total->bytes_written : total->bytes_read) += distinct;
  total->sectors += Units(access, access.lanes, bytes, kSectorBytes).count();
  total->fewest_sectors += (distinct + kSectorBytes - 1) / kSectorBytes;
}

// The hardware takes 128 bytes at a time: 32 lanes of 4 bytes, 16 of 8, 8 of 16. Of each such part
// a pass serves one word of each bank, to however many lanes want it.
void CountShared(const Access& access, size_t bytes, int warp_size, KernelStatistics* total) {
  ++total->shared_accesses;
  const int part = static_cast<int>(kBanks * kBankBytes / std::max<size_t>(bytes, kBankBytes));
  for (int first = 0; first < warp_size; first += part) {
    const uint64_t lanes = access.lanes & ((uint64_t{1} << part) - 1) << first;
    if (lanes == 0) continue;
    int words_of_bank[kBanks] = {};
    int passes = 0;
    for (const uintptr_t word : Units(access, lanes, bytes, kBankBytes)) {
      passes = std::max(passes, ++words_of_bank[word % kBanks]);
    }
    total->shared_passes += passes;
    ++total->fewest_shared_passes;
  }
}

// --- The counter of an OS thread.

// An instruction of a kernel: a place in the code, and what it accesses there.
struct Instruction {
  const void* place;
  uint32_t bytes;
  Space space;
  bool is_write;

  bool operator==(const Instruction& other) const {
    return place == other.place && bytes == other.bytes && space == other.space &&
           is_write == other.is_write;
  }
};

struct InstructionHash {
  size_t operator()(const Instruction& i) const {
    return (reinterpret_cast<uintptr_t>(i.place) * 128 + 4 * i.bytes +
            2 * static_cast<size_t>(i.space) + i.is_write) *
           0x9e3779b97f4a7c15u;
  }
};

class Counter {
 public:
  void BeginLaunch(const KernelLaunch& launch);
  void BeginBlock();
  void EndBlock() { FlushBlock(); }
  void Barrier();
  void Meeting(int warp, uint64_t lanes);
  void OnAccess(const MemoryAccess& access);
  const KernelStatistics& total() const { return total_; }

 private:
  static constexpr size_t kCachedInstructions = 1024;
  static constexpr size_t kForgetInstructions = 1024;
  static constexpr uint32_t kDone = UINT32_MAX;

  // What one warp does with one instruction, since its lanes last met.
  struct Stream {
    bool touched = false;
    uint32_t executed[kMaxWarpSize] = {};  // by lane
    std::vector<uint32_t> accesses;        // the n-th execution's place in pool_, or kDone
  };
  struct Warp {
    uint64_t exists = 0;
    std::vector<Stream> streams;    // by instruction
    std::vector<uint32_t> touched;  // those with accesses
  };

  uint32_t Number(const Instruction& instruction);
  void CountPiece(uintptr_t address, const Instruction& instruction, int thread);
  void Tally(const Access& access, const Instruction& instruction, const Warp& warp);
  void FlushWarp(Warp* warp);
  void FlushBlock();

  KernelStatistics total_;
  int warp_size_ = 32;
  int warp_shift_ = 5;
  int num_warps_ = 0;
  int num_threads_ = 0;
  Warp warps_[kMaxWarps];

  std::vector<Instruction> instructions_;
  std::unordered_map<Instruction, uint32_t, InstructionHash> numbers_;
  struct Cached {
    Instruction instruction{};
    uint32_t number = 0;
  };
  Cached cache_[kCachedInstructions];

  std::vector<Access> pool_;
  std::vector<uint32_t> free_;
};

void Counter::BeginLaunch(const KernelLaunch& launch) {
  FlushBlock();  // what a kernel that was given up has left
  total_ = {};
  warp_size_ = WarpSize();
  warp_shift_ = warp_size_ == 64 ? 6 : 5;
  num_threads_ = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  num_warps_ = (num_threads_ + warp_size_ - 1) / warp_size_;
  for (int i = 0; i < num_warps_; ++i) {
    warps_[i].exists = ~uint64_t{0} >> (64 - std::min(warp_size_, num_threads_ - i * warp_size_));
  }
  if (instructions_.size() < kForgetInstructions) return;
  instructions_.clear();
  numbers_.clear();
  std::fill_n(cache_, kCachedInstructions, Cached());
}

void Counter::BeginBlock() {
  ++total_.blocks;
  total_.threads += num_threads_;
}

void Counter::Barrier() {
  ++total_.barriers;
  FlushBlock();
}

void Counter::Meeting(int warp, uint64_t lanes) {
  ++total_.exchanges;
  if (lanes == warps_[warp].exists) {
    FlushWarp(&warps_[warp]);
  } else {
    ++total_.partial_exchanges;
  }
}

uint32_t Counter::Number(const Instruction& instruction) {
  Cached& cached = cache_[InstructionHash()(instruction) >> 32 & (kCachedInstructions - 1)];
  if (cached.instruction == instruction) return cached.number;
  const auto [found, is_new] =
      numbers_.try_emplace(instruction, static_cast<uint32_t>(instructions_.size()));
  if (is_new) instructions_.push_back(instruction);
  cached = {instruction, found->second};
  return found->second;
}

void Counter::OnAccess(const MemoryAccess& access) {
  const Space space = access.space;
  if (space != Space::kGlobal && space != Space::kShared) return;
  if (IsAtomic(access.kind)) {
    total_.atomics += access.kind == AccessKind::kAtomicWrite;
    return;
  }
  for (size_t done = 0; done < access.bytes; done += kLargestAccess) {
    const auto bytes = static_cast<uint32_t>(std::min(access.bytes - done, kLargestAccess));
    const auto place = static_cast<const char*>(access.place) + done / kLargestAccess;
    CountPiece(access.address + done, {place, bytes, space, IsWrite(access.kind)}, access.thread);
  }
}

void Counter::CountPiece(uintptr_t address, const Instruction& instruction, int thread) {
  const uint32_t number = Number(instruction);
  const int lane = thread & (warp_size_ - 1);
  Warp& warp = warps_[thread >> warp_shift_];
  if (number >= warp.streams.size()) warp.streams.resize(instructions_.size());
  Stream& stream = warp.streams[number];
  if (!stream.touched) {
    stream.touched = true;
    warp.touched.push_back(number);
  }
  const uint32_t n = stream.executed[lane]++;
  if (n == stream.accesses.size()) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(pool_.size()));
      pool_.emplace_back();
    }
    stream.accesses.push_back(free_.back());
    free_.pop_back();
    pool_[stream.accesses[n]].lanes = 0;
  }
  Access& access = pool_[stream.accesses[n]];
  access.address[lane] = address;
  access.lanes |= uint64_t{1} << lane;
  if (access.lanes != warp.exists) return;
  Tally(access, instruction, warp);
  free_.push_back(stream.accesses[n]);
  stream.accesses[n] = kDone;
}

void Counter::Tally(const Access& access, const Instruction& instruction, const Warp& warp) {
  total_.lanes += __builtin_popcountll(access.lanes);
  total_.possible_lanes += __builtin_popcountll(warp.exists);
  if (instruction.space == Space::kGlobal) {
    CountGlobal(access, instruction.bytes, instruction.is_write, &total_);
  } else {
    CountShared(access, instruction.bytes, warp_size_, &total_);
  }
}

// The warp's lanes have met: what some of them have not executed, they will not.
void Counter::FlushWarp(Warp* warp) {
  for (const uint32_t number : warp->touched) {
    Stream& stream = warp->streams[number];
    for (const uint32_t place : stream.accesses) {
      if (place == kDone) continue;
      Tally(pool_[place], instructions_[number], *warp);
      free_.push_back(place);
    }
    stream.accesses.clear();
    std::fill_n(stream.executed, kMaxWarpSize, 0);
    stream.touched = false;
  }
  warp->touched.clear();
}

void Counter::FlushBlock() {
  for (int i = 0; i < num_warps_; ++i) FlushWarp(&warps_[i]);
}

thread_local std::unique_ptr<Counter> owned_counter;
__thread Counter* counter TINYVLLM_SIM_TLS;  // since the OS thread's first launch

// --- What all launches have done.

class Totals {
 public:
  void Add(const KernelStatistics& launch) {
    const auto [found, is_new] = places_.try_emplace({launch.kernel, launch.file}, kernels_.size());
    if (is_new) kernels_.push_back(launch);
    if (!is_new) kernels_[found->second].Add(launch);
  }
  const std::vector<KernelStatistics>& kernels() const { return kernels_; }

 private:
  std::vector<KernelStatistics> kernels_;
  std::map<std::pair<std::string, std::string>, size_t> places_;  // of kernel and file
};

struct Collected {
  std::mutex mutex;
  Totals program;           // for the table at the end
  Totals* scope = nullptr;  // of CountKernels
};

Collected& GetCollected() {
  static Collected* collected = new Collected;  // outlives every static object that may launch
  return *collected;
}

void PrintAtExit() {
  Collected& collected = GetCollected();
  std::lock_guard<std::mutex> lock(collected.mutex);
  if (collected.program.kernels().empty()) return;
  std::fputs(("\nCUDA simulator: what the kernels did (docs/simulator.md#statistics)\n" +
              StatisticsTable(collected.program.kernels()))
                 .c_str(),
             stderr);
}

}  // namespace

void KernelStatistics::Add(const KernelStatistics& other) {
  launches += other.launches;
  blocks += other.blocks;
  threads += other.threads;
  barriers += other.barriers;
  exchanges += other.exchanges;
  partial_exchanges += other.partial_exchanges;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  accesses += other.accesses;
  sectors += other.sectors;
  fewest_sectors += other.fewest_sectors;
  atomics += other.atomics;
  shared_accesses += other.shared_accesses;
  shared_passes += other.shared_passes;
  fewest_shared_passes += other.fewest_shared_passes;
  lanes += other.lanes;
  possible_lanes += other.possible_lanes;
}

// --- What the engine and the hooks tell.

void StatisticsLaunch::Begin() {
  if (counter == nullptr) {
    owned_counter = std::make_unique<Counter>();
    counter = owned_counter.get();
  }
  counter->BeginLaunch(launch_);
}

void StatisticsLaunch::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  total_.Add(counter->total());
}

void StatisticsLaunch::Finish() {
  total_.kernel = launch_.name;
  total_.file = launch_.file;
  total_.launches = 1;
  Collected& collected = GetCollected();
  std::lock_guard<std::mutex> lock(collected.mutex);
  if (collected.scope != nullptr) collected.scope->Add(total_);
  if (!GetSettings().statistics) return;
  static const bool prints = std::atexit(&PrintAtExit) == 0;
  static_cast<void>(prints);
  collected.program.Add(total_);
}

void StatisticsBeginBlock() { counter->BeginBlock(); }
void StatisticsEndBlock() { counter->EndBlock(); }
void StatisticsBarrier() { counter->Barrier(); }
void StatisticsMeeting(int warp, uint64_t lanes) { counter->Meeting(warp, lanes); }
void StatisticsAccess(const MemoryAccess& access) { counter->OnAccess(access); }

// --- For everyone.

std::vector<KernelStatistics> CountKernels(const std::function<void()>& work) {
  Collected& collected = GetCollected();
  Totals totals;
  // Also where `work` throws.
  struct Scope {
    Scope(Collected& collected, Totals* totals) : collected(collected) { Set(totals, 1); }
    ~Scope() { Set(nullptr, -1); }
    void Set(Totals* totals, int change) {
      cudaDeviceSynchronize();
      std::lock_guard<std::mutex> lock(collected.mutex);
      collected.scope = totals;
      SwitchStatistics(totals != nullptr);
    }
    Collected& collected;
  };
  {
    const Scope scope(collected, &totals);
    work();
  }
  return totals.kernels();
}

}  // namespace tinyvllm::simulator
