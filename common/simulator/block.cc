#include "common/simulator/block.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "common/simulator/order.h"
#include "common/simulator/source_place.h"
#include "common/simulator/watch.h"
#include "common/simulator/watchdog.h"

// What kernels see as constants is written here before a thread goes on. The definitions differ
// from the declarations of device_launch_parameters.h by `const` alone, which a C name does not
// show.
extern "C" {
__thread uint3 tinyvllm_thread_index asm("threadIdx") TINYVLLM_SIM_TLS;
__thread uint3 tinyvllm_block_index asm("blockIdx") TINYVLLM_SIM_TLS;
__thread dim3 tinyvllm_block_size asm("blockDim") TINYVLLM_SIM_TLS;
__thread dim3 tinyvllm_grid_size asm("gridDim") TINYVLLM_SIM_TLS;
}

const int warpSize = tinyvllm::simulator::WarpSize();

namespace tinyvllm::simulator {

int WarpSize() { return GetSettings().warp_size; }

extern "C" {
alignas(1024) __thread unsigned char tinyvllm_simulator_dynamic_shared[kMaxDynamicSharedBytes];
}
__thread CurrentThread current_thread;
__thread uint64_t block_serial;
__thread int atomics_left;

namespace {

thread_local std::unique_ptr<BlockRunner> owned_runner;
__thread BlockRunner* this_runner TINYVLLM_SIM_TLS;

uint3 Index(uint64_t number, const dim3& size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

std::string ToString(const uint3& v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string Place(const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line);
}

bool SamePlace(const char* file_a, int line_a, const char* file_b, int line_b) {
  return line_a == line_b && (file_a == file_b || std::strcmp(file_a, file_b) == 0);
}

// A thread that computes without ever calling the engine makes way for the others of its block
// after so many ticks; in a block where that was necessary once, after one.
constexpr int kPatience = 5;

constexpr char kBarrierAdvice[] =
    "\n  advice: let every thread of the block reach the barrier: take it out of the `if`, or out "
    "of the "
    "loop whose rounds differ. A thread without work skips the work, not the barrier"
    "\n  more: docs/simulator.md#barriers";
constexpr char kWarpAdvice[] =
    "\n  advice: the mask names exactly the lanes that get there: take the function out of the "
    "`if`, or out of the loop whose rounds differ; or give it the mask of __ballot_sync before the "
    "`if`"
    "\n  more: docs/simulator.md#warps";

std::string Count(int threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace

// --- The runner of an OS thread.

BlockRunner& BlockRunner::Get() {
  if (this_runner == nullptr) {
    owned_runner = std::make_unique<BlockRunner>();
    this_runner = owned_runner.get();
  }
  return *this_runner;
}

BlockRunner* BlockRunner::GetIfExists() { return this_runner; }

bool InsideKernel() { return this_runner != nullptr && this_runner->inside_kernel(); }

BlockRunner::BlockRunner()
    : early_exit_(GetSettings().early_exit),
      seed_(GetSettings().seed),
      warp_size_(GetSettings().warp_size),
      warp_shift_(GetSettings().warp_size == 64 ? 6 : 5),
      poison_(GetSettings().poison != Poison::kOff),
      fibers_(&BlockRunner::FiberMain) {
  for (int i = 0; i < kMaxThreadsPerBlock; ++i) natural_order_[i] = static_cast<uint16_t>(i);
}

BlockRunner::~BlockRunner() { this_runner = nullptr; }

// --- A block from beginning to end.

void BlockRunner::Begin(const KernelLaunch& launch) {
  launch_ = &launch;
  thread_order_ = OrderNow();
  num_threads_ = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  flat_ = launch.block.y == 1 && launch.block.z == 1;
  tinyvllm_block_size = launch.block;
  tinyvllm_grid_size = launch.grid;
#if TINYVLLM_SIM_ASAN
  // What lies beyond the launch's dynamic shared memory must not be touched.
  __asan_unpoison_memory_region(tinyvllm_simulator_dynamic_shared, launch.shared_bytes);
  __asan_poison_memory_region(tinyvllm_simulator_dynamic_shared + launch.shared_bytes,
                              kMaxDynamicSharedBytes - launch.shared_bytes);
#endif
}

cudaError_t BlockRunner::Run(uint64_t number) {
  tinyvllm_block_index = Index(number, launch_->grid);
  ++block_serial;
  num_alive_ = num_threads_;
  next_ = 0;
  ready_head_ = ready_tail_ = 0;
  num_at_barrier_ = 0;
  barrier_votes_[0] = barrier_votes_[1] = 0;
  static_shared_bytes_ = 0;
  ticks_ = quiet_ticks_ = 0;
  patience_ = kPatience;
  polls_ = overdue_ = tick_wish_ = false;
  for (int first = 0, i = 0; first < num_threads_; first += warp_size_, ++i) {
    const int lanes = std::min(warp_size_, num_threads_ - first);
    warps_[i].exists = ~uint64_t{0} >> (64 - lanes);
    warps_[i].returned = 0;
    warps_[i].num_groups = 0;
    warps_[i].last = nullptr;
  }
  for (int i = 0; i < num_threads_; ++i) {
    threads_[i].state = State::kNotBegun;
    threads_[i].last_group = nullptr;
  }
  if (poison_ && launch_->shared_bytes > 0) {
    std::memset(tinyvllm_simulator_dynamic_shared, 0xff, launch_->shared_bytes);
  }
  PrepareOrder(number);

  OnBlockBegins(this, number);
  SwitchTo(Next(fibers_.Take()));
  OnBlockEnds(this);

  if (error_ == cudaSuccess) return cudaSuccess;
  if (describe_ != nullptr) {
    Fail(error_, describe_(failed_place_));
    describe_ = nullptr;
  }
  fibers_.ResetAll();
  const cudaError_t error = error_;
  error_ = cudaSuccess;
  return error;
}

void BlockRunner::PrepareOrder(uint64_t number) {
  order_ = natural_order_;
  if (thread_order_ == ThreadOrder::kNatural) return;
  order_ = other_order_;
  for (int i = 0; i < num_threads_; ++i) {
    other_order_[i] = static_cast<uint16_t>(num_threads_ - 1 - i);
  }
  if (thread_order_ == ThreadOrder::kReverse) return;
  random_ = seed_ * 0x9e3779b97f4a7c15u ^ (number + 1) * 0xd1b54a32d192ed03u;
  for (int i = num_threads_ - 1; i > 0; --i)
    std::swap(other_order_[i], other_order_[Random() % (i + 1)]);
}

// SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t BlockRunner::Random() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// Notes that `fiber` takes the running one's place; SwitchTo then does it.
Fiber* BlockRunner::Next(Fiber* fiber) {
  fiber->from = running_;
  running_ = fiber;
  return fiber;
}

// Runs threads that have not begun, one after another, until a waiting thread's turn has come; its
// own fiber then goes on, and this one is free.
void BlockRunner::FiberMain(boost::context::detail::transfer_t from) {
  BlockRunner& self = *this_runner;
  static_cast<Fiber*>(from.data)->context = from.fctx;
#if TINYVLLM_SIM_ASAN
  const void* bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (self.main_.stack_low ==
      nullptr) {  // the first fiber ever: it came from the OS thread's stack
    self.main_.stack_low = static_cast<char*>(const_cast<void*>(bottom));
    self.main_.stack_top = self.main_.stack_low + size;
  }
#endif
  for (;;) {
    const int thread = self.NextToBegin();
    self.RunThread(thread);
    self.ThreadReturned(thread);
    if (self.num_alive_ == 0) {
      self.fibers_.GiveBack(self.running_);
      SwitchTo(self.Next(&self.main_));
      continue;
    }
    const int picked = self.PickOrFail();
    if (picked == kBeginThread) continue;
    self.fibers_.GiveBack(self.running_);
    SwitchTo(self.FiberOf(picked));
  }
}

void BlockRunner::RunThread(int thread) {
  NoteEvent(nullptr);
  tinyvllm_thread_index =
      flat_ ? uint3{static_cast<unsigned>(thread), 0, 0} : Index(thread, launch_->block);
  current_thread = {static_cast<uint32_t>(thread),
                    static_cast<uint32_t>(thread & (warp_size_ - 1))};
  threads_[thread].state = State::kReady;
  launch_->call(launch_->invocation);
}

void BlockRunner::ThreadReturned(int thread) {
  NoteEvent(nullptr);
  threads_[thread].state = State::kReturned;
  --num_alive_;
  Warp& warp = warps_[thread >> warp_shift_];
  warp.returned |= uint64_t{1} << (thread & (warp_size_ - 1));
  if (!early_exit_) return;
  // The others may have been waiting for this thread alone.
  if (num_at_barrier_ > 0 && BarrierComplete()) ReleaseBarrier();
  for (int i = 0; i < warp.num_groups; ++i) {
    Group* group = warp.groups[i].get();
    if (group->arrived != 0 && group->arrived == (group->mask & ~warp.returned)) {
      OnMeeting(thread >> warp_shift_, group->arrived, group->operation);
      ReleaseGroup(group, thread & ~(warp_size_ - 1));
    }
  }
}

// --- Whose turn it is.

void BlockRunner::MakeReady(int thread) {
  threads_[thread].state = State::kReady;
  ready_[ready_tail_++ % kMaxThreadsPerBlock] = static_cast<uint16_t>(thread);
}

// A thread that can go on, kBeginThread, or -2 where every thread left waits for something.
int BlockRunner::Pick() {
  const uint32_t num_ready = ready_tail_ - ready_head_;
  const uint32_t num_not_begun = num_threads_ - next_;
  // What a thread polls for may be done by one that has not begun.
  if (polls_ && num_not_begun > 0) return kBeginThread;
  if (num_ready == 0) return num_not_begun > 0 ? kBeginThread : -2;
  if (thread_order_ == ThreadOrder::kShuffle) {
    const uint32_t choice = Random() % (num_ready + num_not_begun);
    if (choice >= num_ready) return kBeginThread;
    std::swap(ready_[(ready_head_ + choice) % kMaxThreadsPerBlock],
              ready_[ready_head_ % kMaxThreadsPerBlock]);
  }
  return ready_[ready_head_++ % kMaxThreadsPerBlock];
}

int BlockRunner::PickOrFail() {
  const int picked = Pick();
  if (picked == -2) {
    FailDeadlock();
    Leave();
  }
  return picked;
}

// Makes the picked thread the current one and returns its fiber.
Fiber* BlockRunner::FiberOf(int picked) {
  if (picked == kBeginThread) return Next(fibers_.Take());
  const Thread& thread = threads_[picked];
  tinyvllm_thread_index = thread.index;
  current_thread = {static_cast<uint32_t>(picked),
                    static_cast<uint32_t>(picked & (warp_size_ - 1))};
  return Next(thread.fiber);
}

// The current thread stops here. Returns whose turn it is, or null where it is its own again.
Fiber* BlockRunner::Wait(State state, const char* operation, const char* file, int line) {
  const int self = static_cast<int>(current_thread.thread);
  Thread& thread = threads_[self];
  thread.fiber = running_;
  thread.index = tinyvllm_thread_index;
  thread.operation = operation;
  thread.file = file;
  thread.line = line;
  if (state != State::kReady) thread.place = nullptr;
  thread.state = state;
  const int picked = PickOrFail();
  return picked == self ? nullptr : FiberOf(picked);
}

// For the thread that completes a meeting: it goes on, except that in an order other than the
// natural one it queues behind those it has released.
Fiber* BlockRunner::GoOn() {
  if (thread_order_ == ThreadOrder::kNatural) return nullptr;
  MakeReady(static_cast<int>(current_thread.thread));
  return Wait(State::kReady, "", "", 0);
}

Fiber* BlockRunner::ArriveAtYield(const void* place) {
  const int self = static_cast<int>(current_thread.thread);
  threads_[self].place = place;
  MakeReady(self);
  polls_ = true;
  return Wait(State::kReady, "", "", 0);
}

// --- The block's barrier.

Fiber* BlockRunner::ArriveAtBarrier(const char* file, int line) {
  const int self = static_cast<int>(current_thread.thread);
  if (num_at_barrier_ > 0 && !SamePlace(file, line, barrier_file_, barrier_line_)) {
    Fail(cudaErrorLaunchFailure,
         "barrier divergence: this thread reached __syncthreads at " + Place(file, line) +
             " while " + Count(num_at_barrier_) + " of its block wait" +
             (num_at_barrier_ == 1 ? "s" : "") + " at another one, " +
             Place(barrier_file_, barrier_line_) + " (first: thread " + ThreadName(at_barrier_[0]) +
             "); every thread of a block must reach the same __syncthreads" + kBarrierAdvice);
    Leave();
  }
  barrier_file_ = file;
  barrier_line_ = line;
  at_barrier_[num_at_barrier_++] = static_cast<uint16_t>(self);
  if (!BarrierComplete()) return Wait(State::kAtBarrier, "__syncthreads", file, line);
  --num_at_barrier_;  // this thread needs no release
  ReleaseBarrier();
  return GoOn();
}

void BlockRunner::ReleaseBarrier() {
  OnBarrier();
  for (int i = 0; i < num_at_barrier_; ++i) MakeReady(at_barrier_[i]);
  num_at_barrier_ = 0;
  barrier_buffer_ ^= 1;
  barrier_votes_[barrier_buffer_] = 0;
}

Vote BlockRunner::ArriveAndVote(bool predicate, const char* file, int line) {
  int* votes = &barrier_votes_[barrier_buffer_];  // the next barrier uses the other
  *votes += predicate;
  return {ArriveAtBarrier(file, line), votes};
}

// --- Exchanges within a warp.

BlockRunner::Group* BlockRunner::FindGroup(Warp& warp, uint64_t mask) {
  Group* unused = nullptr;
  for (int i = 0; i < warp.num_groups; ++i) {
    Group* group = warp.groups[i].get();
    if (group->mask == mask) return group;
    if (group->arrived == 0 && group->unread == 0) unused = group;
  }
  if (unused == nullptr) {
    if (warp.num_groups == static_cast<int>(warp.groups.size())) {
      const WatchPause pause;
      warp.groups.push_back(std::make_unique<Group>());
    }
    unused = warp.groups[warp.num_groups++].get();
  }
  unused->mask = mask;
  unused->arrived = 0;
  unused->unread = 0;
  unused->buffer = 0;
  return unused;
}

Meeting BlockRunner::ArriveInWarp(uint64_t mask, uint64_t value, const char* operation,
                                  const char* file, int line) {
  const int self = static_cast<int>(current_thread.thread);
  const int lane = static_cast<int>(current_thread.lane);
  const uint64_t bit = uint64_t{1} << lane;
  Warp& warp = warps_[self >> warp_shift_];
  if (!(mask & bit)) {
    FailMask(operation, file, line);
    Leave();
  }
  mask &= warp.exists;
  if (mask & warp.returned) {
    if (!early_exit_) {
      FailReturned(mask & warp.returned, operation, file, line);
      Leave();
    }
    mask &= ~warp.returned;
  }
  Group*& last = threads_[self].last_group;
  if (last != nullptr) --last->unread;
  Group* group = warp.last;
  if (group == nullptr || group->mask != mask) group = warp.last = FindGroup(warp, mask);
  last = group;
  ++group->unread;
  if (group->arrived != 0 && group->operation != operation &&
      std::strcmp(group->operation, operation) != 0) {
    FailOperation(*group, operation, file, line);
    Leave();
  }
  group->operation = operation;
  group->file = file;
  group->line = line;
  Exchange& exchange = group->buffers[group->buffer];
  exchange.values[lane] = value;
  group->arrived |= bit;
  if (group->arrived != mask) return {Wait(State::kInExchange, operation, file, line), &exchange};
  OnMeeting(self >> warp_shift_, mask, operation);
  group->arrived &= ~bit;  // this thread needs no release
  ReleaseGroup(group, self - lane);
  exchange.lanes |= bit;
  return {GoOn(), &exchange};
}

void BlockRunner::ReleaseGroup(Group* group, int first_thread) {
  group->buffers[group->buffer].lanes = group->arrived;
  for (uint64_t rest = group->arrived; rest != 0; rest &= rest - 1) {
    MakeReady(first_thread + __builtin_ctzll(rest));
  }
  group->arrived = 0;
  group->buffer ^= 1;
}

void BlockRunner::FailMask(const char* operation, const char* file, int line) {
  Fail(cudaErrorLaunchFailure, std::string(operation) + " at " + Place(file, line) +
                                   ": the mask leaves out lane " +
                                   std::to_string(current_thread.lane) +
                                   ", which is the calling thread's own" + kWarpAdvice);
}

void BlockRunner::FailReturned(uint64_t lanes, const char* operation, const char* file, int line) {
  Fail(cudaErrorLaunchFailure,
       std::string(operation) + " at " + Place(file, line) + ": the mask names lane " +
           std::to_string(__builtin_ctzll(lanes)) +
           ", whose thread has returned; every thread named must take part" + kWarpAdvice);
}

void BlockRunner::FailOperation(const Group& group, const char* operation, const char* file,
                                int line) {
  Fail(cudaErrorLaunchFailure,
       "warp divergence: this thread called " + std::string(operation) + " at " +
           Place(file, line) + " while other lanes of the same mask wait in " + group.operation +
           " at " + Place(group.file, group.line) +
           "; all threads of the mask must call the same function" + kWarpAdvice);
}

uint64_t BlockRunner::ActiveLanes() const {
  const Warp& warp = warps_[current_thread.thread >> warp_shift_];
  return warp.exists & ~warp.returned;
}

// --- Shared memory.

void BlockRunner::RegisterShared(void* variable, size_t bytes, const char* name, const char* file,
                                 int line) {
  static_shared_bytes_ += bytes;
  if (static_shared_bytes_ > kMaxStaticSharedBytes) {
    Fail(
        cudaErrorLaunchFailure,
        "__shared__ " + std::string(name) + " at " + Place(file, line) + " brings the block to " +
            std::to_string(static_shared_bytes_) +
            " bytes of static shared memory; at most 49152 are possible (nvcc refuses the kernel)");
    Leave();
  }
  OnShared(variable, bytes, name);
  const WatchPause pause;
  if (poison_) std::memset(variable, 0xff, bytes);
}

// --- Reports.

std::string BlockRunner::ThreadName(int thread) const {
  return ToString(Index(thread, launch_->block));
}

std::string BlockRunner::NameOfBlock(uint64_t number) const {
  return ToString(Index(number, launch_->grid));
}

std::string BlockRunner::BlockName() const {
  return "kernel " + std::string(launch_->name) + " (launched at " +
         Place(launch_->file, launch_->line) + "), block " + ToString(tinyvllm_block_index);
}

bool BlockRunner::Owns(const void* address) const {
  const auto within = [address](const void* begin, size_t bytes) {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(begin) < bytes;
  };
  if (within(this, sizeof(*this)) || within(launch_->invocation, launch_->invocation_bytes)) {
    return true;
  }
  for (const Warp& warp : warps_) {
    for (const auto& group : warp.groups) {
      if (within(group.get(), sizeof(Group))) return true;
    }
  }
  return fibers_.Owns(address);
}

std::string BlockRunner::Where() const {
  return BlockName() + ", thread " + ToString(tinyvllm_thread_index);
}

// How many threads wait where, one line a place.
std::string BlockRunner::WaitersReport(const void* place_of_running) const {
  struct Waiters {
    int count = 0;
    int first = 0;
  };
  std::map<std::string, Waiters> places;
  for (int i = 0; i < num_threads_; ++i) {
    std::string place;
    if (threads_[i].state == State::kReturned) {
      place = "returned from the kernel";
    } else if (threads_[i].state == State::kNotBegun) {
      place = "not begun";
    } else if (threads_[i].state == State::kReady) {
      const bool runs = i == static_cast<int>(current_thread.thread);
      const void* at = runs ? place_of_running : threads_[i].place;
      place = at != nullptr ? "running at " + SourcePlace(at) : "running";
    } else {
      place = "waiting in " + std::string(threads_[i].operation) + " at " +
              Place(threads_[i].file, threads_[i].line);
    }
    Waiters& waiters = places[place];
    if (waiters.count++ == 0) waiters.first = i;
  }
  std::string report;
  for (const auto& [place, waiters] : places) {
    report += "\n    " + Count(waiters.count) + " " + place + " (first: thread " +
              ThreadName(waiters.first) + ")";
  }
  return report;
}

void BlockRunner::FailDeadlock() {
  error_ = cudaErrorLaunchFailure;
  report_ = "error in " + BlockName() + ":\n  " +
            (num_at_barrier_ > 0
                 ? "barrier divergence: every thread of a block must reach the same __syncthreads"
                 : "warp divergence: every thread named in the mask must take part") +
            WaitersReport(nullptr) + (num_at_barrier_ > 0 ? kBarrierAdvice : kWarpAdvice);
}

void BlockRunner::Fail(cudaError_t error, const std::string& problem) {
  error_ = error;
  report_ = "error in " + Where() + ":\n  " + problem;
}

void BlockRunner::Fail(cudaError_t error, const std::string& problem, int thread) {
  error_ = error;
  report_ = "error in " + BlockName() + ", thread " + ThreadName(thread) + ":\n  " + problem;
}

void BlockRunner::FailInSignal(cudaError_t error, const void* place,
                               std::function<std::string(const void*)> describe) {
  error_ = error;
  failed_place_ = place;
  describe_ = std::move(describe);
  Leave();
}

// --- The watchdog. docs/simulator.md#watchdog.

void BlockRunner::Tick(const void* place) {
  if (failed()) return;
  if (++ticks_ >= GetSettings().watchdog_seconds * kTicksPerSecond) overdue_ = true;
  quiet_ticks_ = events_ == events_at_tick_ ? quiet_ticks_ + 1 : 0;
  events_at_tick_ = events_;
  if (quiet_ticks_ == 0 || (!overdue_ && quiet_ticks_ < patience_)) return;
  if (watchers_of_launch != 0 && !tick_wish_) {
    tick_wish_ = true;  // unless no hook comes until the next tick
    return;
  }
  // In the engine's own functions, and in a library's, which may hold locks, a thread cannot stop;
  // the former begin with an event.
  const bool in_watcher = watchers_of_launch != 0 && watching == 0;
  if (!in_watcher && InProgram(place)) FulfilTickWish(place);
}

void BlockRunner::FulfilTickWish(const void* place) {
  tick_wish_ = false;
  events_ = events_ + 1;  // a tick that comes now does nothing
  if (overdue_) FailEndless(place);
  patience_ = 1;
  SwitchTo(ArriveAtYield(place));
}

void BlockRunner::FailEndless(const void* place) {
  overdue_ = false;
  FailInSignal(cudaErrorLaunchTimeout, place, [this](const void* running) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g", GetSettings().watchdog_seconds);
    return "no end: this block has run for " + std::string(seconds) + " s" +
           WaitersReport(running) +
           "\n  advice: look at the condition of the loop there. A thread may wait for others of "
           "its "
           "block, and for blocks that come before its own, but a later block may not have begun. "
           "If "
           "the kernel is only slow, raise TINYVLLM_SIM_WATCHDOG (in seconds)"
           "\n  more: docs/simulator.md#watchdog";
  });
}

void BlockRunner::Leave() {
  for (;;) SwitchTo(Next(&main_));
}

// --- The functions of cuda_simulator/sync.h.

namespace {

// Barriers and exchanges make sense inside a kernel only. `place` is the caller's in its kernel.
BlockRunner& Runner(const char* function, const void* place) {
  if (__builtin_expect(!InsideKernel(), 0)) {
    std::fprintf(stderr, "CUDA simulator: %s called outside a kernel\n", function);
    std::abort();
  }
  this_runner->NoteEvent(static_cast<const char*>(place) - 1);
  return *this_runner;
}

}  // namespace

#define TINYVLLM_SIM_RUNNER(function) Runner(function, __builtin_return_address(0))

Fiber* ArriveAtBarrier(const char* file, int line) {
  return TINYVLLM_SIM_RUNNER("__syncthreads").ArriveAtBarrier(file, line);
}

Vote ArriveAndVote(bool predicate, const char* file, int line) {
  return TINYVLLM_SIM_RUNNER("__syncthreads").ArriveAndVote(predicate, file, line);
}

Meeting ArriveInWarp(uint64_t mask, uint64_t value, const char* operation, const char* file,
                     int line) {
  return TINYVLLM_SIM_RUNNER(operation).ArriveInWarp(mask, value, operation, file, line);
}

uint64_t ActiveLanes() { return TINYVLLM_SIM_RUNNER("__activemask").ActiveLanes(); }

Fiber* ArriveAtYield() {
  if (!InsideKernel()) return nullptr;
  const char* place = static_cast<char*>(__builtin_return_address(0)) - 1;
  this_runner->NoteEvent(place);
  return this_runner->ArriveAtYield(place);
}

void Trap(const char* file, int line) {
  BlockRunner& runner = TINYVLLM_SIM_RUNNER("__trap");
  runner.Fail(cudaErrorLaunchFailure, "__trap at " + Place(file, line));
  runner.Leave();
}

void BadShuffleWidth(int width, const char* file, int line) {
  BlockRunner& runner = TINYVLLM_SIM_RUNNER("a shuffle");
  runner.Fail(cudaErrorLaunchFailure,
              "shuffle at " + Place(file, line) + ": width is " + std::to_string(width) +
                  "; expected a power of two, at most the warp size" + kWarpAdvice);
  runner.Leave();
}

void RegisterShared(uint64_t* serial, void* variable, size_t bytes, const char* name,
                    const char* file, int line) {
  BlockRunner& runner = TINYVLLM_SIM_RUNNER("a __shared__ declaration");
  if (*serial == block_serial) return;
  *serial = block_serial;
  runner.RegisterShared(variable, bytes, name, file, line);
}

}  // namespace tinyvllm::simulator
