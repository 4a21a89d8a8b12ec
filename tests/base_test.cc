// Checks of common/base: errors, files, data paths, tables, main.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/testing/expect_error.h"

namespace tinyvllm {
namespace {

std::string TempFile(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// The message of the Error that `call` throws; a failure when it throws none.
TEST(Error, JoinsItsParts) {
  EXPECT_EQ(ErrorOf([] { Check(1 > 2, "tensor ", "w", ": ", 3, " rows, expected ", 4); }),
            "tensor w: 3 rows, expected 4");
  EXPECT_NO_THROW(Check(true, "unused"));
}

TEST(MappedFile, ShowsTheBytes) {
  const MappedFile file(TempFile("bytes", std::string("a\0b", 3)));
  EXPECT_EQ(file.bytes(), std::string_view("a\0b", 3));
}

TEST(MappedFile, EmptyFileIsAnEmptyView) {
  EXPECT_EQ(MappedFile(TempFile("empty", "")).size(), 0u);
}

TEST(MappedFile, SaysWhatCannotBeOpened) {
  const std::string missing = testing::TempDir() + "no_such_file";
  EXPECT_EQ(ErrorOf([&] { MappedFile file(missing); }),
            missing + ": cannot be opened: No such file or directory");
  EXPECT_EQ(ErrorOf([&] { MappedFile file(testing::TempDir()); }),
            testing::TempDir() + ": is not a regular file");
}

TEST(MappedFile, DoesNotWaitForAPipe) {
  const std::string pipe = testing::TempDir() + "pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf([&] { MappedFile file(pipe); }), pipe + ": is not a regular file");
}

TEST(MappedFile, MovesOwnership) {
  MappedFile first(TempFile("moved", "xyz"));
  const MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes(), "xyz");
  EXPECT_EQ(first.size(), 0u);
}

TEST(ReadTextFile, RefusesWhatIsTooLarge) {
  const std::string path = TempFile("large", "12345");
  EXPECT_EQ(ReadTextFile(path, 5), "12345");
  EXPECT_EQ(ErrorOf([&] { ReadTextFile(path, 4); }), path + ": holds 5 bytes, expected at most 4");
}

TEST(DataPath, FindsBelowTheGivenFolderFirst) {
  TempFile("some_data", "here");
  setenv("TINYVLLM_DATA_DIR", testing::TempDir().c_str(), 1);
  EXPECT_EQ(ReadTextFile(DataPath("some_data")), "here");
  unsetenv("TINYVLLM_DATA_DIR");
}

TEST(DataPath, ListsThePlacesTried) {
  const std::string message = ErrorOf([] { DataPath("no/such/data"); });
  EXPECT_NE(message.find("no/such/data: not found below any of: /"), std::string::npos) << message;
  EXPECT_NE(message.find("TINYVLLM_DATA_DIR"), std::string::npos) << message;
}

TEST(HumanBytes, KeepsThreeDigits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1000), "1.00 kB");
  EXPECT_EQ(HumanBytes(12345678), "12.3 MB");
  EXPECT_EQ(HumanBytes(999600), "1.00 MB");
  EXPECT_EQ(HumanBytes(2.47e9), "2.47 GB");
}

TEST(TextTable, AlignsNumbersRightAndTextLeft) {
  TextTable table({"name", "GB/s"});
  table.AddRow({"é", "9"});
  table.AddRow({"tree", "812"});
  EXPECT_EQ(table.ToString(), "name  GB/s\n────  ────\né        9\ntree   812\n");
  EXPECT_EQ(ErrorOf([&] { table.AddRow({"one"}); }), "table row: 1 cells, expected 2");
}

TEST(DisplayWidth, IgnoresColourCodes) { EXPECT_EQ(DisplayWidth("\x1b[1;31mred\x1b[0m"), 3u); }

TEST(CommandLine, NamesTheUnknownFlag) {
  CommandLine command_line("A program.");
  const char* argv[] = {"program", "--no-such-flag"};
  const std::string message = ErrorOf([&] { command_line.Parse(2, const_cast<char**>(argv)); });
  EXPECT_NE(message.find("--no-such-flag"), std::string::npos) << message;
  EXPECT_NE(message.find("--help"), std::string::npos) << message;
}

// The message that --number TEXT leads to; "" when it is taken.
std::string NumberError(const char* text) {
  CommandLine command_line("A program.");
  int number = 0;
  command_line.app().add_option("--number", number)->check(AtLeast(1));
  const char* argv[] = {"program", "--number", text};
  try {
    command_line.Parse(3, const_cast<char**>(argv));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CommandLine, AtLeastSaysWhatIsExpected) {
  EXPECT_EQ(NumberError("1"), "");
  EXPECT_EQ(NumberError("2147483647"), "");
  for (const std::string text :
       {"0", "-3", "", "x", "1.5", "010", "2147483648", "99999999999999999999"}) {
    const std::string message = NumberError(text.c_str());
    EXPECT_NE(message.find("'" + text + "', expected a whole number from 1 to 2147483647"),
              std::string::npos)
        << message;
  }
}

TEST(CommandLine, NotEmptyRefusesAnEmptyPath) {
  CommandLine command_line("A program.");
  std::string path;
  command_line.app().add_option("--path", path)->check(NotEmpty());
  const char* argv[] = {"program", "--path", ""};
  const std::string message = ErrorOf([&] { command_line.Parse(3, const_cast<char**>(argv)); });
  EXPECT_NE(message.find("--path: is empty"), std::string::npos) << message;
}

TEST(Quote, IsOneShortLine) {
  EXPECT_EQ(Quote("a\nb\x1b\"\\"), "\"a\\x0ab\\x1b\\\"\\\\\"");
  EXPECT_EQ(Quote("é"), "\"é\"");
  EXPECT_EQ(Quote("12345", 3), "\"123...\"");
  EXPECT_EQ(EscapeControls("a\r\n\x7f"), "a\\x0d\\x0a\\x7f");
}

TEST(Json, RefusesWithThePlace) {
  EXPECT_EQ(ParseJson("{\"a\": [1]}")["a"][0], 1);
  for (const char* text : {"", "{", "[1,]", "\"\xff\"", "nul", "1 2", "1e999"}) {
    EXPECT_EQ(ErrorOf([&] { ParseJson(text); }).rfind("is not JSON", 0), 0u) << text;
  }
  EXPECT_EQ(ParseJson(R"({"a": 1, "a": 2})")["a"], 2);
  EXPECT_EQ(ErrorOf([] { ParseJson(R"([{"a": 1, "a": 2}])", RepeatedKeys::kRefused); }),
            "\"a\" is there twice");
  EXPECT_NO_THROW(
      ParseJson(R"([{"a": {"a": 1}, "b": {"a": 1}}, {"a": 1}])", RepeatedKeys::kRefused));
  EXPECT_EQ(ErrorOf([] { ParseJson("[1, x]"); }), "is not JSON at byte 5: invalid literal");
  EXPECT_EQ(ErrorOf([] { ParseJson("1e999"); }), "is not JSON: number overflow parsing '1e999'");
  const std::string long_text = "\"" + std::string(1 << 20, 'a');
  EXPECT_LT(ErrorOf([&] { ParseJson(long_text); }).size(), 200u) << "the text is not repeated";
}

TEST(Json, RefusesDeepNestingBeforeItTakesStack) {
  const std::string deep(5'000'000, '[');
  EXPECT_NE(ErrorOf([&] { ParseJson(deep); }).find("nests deeper than 32"), std::string::npos);
  EXPECT_NO_THROW(ParseJson("[\"" + deep + "\"]")) << "brackets in a string are text";
}

TEST(Json, ShowsValuesInOneShortLine) {
  EXPECT_EQ(ShowJson("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(ShowJson(-1.5), "-1.5");
  EXPECT_EQ(ShowJson(nlohmann::json::array({1, "é"})), "[1,\"\\u00e9\"]");
  EXPECT_LT(ShowJson(std::string(1000, 'x')).size(), 70u);
}

TEST(Json, IntegersDoNotWrap) {
  EXPECT_TRUE(IsIntIn(5, 0, 5));
  EXPECT_TRUE(IsIntIn(5u, -1, 5));
  EXPECT_TRUE(IsIntIn(-1, -1, 5));
  EXPECT_FALSE(IsIntIn(6, 0, 5));
  EXPECT_FALSE(IsIntIn(-2, -1, 5));
  EXPECT_FALSE(IsIntIn(18446744073709551615u, -1, 5)) << "which is -1 as a signed number";
  EXPECT_FALSE(IsIntIn(1u, 2, 5));
  EXPECT_FALSE(IsIntIn(1.0, 0, 5));
  EXPECT_FALSE(IsIntIn("1", 0, 5));
}

TEST(RunMain, AnErrorIsOneLine) {
  testing::internal::CaptureStderr();
  RunMain(0, nullptr, [](int, char**) -> int { throw Error("a\nb"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tiny-vllm: a\\x0ab\n");
}

TEST(RunMain, ErrorsBecomeStatusTwo) {
  char name[] = "/path/to/program";
  char* argv[] = {name, nullptr};
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunMain(1, argv, [](int, char**) -> int { throw Error("what went wrong"); }), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "program: what went wrong\n");
  EXPECT_EQ(RunMain(1, argv, [](int, char**) { return 1; }), 1);
}

TEST(RunMain, StandsWhereBazelRunWasCalled) {
  const std::string before = std::filesystem::current_path().string();
  setenv("BUILD_WORKING_DIRECTORY", "/", 1);
  EXPECT_EQ(RunMain(0, nullptr,
                    [](int, char**) {
                      EXPECT_EQ(std::filesystem::current_path(), "/");
                      return 0;
                    }),
            0);
  unsetenv("BUILD_WORKING_DIRECTORY");
  std::filesystem::current_path(before);
}

TEST(Progress, IsSilentForShortWorkInALog) {
  testing::internal::CaptureStderr();
  {
    Progress progress("working", 10);
    for (int i = 0; i < 10; ++i) progress.Advance();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, DrawsABarOnATerminal) {
  int terminal = -1, slave = -1;
  if (openpty(&terminal, &slave, nullptr, nullptr, nullptr) != 0)
    GTEST_SKIP() << "no terminals here";
  const int before = dup(STDERR_FILENO);
  dup2(slave, STDERR_FILENO);
  {
    Progress progress("working", 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    progress.Advance(5);
    progress.Advance(5);  // too soon to be drawn, but for the end
  }
  dup2(before, STDERR_FILENO);
  close(before);
  close(slave);
  std::string drawn(4096, '\0');
  const ssize_t size = read(terminal, drawn.data(), drawn.size());
  close(terminal);
  ASSERT_GT(size, 0);
  drawn.resize(size);
  EXPECT_NE(drawn.find("working  [============>           ]   50%  5 of 10"), std::string::npos)
      << drawn;
  EXPECT_NE(drawn.find("working  [========================]  100%  10 of 10"), std::string::npos)
      << drawn;
}

}  // namespace
}  // namespace tinyvllm
