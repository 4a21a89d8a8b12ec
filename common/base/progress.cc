#include "common/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLogAfter{2};
constexpr std::chrono::seconds kLogEvery{10};
constexpr int kBarWidth = 24;

std::string Amount(double value, Progress::Unit unit) {
  if (unit == Progress::Unit::kBytes) return HumanBytes(value);
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2g" : "%.0f", value);
  return text;
}

}  // namespace

std::string HumanBytes(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, bytes, units[unit]);
  return text;
}

Progress::Progress(std::string what, int64_t total, Unit unit)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      next_draw_(start_ + (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kLogAfter))) {}

Progress::~Progress() {
  if (!drawn_) return;
  Draw(Clock::now());
  if (terminal_) std::fputc('\n', stderr);
}

void Progress::Advance(int64_t amount) {
  done_ += amount;
  const std::unique_lock<std::mutex> lock(drawing_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is drawing
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  Draw(now);
  next_draw_ = now + (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kLogEvery));
}

void Progress::Draw(Clock::time_point now) {
  const std::string line = Line(std::chrono::duration<double>(now - start_).count());
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

std::string Progress::Line(double seconds) const {
  const int64_t done = done_;
  const double share = total_ > 0 ? std::clamp(double(done) / total_, 0.0, 1.0) : 1.0;
  const double rate = seconds > 0 ? done / seconds : 0;
  std::string line = what_;
  if (terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    line += "  [" + std::string(filled, '=') + (filled < kBarWidth ? ">" : "") +
            std::string(std::max(0, kBarWidth - filled - 1), ' ') + "]";
  }
  char percent[16];
  std::snprintf(percent, sizeof percent, "  %3.0f%%", 100 * share);
  line += percent;
  line += "  " + Amount(done, unit_) + " of " + Amount(total_, unit_) + "  " + Amount(rate, unit_) +
          "/s";
  if (rate > 0 && done < total_) {
    line += StrCat("  ", std::ceil((total_ - done) / rate), " s left");
  }
  return line;
}

}  // namespace tinyvllm
