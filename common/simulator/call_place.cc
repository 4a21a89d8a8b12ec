#include "common/simulator/call_place.h"

#include <execinfo.h>

#include "common/simulator/settings.h"
#include "common/simulator/source_place.h"

namespace tinyvllm::simulator {

CallPlace CallPlace::Here() { return GetSettings().note_calls ? Now() : CallPlace(); }

CallPlace CallPlace::Now() {
  CallPlace now;
  backtrace(now.frames_.data(), static_cast<int>(now.frames_.size()));
  return now;
}

std::string CallPlace::ToString() const {
  for (const void* frame : frames_) {
    if (frame == nullptr) break;
    const std::string place = ProgramPlace(static_cast<const char*>(frame) - 1);
    if (!place.empty()) return place;
  }
  return "";
}

}  // namespace tinyvllm::simulator
