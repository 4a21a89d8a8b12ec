// The exercise in a solution's source, taken apart.
//
//   // exercise: Say here what to write, and where to begin.
//   // It may go on over several lines.
//   // starter: return 0;          (what takes the solution's place; may be missing, or repeated)
//   ... the solution ...
//   // end exercise
//
// becomes
//
//   // Your turn: Say here what to write, and where to begin.
//   // It may go on over several lines.
//   return 0;
//
// Lines that mark quotations for the documentation (tag::name[], end::name[]) are left out.
#pragma once

#include <string>
#include <vector>

namespace tinyvllm {

struct ExerciseText {
  std::string starter;                // the file as the learner gets it; empty: it has no exercise
  std::vector<std::string> solution;  // the lines that were taken out, comments included
};

// Of the source file at `path`. Throws Error where the marks do not match.
ExerciseText ReadExercise(const std::string& path);

}  // namespace tinyvllm
