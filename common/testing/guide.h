// A check that guides: when it fails it prints the input, what was expected, what came, the likely
// cause, and the section of the page that explains it.
//
//   EXPECT_TRUE(Guide("docs/04_rmsnorm.md#the-mathematics")
//                   .Input("x", x)
//                   .Input("epsilon", 1e-5f)
//                   .Start("write RmsNormTreeKernel in lessons/04_rmsnorm/exercise/rmsnorm.cu")
//                   .Mistake("the squares' sum was not divided by their number", {0.26, -0.53})
//                   .Compare([&] { return Compute(x); }, expected, kRelative));
//
//   input         x = (1, -2)
//                 epsilon = 1e-05
//   expected      (0.632, -1.265)
//   got           (0.447, -0.894), wrong from element 0 on
//   likely cause  the squares' sum was not divided by their number: that gives just what came
//   read          docs/04_rmsnorm.md#the-mathematics
//
// A mistake is recognised by its result: the numbers that one gets who makes it. So choose inputs
// for which each mistake gives other numbers, and let the check compute them, where it can, from
// the reference with the mistake in it.
//
// On the simulator what `compute` launches runs twice, the second time in another order of threads
// and blocks: a result that hangs on the order lacks a barrier, and fails even where the first was
// right.
//
// The first guided check that fails is the last that runs, for those that follow would mostly
// repeat it at length. With $TINYVLLM_ALL_CHECKS set, all run, as the board wants it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/testing/tolerance.h"

namespace tinyvllm {

// What a guided check shows and compares: numbers, or words (texts, names, lines of a picture).
class Values {
 public:
  Values() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Values(T number) : numbers_{ToDouble(number)} {}                     // NOLINT: by design
  Values(const char* text) : words_{text}, are_words_(true) {}         // NOLINT
  Values(const std::string& text) : words_{text}, are_words_(true) {}  // NOLINT
  Values(std::vector<std::string> words) : words_(std::move(words)), are_words_(true) {}  // NOLINT
  Values(std::initializer_list<double> numbers) : numbers_(numbers) {}                    // NOLINT
  template <typename T>
  Values(const std::vector<T>& numbers) {  // NOLINT
    for (const T& number : numbers) numbers_.push_back(ToDouble(number));
  }

  bool are_words() const { return are_words_; }
  size_t size() const { return are_words_ ? words_.size() : numbers_.size(); }
  const std::vector<double>& numbers() const { return numbers_; }
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<double> numbers_;
  std::vector<std::string> words_;
  bool are_words_ = false;
};

class Guide {
 public:
  // `section`: page and heading, as "docs/04_rmsnorm.md#pitfalls"; tools/docs/links.py checks it.
  explicit Guide(std::string section) : section_(std::move(section)) {}

  // `row`: numbers a row of a matrix; 0: all in one.
  Guide& Input(const std::string& name, const Values& values, int row = 0);

  // Where to start, for the one who has written nothing yet: shown when no element was written, or
  // when `untouched` comes, for what is not NaN beforehand.
  Guide& Start(std::string where, Values untouched = {}) {
    start_ = std::move(where);
    untouched_ = std::move(untouched);
    return *this;
  }

  // A mistake and what it gives. `section`: where it is explained, if not where the rest is.
  Guide& Mistake(std::string cause, Values gives, std::string section = "");

  // The cause when another order of threads gives other values, if it is not what is said without
  // this ("" keeps that), and where it is explained.
  Guide& WhenOrderMatters(std::string cause, std::string section = "") {
    order_matters_ = {std::move(cause), {}, std::move(section)};
    return *this;
  }

  // The cause when compute() throws a message with `part` in it, and where that is explained.
  Guide& WhenThrown(std::string part, std::string cause, std::string section = "") {
    thrown_.push_back({std::move(cause), Values(std::move(part)), std::move(section)});
    return *this;
  }

  // The same, whatever the message.
  Guide& WhenRefused(std::string cause) { return WhenThrown("", std::move(cause)); }

  // The cause when no mistake fits.
  Guide& Otherwise(std::string cause) { return otherwise_ = std::move(cause), *this; }

  // Passes when compute() gives `expected`: numbers to within absolute + relative * |expected|
  // each, words exactly. What compute() throws is a failure that shows its message. `row` as for
  // Input.
  testing::AssertionResult Compare(const std::function<Values()>& compute, const Values& expected,
                                   double relative = 0, double absolute = 0, int row = 0);

 private:
  struct Known {
    std::string cause;
    Values gives;
    std::string section;
  };

  testing::AssertionResult Failure(const std::string& expected, const std::string& got,
                                   const std::string& cause, const std::string& section) const;

  std::string section_;
  std::string inputs_;
  std::string start_;
  Values untouched_;
  std::vector<Known> mistakes_;
  Known order_matters_;
  std::vector<Known> thrown_;  // `gives`: part of the message
  std::string otherwise_;
};

}  // namespace tinyvllm
