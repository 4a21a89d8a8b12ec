// Where each of many buffers lies inside one allocation, decided before anything is allocated.
//
// One allocation instead of hundreds: the plan tells the total in advance (does the model fit?),
// nothing is lost to the allocator's rounding, and whatever is planned side by side stays so.
//
//   ArenaPlan plan;
//   const size_t norm = plan.Add("input_layernorm", 512);
//   const std::vector<size_t> qkv = plan.AddGroup({{"q", 131072}, {"k", 65536}, {"v", 65536}});
//   DeviceBuffer<char> arena(plan.total_bytes());
//   ... arena.data() + qkv[0] is one matrix of q's, k's and v's rows
//
// Every slot and every group begins at a multiple of 256 bytes, as cudaMalloc's own pointers do, so
// kernels may use their widest loads. Inside a group there is no padding: the rows of row-major
// matrices of the same width, one under the other, are one taller matrix, which a single matrix
// product reads. A member's own alignment is then its row's.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tinyvllm {

class ArenaPlan {
 public:
  static constexpr size_t kAlignment = 256;

  struct Slot {
    std::string name;
    size_t offset;
    size_t bytes;
  };

  // Returns the offset of the new slot. Throws Error when the total overflows 64 bits.
  size_t Add(const std::string& name, size_t bytes);

  // Slots without padding between them; returns their offsets.
  std::vector<size_t> AddGroup(const std::vector<std::pair<std::string, size_t>>& members);

  // Bytes to allocate: a multiple of kAlignment.
  size_t total_bytes() const;

  // In order of their offsets.
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  size_t end_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace tinyvllm
