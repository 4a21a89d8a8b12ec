#include "common/simulator/source_place.h"

#include <backtrace.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Set by the linker: where the program's code begins and ends.
extern "C" char __executable_start[], etext[];

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
  for (const char* part : {"common/simulator/include/", "/libsanitizer/"}) {
    if (std::strstr(file, part) != nullptr) return false;
  }
  // Where the C library has line numbers, they are of paths like "../sysdeps/x86_64/memmove.S".
  return std::strncmp(file, "/usr/", 5) != 0 && std::strstr(file, "../") == nullptr;
}

// libbacktrace calls it for the function at the address and for those it is inlined into, innermost
// first, until it returns other than 0.
int TakePlace(void* data, uintptr_t, const char* file, int line, const char*) {
  if (file == nullptr) return 0;
  *static_cast<std::string*>(data) = Shorten(file) + ":" + std::to_string(line);
  return IsUsersCode(file) ? 1 : 0;
}

int TakeProgramPlace(void* data, uintptr_t, const char* file, int line, const char*) {
  if (file == nullptr || !IsUsersCode(file) || std::strstr(file, "common/simulator/") != nullptr ||
      std::strstr(file, "common/cuda/") != nullptr) {
    return 0;
  }
  *static_cast<std::string*>(data) = Shorten(file) + ":" + std::to_string(line);
  return 1;
}

void TakeFunction(void* data, uintptr_t, const char* name, uintptr_t, uintptr_t) {
  if (name == nullptr) return;
  int status = 0;
  char* readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  *static_cast<std::string*>(data) = std::string("in ") + (status == 0 ? readable : name);
  std::free(readable);
}

void IgnoreError(void*, const char*, int) {}

backtrace_state* State() {
  static backtrace_state* state = backtrace_create_state(nullptr, 1, &IgnoreError, nullptr);
  return state;
}

}  // namespace

std::string SourcePlace(const void* place) {
  std::string found;
  const auto address = reinterpret_cast<uintptr_t>(place);
  backtrace_pcinfo(State(), address, &TakePlace, &IgnoreError, &found);
  if (found.empty()) backtrace_syminfo(State(), address, &TakeFunction, &IgnoreError, &found);
  if (!found.empty()) return found;
  char text[32];
  std::snprintf(text, sizeof(text), "at address %p", place);
  return text;
}

std::string ProgramPlace(const void* place) {
  std::string found;
  backtrace_pcinfo(State(), reinterpret_cast<uintptr_t>(place), &TakeProgramPlace, &IgnoreError,
                   &found);
  return found;
}

bool InProgram(const void* place) {
  return place >= static_cast<const void*>(__executable_start) &&
         place < static_cast<const void*>(etext);
}

}  // namespace tinyvllm::simulator
