#include "lessons/judge.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/text_table.h"
#include "lessons/course.h"
#include "tools/exercise/exercise_text.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// bazel test's exit statuses: https://bazel.build/run/scripts#exit-codes
constexpr int kAllPassed = 0;
constexpr int kBuildFailed = 1;
constexpr int kTestsFailed = 3;

constexpr size_t kMarkWidth = 13;  // of "[ RUN      ] " and its like

std::string WithoutSpace(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return isspace(c); }),
             text.end());
  return text;
}

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What follows `mark` in the first line that has it; empty when none has it.
std::string FirstAfter(const std::vector<std::string>& lines, const std::string& mark) {
  for (const std::string& line : lines) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) return line.substr(at + mark.size());
  }
  return "";
}

// "line 41: expected ';' before '}' token": what a compiler says of the learner's file, or "". g++
// writes file:line:column: error: ..., nvcc file(line): error: ...
std::string ErrorIn(const std::string& line, const std::string& file) {
  const std::string path = "exercise/" + file;
  const std::string mark = "error: ";
  const size_t at = line.find(path);
  const size_t error = line.find(mark);
  if (at == std::string::npos || error == std::string::npos || error < at) return "";
  const size_t number = at + path.size() + 1;  // after : or (
  const size_t end = line.find_first_not_of("0123456789", number);
  if (end == number) return "";
  return StrCat("line ", line.substr(number, end - number), ": ", line.substr(error + mark.size()));
}

std::string FirstError(const std::string& output, const std::string& file) {
  const std::vector<std::string> lines = Lines(output);
  for (const std::string& line : lines) {
    const std::string error = ErrorIn(line, file);
    if (!error.empty()) return error;
  }
  const std::string missing = FirstAfter(lines, "undefined reference to ");
  if (!missing.empty()) return "undefined reference to " + missing;
  for (const char* mark : {"error: ", "ERROR: "}) {
    const std::string error = FirstAfter(lines, mark);
    if (!error.empty()) return error;
  }
  return "for a reason that the compiler does not name";
}

// Goes through what GoogleTest printed. Its summary, which names failures again, is left out.
Verdict ReadChecks(const std::string& output) {
  Verdict verdict;
  std::string running;
  for (const std::string& line : Lines(output)) {
    const std::string mark = line.substr(0, kMarkWidth);
    const std::string rest = line.substr(mark.size());
    const std::string name = rest.substr(0, rest.find_first_of(" ,"));
    if (mark == "[==========] " && line.find(" ran.") != std::string::npos) break;
    if (mark == "[ RUN      ] ") {
      running = name;
      ++verdict.num_checks;
    } else if (mark == "[       OK ] ") {
      running.clear();
      ++verdict.passed;
    } else if (mark == "[  SKIPPED ] ") {
      running.clear();
      --verdict.num_checks;
    } else if (mark == "[  FAILED  ] ") {
      running.clear();
      if (verdict.detail.empty()) verdict.detail = name;
    }
  }
  if (verdict.detail.empty()) verdict.detail = running;  // it crashed, or took too long
  return verdict;
}

std::string NameOf(const Verdict& verdict) {
  switch (verdict.state) {
    case State::kNotBegun:
      return "not begun";
    case State::kDoesNotCompile:
      return "does not compile";
    case State::kFailing:
      return "failing";
    case State::kPassed:
      break;
  }
  return "passed";
}

Verdict CheckLesson(const std::string& root, const std::string& lesson, const std::string& file) {
  // For us: everything the checks print, and nothing else.
  const std::string command =
      StrCat("cd ", ShellQuoted(root), " && ./bazelw test //tests:", lesson,
             "_test --//:exercise=", lesson,
             " --test_env=TINYVLLM_ALL_CHECKS=1 --test_output=all --noshow_progress --color=no"
             " --curses=no 2>&1 </dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  Check(pipe != nullptr, command, ": cannot be started");
  std::string output;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) output.append(chunk, n);
  const int status = pclose(pipe);
  Check(WIFEXITED(status), CheckCommand(lesson), ": was interrupted");
  return ReadVerdict(WEXITSTATUS(status), output, file);
}

}  // namespace

Verdict ReadVerdict(int status, const std::string& output, const std::string& file) {
  if (status == kBuildFailed) {
    Verdict verdict;
    verdict.state = State::kDoesNotCompile;
    verdict.detail = FirstError(output, file);
    return verdict;
  }
  if (status != kAllPassed && status != kTestsFailed) {
    const std::string said = FirstAfter(Lines(output), "ERROR: ");
    throw Error("bazel test ended with status ", status, ", expected 0, 1 or 3",
                said.empty() ? "" : ": " + said);
  }
  Verdict verdict = ReadChecks(output);
  verdict.state = status == kAllPassed ? State::kPassed : State::kFailing;
  if (verdict.state == State::kPassed) verdict.detail.clear();
  return verdict;
}

std::string CheckCommand(const std::string& lesson) {
  return StrCat("bazel test //tests:", lesson, "_test --//:exercise=", lesson);
}

bool IsUntouched(const std::string& root, const std::string& lesson, const std::string& file) {
  const fs::path folder = fs::path(root) / "lessons" / lesson;
  const fs::path exercise = folder / "exercise" / file;
  if (!fs::exists(exercise)) return true;
  return WithoutSpace(ReadTextFile(exercise.string())) ==
         WithoutSpace(ReadExercise((folder / file).string()).starter);
}

std::vector<Standing> JudgeAll(const std::string& root, const std::vector<std::string>& lessons,
                               std::ostream& log) {
  std::vector<Standing> standings;
  std::vector<size_t> begun;
  for (const std::string& lesson : lessons) {
    standings.push_back({lesson, ExerciseFile(root, lesson), {}});
    if (!IsUntouched(root, lesson, standings.back().file)) begun.push_back(standings.size() - 1);
  }
  for (size_t i = 0; i < begun.size(); ++i) {
    Standing& standing = standings[begun[i]];
    log << "checking " << standing.lesson << " (" << i + 1 << " of " << begun.size() << ") ... "
        << std::flush;
    const auto start = std::chrono::steady_clock::now();
    standing.verdict = CheckLesson(root, standing.lesson, standing.file);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    log << NameOf(standing.verdict) << ", " << Fixed(seconds.count(), 1) << " s\n";
  }
  return standings;
}

}  // namespace tinyvllm
