#include "lessons/course.h"

#include <algorithm>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "tools/exercise/exercise_text.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// Of "04_rmsnorm": the 2 digits, and what follows the underscore.
std::string NumberOf(const std::string& lesson) { return lesson.substr(0, lesson.find('_')); }
std::string WordOf(const std::string& lesson) { return lesson.substr(lesson.find('_') + 1); }

}  // namespace

const std::vector<std::string>& LessonNames() {
  static const auto& names = *new std::vector<std::string>{
#include "lessons/lesson_names.inc"
  };
  return names;
}

std::string FindLesson(const std::string& text) {
  const std::string number = text.size() == 1 ? "0" + text : text;
  std::string known;
  for (const std::string& lesson : LessonNames()) {
    if (text == lesson || number == NumberOf(lesson) || text == WordOf(lesson)) return lesson;
    known += (known.empty() ? "" : ", ") + lesson;
  }
  throw Error("no lesson ", Quote(text), "; expected one of ", known, ", or its number or word");
}

std::string PageOf(const std::string& lesson) { return "docs/" + lesson + ".md"; }

std::string ExerciseFile(const std::string& root, const std::string& lesson) {
  const fs::path folder = fs::path(root) / "lessons" / lesson;
  Check(fs::is_directory(folder), folder.string(), ": is not a folder, expected lesson ", lesson);
  std::vector<fs::path> sources;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string extension = file.path().extension().string();
    if (extension == ".cu" || extension == ".cc") sources.push_back(file.path());
  }
  std::sort(sources.begin(), sources.end());
  for (const fs::path& source : sources) {
    if (!ReadExercise(source.string()).starter.empty()) return source.filename().string();
  }
  throw Error(folder.string(), ": no source has an exercise");
}

}  // namespace tinyvllm
