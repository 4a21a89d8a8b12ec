// Where the program called the runtime, for reports that come later: of a leak, of memory that was
// used after it was freed.
#pragma once

#include <array>
#include <string>

namespace tinyvllm::simulator {

class CallPlace {
 public:
  // Nowhere.
  CallPlace() = default;
  // The calls that led here, where a setting needs them; else nowhere.
  static CallPlace Here();
  // The same, whatever the settings say.
  static CallPlace Now();

  // "FILE:LINE" of the innermost call outside the simulator and common/cuda, whose buffers are only
  // the way to the runtime. Empty where that is not known.
  std::string ToString() const;

 private:
  std::array<void*, 12> frames_{};
};

}  // namespace tinyvllm::simulator
