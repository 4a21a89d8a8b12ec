#include "lessons/board.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "common/base/text_table.h"
#include "lessons/course.h"

namespace tinyvllm {
namespace {

constexpr size_t kMaxDetailBytes = 70;
constexpr size_t kBarWidth = 30;

std::string Painted(const std::string& text, const char* code, bool colour) {
  return colour ? StrCat("\x1b[", code, "m", text, "\x1b[0m") : text;
}

// One line of limited length, without half a character at its end.
std::string Cut(const std::string& text) {
  size_t size = std::min(text.size(), kMaxDetailBytes);
  while (size < text.size() && size > 0 && (text[size] & 0xc0) == 0x80) --size;
  return EscapeControls(text.substr(0, size)) + (size < text.size() ? "..." : "");
}

std::string StateText(const Standing& standing, bool colour) {
  const Verdict& verdict = standing.verdict;
  switch (verdict.state) {
    case State::kNotBegun:
      return Painted("· not begun", "2", colour);
    case State::kDoesNotCompile:
      return Painted("✗ does not compile", "31", colour) + ": " + Cut(verdict.detail);
    case State::kFailing:
      return Painted("✗ failing", "31", colour) +
             (verdict.detail.empty() ? "" : ", first " + Cut(verdict.detail));
    case State::kPassed:
      break;
  }
  return Painted("✓ passed", "32", colour);
}

bool IsBegun(const Standing& standing) { return standing.verdict.state != State::kNotBegun; }

std::string Checks(const Verdict& verdict) {
  if (verdict.num_checks == 0) return "";
  return StrCat(verdict.passed, " of ", verdict.num_checks);
}

std::string Bar(size_t done, size_t total, bool colour) {
  std::string full;
  std::string rest;
  const size_t width = done * kBarWidth / total;
  for (size_t i = 0; i < kBarWidth; ++i) (i < width ? full : rest) += i < width ? "█" : "░";
  return StrCat(Painted(full, "32", colour), rest, "  ", done, " of ", total, " passed");
}

std::string NextStep(const Standing& standing) {
  const std::string& lesson = standing.lesson;
  const Verdict& verdict = standing.verdict;
  std::string check = CheckCommand(lesson);
  if (verdict.state == State::kFailing && !verdict.detail.empty()) {
    check += " \\\n            --test_filter='" + verdict.detail + "'";
  }
  return StrCat("Next: ", lesson, "\n",                                           //
                "  read    ", PageOf(lesson), "\n",                               //
                "  write   lessons/", lesson, "/exercise/", standing.file, "\n",  //
                "  check   ", check, "\n",                                        //
                "  stuck?  bazel run //lessons:hint -- ", lesson, " 1\n");
}

}  // namespace

std::string Board(const std::vector<Standing>& standings, bool colour) {
  Check(!standings.empty(), "board: no lessons");
  TextTable table({"lesson", "your file", "checks", "state"});
  size_t passed = 0;
  const Standing* next = nullptr;
  for (const Standing& standing : standings) {
    table.AddRow(
        {standing.lesson, standing.file, Checks(standing.verdict), StateText(standing, colour)});
    if (standing.verdict.state == State::kPassed) {
      ++passed;
    } else if (next == nullptr || (IsBegun(standing) && !IsBegun(*next))) {
      next = &standing;
    }
  }
  std::string text = table.ToString() + "\n" + Bar(passed, standings.size(), colour) + "\n\n";
  if (next != nullptr) return text + NextStep(*next);
  return text +
         "All of it is yours now. The whole engine on your code:\n"
         "  bazel run //final --//:exercise=all\n";
}

}  // namespace tinyvllm
