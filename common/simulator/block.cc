#include "common/simulator/block.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

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
      thread_order_(GetSettings().order),
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
  for (int first = 0, i = 0; first < num_threads_; first += warp_size_, ++i) {
    const int lanes = std::min(warp_size_, num_threads_ - first);
    warps_[i].exists = ~uint64_t{0} >> (64 - lanes);
    warps_[i].returned = 0;
    warps_[i].num_groups = 0;
    warps_[i].last = nullptr;
  }
  std::memset(last_group_, 0, num_threads_ * sizeof(last_group_[0]));
  if (poison_ && launch_->shared_bytes > 0) {
    std::memset(tinyvllm_simulator_dynamic_shared, 0xff, launch_->shared_bytes);
  }
  PrepareOrder(number);

  Fiber* fiber = fibers_.Take();
  SwitchTo(fiber);

  if (error_ == cudaSuccess) return cudaSuccess;
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

void BlockRunner::SwitchTo(Fiber* fiber) {
  Fiber* from = running_;
  running_ = fiber;
  SwitchFiber(from, fiber);
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
      self.SwitchTo(&self.main_);
      continue;
    }
    const int picked = self.PickOrFail();
    if (picked == kBeginThread) continue;
    self.fibers_.GiveBack(self.running_);
    self.Resume(picked);
  }
}

void BlockRunner::RunThread(int thread) {
  tinyvllm_thread_index =
      flat_ ? uint3{static_cast<unsigned>(thread), 0, 0} : Index(thread, launch_->block);
  current_thread = {static_cast<uint32_t>(thread),
                    static_cast<uint32_t>(thread & (warp_size_ - 1))};
  states_[thread] = State::kReady;
  launch_->call(launch_->invocation);
}

void BlockRunner::ThreadReturned(int thread) {
  states_[thread] = State::kReturned;
  --num_alive_;
  Warp& warp = warps_[thread >> warp_shift_];
  warp.returned |= uint64_t{1} << (thread & (warp_size_ - 1));
  if (!early_exit_) return;
  // The others may have been waiting for this thread alone.
  if (num_at_barrier_ > 0 && BarrierComplete()) ReleaseBarrier();
  for (int i = 0; i < warp.num_groups; ++i) {
    Group* group = warp.groups[i].get();
    if (group->arrived != 0 && group->arrived == (group->mask & ~warp.returned)) {
      ReleaseGroup(group, thread & ~(warp_size_ - 1), -1);
    }
  }
}

// --- Whose turn it is.

void BlockRunner::MakeReady(int thread) {
  states_[thread] = State::kReady;
  ready_[ready_tail_++ % kMaxThreadsPerBlock] = static_cast<uint16_t>(thread);
}

// A thread that can go on, kBeginThread, or -2 where every thread left waits for something.
int BlockRunner::Pick() {
  const uint32_t num_ready = ready_tail_ - ready_head_;
  const uint32_t num_not_begun = num_threads_ - next_;
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
  if (picked == -2) FailDeadlock();
  return picked;
}

// Leaves the running fiber for the picked thread's.
void BlockRunner::Resume(int picked) {
  if (picked == kBeginThread) {
    SwitchTo(fibers_.Take());
    return;
  }
  const Thread& thread = threads_[picked];
  tinyvllm_thread_index = thread.index;
  current_thread = {static_cast<uint32_t>(picked),
                    static_cast<uint32_t>(picked & (warp_size_ - 1))};
  SwitchTo(thread.fiber);
}

// Returns when another thread has made this one ready and its turn has come.
void BlockRunner::Wait(State state, const char* operation, const char* file, int line) {
  const int self = static_cast<int>(current_thread.thread);
  states_[self] = state;
  threads_[self] = {running_, tinyvllm_thread_index, operation, file, line};
  const int picked = PickOrFail();
  if (picked != self) Resume(picked);
}

// In an order other than the natural one, the last thread to arrive is not the first to go on.
void BlockRunner::GiveWay() {
  if (thread_order_ == ThreadOrder::kNatural) return;
  const int self = static_cast<int>(current_thread.thread);
  MakeReady(self);
  Wait(State::kReady, "", "", 0);
}

void BlockRunner::Yield() {
  const int self = static_cast<int>(current_thread.thread);
  MakeReady(self);
  threads_[self] = {running_, tinyvllm_thread_index, "", "", 0};
  // What the caller waits for may be done by a thread that has not begun.
  const int picked = next_ < num_threads_ ? kBeginThread : PickOrFail();
  if (picked != self) Resume(picked);
}

// --- The block's barrier.

void BlockRunner::SyncThreads(const char* file, int line) {
  const int self = static_cast<int>(current_thread.thread);
  if (num_at_barrier_ > 0 && !SamePlace(file, line, barrier_file_, barrier_line_)) {
    states_[self] = State::kAtBarrier;
    threads_[self] = {running_, tinyvllm_thread_index, "__syncthreads", file, line};
    Fail(cudaErrorLaunchFailure,
         "barrier divergence: this thread reached __syncthreads at " + Place(file, line) +
             " while " + Count(num_at_barrier_) + " of its block wait at another one, " +
             Place(barrier_file_, barrier_line_) + " (first: thread " + ThreadName(at_barrier_[0]) +
             "); every thread of a block must reach the same __syncthreads");
  }
  barrier_file_ = file;
  barrier_line_ = line;
  at_barrier_[num_at_barrier_++] = static_cast<uint16_t>(self);
  if (!BarrierComplete()) {
    Wait(State::kAtBarrier, "__syncthreads", file, line);
    return;
  }
  --num_at_barrier_;  // this thread needs no release
  ReleaseBarrier();
  GiveWay();
}

void BlockRunner::ReleaseBarrier() {
  for (int i = 0; i < num_at_barrier_; ++i) MakeReady(at_barrier_[i]);
  num_at_barrier_ = 0;
  barrier_buffer_ ^= 1;
  barrier_votes_[barrier_buffer_] = 0;
}

int BlockRunner::SyncThreadsCount(bool predicate, const char* file, int line) {
  const int buffer = barrier_buffer_;  // read after the barrier, when the next one uses the other
  barrier_votes_[buffer] += predicate;
  SyncThreads(file, line);
  return barrier_votes_[buffer];
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

const uint64_t* BlockRunner::Exchange(uint64_t mask, uint64_t value, const char* operation,
                                      const char* file, int line, uint64_t* lanes) {
  const int self = static_cast<int>(current_thread.thread);
  const int lane = static_cast<int>(current_thread.lane);
  const uint64_t bit = uint64_t{1} << lane;
  Warp& warp = warps_[self >> warp_shift_];
  if (!(mask & bit)) {
    Fail(cudaErrorLaunchFailure, std::string(operation) + " at " + Place(file, line) +
                                     ": the mask leaves out lane " + std::to_string(lane) +
                                     ", which is the calling thread's own");
  }
  mask &= warp.exists;
  if ((mask & warp.returned) && !early_exit_) {
    const int gone = __builtin_ctzll(mask & warp.returned);
    Fail(cudaErrorLaunchFailure,
         std::string(operation) + " at " + Place(file, line) + ": the mask names lane " +
             std::to_string(gone) +
             ", whose thread has returned; every thread named must take part");
  }
  if (last_group_[self] != nullptr) --last_group_[self]->unread;

  Group* group = warp.last;
  if (group == nullptr || group->mask != mask) group = warp.last = FindGroup(warp, mask);
  last_group_[self] = group;
  ++group->unread;
  if (group->arrived != 0 && group->operation != operation &&
      std::strcmp(group->operation, operation) != 0) {
    Fail(cudaErrorLaunchFailure, "warp divergence: this thread called " + std::string(operation) +
                                     " at " + Place(file, line) +
                                     " while other lanes of the same mask wait in " +
                                     group->operation + " at " + Place(group->file, group->line) +
                                     "; all threads of the mask must call the same function");
  }
  group->operation = operation;
  group->file = file;
  group->line = line;
  const uint64_t* values = group->values[group->buffer];
  group->values[group->buffer][lane] = value;
  group->arrived |= bit;
  const uint64_t expected = early_exit_ ? mask & ~warp.returned : mask;
  *lanes = expected;
  if (group->arrived == expected) {
    ReleaseGroup(group, self - lane, lane);
    GiveWay();
  } else {
    Wait(State::kInExchange, operation, file, line);
    if (early_exit_) *lanes &= ~warp.returned;
  }
  return values;
}

void BlockRunner::ReleaseGroup(Group* group, int first_thread, int except_lane) {
  uint64_t rest = group->arrived;
  if (except_lane >= 0) rest &= ~(uint64_t{1} << except_lane);
  group->arrived = 0;
  group->buffer ^= 1;
  for (; rest != 0; rest &= rest - 1) MakeReady(first_thread + __builtin_ctzll(rest));
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
  }
  if (poison_) std::memset(variable, 0xff, bytes);
}

// --- Reports.

std::string BlockRunner::ThreadName(int thread) const {
  return ToString(Index(thread, launch_->block));
}

std::string BlockRunner::BlockName() const {
  return "kernel " + std::string(launch_->name) + " (launched at " +
         Place(launch_->file, launch_->line) + "), block " + ToString(tinyvllm_block_index);
}

std::string BlockRunner::Where() const {
  return BlockName() + ", thread " + ToString(tinyvllm_thread_index);
}

// How many threads wait where, one line a place.
std::string BlockRunner::WaitersReport() const {
  struct Waiters {
    int count = 0;
    int first = 0;
  };
  std::map<std::string, Waiters> places;
  for (int i = 0; i < num_threads_; ++i) {
    std::string place;
    if (states_[i] == State::kReturned) {
      place = "returned from the kernel";
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
  const bool barrier = num_at_barrier_ > 0;
  GiveUp(
      cudaErrorLaunchFailure,
      "error in " + BlockName() + ":\n  " +
          (barrier ? "barrier divergence: every thread of a block must reach the same __syncthreads"
                   : "warp divergence: every thread named in the mask must take part") +
          WaitersReport());
}

void BlockRunner::Fail(cudaError_t error, const std::string& problem) {
  GiveUp(error, "error in " + Where() + ":\n  " + problem);
}

void BlockRunner::GiveUp(cudaError_t error, const std::string& report) {
  error_ = error;
  report_ = report;
  for (;;) SwitchTo(&main_);
}

// --- The functions of cuda_simulator/sync.h.

namespace {

// Barriers and exchanges make sense inside a kernel only.
BlockRunner& Runner(const char* function) {
  if (__builtin_expect(!InsideKernel(), 0)) {
    std::fprintf(stderr, "CUDA simulator: %s called outside a kernel\n", function);
    std::abort();
  }
  return *this_runner;
}

}  // namespace

void SyncThreads(const char* file, int line) { Runner("__syncthreads").SyncThreads(file, line); }

int SyncThreadsCount(bool predicate, const char* file, int line) {
  return Runner("__syncthreads_count").SyncThreadsCount(predicate, file, line);
}

const uint64_t* WarpExchange(uint64_t mask, uint64_t value, const char* operation, const char* file,
                             int line, uint64_t* lanes) {
  return Runner(operation).Exchange(mask, value, operation, file, line, lanes);
}

void SyncWarp(uint64_t mask, const char* file, int line) {
  uint64_t lanes;
  Runner("__syncwarp").Exchange(mask, 0, "__syncwarp", file, line, &lanes);
}

uint64_t ActiveLanes() { return Runner("__activemask").ActiveLanes(); }

void Yield() {
  if (InsideKernel()) this_runner->Yield();
}

void Trap(const char* file, int line) {
  Runner("__trap").Fail(cudaErrorLaunchFailure, "__trap at " + Place(file, line));
}

void BadShuffleWidth(int width, const char* file, int line) {
  Runner("a shuffle")
      .Fail(cudaErrorLaunchFailure, "shuffle at " + Place(file, line) + ": width is " +
                                        std::to_string(width) +
                                        "; expected a power of two, at most the warp size");
}

void RegisterShared(void* variable, size_t bytes, const char* name, const char* file, int line) {
  Runner("a __shared__ declaration").RegisterShared(variable, bytes, name, file, line);
}

}  // namespace tinyvllm::simulator
