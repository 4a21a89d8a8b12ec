#include "common/testing/guide.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/order.h"
#endif

namespace tinyvllm {
namespace {

constexpr int kLabelWidth = 14;             // "likely cause  "
constexpr size_t kMostShown = 16;           // numbers, or lines
constexpr double kMistakeTolerance = 0.01;  // what a mistake gives, is said to three digits

// Four significant digits.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  std::ostringstream out;
  out.precision(4);
  out << value;
  return out.str();
}

bool Near(double a, double b, double relative, double absolute) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(b)) return a == b;
  return std::abs(a - b) <= absolute + relative * std::abs(b);
}

// The first place where they differ, or the length where they do not.
size_t FirstDifference(const Values& actual, const Values& expected, double relative,
                       double absolute) {
  if (actual.are_words() != expected.are_words()) return 0;
  const size_t size = std::min(actual.size(), expected.size());
  for (size_t i = 0; i < size; ++i) {
    const bool same = actual.are_words()
                          ? actual.words()[i] == expected.words()[i]
                          : Near(actual.numbers()[i], expected.numbers()[i], relative, absolute);
    if (!same) return i;
  }
  return size;
}

bool Same(const Values& actual, const Values& expected, double relative, double absolute) {
  return actual.are_words() == expected.are_words() && actual.size() == expected.size() &&
         FirstDifference(actual, expected, relative, absolute) == actual.size();
}

// Words that are lines of a picture, a table or a text.
bool IsText(const Values& values) {
  return values.are_words() &&
         std::any_of(values.words().begin(), values.words().end(), [](const std::string& word) {
           return word.size() > 30 || word.find("  ") != std::string::npos;
         });
}

// (1, 2, 3, ...); what is long is shown around element `centre`. Lines after the first are
// indented.
std::string Show(const Values& values, int row, size_t centre) {
  const std::string newline = "\n" + std::string(kLabelWidth, ' ');
  const size_t size = values.size();
  if (size == 0) return "nothing";
  const std::vector<std::string>& words = values.words();
  if (values.are_words() && size == 1) return '"' + words[0] + '"';
  if (row > static_cast<int>(kMostShown)) row = 0;  // longer than a line
  const size_t step = row > 0 ? row : 1;
  size_t begin = 0, end = size;
  if (size > kMostShown && size > step * kMostShown / 2) {
    begin = centre > kMostShown / 2 ? centre - kMostShown / 2 : 0;
    begin -= begin % step;
    end = std::min(size, begin + std::max(step, kMostShown));
  }
  const bool lines = IsText(values);
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const bool first = row > 0 ? i % row == 0 : i == begin;
    if (i > begin) text += lines || (row > 0 && first) ? newline : " ";
    if (first && !lines) text += "(";
    text += !values.are_words() ? Number(values.numbers()[i])
            : lines             ? words[i]
                                : '"' + words[i] + '"';
    const bool last = i + 1 == end || (row > 0 && (i + 1) % row == 0);
    if (!lines) text += last ? ")" : ",";
  }
  if (begin > 0 || end < size) {
    text += StrCat(", elements ", begin, " to ", end - 1, " of ", size);
  }
  return text;
}

// Outputs are filled with ones before a run. As a bf16, an f32 or an f64 that is a NaN which no
// arithmetic makes by itself: all bits are set, of its sign, exponent and first digits.
bool IsUnwritten(double number) {
  uint64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits >> 45 == 0x7ffff;
}

// " and " + what is wrong about `got`, as a reader would say it.
std::string Where(const Values& got, const Values& expected, size_t wrong) {
  if (got.size() != expected.size()) {
    return StrCat(": ", got.size(), " of them, not ", expected.size());
  }
  if (got.size() == 1) return "";
  if (got.are_words() != expected.are_words()) return "";
  if (!got.are_words() && IsUnwritten(got.numbers()[wrong])) {
    return StrCat(": element ", wrong, " was not written, or is made of what was not");
  }
  if (!got.are_words() && std::isnan(got.numbers()[wrong])) {
    return StrCat(": element ", wrong, " is NaN");
  }
  return StrCat(": the first that is wrong is element ", wrong);
}

// GoogleTest's printer, until a test has failed: then it skips those that follow, and is silent.
class UntilTheFirstFailure : public testing::TestEventListener {
 public:
  explicit UntilTheFirstFailure(testing::TestEventListener* printer) : printer_(printer) {}

  void OnTestProgramStart(const testing::UnitTest&) override {}  // has been
  void OnTestIterationStart(const testing::UnitTest&, int) override {}
  void OnEnvironmentsSetUpStart(const testing::UnitTest&) override {}
  void OnEnvironmentsSetUpEnd(const testing::UnitTest&) override {}
  void OnTestSuiteStart(const testing::TestSuite& suite) override {
    if (!silent_) printer_->OnTestSuiteStart(suite);
  }
  void OnTestStart(const testing::TestInfo& test) override {
    if (!silent_) printer_->OnTestStart(test);
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!silent_) printer_->OnTestPartResult(result);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (silent_) return;
    printer_->OnTestEnd(test);
    if (!test.result()->Failed()) return;
    silent_ = true;
    GTEST_FLAG_SET(fail_fast, true);  // here, for a test's own flags end with it
    std::cout << "\nThe checks that follow are left out: mend this one first. "
                 "(--test_env=TINYVLLM_ALL_CHECKS=1 runs all.)"
              << std::endl;
  }
  void OnTestSuiteEnd(const testing::TestSuite& suite) override {
    if (!silent_) printer_->OnTestSuiteEnd(suite);
  }
  void OnEnvironmentsTearDownStart(const testing::UnitTest& all) override {
    if (!silent_) printer_->OnEnvironmentsTearDownStart(all);
  }
  void OnEnvironmentsTearDownEnd(const testing::UnitTest&) override {}
  void OnTestIterationEnd(const testing::UnitTest& all, int iteration) override {
    if (!silent_) printer_->OnTestIterationEnd(all, iteration);
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {}

 private:
  std::unique_ptr<testing::TestEventListener> printer_;
  bool silent_ = false;
};

// Of guided checks, the first that fails is the one to read: hundreds of lines of what follows from
// it would hide it.
void EndWithThisTest() {
  static const bool once = [] {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (std::getenv("TINYVLLM_ALL_CHECKS") != nullptr) return false;
    if (listeners.default_result_printer() == nullptr) return false;
    listeners.Append(
        new UntilTheFirstFailure(listeners.Release(listeners.default_result_printer())));
    return true;
  }();
  static_cast<void>(once);
}

Values InAnotherOrder(const std::function<Values()>& compute) {
#ifdef TINYVLLM_SIMULATOR
  Values values;
  simulator::InAnotherOrder([&] { values = compute(); });
  return values;
#else
  return compute();  // a GPU's order is not ours to choose
#endif
}

}  // namespace

Guide& Guide::Input(const std::string& name, const Values& values, int row) {
  if (!inputs_.empty()) inputs_ += "\n" + std::string(kLabelWidth, ' ');
  inputs_ += name + " = ";
  const bool one = values.size() == 1 && !values.are_words();
  for (char c : one ? Number(values.numbers()[0]) : Show(values, row, 0)) {
    inputs_ += c;
    if (c == '\n') inputs_ += std::string(name.size() + 3, ' ');  // a row below the other
  }
  return *this;
}

Guide& Guide::Mistake(std::string cause, Values gives, std::string section) {
  mistakes_.push_back({std::move(cause), std::move(gives), std::move(section)});
  return *this;
}

testing::AssertionResult Guide::Compare(const std::function<Values()>& compute,
                                        const Values& expected, double relative, double absolute,
                                        int row) {
  Values got, again;
  try {
    got = compute();
    again = InAnotherOrder(compute);
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const Known& known : thrown_) {
      if (message.find(known.gives.words()[0]) == std::string::npos) continue;
      return Failure(Show(expected, row, 0), "an error: " + message, known.cause,
                     known.section.empty() ? section_ : known.section);
    }
    return Failure(Show(expected, row, 0), "an error: " + message,
                   "what the error says; where the simulator found it, its report stands above",
                   section_);
  }
  const auto Differs = [&](const Values& values) {
    return FirstDifference(values, expected, relative, absolute);
  };
  const bool right = Same(got, expected, relative, absolute);
  if (right && Same(again, expected, relative, absolute)) return testing::AssertionSuccess();

  const Values& wrong = right ? again : got;
  const size_t at = std::min(Differs(wrong), expected.size() - 1);
  const std::string wanted = Show(expected, row, at);
  const std::string came = Show(wrong, row, at) + Where(wrong, expected, at);
  if (!Same(got, again, relative, absolute)) {
    const auto& [cause, unused, section] = order_matters_;
    return Failure(wanted, came,
                   StrCat(right ? "right in one order of threads, wrong in another: "
                                : "another order of threads gives other values: ",
                          cause.empty() ? "one thread reads what another writes, with no barrier "
                                          "in between: one is missing, or an index is wrong"
                                        : cause,
                          "; with --config=race in the command the two lines are named"),
                   section.empty() ? section_ : section);
  }
  const std::vector<double>& numbers = wrong.numbers();
  const auto Gives = [&](const Values& gives) {
    const bool exact = relative == 0 && absolute == 0;
    return Same(wrong, gives, exact ? 0 : std::max(relative, kMistakeTolerance), absolute);
  };
  const std::string begin = "nothing was written yet: " + start_;
  if (untouched_.size() > 0 && Gives(untouched_)) return Failure(wanted, came, begin, section_);
  for (const Known& mistake : mistakes_) {
    if (!Gives(mistake.gives)) continue;
    return Failure(wanted, came, mistake.cause + ": that gives just what came",
                   mistake.section.empty() ? section_ : mistake.section);
  }
  const bool nothing =
      wrong.size() == 0 ||
      (!wrong.are_words() && std::all_of(numbers.begin(), numbers.end(), IsUnwritten));
  if (nothing && !start_.empty()) return Failure(wanted, came, begin, section_);
  if (!wrong.are_words() && at < wrong.size() && std::isnan(numbers[at])) {
    return Failure(wanted, came,
                   "memory was read that nothing had written, which is NaN here, or 0 was divided "
                   "by 0; with --config=check in the command the line that read it is named",
                   section_);
  }
  return Failure(wanted, came,
                 otherwise_.empty() ? "none of the usual ones: compute the first wrong element by "
                                      "hand, as the page does, and compare each step"
                                    : otherwise_,
                 section_);
}

testing::AssertionResult Guide::Failure(const std::string& expected, const std::string& got,
                                        const std::string& cause,
                                        const std::string& section) const {
  EndWithThisTest();
  testing::AssertionResult result = testing::AssertionFailure() << "\n";
  if (!inputs_.empty()) result << "input         " << inputs_ << "\n";
  return result << "expected      " << expected << "\n"
                << "got           " << got << "\n"
                << "likely cause  " << cause << "\n"
                << "read          " << section << "\n";
}

}  // namespace tinyvllm
