// How far the learner is: the state of each lesson's exercise, found out by its own checks.
//
//   for (const Standing& standing : JudgeAll(root, LessonNames(), std::cerr)) ...
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tinyvllm {

enum class State { kNotBegun, kDoesNotCompile, kFailing, kPassed };

// What `bazel test` found.
struct Verdict {
  State state = State::kNotBegun;
  int passed = 0;      // checks; those that were skipped count neither here nor in num_checks
  int num_checks = 0;  // that ran
  std::string detail;  // the first error of the compiler, or the name of the first failing check
};

struct Standing {
  std::string lesson;  // "04_rmsnorm"
  std::string file;    // "rmsnorm.cu"
  Verdict verdict;
};

// From bazel's exit status and all that it and the checks printed; `file` is the learner's. Throws
// Error when bazel neither built nor tested.
Verdict ReadVerdict(int status, const std::string& output, const std::string& file);

// The command that checks the learner's code of a lesson.
std::string CheckCommand(const std::string& lesson);

// Whether the lesson's exercise, below the repository's folder `root`, is still the starter; spaces
// do not count. A file that is not there has not been begun.
bool IsUntouched(const std::string& root, const std::string& lesson, const std::string& file);

// Judges the lessons one after the other. Those that have been begun are built and checked with
// `root`/bazelw, which takes seconds to minutes; what goes on is told to `log`.
std::vector<Standing> JudgeAll(const std::string& root, const std::vector<std::string>& lessons,
                               std::ostream& log);

}  // namespace tinyvllm
