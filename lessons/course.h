// The lessons by their names, and where the parts of each lie.
//
//   const std::string lesson = FindLesson("04");           // "04_rmsnorm"
//   const std::string page = PageOf(lesson);               // "docs/04_rmsnorm.md"
//   ExerciseFile("/home/me/tiny-vllm", lesson);            // "rmsnorm.cu"
#pragma once

#include <string>
#include <vector>

namespace tinyvllm {

// In their order, as bazel/lessons.bzl lists them.
const std::vector<std::string>& LessonNames();

// The lesson that `text` means: 04_rmsnorm, 04, 4 or rmsnorm. Throws Error, with all names, when
// there is none.
std::string FindLesson(const std::string& text);

// The lesson's page, from the repository's root.
std::string PageOf(const std::string& lesson);

// The name of the lesson's source that has an exercise; `root` is the repository's folder. The
// learner's file has the same name, in exercise/. Throws Error when there is none.
std::string ExerciseFile(const std::string& root, const std::string& lesson);

}  // namespace tinyvllm
