// bazel run //lessons:progress: a board of all lessons with the state of the learner's exercises,
// and the next step.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "lessons/board.h"
#include "lessons/course.h"
#include "lessons/judge.h"

namespace tinyvllm {
namespace {

int Run(int argc, char** argv) {
  Check(argc == 1, "expected no arguments, but there is ", Quote(argc > 1 ? argv[1] : ""));
  const char* root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  Check(root != nullptr,
        "the repository's folder is not known; start me by: ", "bazel run //lessons:progress");
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::cout << Board(JudgeAll(root, LessonNames(), std::cerr), colour);
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
