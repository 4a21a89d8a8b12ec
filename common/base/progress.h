// Progress of long work, on standard error.
//
//   Progress progress("loading weights", total_bytes, Progress::Unit::kBytes);
//   progress.Advance(n);        // from any thread
//
// On a terminal, one line redrawn at most ten times a second:
//   loading weights  [===========>            ]   47%  1.18 GB of 2.50 GB  1.90 GB/s  1 s left
// Elsewhere (a log file), nothing for work under two seconds, then a line every ten seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace tinyvllm {

class Progress {
 public:
  enum class Unit { kItems, kBytes };

  Progress(std::string what, int64_t total, Unit unit = Unit::kItems);
  ~Progress();  // leaves the finished line on a terminal
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(int64_t amount = 1);

 private:
  using Clock = std::chrono::steady_clock;

  std::string Line(double seconds) const;
  void Draw(Clock::time_point now);

  const std::string what_;
  const int64_t total_;
  const Unit unit_;
  const bool terminal_;
  const Clock::time_point start_;
  std::atomic<int64_t> done_{0};
  std::mutex drawing_;
  Clock::time_point next_draw_;
  bool drawn_ = false;
};

// "1.20 GB": decimal units, three significant digits. For messages and tables.
std::string HumanBytes(double bytes);

}  // namespace tinyvllm
