// bazel run //lessons:progress: a board of all lessons with the state of the learner's exercises,
// and the next step. With -- --bench, what each lesson from 09 on bought: lessons/ladder_main.cc.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "lessons/board.h"
#include "lessons/course.h"
#include "lessons/judge.h"

namespace tinyvllm {
namespace {

// Those that this program was built with.
constexpr const char* kBuildFlags[] = {
#include "lessons/build_flags.inc"
};

void ShowBoard(const std::string& root) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::cout << Board(JudgeAll(root, LessonNames(), std::cerr), colour);
}

// The ladder links every kernel of the course, so it is built only when it is asked for. Does not
// return.
void BecomeLadder(const std::string& root, char** arguments) {
  std::vector<std::string> words = {root + "/bazelw", "run"};
  words.insert(words.end(), std::begin(kBuildFlags), std::end(kBuildFlags));
  words.insert(words.end(), {"//lessons:ladder", "--"});
  for (; *arguments != nullptr; ++arguments) words.push_back(*arguments);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  throw Error(words[0], ": cannot be started: ", std::strerror(errno));
}

int Run(int argc, char** argv) {
  const bool bench = argc > 1 && std::string(argv[1]) == "--bench";
  Check(argc == 1 || bench, "expected no arguments, or --bench first, but there is ",
        Quote(argc > 1 ? argv[1] : ""));
  const char* root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  Check(root != nullptr,
        "the repository's folder is not known; start me by: ", "bazel run //lessons:progress");
  if (bench) BecomeLadder(root, argv + 2);
  ShowBoard(root);
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
