// From an instruction's address to a line of source.
#include <backtrace.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "common/simulator/access.h"

namespace tinyvllm::simulator {
namespace {

// Bazel compiles in /proc/self/cwd, which would mean nothing to a reader.
std::string Shorten(const char* file) {
  constexpr char kBazelFolder[] = "/proc/self/cwd/";
  const size_t length = sizeof(kBazelFolder) - 1;
  return std::strncmp(file, kBazelFolder, length) == 0 ? file + length : file;
}

// Whether a kernel's author would call this their code: atomicAdd is in a header of the simulator.
bool IsUsersCode(const char* file) {
  return std::strstr(file, "cuda_simulator/") == nullptr && std::strncmp(file, "/usr/", 5) != 0;
}

// libbacktrace calls it for the function at the address and for those it is inlined into, innermost
// first, until it returns other than 0.
int TakePlace(void* data, uintptr_t, const char* file, int line, const char*) {
  if (file == nullptr) return 0;
  *static_cast<std::string*>(data) = Shorten(file) + ":" + std::to_string(line);
  return IsUsersCode(file) ? 1 : 0;
}

}  // namespace

std::string SourcePlace(const void* place) {
  static backtrace_state* state = backtrace_create_state(
      nullptr, 1, [](void*, const char*, int) {}, nullptr);
  std::string found;
  if (state != nullptr) {
    backtrace_pcinfo(
        state, reinterpret_cast<uintptr_t>(place), &TakePlace, [](void*, const char*, int) {},
        &found);
  }
  if (!found.empty()) return found;
  char address[32];
  std::snprintf(address, sizeof(address), "address %p", place);
  return address;
}

}  // namespace tinyvllm::simulator
