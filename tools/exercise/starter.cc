// Makes a lesson's starter from its solution: the marked regions are emptied, the rest stays.
// exercise_text.h shows the marks. The challenges' starters are made in the same way, from the
// proofs in tests/challenges that they can be solved.
//
//   starter --make SOLUTION STARTER    writes one starter
//   starter --update                   rewrites lessons/*/exercise/* and lessons/*/challenge/*;
//   what a
//                                      learner wrote there is kept beside it as FILE.mine,
//                                      FILE.2.mine, ...
//   starter --check                    fails when a committed starter is not what would be written
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

struct Pair {
  fs::path solution;
  fs::path starter;
};

// Every source with an exercise in folders/*/, and its starter in lessons/*/KIND/.
std::vector<Pair> Pairs(const fs::path& folders, const std::string& kind) {
  std::vector<Pair> pairs;
  for (const auto& folder : fs::directory_iterator(folders)) {
    if (!folder.is_directory()) continue;
    const fs::path starters = fs::path(DataPath("lessons")) / folder.path().filename() / kind;
    for (const auto& file : fs::directory_iterator(folder)) {
      const std::string extension = file.path().extension().string();
      if (extension != ".cu" && extension != ".cc") continue;
      if (ReadExercise(file.path().string()).starter.empty()) continue;
      pairs.push_back({file.path(), starters / file.path().filename()});
    }
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.solution < b.solution; });
  return pairs;
}

std::vector<Pair> AllPairs() {
  std::vector<Pair> pairs = Pairs(DataPath("lessons"), "exercise");
  for (const Pair& pair : Pairs(DataPath("tests/challenges"), "challenge")) pairs.push_back(pair);
  return pairs;
}

// A name that is free: FILE.mine, or FILE.2.mine and so on, so that no learner's work is lost.
fs::path FreeName(const fs::path& exercise) {
  fs::path name = exercise.string() + ".mine";
  for (int i = 2; fs::exists(name); ++i) name = StrCat(exercise.string(), ".", i, ".mine");
  return name;
}

int UpdateOrCheck(bool update) {
  int different = 0;
  for (const auto& [solution, exercise] : AllPairs()) {
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
