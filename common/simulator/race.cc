#include "common/simulator/race.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simulator/access.h"
#include "common/simulator/block.h"
#include "common/simulator/race_report.h"

namespace tinyvllm::simulator {
namespace {

// --- The shadow.

// One access, remembered. Time is counted in meetings of the block: a barrier or a __syncwarp
// anywhere in it begins a new tick.
struct Access {
  uint64_t when = 0;  // block, time
  uint64_t what = 0;  // place; number of its thread's fences before; atomic; thread

  // Unique in the program; 0: no access.
  uint32_t block() const { return static_cast<uint32_t>(when >> 32); }
  uint32_t time() const { return static_cast<uint32_t>(when); }
  int32_t place() const { return static_cast<int32_t>(what >> 32); }  // from PlaceBase()
  uint32_t fences() const { return static_cast<uint32_t>(what) >> 11; }
  bool atomic() const { return what >> 10 & 1; }
  int thread() const { return static_cast<int>(what & 1023); }
};

// What is known of one granule. One writer is enough: of two that do not race, the later one is
// ordered after all that the earlier one is ordered after. Readers need not be ordered with each
// other, so two are kept, of different blocks or else different warps where there are such: whoever
// writes next races with one of them if it races with any. Atomics do not race with each other and
// would hide a plain access, so they have a place of their own.
struct Cell {
  Access write;
  Access atomic;
  Access reads[2];
};
static_assert(sizeof(Cell) == 64);

// Memory is watched in granules of 16 bytes until something smaller is accessed; the page's
// granules are then split, down to single bytes, so that neighbours never count as one.
constexpr int kPageShift = 10;
constexpr size_t kPageBytes = size_t{1} << kPageShift;
constexpr int kLargestGranuleShift = 4;

// A page's granules, of one size.
struct Granules {
  explicit Granules(int shift)
      : shift(shift), cells(static_cast<Cell*>(std::calloc(kPageBytes >> shift, sizeof(Cell)))) {
    if (cells != nullptr) return;
    std::fputs("CUDA simulator: no memory for the race detector's shadow\n", stderr);
    std::abort();
  }

  const int shift;
  Cell* const cells;
};

struct Page {
  std::atomic<bool> locked{false};
  // The coarser ones, which another OS thread may be reading, are kept.
  std::atomic<const Granules*> granules{new Granules(kLargestGranuleShift)};

  void Split(int finer_shift) {
    const Granules& coarse = *granules.load(std::memory_order_relaxed);
    const auto* finer = new Granules(finer_shift);
    const size_t parts = size_t{1} << (coarse.shift - finer_shift);
    for (size_t i = 0; i < kPageBytes >> coarse.shift; ++i) {
      std::fill_n(finer->cells + i * parts, parts, coarse.cells[i]);
    }
    granules.store(finer, std::memory_order_release);
  }

  void Lock() {
    while (locked.exchange(true, std::memory_order_acquire)) {
    }
  }
  void Unlock() { locked.store(false, std::memory_order_release); }
};

// Pages live as long as the program. What they say of an earlier launch counts no more, so memory
// that is freed and allocated again needs no care.
class Shadow {
 public:
  Page* Find(uintptr_t number) {
    Part& part = parts_[number % kParts];
    std::lock_guard<std::mutex> lock(part.mutex);
    std::unique_ptr<Page>& page = part.pages[number];
    if (page == nullptr) page = std::make_unique<Page>();
    return page.get();
  }

  void Clear() {
    for (Part& part : parts_) {
      std::lock_guard<std::mutex> lock(part.mutex);
      for (auto& entry : part.pages) {
        const Granules& granules = *entry.second->granules.load(std::memory_order_relaxed);
        std::memset(static_cast<void*>(granules.cells), 0,
                    (kPageBytes >> granules.shift) * sizeof(Cell));
      }
    }
  }

 private:
  static constexpr size_t kParts = 61;
  struct Part {
    std::mutex mutex;
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  };
  Part parts_[kParts];
};

Shadow& GetShadow() {
  static Shadow* shadow = new Shadow;  // outlives every OS thread
  return *shadow;
}

// --- Order between blocks: a fence, then an atomic that another block's atomic sees.

struct Place;

// The first so many of a place's releases.
struct Known {
  const Place* place;
  size_t count;

  bool operator==(const Known& other) const { return place == other.place && count == other.count; }
};

// What a block had made visible by fences when one of its threads executed an atomic.
struct Release {
  uint32_t block;
  int warp;                                 // of the thread
  uint32_t before;                          // accesses of the block before this time
  uint32_t lanes[kMaxWarpSize];             // and of lanes of the warp up to these
  std::vector<uint32_t> fences_of_threads;  // and those before a thread's fence of this number
  std::vector<Known> others;                // and what the thread knew of other places

  bool Covers(const Access& access, int warp_shift) const {
    const int thread = access.thread();
    return access.time() < before || access.fences() < fences_of_threads[thread] ||
           (thread >> warp_shift == warp &&
            access.time() <= lanes[thread & ((1 << warp_shift) - 1)]);
  }

  bool Says(const Release& other) const {
    return warp == other.warp && before == other.before && others == other.others &&
           fences_of_threads == other.fences_of_threads &&
           std::memcmp(lanes, other.lanes, sizeof(lanes)) == 0;
  }
};

// Where atomics meet: whoever executes one here knows all releases that were made here before. To
// remember how many they were is enough, so a block's knowledge of all others takes no more room,
// and no more time, than that of one.
struct Place {
  std::vector<std::unique_ptr<const Release>> releases;
  std::unordered_map<uint32_t, std::vector<size_t>> of_block;  // in `releases`, in order
  std::vector<size_t> with_others;                             // those that know other places
};

struct Meetings {
  std::mutex mutex;
  uint32_t first_block = 0;                     // of the launch that they belong to
  std::unordered_map<uintptr_t, Place> places;  // by address of the atomic
};

Meetings& GetMeetings() {
  static Meetings* meetings = new Meetings;
  return *meetings;
}
std::atomic<bool> fence_in_this_launch{false};

// --- The state of an OS thread and the block that it runs.

struct Fences {
  uint32_t count = 0;         // executed by a thread
  uint32_t count_before = 0;  // before the phase of the latest
  uint32_t phase = 0;         // of the latest: the time of the barrier before it
  uint32_t lanes[kMaxWarpSize] = {};
};

struct Acquired {
  Known known;
  int thread;
  uint32_t phase;
};

constexpr size_t kCachedPages = 4096;

struct Context {
  BlockRunner* runner = nullptr;
  int warp_size = 32;
  int warp_shift = 5;
  int num_threads = 0;  // of the block

  uint32_t first_block = 0;  // of the launch
  uint32_t block = 0;
  uint32_t time = 1;
  uint32_t barrier_time = 0;  // what came before is ordered for the whole block
  // seen[w][a][b]: what lane b of warp w did up to this time is ordered before what lane a does.
  uint32_t seen[kMaxWarps][kMaxWarpSize][kMaxWarpSize];
  bool warp_met[kMaxWarps];

  bool any_fence = false;
  uint32_t fence_phase = 0, fence_phase_before = 0;  // the latest two with a fence
  Fences fences[kMaxThreadsPerBlock];
  std::vector<Acquired> acquired;
  uintptr_t atomic_address = 0;  // of the latest atomic, until FinishAtomic
  int atomic_thread = 0;

  struct CachedPage {
    uintptr_t number;
    Page* page;
  };
  CachedPage cache[kCachedPages] = {};
};

thread_local std::unique_ptr<Context> owned_context;
__thread Context* context;  // of the OS thread

Context& GetContext() {
  if (context == nullptr) {
    owned_context = std::make_unique<Context>();
    context = owned_context.get();
  }
  return *context;
}

uintptr_t PlaceBase() { return reinterpret_cast<uintptr_t>(&RaceFence); }

// --- What is ordered.

// What most accesses are: of an earlier launch, none at all, or of this block and older than its
// last barrier. Ordered before whatever the block does now.
bool IsPast(const Context& self, const Access& earlier) {
  const uint64_t begin_of_block = uint64_t{self.block} << 32;
  return earlier.when < uint64_t{self.first_block} << 32 ||
         earlier.when - begin_of_block < self.barrier_time;
}

// Whether `earlier`, of this block, is ordered before what `thread` does now.
bool OrderedInBlock(const Context& self, const Access& earlier, int thread) {
  const int other = earlier.thread();
  if (other == thread || earlier.time() < self.barrier_time) return true;
  const int warp = thread >> self.warp_shift;
  if (other >> self.warp_shift != warp) return false;
  const int mask = self.warp_size - 1;
  return earlier.time() <= self.seen[warp][thread & mask][other & mask];
}

// Whether one of these releases, or of those that they pass on, covers the access.
bool Covered(std::vector<Known> unseen, const Access& access, int warp_shift) {
  std::unordered_map<const Place*, size_t> seen;
  while (!unseen.empty()) {
    const auto [place, count] = unseen.back();
    unseen.pop_back();
    size_t& seen_here = seen[place];
    if (seen_here >= count) continue;
    if (const auto found = place->of_block.find(access.block()); found != place->of_block.end()) {
      for (const size_t i : found->second) {
        if (i >= count) break;
        if (i >= seen_here && place->releases[i]->Covers(access, warp_shift)) return true;
      }
    }
    for (const size_t i : place->with_others) {
      if (i >= count) break;
      if (i < seen_here) continue;
      const std::vector<Known>& others = place->releases[i]->others;
      unseen.insert(unseen.end(), others.begin(), others.end());
    }
    seen_here = count;
  }
  return false;
}

bool OrderedByFence(const Context& self, const Access& earlier, int thread) {
  if (self.acquired.empty()) return false;
  std::vector<Known> known;
  for (const Acquired& acquired : self.acquired) {
    if (acquired.phase < self.barrier_time ||
        acquired.thread >> self.warp_shift == thread >> self.warp_shift) {
      known.push_back(acquired.known);
    }
  }
  std::lock_guard<std::mutex> lock(GetMeetings().mutex);
  return Covered(std::move(known), earlier, self.warp_shift);
}

__attribute__((noinline)) bool RacesWithPresent(const Context& self, const Access& earlier,
                                                int thread, bool in_thread_variables) {
  if (earlier.block() == self.block) return !OrderedInBlock(self, earlier, thread);
  return !in_thread_variables && !OrderedByFence(self, earlier, thread);
}

TINYVLLM_SIM_INLINE bool Races(const Context& self, const Access& earlier, int thread,
                               bool in_thread_variables) {
  return !IsPast(self, earlier) && RacesWithPresent(self, earlier, thread, in_thread_variables);
}

// --- One access to one granule.

// Which of the two remembered reads this one takes the place of, or -1.
int SlotOfRead(const Context& self, const Access (&reads)[2], const Access& access) {
  const int thread = access.thread();
  for (int i = 0; i < 2; ++i) {
    const Access& read = reads[i];
    if (read.block() < self.first_block ||
        (read.block() == self.block && OrderedInBlock(self, read, thread) &&
         (read.atomic() || !access.atomic()))) {
      return i;
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (reads[i].atomic() && !access.atomic()) return i;
  }
  if (reads[0].block() != reads[1].block()) return -1;
  const bool new_block = reads[0].block() != access.block();
  const bool same_warp =
      reads[0].thread() >> self.warp_shift == reads[1].thread() >> self.warp_shift;
  return new_block || same_warp ? 1 : -1;
}

// What lies there now; another OS thread may be writing it.
Access Glance(const Access& access) {
  return {__atomic_load_n(&access.when, __ATOMIC_RELAXED),
          __atomic_load_n(&access.what, __ATOMIC_RELAXED)};
}

// Whether both are the same thread's, of one kind, with nothing between that orders anything.
bool SameTime(const Access& a, const Access& b) {
  return a.when == b.when && static_cast<uint32_t>(a.what) == static_cast<uint32_t>(b.what);
}

// Whether a read races with nothing and need not be remembered. Most reads are such, of what many
// threads read, and the page need not be locked for them. If in doubt, false: Visit then looks
// again.
TINYVLLM_SIM_INLINE bool NothingNew(const Context& self, const Cell& cell, const Access& access,
                                    bool in_thread_variables) {
  const Access first = Glance(cell.reads[0]), second = Glance(cell.reads[1]);
  // Who has written since would have met this very read.
  if (SameTime(first, access) || SameTime(second, access)) return true;
  if (IsPast(self, first) || IsPast(self, second)) return false;
  // Plain reads of this block by two warps stay, if the third is of yet another one.
  const bool all_plain_in_block = first.block() == self.block && second.block() == self.block &&
                                  !first.atomic() && !second.atomic();
  const int shift = self.warp_shift;
  const int warp = access.thread() >> shift, first_warp = first.thread() >> shift,
            second_warp = second.thread() >> shift;
  const bool three_warps = warp != first_warp && warp != second_warp && first_warp != second_warp;
  if (!(all_plain_in_block && three_warps)) {
    const Access reads[2] = {first, second};
    if (SlotOfRead(self, reads, access) >= 0) return false;
  }
  const int thread = access.thread();
  return !Races(self, Glance(cell.write), thread, in_thread_variables) &&
         (access.atomic() || !Races(self, Glance(cell.atomic), thread, in_thread_variables));
}

// Remembers the access; returns whether an earlier one races with it, and which.
bool Visit(const Context& self, Cell* cell, const Access& access, AccessKind kind,
           bool in_thread_variables, Access* racing, AccessKind* racing_kind) {
  const int thread = access.thread();
  const auto check = [&](const Access& earlier, AccessKind its_kind) {
    if (!Races(self, earlier, thread, in_thread_variables)) return false;
    *racing = earlier;
    *racing_kind = its_kind;
    return true;
  };
  bool found = check(cell->write, AccessKind::kWrite);
  if (!found && !access.atomic()) found = check(cell->atomic, AccessKind::kAtomicWrite);
  if (kind == AccessKind::kWrite || kind == AccessKind::kAtomicWrite) {
    for (const Access& read : cell->reads) {
      if (found) break;
      if (access.atomic() && read.atomic()) continue;
      found = check(read, read.atomic() ? AccessKind::kAtomicRead : AccessKind::kRead);
    }
    (access.atomic() ? cell->atomic : cell->write) = access;
  } else {
    const int slot = SlotOfRead(self, cell->reads, access);
    if (slot >= 0) cell->reads[slot] = access;
  }
  return found;
}

// --- Reports.

struct Found {
  Access earlier = {};
  AccessKind earlier_kind = AccessKind::kRead;
  uintptr_t address = 0;
};

// False, after the block's failure; true where the memory is none of CUDA's.
__attribute__((noinline, cold)) bool Report(const Context& self, const Found& found,
                                            const Access& access, AccessKind kind,
                                            const MemoryAccess& memory_access) {
  Race race;
  race.memory = NameMemory(found.address, memory_access.in_thread_variables);
  if (race.memory.empty()) return true;
  const auto side = [&](const Access& a, AccessKind its_kind) {
    return Race::Side{its_kind, a.block() - self.first_block, static_cast<int>(a.thread()),
                      reinterpret_cast<const void*>(PlaceBase() + a.place())};
  };
  race.earlier = side(found.earlier, found.earlier_kind);
  race.later = side(access, kind);
  race.bytes = memory_access.bytes;
  race.same_warp = found.earlier.block() == access.block() &&
                   found.earlier.thread() >> self.warp_shift == access.thread() >> self.warp_shift;
  self.runner->Fail(cudaErrorLaunchFailure, DescribeRace(race, *self.runner));
  return false;
}

// --- Atomics that other blocks see.

// What has been published at this place, the thread now knows.
void Acquire(Context& self, int thread, const Meetings& meetings, uintptr_t address) {
  const auto found = meetings.places.find(address);
  if (found == meetings.places.end()) return;
  const Known known = {&found->second, found->second.releases.size()};
  for (Acquired& acquired : self.acquired) {
    if (acquired.known.place != known.place) continue;
    if (acquired.phase < self.barrier_time) {
      if (acquired.known.count == known.count) return;  // the whole block knows
    } else if (acquired.thread == thread) {
      acquired.known.count = known.count;
      return;
    }
  }
  self.acquired.push_back({known, thread, self.barrier_time});
}

// Makes known what the block's fences allow the thread to make known.
void Publish(Context& self, int thread, Meetings& meetings, uintptr_t address) {
  if (!self.any_fence) return;
  Place& place = meetings.places[address];
  auto release = std::make_unique<Release>();
  const Fences& own = self.fences[thread];
  release->block = self.block;
  release->warp = thread >> self.warp_shift;
  std::memcpy(release->lanes, own.lanes, sizeof(own.lanes));
  const bool own_is_recent = own.count > 0 && own.phase == self.barrier_time;
  release->before = own_is_recent                          ? self.barrier_time
                    : self.fence_phase < self.barrier_time ? self.fence_phase
                                                           : self.fence_phase_before;
  release->fences_of_threads.resize(self.num_threads);
  for (int i = 0; i < self.num_threads; ++i) {
    const Fences& fences = self.fences[i];
    release->fences_of_threads[i] =
        i == thread || fences.phase < self.barrier_time ? fences.count : fences.count_before;
  }
  // What this thread knows of other places, it passes on.
  for (const Acquired& acquired : self.acquired) {
    if (acquired.known.place == &place) continue;
    if (acquired.thread == thread || acquired.phase < self.barrier_time) {
      release->others.push_back(acquired.known);
    }
  }
  std::vector<size_t>& mine = place.of_block[self.block];
  for (const size_t i : mine) {
    if (place.releases[i]->Says(*release)) return;
  }
  mine.push_back(place.releases.size());
  if (!release->others.empty()) place.with_others.push_back(place.releases.size());
  place.releases.push_back(std::move(release));
}

template <typename Act>
void AtMeetings(const Context& self, Act act) {
  if (!fence_in_this_launch.load(std::memory_order_relaxed)) return;
  Meetings& meetings = GetMeetings();
  std::lock_guard<std::mutex> lock(meetings.mutex);
  if (meetings.first_block != self.first_block) {
    meetings.places.clear();
    meetings.first_block = self.first_block;
  }
  act(meetings);
}

// The hook runs before the atomic does. That is the time to publish, but what the atomic will see
// may be published in between: so a thread learns it at the next event.
void FinishAtomic(Context& self) {
  if (self.atomic_address == 0) return;
  AtMeetings(self, [&](Meetings& meetings) {
    Acquire(self, self.atomic_thread, meetings, self.atomic_address);
  });
  self.atomic_address = 0;
}

void BeginAtomic(Context& self, int thread, uintptr_t address) {
  AtMeetings(self, [&](Meetings& meetings) { Publish(self, thread, meetings, address); });
  self.atomic_address = address;
  self.atomic_thread = thread;
}

Page* FindPage(Context& self, uintptr_t number) {
  Context::CachedPage& cached = self.cache[number % kCachedPages];
  if (cached.number != number || cached.page == nullptr) {
    cached = {number, GetShadow().Find(number)};
  }
  return cached.page;
}

// Returns whether an earlier access races with this one, which lies within one page.
bool VisitPage(Context& self, uintptr_t begin, size_t bytes, const Access& access, AccessKind kind,
               bool in_thread_variables, Found* found) {
  Page& page = *FindPage(self, begin >> kPageShift);
  const uintptr_t offset = begin & (kPageBytes - 1);
  const int granule = __builtin_ctzll(offset | bytes | 1 << kLargestGranuleShift);
  const Granules* granules = page.granules.load(std::memory_order_acquire);
  if (!IsWrite(kind) && granules->shift <= granule) {
    size_t i = offset >> granules->shift;
    const size_t end = (offset + bytes + (size_t{1} << granules->shift) - 1) >> granules->shift;
    while (i < end && NothingNew(self, granules->cells[i], access, in_thread_variables)) ++i;
    if (i == end) return false;
  }
  bool races = false;
  if (!in_thread_variables) page.Lock();  // no other OS thread comes to shared memory
  if (granule < page.granules.load(std::memory_order_relaxed)->shift) page.Split(granule);
  granules = page.granules.load(std::memory_order_relaxed);
  for (size_t i = offset >> granules->shift; i << granules->shift < offset + bytes; ++i) {
    Found other;
    if (Visit(self, &granules->cells[i], access, kind, in_thread_variables, &other.earlier,
              &other.earlier_kind) &&
        !races) {
      races = true;
      other.address = begin - offset + (i << granules->shift);
      *found = other;
    }
  }
  if (!in_thread_variables) page.Unlock();
  return races;
}

// What counts as an atomic: volatile accesses do in global memory, but not in shared memory.
AccessKind KindOf(const MemoryAccess& access) {
  if (!access.is_volatile || access.in_thread_variables) return access.kind;
  return IsWrite(access.kind) ? AccessKind::kAtomicWrite : AccessKind::kAtomicRead;
}

}  // namespace

// --- What the kernel does.

bool RaceAccess(const MemoryAccess& memory_access) {
  if (memory_access.space == Space::kOther) return true;
  Context& self = *context;
  const AccessKind kind = KindOf(memory_access);
  const int thread = memory_access.thread;
  FinishAtomic(self);
  if (IsAtomic(kind) && !memory_access.in_thread_variables) {
    BeginAtomic(self, thread, memory_access.address);
  }
  Access access;
  access.when = uint64_t{self.block} << 32 | self.time;
  const uintptr_t place = reinterpret_cast<uintptr_t>(memory_access.place) - 1 - PlaceBase();
  const uint32_t fences = self.any_fence ? self.fences[thread].count : 0;
  access.what = uint64_t{place} << 32 | fences << 11 | uint32_t{IsAtomic(kind)} << 10 | thread;
  const uintptr_t end = memory_access.address + memory_access.bytes;
  for (uintptr_t at = memory_access.address; at < end;) {
    const uintptr_t page_end = std::min(end, (at | (kPageBytes - 1)) + 1);
    Found found;
    if (VisitPage(self, at, page_end - at, access, kind, memory_access.in_thread_variables,
                  &found) &&
        !Report(self, found, access, kind, memory_access)) {
      return false;
    }
    at = page_end;
  }
  return true;
}

void RaceFence(int thread) {
  Context& self = *context;
  FinishAtomic(self);
  fence_in_this_launch.store(true, std::memory_order_relaxed);
  self.any_fence = true;
  if (self.fence_phase != self.barrier_time) {
    self.fence_phase_before = self.fence_phase;
    self.fence_phase = self.barrier_time;
  }
  Fences& fences = self.fences[thread];
  if (fences.phase != self.barrier_time) {
    fences.count_before = fences.count;
    fences.phase = self.barrier_time;
  }
  ++fences.count;
  std::memcpy(fences.lanes, self.seen[thread >> self.warp_shift][thread & (self.warp_size - 1)],
              sizeof(fences.lanes));
}

// --- What the engine does.

void RaceLaunch::Begin() {
  std::call_once(numbered_, [this] {
    static uint32_t next_block = 1;  // launches come one after another
    if (num_blocks_ >= UINT32_MAX - next_block) {
      GetShadow().Clear();
      next_block = 1;
    }
    first_block_ = next_block;
    next_block += static_cast<uint32_t>(num_blocks_);
    fence_in_this_launch.store(false, std::memory_order_relaxed);
  });
  GetContext().first_block = first_block_;
}

void RaceBeginBlock(BlockRunner* runner, uint64_t number) {
  Context& self = *context;
  self.runner = runner;
  self.warp_size = WarpSize();
  self.warp_shift = self.warp_size == 64 ? 6 : 5;
  self.block = self.first_block + static_cast<uint32_t>(number);
  self.time = 2;
  self.barrier_time = 1;
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    if (!self.warp_met[warp]) continue;
    std::memset(self.seen[warp], 0, sizeof(self.seen[warp]));
    self.warp_met[warp] = false;
  }
  if (self.any_fence) {
    std::fill_n(self.fences, self.num_threads, Fences{});
    self.any_fence = false;
  }
  const dim3& block = runner->launch().block;
  self.num_threads = static_cast<int>(block.x * block.y * block.z);
  self.fence_phase = self.fence_phase_before = 0;
  self.acquired.clear();
  self.atomic_address = 0;
}

void RaceBarrier() {
  Context& self = *context;
  FinishAtomic(self);
  self.barrier_time = ++self.time;
}

void RaceMeeting(int warp, uint64_t lanes, const char* operation) {
  // Shuffles, votes and their kin exchange values but order no memory.
  if (std::strcmp(operation, "__syncwarp") != 0) return;
  Context& self = *context;
  FinishAtomic(self);
  self.warp_met[warp] = true;
  auto& seen = self.seen[warp];
  uint32_t all[kMaxWarpSize] = {};
  for (uint64_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t* row = seen[__builtin_ctzll(rest)];
    for (int i = 0; i < kMaxWarpSize; ++i) all[i] = std::max(all[i], row[i]);
  }
  for (uint64_t rest = lanes; rest != 0; rest &= rest - 1) all[__builtin_ctzll(rest)] = self.time;
  for (uint64_t rest = lanes; rest != 0; rest &= rest - 1) {
    std::memcpy(seen[__builtin_ctzll(rest)], all, sizeof(all));
  }
  ++self.time;
}

}  // namespace tinyvllm::simulator
