// The board that shows how far the learner is.
#pragma once

#include <string>
#include <vector>

#include "lessons/judge.h"

namespace tinyvllm {

// A line for each lesson, a bar, and the next step with its page and commands: the first lesson
// that has been begun and not passed, or else the first that has not been begun. `colour`: with the
// colour codes of a terminal.
std::string Board(const std::vector<Standing>& standings, bool colour);

}  // namespace tinyvllm
