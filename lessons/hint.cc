// bazel run //lessons:hint -- 04_rmsnorm 1: the first hint to the exercise of lesson 04, from its
// page.
#include <iostream>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "lessons/course.h"
#include "lessons/hints.h"

namespace tinyvllm {
namespace {

constexpr size_t kWidth = 80;

std::string Command(const std::string& lesson, size_t number) {
  return StrCat("bazel run //lessons:hint -- ", lesson, " ", number);
}

int Run(int argc, char** argv) {
  Check(argc == 2 || argc == 3,
        "expected a lesson and a number, for instance: ", Command(LessonNames().front(), 1));
  const std::string number = argc == 3 ? argv[2] : "";
  const std::string lesson = FindLesson(argv[1]);
  const std::string page = PageOf(lesson);
  const std::vector<std::string> hints = ReadHints(ReadTextFile(DataPath(page)), page);
  Check(!hints.empty(), page, ": has no hints");
  if (argc == 2) {
    std::cout << lesson << " has " << hints.size() << " hints, from a nudge to the idea of the "
              << "solution.\nThe first: " << Command(lesson, 1) << "\n";
    return 0;
  }
  size_t i = 0;
  while (i < hints.size() && std::to_string(i + 1) != number) ++i;
  Check(i < hints.size(), lesson, ": no hint ", Quote(number), "; expected a number from 1 to ",
        hints.size());
  std::cout << lesson << ", hint " << i + 1 << " of " << hints.size() << " (" << page << ")\n\n"
            << ForTerminal(hints[i], kWidth) << "\n";
  if (i + 1 < hints.size()) {
    std::cout << "The next hint: " << Command(lesson, i + 2) << "\n";
  } else {
    std::cout << "That was the last one. The page goes through the solution, step by step.\n";
  }
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
