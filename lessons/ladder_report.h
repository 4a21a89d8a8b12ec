// The ladder as a person reads it, as a picture and as data.
#pragma once

#include <string>

#include "lessons/ladder.h"

namespace tinyvllm {

// A row for each rung.
std::string LadderTable(const Ladder& ladder);

// Two bar charts for a terminal: tokens a second, and memory.
std::string LadderBars(const Ladder& ladder);

// In a few lines: how it was measured, and whether all answers are the same.
std::string LadderNotes(const Ladder& ladder);

// Both charts as an SVG file, which reads well on a light and on a dark page.
std::string LadderSvg(const Ladder& ladder);

// One JSON object on one line.
std::string LadderJson(const Ladder& ladder);

}  // namespace tinyvllm
