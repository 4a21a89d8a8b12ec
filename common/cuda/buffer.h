// Memory that frees itself: on the device, and pinned on the host.
//
//   DeviceBuffer<bf16> x(num_tokens * hidden_size);
//   x.CopyFrom(host_vector);
//   Kernel<<<...>>>(x.data());
//   std::vector<bf16> y = x.ToHost();   // waits for the default stream
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "common/cuda/device_memory.h"

namespace tinyvllm {

// `size` elements of T on the device, uninitialised. Moves, never copies.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t size) : size_(size) {
    if (size > 0) CUDA_CHECK(cudaMalloc(&data_, bytes()));
    DeviceMemory::Add(bytes());
  }
  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) { CopyFrom(host); }
  ~DeviceBuffer() {
    DeviceMemory::Subtract(bytes());
    cudaFree(data_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

  // Copies the whole of `host`, which must be of the same size, and waits.
  void CopyFrom(const std::vector<T>& host) {
    Check(host.size() == size_, "DeviceBuffer: copy of ", host.size(), " elements into ", size_);
    if (size_ == 0) return;
    CUDA_CHECK(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
    WaitForDefaultStream();
  }

  std::vector<T> ToHost() const {
    std::vector<T> host(size_);
    if (size_ > 0) CUDA_CHECK(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

  // Sets every byte, for instance to 0xff (NaN in bf16 and f32) before a kernel whose every output
  // must be written. Waits.
  void Fill(int byte) {
    if (size_ == 0) return;
    CUDA_CHECK(cudaMemset(data_, byte, bytes()));
    WaitForDefaultStream();
  }

 private:
  // cudaMemset, and cudaMemcpy from memory that is not pinned, may return before the device has
  // done them, and a Stream does not wait for the default stream.
  void WaitForDefaultStream() { CUDA_CHECK(cudaStreamSynchronize(nullptr)); }

  T* data_ = nullptr;
  size_t size_ = 0;
};

// `size` elements of T on the host, page-locked: what asynchronous copies need. Uninitialised.
template <typename T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t size) : size_(size) {
    if (size > 0) CUDA_CHECK(cudaMallocHost(&data_, size * sizeof(T)));
  }
  ~PinnedBuffer() { cudaFreeHost(data_); }
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tinyvllm
