// Checks of what goes around the lessons: every page has its hints, and the board tells the truth.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/text_table.h"
#include "common/testing/expect_error.h"
#include "lessons/board.h"
#include "lessons/course.h"
#include "lessons/hints.h"
#include "lessons/judge.h"
#include "tools/exercise/exercise_text.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// --- names

TEST(Course, FindsALessonByNameNumberOrWord) {
  for (const char* text : {"04_rmsnorm", "04", "4", "rmsnorm"}) {
    EXPECT_EQ(FindLesson(text), "04_rmsnorm") << text;
  }
  EXPECT_EQ(FindLesson("kv_cache"), "10_kv_cache");
  for (const char* text : {"", "04_", "norm", "99", "004", "04_rmsnorm/", "_"}) {
    const std::string message = ErrorOf([&] { FindLesson(text); });
    EXPECT_NE(message.find("00_first_kernel"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Course, EveryLessonHasAPageAndAnExercise) {
  ASSERT_GE(LessonNames().size(), 15u);
  for (const std::string& lesson : LessonNames()) {
    EXPECT_TRUE(fs::exists(DataPath(PageOf(lesson)))) << lesson;
    EXPECT_NE(ExerciseFile(fs::path(DataPath("lessons")).parent_path(), lesson), "") << lesson;
  }
}

TEST(Course, EveryLessonHasAChallengeThatItsPageNames) {
  for (const std::string& lesson : LessonNames()) {
    SCOPED_TRACE(lesson);
    const std::string page = ReadTextFile(DataPath(PageOf(lesson)));
    EXPECT_NE(page.find("\n## Challenge\n"), std::string::npos);
    EXPECT_NE(page.find("bazel test //tests/challenges:" + lesson + "\n"), std::string::npos);
    // The files that the page names exist, and what the learner is to write is not on it.
    int num_files = 0;
    const std::string folder = "lessons/" + lesson + "/challenge/";
    for (const auto& file : fs::directory_iterator(DataPath(folder))) {
      const std::string name = file.path().filename().string();
      if (name.find(".mine") != std::string::npos) continue;
      EXPECT_NE(page.find("`" + folder + name + "`"), std::string::npos) << name;
      ++num_files;
    }
    EXPECT_EQ(num_files, 2);
  }
}

// --- hints

// Letters, digits and signs alone: how a line is spaced, wrapped or quoted does not matter.
std::string Bare(const std::string& text) {
  std::string bare;
  for (const unsigned char c : text) {
    if (!isspace(c) && c != '`') bare += c;
  }
  return bare;
}

// The first line of code in `solution` that stands in the hint. Short ones ("__syncthreads();") are
// words that one must be able to say.
std::string GivenAway(const std::string& hint, const std::vector<std::string>& solution) {
  constexpr size_t kShortest = 20;
  for (const std::string& line : solution) {
    const std::string code = Bare(line.substr(0, line.find("//")));
    if (code.size() >= kShortest && Bare(hint).find(code) != std::string::npos) return line;
  }
  return "";
}

TEST(Hints, ThreeALessonAllDifferentAndNoneGivesTheSolutionAway) {
  for (const std::string& lesson : LessonNames()) {
    SCOPED_TRACE(lesson);
    const std::string source = ExerciseFile(fs::path(DataPath("lessons")).parent_path(), lesson);
    const std::vector<std::string> solution =
        ReadExercise(DataPath("lessons/" + lesson + "/" + source)).solution;
    ASSERT_FALSE(solution.empty());
    const std::vector<std::string> hints =
        ReadHints(ReadTextFile(DataPath(PageOf(lesson))), lesson);
    ASSERT_EQ(hints.size(), 3u);
    EXPECT_EQ(std::set<std::string>(hints.begin(), hints.end()).size(), 3u);
    for (const std::string& hint : hints) {
      EXPECT_GE(hint.size(), 100u) << hint;
      EXPECT_EQ(GivenAway(hint, solution), "") << hint;
      EXPECT_EQ(hint.find("```"), std::string::npos) << "a hint is prose: " << hint;
    }
  }
}

// What a reader sees who opens nothing.
std::string WithoutFolded(std::string page) {
  constexpr char kBegin[] = "<details>", kEnd[] = "</details>";
  for (size_t begin; (begin = page.find(kBegin)) != std::string::npos;) {
    const size_t end = page.find(kEnd, begin);
    if (end == std::string::npos) return page.substr(0, begin);
    page.erase(begin, end + sizeof kEnd - 1 - begin);
  }
  return page;
}

// Whether `text` has at least half of the solution's lines that are long enough to say something.
bool ShowsHalfOf(const std::vector<std::string>& solution, const std::string& text) {
  int num_lines = 0, num_shown = 0;
  for (const std::string& line : solution) {
    if (GivenAway(line, {line}).empty()) continue;
    ++num_lines;
    if (!GivenAway(text, {line}).empty()) ++num_shown;
  }
  return 2 * num_shown >= num_lines;
}

TEST(Course, NeitherPageNorStarterShowsTheSolution) {
  for (const std::string& lesson : LessonNames()) {
    SCOPED_TRACE(lesson);
    const std::string source = ExerciseFile(fs::path(DataPath("lessons")).parent_path(), lesson);
    const ExerciseText exercise = ReadExercise(DataPath("lessons/" + lesson + "/" + source));
    const std::string page = ReadTextFile(DataPath(PageOf(lesson)));
    EXPECT_TRUE(ShowsHalfOf(exercise.solution, page))
        << "it is not on the page, for when it passes";
    EXPECT_FALSE(ShowsHalfOf(exercise.solution, WithoutFolded(page)));
    EXPECT_FALSE(ShowsHalfOf(exercise.solution, exercise.starter));
  }
}

TEST(Hints, TheCheckNoticesALineThatIsGivenAway) {
  const std::vector<std::string> solution = {"  __syncthreads();",
                                             "  const float scale = rsqrtf(mean + epsilon);  // c"};
  EXPECT_EQ(GivenAway("Then `__syncthreads();` and a scale.", solution), "");
  EXPECT_EQ(GivenAway("Write `const float scale =\nrsqrtf(mean + epsilon);`.", solution),
            solution[1]);
}

TEST(Hints, AreReadInTheirOrder) {
  const std::string page =
      "# A page\n\n<details><summary>Hint 1</summary>\n\nOne.\n\nTwo.\n\n</details>\n\n"
      "<details><summary>Hint 2</summary>\n\nThree.\n\n</details>\n\nMore.\n";
  EXPECT_EQ(ReadHints(page, "p"), (std::vector<std::string>{"One.\n\nTwo.", "Three."}));
  EXPECT_TRUE(ReadHints("# A page\n<details><summary>Other</summary>\nx\n</details>", "p").empty());
}

TEST(Hints, BadPagesAreNamed) {
  const std::string one = "<details><summary>Hint 1</summary>\n";
  const std::string two = "<details><summary>Hint 2</summary>\n";
  for (const std::string& page :
       {one + "text", one + "a" + two + "b</details>", one + "\n</details>", two + "text</details>",
        one + "a</details>" + one + "b</details>"}) {
    const std::string message = ErrorOf([&] { ReadHints(page, "docs/x.md"); });
    EXPECT_EQ(message.find("docs/x.md: "), 0u) << message;
  }
}

TEST(Hints, AreWrappedForATerminal) {
  EXPECT_EQ(
      ForTerminal("A *short* line, **see**\n[the page](a/b.md), `p * q * r`.\n\n  Next.\n", 16),
      "A short line,\nsee the page, `p\n* q * r`.\n\nNext.\n");
  EXPECT_EQ(ForTerminal("8 * 8 and 2*3", 80), "8 * 8 and 2*3\n");
  EXPECT_EQ(ForTerminal("*Merge.* (**bold** words) *`code`* end*", 80),
            "Merge. (bold words) `code` end\n");
  EXPECT_EQ(ForTerminal("`a[i](b)` and x[3] (four)", 80), "`a[i](b)` and x[3] (four)\n");
  EXPECT_EQ(ForTerminal("äöü äöü", 7), "äöü äöü\n");
  EXPECT_EQ(ForTerminal("longerthanthewidth x", 5), "longerthanthewidth\nx\n");
}

// --- what bazel says

constexpr char kFailed[] =
    "INFO: Analyzed target //tests:04_rmsnorm_test.\n"
    "FAIL: //tests:04_rmsnorm_test (see /tmp/test.log)\n"
    "[==========] Running 5 tests from 1 test suite.\n"
    "[ RUN      ] RmsNormTest.IsRight/Engine\n"
    "[       OK ] RmsNormTest.IsRight/Engine (3 ms)\n"
    "[ RUN      ] RmsNormTest.NeedsASanitizer\n"
    "[  SKIPPED ] RmsNormTest.NeedsASanitizer (0 ms)\n"
    "[ RUN      ] RmsNormTest.IsRight/Version1\n"
    "tests/04_rmsnorm_test.cc:70: Failure\n"
    "[  FAILED  ] RmsNormTest.IsRight/Version1, where GetParam() = 1 (3 ms)\n"
    "[ RUN      ] RmsNormTest.InPlace/Version1\n"
    "[  FAILED  ] RmsNormTest.InPlace/Version1 (1 ms)\n"
    "[==========] 5 tests from 1 test suite ran. (3 ms total)\n"
    "[  PASSED  ] 1 test.\n"
    "[  SKIPPED ] 1 test, listed below:\n"
    "[  FAILED  ] 2 tests, listed below:\n"
    "[  FAILED  ] RmsNormTest.IsRight/Version1, where GetParam() = 1\n";

TEST(Verdict, NamesTheFirstFailingCheck) {
  const Verdict verdict = ReadVerdict(3, kFailed, "rmsnorm.cu");
  EXPECT_EQ(verdict.state, State::kFailing);
  EXPECT_EQ(verdict.detail, "RmsNormTest.IsRight/Version1");
  EXPECT_EQ(verdict.passed, 1);
  EXPECT_EQ(verdict.num_checks, 3);
}

TEST(Verdict, NamesTheCheckThatCrashed) {
  const Verdict verdict = ReadVerdict(
      3, "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n[ RUN      ] A.C\nSegmentation", "x");
  EXPECT_EQ(verdict.state, State::kFailing);
  EXPECT_EQ(verdict.detail, "A.C");
  EXPECT_EQ(verdict.passed, 1);
  EXPECT_EQ(verdict.num_checks, 2);
}

TEST(Verdict, PassesWhenBazelSaysSo) {
  const Verdict verdict = ReadVerdict(0, "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n", "x");
  EXPECT_EQ(verdict.state, State::kPassed);
  EXPECT_EQ(verdict.passed, 1);
  EXPECT_EQ(verdict.detail, "");
}

TEST(Verdict, QuotesTheCompilersFirstError) {
  const struct {
    const char* output;
    const char* detail;
  } cases[] = {
      {"ERROR: /home/me/lessons/05_rope/BUILD:3:7: C++ compilation of rule failed\n"
       "lessons/05_rope/exercise/rope.cu: In function 'void F()':\n"
       "lessons/05_rope/exercise/rope.cu:41:12: warning: unused variable 'i'\n"
       "lessons/05_rope/exercise/rope.cu:43:12: error: expected ';' before '}' token\n"
       "lessons/05_rope/exercise/rope.cu:47:12: error: 'x' was not declared\n",
       "line 43: expected ';' before '}' token"},
      {"lessons/05_rope/exercise/rope.cu(43): error: expected a \";\"\n",
       "line 43: expected a \";\""},
      {"ERROR: link failed\nrope.cu:(.text+0x1): undefined reference to `tinyvllm::Rope()'\n",
       "undefined reference to `tinyvllm::Rope()'"},
      {"ERROR: no such package\n", "no such package"},
      {"", "for a reason that the compiler does not name"},
  };
  for (const auto& [output, detail] : cases) {
    const Verdict verdict = ReadVerdict(1, output, "rope.cu");
    EXPECT_EQ(verdict.state, State::kDoesNotCompile);
    EXPECT_EQ(verdict.detail, detail);
  }
}

TEST(Verdict, AnythingElseIsAnError) {
  EXPECT_EQ(ErrorOf([] { ReadVerdict(2, "ERROR: Unrecognized option: --x\n", "x"); }),
            "bazel test ended with status 2, expected 0, 1 or 3: Unrecognized option: --x");
}

TEST(Verdict, LongLinesAreNoMatter) {
  const std::string output = std::string(1 << 20, 'x') + "\nexercise/a.cu:7:1: error: no\n";
  EXPECT_EQ(ReadVerdict(1, output, "a.cu").detail, "line 7: no");
}

// --- a small repository, whose bazelw says what it is told to

class RepositoryTest : public testing::Test {
 protected:
  RepositoryTest() {
    Write("bazelw", "#!/bin/sh\necho \"$@\" >>asked\n. ./answer\n");
    fs::permissions(root_ / "bazelw", fs::perms::owner_all);
    for (const char* lesson : {"00_first", "01_second", "02_third"}) {
      const std::string folder = std::string("lessons/") + lesson;
      Write(folder + "/a.cc", "int Helper();\n");
      Write(folder + "/b.cu", "void F() {\n  // exercise: Write.\n  G();\n  // end exercise\n}\n");
      Write(folder + "/exercise/b.cu", "void F() {\n  // Your turn: Write.\n}\n");
    }
  }
  ~RepositoryTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void Solve(const std::string& lesson) {
    Write("lessons/" + lesson + "/exercise/b.cu", "void F() {\n  G();\n}\n");
  }
  // bazelw answers all further calls like this.
  void Bazel(int status, const std::string& output) {
    Write("output", output);
    Write("answer", StrCat("cat output\nexit ", status, "\n"));
  }
  std::vector<Standing> Judge() {
    return JudgeAll(root_.string(), {"00_first", "01_second", "02_third"}, log_);
  }

  // A quote and a space: the path goes through a shell.
  const fs::path root_ = fs::path(testing::TempDir()) / "it's a repository";
  std::ostringstream log_;
};

TEST_F(RepositoryTest, WhatIsUntouchedIsNotBuilt) {
  Write("lessons/01_second/exercise/b.cu", "void F()\n{\n\t// Your turn: Write.\r\n}");
  fs::remove(root_ / "lessons/02_third/exercise/b.cu");
  for (const Standing& standing : Judge()) {
    EXPECT_EQ(standing.verdict.state, State::kNotBegun) << standing.lesson;
    EXPECT_EQ(standing.file, "b.cu");
  }
  EXPECT_FALSE(fs::exists(root_ / "asked"));
  EXPECT_EQ(log_.str(), "");
}

TEST_F(RepositoryTest, WhatIsBegunIsBuiltWithTheLearnersFileAlone) {
  Solve("01_second");
  Bazel(0, "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n");
  const std::vector<Standing> standings = Judge();
  EXPECT_EQ(standings[0].verdict.state, State::kNotBegun);
  EXPECT_EQ(standings[1].verdict.state, State::kPassed);
  EXPECT_EQ(standings[1].verdict.num_checks, 1);
  EXPECT_EQ(standings[2].verdict.state, State::kNotBegun);
  const std::string asked = ReadTextFile((root_ / "asked").string());
  EXPECT_EQ(asked.find("test //tests:01_second_test --//:exercise=01_second "), 0u) << asked;
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 1);
  EXPECT_EQ(log_.str().find("checking 01_second (1 of 1) ... passed, "), 0u) << log_.str();
}

TEST_F(RepositoryTest, StatesComeFromBazel) {
  Solve("00_first");
  Bazel(3, kFailed);
  EXPECT_EQ(Judge()[0].verdict.detail, "RmsNormTest.IsRight/Version1");
  Bazel(1, "lessons/00_first/exercise/b.cu:2:3: error: 'G' was not declared in this scope\n");
  EXPECT_EQ(Judge()[0].verdict.state, State::kDoesNotCompile);
  Bazel(37, "");
  EXPECT_NE(ErrorOf([&] { Judge(); }).find("status 37"), std::string::npos);
}

// --- the board

Standing Of(const std::string& lesson, State state, const std::string& detail = "", int passed = 0,
            int num_checks = 0) {
  return {lesson, "b.cu", {state, passed, num_checks, detail}};
}

TEST(Board, ShowsEveryLessonAndTheFirstThatHasNotPassed) {
  const std::string board = Board(
      {Of("00_first", State::kPassed, "", 9, 9), Of("01_second", State::kFailing, "A.B/1", 7, 8),
       Of("02_third", State::kDoesNotCompile, "line 3: no"), Of("03_fourth", State::kNotBegun)},
      false);
  EXPECT_EQ(board,
            "lesson     your file  checks  state\n"
            "─────────  ─────────  ──────  ──────────────────────────────\n"
            "00_first   b.cu       9 of 9  ✓ passed\n"
            "01_second  b.cu       7 of 8  ✗ failing, first A.B/1\n"
            "02_third   b.cu               ✗ does not compile: line 3: no\n"
            "03_fourth  b.cu               · not begun\n"
            "\n"
            "███████░░░░░░░░░░░░░░░░░░░░░░░  1 of 4 passed\n"
            "\n"
            "Next: 01_second\n"
            "  read    docs/01_second.md\n"
            "  write   lessons/01_second/exercise/b.cu\n"
            "  check   bazel test //tests:01_second_test --//:exercise=01_second \\\n"
            "            --test_filter='A.B/1'\n"
            "  stuck?  bazel run //lessons:hint -- 01_second 1\n");
}

TEST(Board, WhatIsBegunIsNextThenWhatIsNot) {
  const auto next = [](const std::vector<Standing>& standings) {
    const std::string board = Board(standings, false);
    return board.substr(board.find("Next: "), 13);
  };
  const Standing passed = Of("00_aa", State::kPassed);
  const Standing untouched = Of("01_bb", State::kNotBegun);
  const Standing failing = Of("02_cc", State::kFailing);
  const Standing broken = Of("03_dd", State::kDoesNotCompile);
  EXPECT_EQ(next({passed, untouched, failing, broken}), "Next: 02_cc\n ");
  EXPECT_EQ(next({passed, untouched, broken}), "Next: 03_dd\n ");
  EXPECT_EQ(next({untouched, passed, Of("04_ee", State::kNotBegun)}), "Next: 01_bb\n ");
}

TEST(Board, HasAWordForTheEnd) {
  const std::string board = Board({Of("00_first", State::kPassed, "", 9, 9)}, false);
  EXPECT_NE(board.find("1 of 1 passed"), std::string::npos);
  EXPECT_NE(board.find("bazel run //final --//:exercise=all"), std::string::npos);
  EXPECT_EQ(board.find("Next"), std::string::npos);
}

TEST(Board, LongAndStrangeMessagesStayOnTheirLine) {
  std::string detail = "line 1: \x1b[31m";
  for (int i = 0; i < 100; ++i) detail += "é";
  const std::string board = Board({Of("00_first", State::kDoesNotCompile, detail)}, false);
  EXPECT_EQ(board.find('\x1b'), std::string::npos);
  std::istringstream lines(board);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 140u) << line;
  EXPECT_NE(board.find("é..."), std::string::npos) << board;
}

TEST(Board, ColoursTakeNoRoom) {
  const std::vector<Standing> standings = {Of("00_first", State::kPassed),
                                           Of("01_second", State::kFailing, "A.B")};
  const std::string plain = Board(standings, false);
  const std::string coloured = Board(standings, true);
  EXPECT_NE(plain, coloured);
  EXPECT_EQ(DisplayWidth(plain), DisplayWidth(coloured));
}

}  // namespace
}  // namespace tinyvllm
