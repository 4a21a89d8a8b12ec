#include "common/simulator/leaks.h"

#include <unistd.h>

#include <cstdio>

#include "common/simulator/error.h"
#include "common/simulator/settings.h"

namespace tinyvllm::simulator {
namespace {

bool anything_made = false;

// After the destructors of all static objects, which may still free something.
__attribute__((destructor(101))) void ListLeaks() {
  // After an error of the device nothing can be freed.
  if (!anything_made || !GetSettings().leaks || StickyError() != cudaSuccess) return;
  Leaks leaks;
  CollectMemory(&leaks);
  CollectStreams(&leaks);
  if (leaks.empty()) return;
  std::fflush(nullptr);
  std::fprintf(
      stderr,
      "CUDA simulator: error: not given back when the program ended%s\n"
      "  advice: what cudaMalloc gave needs a cudaFree, and so on; DeviceBuffer, PinnedBuffer, "
      "Stream and Event do it by themselves\n"
      "  more: docs/simulator.md#leaks\n",
      leaks.ToString().c_str());
  _exit(1);
}

}  // namespace

void Leaks::Add(const CallPlace& where, const char* kind, size_t bytes) {
  Found& found = found_[{where.ToString(), kind}];
  ++found.count;
  found.bytes += bytes;
}

std::string Leaks::ToString() const {
  std::string text;
  for (const auto& [what, found] : found_) {
    const auto& [place, kind] = what;
    text +=
        "\n    " + (place.empty() ? "" : place + ": ") + std::to_string(found.count) + " x " + kind;
    if (found.bytes > 0) text += ", " + std::to_string(found.bytes) + " bytes";
  }
  return text;
}

void WatchForLeaks() { anything_made = true; }

}  // namespace tinyvllm::simulator
