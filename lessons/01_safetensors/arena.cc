#include "lessons/01_safetensors/arena.h"

#include <cstdint>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

size_t RoundUp(size_t bytes) {
  return (bytes + ArenaPlan::kAlignment - 1) / ArenaPlan::kAlignment * ArenaPlan::kAlignment;
}

}  // namespace

size_t ArenaPlan::Add(const std::string& name, size_t bytes) {
  return AddGroup({{name, bytes}})[0];
}

// tag::add_group[]
std::vector<size_t> ArenaPlan::AddGroup(
    const std::vector<std::pair<std::string, size_t>>& members) {
  size_t offset = RoundUp(end_);
  std::vector<size_t> offsets;
  for (const auto& [name, bytes] : members) {
    Check(bytes <= SIZE_MAX - kAlignment - offset, "arena: ", name, " with ", bytes,
          " bytes at offset ", offset, " is more than 64 bits can address");
    offsets.push_back(offset);
    slots_.push_back({name, offset, bytes});
    offset += bytes;
  }
  end_ = offset;
  return offsets;
}
// end::add_group[]

size_t ArenaPlan::total_bytes() const { return RoundUp(end_); }

}  // namespace tinyvllm
