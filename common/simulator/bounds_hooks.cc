// The functions that g++ calls from code compiled with -fsanitize=alignment,bounds when an access
// is misaligned for its type, or an index lies outside an array. Their names, and what they are
// given, are UndefinedBehaviorSanitizer's; what they do is ours. As the compiler knows the type of
// what a kernel accesses, and the length of each array, they find what an address alone does not
// show: a float4 that is read as four floats, an index that runs into the next row.
#include <cstdint>
#include <cstring>
#include <string>

#include "common/simulator/access.h"
#include "common/simulator/block.h"
#include "common/simulator/memory_check.h"

using namespace tinyvllm::simulator;

namespace {

struct SourceLocation {
  const char* file;
  uint32_t line;
  uint32_t column;
};

struct TypeDescriptor {
  uint16_t kind;
  uint16_t info;
  char name[1];  // in quotes
};

struct TypeMismatch {
  SourceLocation place;
  const TypeDescriptor* type;
  unsigned char log_alignment;
  unsigned char kind;
};

struct OutOfBounds {
  SourceLocation place;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

// "'const struct float4'" as `float4`.
std::string NameOf(const TypeDescriptor& type) {
  std::string name = type.name;
  for (const char* word : {"const ", "struct ", "'"}) {
    for (size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, std::strlen(word));
  }
  return "`" + name + "`";
}

void Fail(cudaError_t error, const SourceLocation& place, const char* title,
          const std::string& text, const char* advice, const char* anchor) {
  watching = 0;
  BlockRunner& runner = BlockRunner::Get();
  runner.Fail(error, std::string(title) + "\n    " + place.file + ":" + std::to_string(place.line) +
                         ": thread " + runner.ThreadName(static_cast<int>(current_thread.thread)) +
                         " " + text + "\n  advice: " + advice + "\n  more: docs/simulator.md#" +
                         anchor);
}

void FailMisaligned(const TypeMismatch& mismatch, uintptr_t address) {
  constexpr const char* kVerbs[] = {"reads", "writes"};
  const std::string verb = mismatch.kind < 2 ? kVerbs[mismatch.kind] : "accesses";
  const unsigned alignment = 1u << mismatch.log_alignment;
  const std::string memory =
      NameMemory(address, IsThreadVariable(reinterpret_cast<const void*>(address)));
  Fail(
      cudaErrorMisalignedAddress, mismatch.place, "misaligned access",
      verb + " a " + NameOf(*mismatch.type) + " at an address that is " +
          std::to_string(address % alignment) + " bytes past a multiple of " +
          std::to_string(alignment) + (memory.empty() ? "" : ": " + memory),
      "a load or store of 8 or 16 bytes needs an address that is a multiple of as much: check that "
      "pointer, row length and offset are, else take single elements",
      "misaligned-access");
}

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(TypeMismatch* mismatch, uintptr_t address) {
  if (!(watching & kWatchMemory)) return;
  FailMisaligned(*mismatch, address);
  BlockRunner::Get().Leave();
}

static void FailIndex(const OutOfBounds& bounds, int64_t index) {
  Fail(cudaErrorIllegalAddress, bounds.place, "out of bounds",
       "uses index " + std::to_string(index) + " of an array of type " + NameOf(*bounds.array),
       "compare the index with the length of the array, in each dimension", "out-of-bounds");
}

// Whoever watches, or nobody: in the plain build a learner's code alone has these calls, since
// there a write behind a __shared__ array can destroy the simulator's own variables.
extern "C" void __ubsan_handle_out_of_bounds(OutOfBounds* bounds, uintptr_t index) {
  const BlockRunner* runner = BlockRunner::GetIfExists();
  if (runner == nullptr || !runner->inside_kernel() || runner->failed()) return;
  // Low bit of `info`: signed; the rest: the logarithm of its bits.
  const int bits = 1 << (bounds->index->info >> 1);
  const bool is_signed = (bounds->index->info & 1) != 0;
  const int64_t value =
      is_signed && bits < 64
          ? static_cast<int64_t>(static_cast<uint64_t>(index) << (64 - bits)) >> (64 - bits)
          : static_cast<int64_t>(index);
  FailIndex(*bounds, value);
  BlockRunner::Get().Leave();
}
