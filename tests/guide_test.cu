// Checks of the checks that guide: what a learner reads when one fails.
#include "common/testing/guide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"
#include "common/cuda/device.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/checks.h"
#endif

namespace tinyvllm {
namespace {

constexpr char kSection[] = "docs/04_rmsnorm.md#the-mathematics";

std::string FailureOf(const testing::AssertionResult& result) {
  EXPECT_FALSE(result);
  return result.message();
}

Guide Squares() {
  Guide guide(kSection);
  guide.Input("x", {1, 2, 3})
      .Start("write Square in lessons/04_rmsnorm/exercise/rmsnorm.cu")
      .Mistake("x was doubled, not squared", {2, 4, 6}, "docs/05_rope.md#the-mathematics")
      .Mistake("x was left as it is", {1, 2, 3});
  return guide;
}

std::string SquaresGive(const Values& got) {
  return FailureOf(Squares().Compare([&] { return got; }, {1, 4, 9}, 1e-3));
}

TEST(Guide, PassesWhatIsWithinTheTolerance) {
  EXPECT_TRUE(Guide(kSection).Compare([] { return Values{1, 2.001}; }, {1, 2}, 1e-3));
  EXPECT_FALSE(Guide(kSection).Compare([] { return Values{1, 2.003}; }, {1, 2}, 1e-3));
  EXPECT_TRUE(Guide(kSection).Compare([] { return Values{1e-9}; }, {0}, 0, 1e-8));
  EXPECT_TRUE(Guide(kSection).Compare([] { return Values("a"); }, "a"));
  EXPECT_FALSE(Guide(kSection).Compare([] { return Values{1}; }, {INFINITY}, 1e-3));
  EXPECT_TRUE(Guide(kSection).Compare([] { return Values{INFINITY}; }, {INFINITY}, 1e-3));
  EXPECT_FALSE(Guide(kSection).Compare([] { return Values{1, 2}; }, {1, 2, 3}));
  EXPECT_FALSE(Guide(kSection).Compare([] { return Values{NAN}; }, {1}));
  EXPECT_FALSE(Guide(kSection).Compare([] { return Values("1"); }, {1}));
}

TEST(Guide, NamesTheMistakeThatGivesWhatCame) {
  EXPECT_EQ(SquaresGive({2, 4, 6}),
            "\n"
            "input         x = (1, 2, 3)\n"
            "expected      (1, 4, 9)\n"
            "got           (2, 4, 6): the first that is wrong is element 0\n"
            "likely cause  x was doubled, not squared: that gives just what came\n"
            "read          docs/05_rope.md#the-mathematics\n");
  EXPECT_NE(SquaresGive({1, 2, 3.01}).find("left as it is"), std::string::npos);
}

// What a test's buffer holds before anything is written to it.
double Unwritten() {
  float poison;
  std::memset(&poison, 0xff, sizeof poison);
  return poison;
}

TEST(Guide, SaysWhereToStart) {
  const std::string failure = SquaresGive(std::vector<double>(3, Unwritten()));
  EXPECT_NE(failure.find("likely cause  nothing was written yet: write Square in lessons/"),
            std::string::npos)
      << failure;
  const std::string half = SquaresGive({1, 4, Unwritten()});
  EXPECT_NE(half.find("element 2 was not written, or is made of what was not"), std::string::npos)
      << half;
  EXPECT_EQ(half.find("nothing was written"), std::string::npos) << half;
  const std::string computed = SquaresGive({NAN, NAN, NAN});
  EXPECT_NE(computed.find("likely cause  memory was read that nothing had written"),
            std::string::npos)
      << computed;
  EXPECT_EQ(computed.find("nothing was written"), std::string::npos) << computed;

  const auto InPlace = [](const Values& got) {
    return FailureOf(
        Guide(kSection).Start("write Square", {1, 2, 3}).Compare([&] { return got; }, {1, 4, 9}));
  };
  EXPECT_NE(InPlace({1, 2, 3}).find("nothing was written yet: write Square"), std::string::npos);
  EXPECT_EQ(InPlace({1, 2, 4}).find("nothing was written yet"), std::string::npos);
}

TEST(Guide, ANanThatWasForeseenIsNotTakenForUnwritten) {
  const std::string failure =
      FailureOf(Squares()
                    .Mistake("infinity divided by infinity", {NAN, NAN, NAN})
                    .Compare([] { return std::vector<double>(3, NAN); }, {1, 4, 9}));
  EXPECT_NE(failure.find("likely cause  infinity divided by infinity"), std::string::npos)
      << failure;
}

TEST(Guide, HasAWordForWhatItDoesNotKnow) {
  EXPECT_NE(SquaresGive({7, 7, 7}).find("none of the usual ones"), std::string::npos);
  const std::string failure = FailureOf(Squares()
                                            .Otherwise("the wrong root")
                                            .Compare(
                                                [] {
                                                  return Values{7, 7, 7};
                                                },
                                                {1, 4, 9}));
  EXPECT_NE(failure.find("likely cause  the wrong root\nread          docs/04"), std::string::npos);
}

TEST(Guide, ShowsWhatIsThrown) {
  const std::string failure =
      FailureOf(Squares().Compare([]() -> Values { throw Error("no kernel"); }, {1, 4, 9}));
  EXPECT_NE(failure.find("got           an error: no kernel\n"), std::string::npos) << failure;
  const std::string own =
      FailureOf(Guide(kSection)
                    .WhenRefused("too short a row")
                    .Compare([]() -> Values { throw Error("no kernel"); }, {1}));
  EXPECT_NE(own.find("likely cause  too short a row\n"), std::string::npos) << own;
  const std::string known =
      FailureOf(Squares()
                    .WhenThrown("no grid", "the grid is missing")
                    .WhenThrown("no kernel", "the kernel is missing", "docs/05_rope.md#pitfalls")
                    .Compare([]() -> Values { throw Error("no kernel"); }, {1, 4, 9}));
  EXPECT_NE(known.find("likely cause  the kernel is missing\n"
                       "read          docs/05_rope.md#pitfalls"),
            std::string::npos)
      << known;
}

TEST(Guide, ShowsALongVectorWhereItIsWrong) {
  std::vector<float> expected(100), got(100);
  for (int i = 0; i < 100; ++i) expected[i] = got[i] = static_cast<float>(i);
  got[60] = -1;
  const std::string failure = FailureOf(Guide(kSection).Compare([&] { return got; }, expected));
  const std::string part =
      "got           (52, 53, 54, 55, 56, 57, 58, 59, -1, 61, 62, 63, 64, 65, 66, 67), elements 52 "
      "to 67 of 100: the first that is wrong is element 60";
  EXPECT_NE(failure.find(part), std::string::npos) << failure;
  const std::string wide =
      FailureOf(Guide(kSection).Compare([&] { return got; }, expected, 0, 0, 50));
  EXPECT_NE(wide.find(part), std::string::npos) << wide;
}

TEST(Guide, ShowsMatricesARowALine) {
  const std::string failure = FailureOf(Guide(kSection)
                                            .Input("m", {1, 2, 3, 4}, 2)
                                            .Input("n", 4)
                                            .Compare(
                                                [] {
                                                  return Values{1, 2, 3, 5};
                                                },
                                                {1, 2, 3, 4}, 0, 0, 2));
  EXPECT_NE(failure.find("input         m = (1, 2)\n"
                         "                  (3, 4)\n"
                         "              n = 4\n"
                         "expected      (1, 2)\n"
                         "              (3, 4)\n"),
            std::string::npos)
      << failure;
}

TEST(Guide, ComparesWords) {
  const std::string failure =
      FailureOf(Guide(kSection)
                    .Input("text", "a b")
                    .Mistake("the space was dropped", std::vector<std::string>{"a", "b"})
                    .Compare(
                        [] {
                          return std::vector<std::string>{"a", "b"};
                        },
                        std::vector<std::string>{"a", " b"}));
  EXPECT_NE(failure.find("input         text = \"a b\"\n"
                         "expected      (\"a\", \" b\")\n"
                         "got           (\"a\", \"b\"): the first that is wrong is element 1\n"
                         "likely cause  the space was dropped"),
            std::string::npos)
      << failure;
}

TEST(Guide, ShowsLinesOfAPictureBelowEachOther) {
  const std::vector<std::string> right = {"slot 0  Aaa", "slot 1  Bb-"};
  const std::string failure = FailureOf(Guide(kSection).Compare(
      [] {
        return std::vector<std::string>{"slot 0  Aaa", "slot 1  ---"};
      },
      right));
  EXPECT_NE(failure.find("expected      slot 0  Aaa\n              slot 1  Bb-\n"),
            std::string::npos)
      << failure;
}

TEST(Guide, WhatIsComparedExactlyIsMistakenExactly) {
  const std::string failure = FailureOf(
      Guide(kSection).Mistake("one too many", {1001}).Compare([] { return Values{1002}; }, {1000}));
  EXPECT_EQ(failure.find("one too many"), std::string::npos) << failure;
}

#ifdef TINYVLLM_SIMULATOR

// Each thread reads what its left neighbour wrote; with no barrier, right in the natural order
// only.
__global__ void LeftNeighbourKernel(int* out, bool waits) {
  __shared__ int numbers[64];
  numbers[threadIdx.x] = threadIdx.x;
  if (waits) __syncthreads();
  out[threadIdx.x] = threadIdx.x == 0 ? 0 : numbers[threadIdx.x - 1];
}

testing::AssertionResult LeftNeighbours(bool waits, const std::string& cause = "") {
  std::vector<int> expected(64);
  for (int i = 1; i < 64; ++i) expected[i] = i - 1;
  return Guide(kSection)
      .WhenOrderMatters(cause, "docs/05_rope.md#the-mathematics")
      .Compare(
          [waits] {
            DeviceBuffer<int> out(64);
            LeftNeighbourKernel<<<1, 64>>>(out.data(), waits);
            CUDA_CHECK_LAUNCH();
            return out.ToHost();
          },
          expected);
}

TEST(Guide, FindsWhatIsRightInOneOrderOnly) {
  if (simulator::FindsRaces()) GTEST_SKIP() << "the race detector comes first";
  EXPECT_TRUE(LeftNeighbours(true));
  const std::string failure = FailureOf(LeftNeighbours(false));
  EXPECT_NE(failure.find("with no barrier in between"), std::string::npos) << failure;
  const std::string own = FailureOf(LeftNeighbours(false, "two threads write one element"));
  EXPECT_NE(own.find("wrong in another: two threads write one element; with --config=race in the "
                     "command the two lines are named\nread          docs/05"),
            std::string::npos)
      << own;
}

#endif

}  // namespace
}  // namespace tinyvllm
