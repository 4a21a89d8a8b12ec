// Makes a lesson's starter from its solution: the marked regions are emptied, the rest stays.
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
#include <string_view>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/run_main.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "// exercise: ";
constexpr std::string_view kStarter = "// starter:";
constexpr std::string_view kEnd = "// end exercise";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool IsQuotationTag(std::string_view content) {
  return StartsWith(content, "// tag::") || StartsWith(content, "// end::");
}

// The starter of the solution at `path`; empty when it has no exercise.
std::string MakeStarter(const std::string& path) {
  enum class At { kOutside, kInstructions, kSolution };
  At at = At::kOutside;
  bool has_exercise = false;
  std::string starter;
  int number = 0;
  for (const std::string& line : Lines(ReadTextFile(path))) {
    ++number;
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view content = std::string_view(line).substr(indent);
    const std::string margin(indent, ' ');
    if (IsQuotationTag(content)) continue;
    if (StartsWith(content, kBegin)) {
      Check(at == At::kOutside, path, ":", number, ": an exercise inside another");
      at = At::kInstructions;
      has_exercise = true;
      starter += margin + "// Your turn: " + std::string(content.substr(kBegin.size())) + "\n";
    } else if (content == kEnd) {
      Check(at != At::kOutside, path, ":", number, ": `", kEnd, "` without `", kBegin, "`");
      at = At::kOutside;
    } else if (at == At::kOutside) {
      starter += line + "\n";
    } else if (StartsWith(content, kStarter)) {
      const std::string_view code = content.substr(kStarter.size());
      starter += margin + std::string(code.substr(std::min<size_t>(1, code.size()))) + "\n";
    } else if (at == At::kInstructions && StartsWith(content, "//")) {
      starter += line + "\n";
    } else {
      at = At::kSolution;
    }
  }
  Check(at == At::kOutside, path, ": an exercise without `", kEnd, "`");
  return has_exercise ? starter : "";
}

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
      if (!MakeStarter(file.path().string()).empty()) solutions.push_back(file.path());
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
    const std::string starter = MakeStarter(solution.string());
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
    const std::string starter = MakeStarter(argv[2]);
    Check(!starter.empty(), argv[2], ": has no `", kBegin, "` region");
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
