// The OS threads that share work: blocks of a kernel, panels of a matrix product.
//
//   WorkerPool::Get().Run(num_blocks, WorkerPool::Wake::kIfLong, [&](PoolJob& job) {
//     for (uint64_t i; job.Next(&i);) DoBlock(i);
//   });
//
// The caller works too. Waking a helper costs microseconds, longer than many kernels run, so with
// kIfLong that happens only once the work has gone on for a while.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tinyvllm::simulator {

class WorkerPool;

// One call of WorkerPool::Run: numbers from 0 to count - 1, each handed out once.
class PoolJob {
 public:
  // The next number, in `index`; false where none is left.
  bool Next(uint64_t* index);
  // Hands out nothing more.
  void Stop() { next_.store(count_, std::memory_order_relaxed); }

 private:
  friend class WorkerPool;
  using Clock = std::chrono::steady_clock;

  PoolJob(WorkerPool* pool, uint64_t count, void (*work)(void*, PoolJob&), void* context)
      : pool_(pool), count_(count), work_(work), context_(context) {}

  WorkerPool* pool_;
  std::atomic<uint64_t> next_{0};
  const uint64_t count_;
  void (*work_)(void* context, PoolJob& job);
  void* context_;
  // True while the caller works alone.
  bool may_wake_ = false;
  Clock::time_point began_;
  int helpers_ = 0;  // guarded by the pool's mutex
};

class WorkerPool {
 public:
  enum class Wake { kNow, kIfLong };

  static WorkerPool& Get();
  ~WorkerPool();

  // Calls work(job) on this thread and, where it pays, on helpers at the same time; returns when
  // all have returned. One call at a time: others wait.
  template <typename Work>
  void Run(uint64_t count, Wake wake, const Work& work) {
    PoolJob job(
        this, count, [](void* w, PoolJob& j) { (*static_cast<const Work*>(w))(j); },
        const_cast<Work*>(&work));
    RunJob(job, wake);
  }

 private:
  friend class PoolJob;

  WorkerPool();
  void RunJob(PoolJob& job, Wake wake);
  void WakeHelpers(PoolJob& job);
  void HelperMain();

  const int num_threads_;
  std::mutex run_mutex_;  // held through a job
  std::mutex mutex_;      // guards what follows
  std::condition_variable changed_;
  PoolJob* job_ = nullptr;
  bool quit_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace tinyvllm::simulator
