// Runs one block of a kernel: the scheduler of its threads.
//
// A thread runs on a fiber until it first has to wait; a thread that never waits costs one function
// call, for the fiber goes on with the next thread. At a barrier every thread but the last to
// arrive waits on a fiber of its own, and the last one releases them all and runs on.
//
// What can go wrong is found where it happens: threads that meet at different barriers, threads
// that have returned where the others wait, warp exchanges that can never complete. The whole block
// is then given up, one report is printed and the launch fails with a sticky error; nothing ever
// hangs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/simulator/fiber.h"
#include "common/simulator/settings.h"
#include "cuda_simulator/launch.h"
#include "cuda_simulator/sync.h"

namespace tinyvllm::simulator {

constexpr int kMaxThreadsPerBlock = 1024;
constexpr int kMaxWarps = kMaxThreadsPerBlock / 32;
constexpr size_t kMaxStaticSharedBytes = 48 * 1024;

// Whether the calling code is a thread of a kernel.
bool InsideKernel();

// One per OS thread that runs blocks.
class BlockRunner {
 public:
  // That of the calling OS thread.
  static BlockRunner& Get();
  // The same, or null where this OS thread has run no block.
  static BlockRunner* GetIfExists();

  BlockRunner();
  ~BlockRunner();

  // Makes ready for blocks of this launch.
  void Begin(const KernelLaunch& launch);

  // Runs block `number` (x fastest) to its end. Returns cudaSuccess, or the sticky error after
  // which the launch cannot go on; report() then says what happened.
  cudaError_t Run(uint64_t number);
  const std::string& report() const { return report_; }

  // Called by the threads of the block, on their fibers; see cuda_simulator/sync.h.
  Fiber* ArriveAtBarrier(const char* file, int line);
  Vote ArriveAndVote(bool predicate, const char* file, int line);
  Meeting ArriveInWarp(uint64_t mask, uint64_t value, const char* operation, const char* file,
                       int line);
  // `place` is where the thread is in the kernel's code.
  Fiber* ArriveAtYield(const void* place);
  uint64_t ActiveLanes() const;
  void RegisterShared(void* variable, size_t bytes, const char* name, const char* file, int line);
  // Notes a failure; the report names the kernel, the block and the thread, then the problem.
  // Leave() must follow, as a statement of its own: it gives up the block with all its stacks, and
  // what the caller still holds on one is never freed.
  void Fail(cudaError_t error, const std::string& problem);
  // The same of another thread than the running one.
  void Fail(cudaError_t error, const std::string& problem, int thread);
  [[noreturn]] void Leave();
  // The same in one, for a signal's handler, which has interrupted the thread at `place`: what
  // describes the problem (given back `place`) is called later, outside the handler.
  [[noreturn]] void FailInSignal(cudaError_t error, const void* place,
                                 std::function<std::string(const void*)> describe);
  bool failed() const { return error_ != cudaSuccess; }

  // What every function that a thread calls does first: the thread has come somewhere, to `place`
  // in the kernel's code.
  void NoteEvent(const void* place) {
    events_ = events_ + 1;
    if (__builtin_expect(overdue_, 0)) FailEndless(place);
  }
  // The watchdog's signal has interrupted the running thread at `place`. May switch to another
  // thread, and returns when it is the first one's turn again.
  void Tick(const void* place);
  // In instrumented code a hook does what Tick wants, at a place of the kernel's own.
  bool tick_wish() const { return tick_wish_; }
  void FulfilTickWish(const void* place);

  bool inside_kernel() const { return running_ != &main_; }
  const Fiber& running() const { return *running_; }
  // "(x,y,z)" of a thread of this block, and of a block of this launch.
  std::string ThreadName(int thread) const;
  std::string NameOfBlock(uint64_t number) const;
  // "kernel K (launched at FILE:LINE), block (x,y,z)"
  std::string BlockName() const;
  // The same with ", thread (x,y,z)".
  std::string Where() const;
  // Whether `address` is memory of the engine that its headers use in a kernel's code.
  bool Owns(const void* address) const;
  bool IsStackOverflow(const void* address) const { return fibers_.IsOverflow(address); }
  const KernelLaunch& launch() const { return *launch_; }

 private:
  // What Pick returns when a thread that has not begun is to run.
  static constexpr int kBeginThread = -1;

  enum class State : uint8_t { kNotBegun, kReady, kAtBarrier, kInExchange, kReturned };

  // The lanes of one mask that exchange values. Two buffers take turns: a lane may already give its
  // next value while a slower one still reads the last. It cannot be two ahead, as the exchange
  // between needs them all.
  struct Group {
    uint64_t mask;
    uint64_t arrived;
    int unread;  // lanes that may still read
    int buffer;
    const char* operation;
    const char* file;
    int line;
    Exchange buffers[2];
  };

  // What the engine keeps of a thread while it does not run.
  struct alignas(64) Thread {
    Fiber* fiber;
    const char* operation;  // where it waits
    const char* file;
    const void* place;  // or where it has made way for others, in the kernel's code
    Group* last_group;
    uint3 index;
    int line;
    State state;
  };

  struct Warp {
    uint64_t exists;
    uint64_t returned;
    int num_groups;
    Group* last;  // most exchanges use the same mask as the one before
    std::vector<std::unique_ptr<Group>> groups;
  };

  static void FiberMain(boost::context::detail::transfer_t from);
  Fiber* Next(Fiber* fiber);
  void PrepareOrder(uint64_t number);
  int NextToBegin() { return order_[next_++]; }
  void RunThread(int thread);
  void ThreadReturned(int thread);

  void MakeReady(int thread);
  int Pick();
  int PickOrFail();
  Fiber* FiberOf(int picked);
  Fiber* Wait(State state, const char* operation, const char* file, int line);
  Fiber* GoOn();

  bool BarrierComplete() const {
    return num_at_barrier_ == (early_exit_ ? num_alive_ : num_threads_);
  }
  void ReleaseBarrier();
  Group* FindGroup(Warp& warp, uint64_t mask);
  void ReleaseGroup(Group* group, int first_thread);
  uint64_t Random();

  std::string WaitersReport(const void* place_of_running) const;
  void FailDeadlock();
  [[noreturn]] void FailEndless(const void* place);
  void FailMask(const char* operation, const char* file, int line);
  void FailReturned(uint64_t lanes, const char* operation, const char* file, int line);
  void FailOperation(const Group& group, const char* operation, const char* file, int line);

  // Of the launch.
  const KernelLaunch* launch_ = nullptr;
  int num_threads_ = 0;
  bool flat_ = true;  // the block is one row of threads

  // Of the block.
  int num_alive_ = 0;
  int next_ = 0;  // how many threads have begun
  const uint16_t* order_ = nullptr;
  uint32_t ready_head_ = 0, ready_tail_ = 0;
  bool polls_ = false;  // a thread has made way for others
  int num_at_barrier_ = 0;
  const char* barrier_file_ = nullptr;
  int barrier_line_ = 0;
  int barrier_votes_[2] = {};
  int barrier_buffer_ = 0;
  size_t static_shared_bytes_ = 0;
  uint64_t random_ = 0;
  cudaError_t error_ = cudaSuccess;
  std::string report_;
  // After FailInSignal, until Run has made the report.
  const void* failed_place_ = nullptr;
  std::function<std::string(const void*)> describe_;

  // Of the block, for the watchdog. A signal reads and writes these.
  volatile uint64_t events_ = 0;
  volatile bool overdue_ = false;
  volatile bool tick_wish_ = false;
  uint64_t events_at_tick_ = 0;
  int ticks_ = 0;
  int quiet_ticks_ = 0;  // since the running thread last called the engine
  int patience_ = 0;     // the ticks after which it makes way
  ThreadOrder thread_order_ = ThreadOrder::kNatural;

  // Of this OS thread.
  const bool early_exit_;
  const uint64_t seed_;
  const int warp_size_;
  const int warp_shift_;
  const bool poison_;
  Fiber main_;
  Fiber* running_ = &main_;
  FiberPool fibers_;
  Thread threads_[kMaxThreadsPerBlock];
  uint16_t ready_[kMaxThreadsPerBlock];
  uint16_t at_barrier_[kMaxThreadsPerBlock];
  uint16_t natural_order_[kMaxThreadsPerBlock];
  uint16_t other_order_[kMaxThreadsPerBlock];
  Warp warps_[kMaxWarps];
};

}  // namespace tinyvllm::simulator
