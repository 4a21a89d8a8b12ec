// How much device memory the program has taken: the sum over all DeviceBuffers, through which all
// of it goes. For tables that compare.
//
//   DeviceMemory::ForgetPeak();
//   const size_t before = DeviceMemory::bytes();
//   RunSomething();
//   const size_t taken = DeviceMemory::peak_bytes() - before;
#pragma once

#include <atomic>
#include <cstddef>

namespace tinyvllm {

class DeviceMemory {
 public:
  static size_t bytes() { return bytes_; }
  // The most it has been since the start, or since ForgetPeak.
  static size_t peak_bytes() { return peak_bytes_; }
  static void ForgetPeak() { peak_bytes_ = bytes(); }

  // For those that take memory, and give it back.
  static void Add(size_t bytes) {
    const size_t now = bytes_ += bytes;
    size_t peak = peak_bytes_;
    while (peak < now && !peak_bytes_.compare_exchange_weak(peak, now)) {
    }
  }
  static void Subtract(size_t bytes) { bytes_ -= bytes; }

 private:
  static inline std::atomic<size_t> bytes_{0};
  static inline std::atomic<size_t> peak_bytes_{0};
};

}  // namespace tinyvllm
