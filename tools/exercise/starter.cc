// Makes a lesson's starter from its solution: the marked regions are emptied, the rest stays.
// exercise_text.h shows the marks.
//
//   starter --make SOLUTION STARTER    writes one starter
//   starter --update                   rewrites lessons/*/exercise/*; what a learner wrote there is
//                                      kept beside it as FILE.mine, FILE.2.mine, ...
//   starter --check                    fails when a committed exercise is not its starter
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/run_main.h"
#include "tools/exercise/exercise_text.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  Check(out.good(), path.string(), ": cannot be written");
}

// Every source with an exercise in lessons/*/.
std::vector<fs::path> Solutions(const fs::path& lessons) {
  std::vector<fs::path> solutions;
  for (const auto& lesson : fs::directory_iterator(lessons)) {
    if (!lesson.is_directory()) continue;
    for (const auto& file : fs::directory_iterator(lesson)) {
      const std::string extension = file.path().extension().string();
      if (extension != ".cu" && extension != ".cc") continue;
      if (!ReadExercise(file.path().string()).starter.empty()) solutions.push_back(file.path());
    }
  }
  std::sort(solutions.begin(), solutions.end());
  return solutions;
}

// A name that is free: FILE.mine, or FILE.2.mine and so on, so that no learner's work is lost.
fs::path FreeName(const fs::path& exercise) {
  fs::path name = exercise.string() + ".mine";
  for (int i = 2; fs::exists(name); ++i) name = StrCat(exercise.string(), ".", i, ".mine");
  return name;
}

int UpdateOrCheck(bool update) {
  int different = 0;
  for (const fs::path& solution : Solutions(DataPath("lessons"))) {
    const fs::path exercise = solution.parent_path() / "exercise" / solution.filename();
    const std::string starter = ReadExercise(solution.string()).starter;
    const std::string present = fs::exists(exercise) ? ReadTextFile(exercise.string()) : "";
    if (present == starter) continue;
    ++different;
    if (!update) {
      std::cout << exercise.string() << ": is not the starter of " << solution.string()
                << "; run: bazel run //tools/exercise:update\n";
      continue;
    }
    std::string kept;
    if (!present.empty()) {
      const fs::path mine = FreeName(exercise);
      Write(mine, present);
      kept = "; what was there is kept as " + mine.filename().string();
    }
    Write(exercise, starter);
    std::cout << exercise.string() << ": written" << kept << "\n";
  }
  return update || different == 0 ? 0 : 1;
}

int Run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--make" && argc == 4) {
    const std::string starter = ReadExercise(argv[2]).starter;
    Check(!starter.empty(), argv[2], ": has no `// exercise:` region");
    Write(argv[3], starter);
    return 0;
  }
  if ((mode == "--update" || mode == "--check") && argc == 2) {
    return UpdateOrCheck(mode == "--update");
  }
  throw Error("usage: starter --make SOLUTION STARTER | --update | --check");
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
