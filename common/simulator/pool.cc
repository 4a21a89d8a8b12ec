#include "common/simulator/pool.h"

#include "common/simulator/settings.h"

namespace tinyvllm::simulator {
namespace {

// After this long it is worth waking the helpers for what is left.
constexpr std::chrono::microseconds kWakeAfter{20};

}  // namespace

bool PoolJob::Next(uint64_t* index) {
  *index = next_.fetch_add(1, std::memory_order_relaxed);
  if (*index >= count_) return false;
  if (may_wake_ && *index > 0 && Clock::now() - began_ > kWakeAfter) {
    may_wake_ = false;
    if (*index + 1 < count_) pool_->WakeHelpers(*this);
  }
  return true;
}

WorkerPool& WorkerPool::Get() {
  static WorkerPool pool;
  return pool;
}

WorkerPool::WorkerPool() : num_threads_(GetSettings().threads) {}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void WorkerPool::RunJob(PoolJob& job, Wake wake) {
  std::lock_guard<std::mutex> run_lock(run_mutex_);
  if (num_threads_ == 1 || job.count_ == 1) {
    job.work_(job.context_, job);
    return;
  }
  if (wake == Wake::kNow) {
    WakeHelpers(job);
  } else {
    job.began_ = PoolJob::Clock::now();
    job.may_wake_ = true;
  }
  job.work_(job.context_, job);
  std::unique_lock<std::mutex> lock(mutex_);
  job_ = nullptr;
  changed_.wait(lock, [&] { return job.helpers_ == 0; });
}

void WorkerPool::WakeHelpers(PoolJob& job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (static_cast<int>(helpers_.size()) < num_threads_ - 1) {
      helpers_.emplace_back([this] { HelperMain(); });
    }
    job_ = &job;
  }
  changed_.notify_all();
}

void WorkerPool::HelperMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return quit_ ||
             (job_ != nullptr && job_->next_.load(std::memory_order_relaxed) < job_->count_);
    });
    if (quit_) return;
    PoolJob* job = job_;
    ++job->helpers_;
    lock.unlock();
    job->work_(job->context_, *job);
    lock.lock();
    if (--job->helpers_ == 0) changed_.notify_all();
  }
}

}  // namespace tinyvllm::simulator
