#include "tools/exercise/exercise_text.h"

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/base/mapped_file.h"

namespace tinyvllm {
namespace {

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

}  // namespace

ExerciseText ReadExercise(const std::string& path) {
  enum class At { kOutside, kInstructions, kSolution };
  At at = At::kOutside;
  bool has_exercise = false;
  ExerciseText text;
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
      text.starter += margin + "// Your turn: " + std::string(content.substr(kBegin.size())) + "\n";
    } else if (content == kEnd) {
      Check(at != At::kOutside, path, ":", number, ": `", kEnd, "` without `", kBegin, "`");
      at = At::kOutside;
    } else if (at == At::kOutside) {
      text.starter += line + "\n";
    } else if (StartsWith(content, kStarter)) {
      const std::string_view code = content.substr(kStarter.size());
      text.starter += margin + std::string(code.substr(std::min<size_t>(1, code.size()))) + "\n";
    } else if (at == At::kInstructions && StartsWith(content, "//")) {
      text.starter += line + "\n";
    } else {
      at = At::kSolution;
      text.solution.push_back(line);
    }
  }
  Check(at == At::kOutside, path, ": an exercise without `", kEnd, "`");
  if (!has_exercise) text.starter.clear();
  return text;
}

}  // namespace tinyvllm
