#include "final/learner.h"

#include <algorithm>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

bool Contains(const std::vector<std::string>& lessons, const char* lesson) {
  return std::find(lessons.begin(), lessons.end(), lesson) != lessons.end();
}

// Where in the engine the lesson's code runs, if that is not where it runs anyway.
std::string Place(const std::string& lesson, const EarlierLessons& stages) {
  if (lesson == "00_first_kernel") return "no part of an engine";
  if (lesson == "06_matmul") return "your tiles after attention, your cuBLAS call elsewhere";
  if (lesson == "07_attention" || lesson == "10_kv_cache") {
    return stages.paged_too ? "in every second layer" : "in place of lesson 13's kernels";
  }
  if (lesson == "13_paged_attention" && stages.attention) return "in every second layer";
  if (lesson == "12_continuous_batching") return "your slots before lesson 14's scheduler";
  return "";
}

}  // namespace

std::vector<std::string> LearnersLessons() {
  return {
#include "final/exercise_names.inc"
  };
}

// tag::stages[]
EarlierLessons StagesOf(const std::vector<std::string>& lessons) {
  EarlierLessons stages;
  stages.matmul = Contains(lessons, "06_matmul");
  stages.attention = Contains(lessons, "07_attention") || Contains(lessons, "10_kv_cache");
  stages.paged_too = stages.attention && Contains(lessons, "13_paged_attention");
  stages.slot_table = Contains(lessons, "12_continuous_batching");
  return stages;
}
// end::stages[]

std::string DescribeLearnersCode(const std::vector<std::string>& lessons) {
  const EarlierLessons stages = StagesOf(lessons);
  std::string text;
  for (const std::string& lesson : lessons) {
    const std::string place = Place(lesson, stages);
    text += (text.empty() ? "with your code: " : ", ") + lesson;
    if (!place.empty()) text += " (" + place + ")";
  }
  return text.empty() ? text : text + "\n";
}

std::string WhereToLook(const std::vector<std::string>& lessons) {
  std::string text;
  for (const std::string& lesson : lessons) {
    text += (text.empty() ? "Part of this is your code. Do its checks pass?\n" : "") +
            StrCat("  bazel test //tests:", lesson, "_test --//:exercise=", lesson, "\n");
  }
  return text;
}

}  // namespace tinyvllm
