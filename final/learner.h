// Whose code this program runs: lessons whose exercise has been swapped in by --//:exercise.
//
//   const std::vector<std::string> lessons = LearnersLessons();
//   options.engine.earlier = StagesOf(lessons);
//   std::cerr << DescribeLearnersCode(lessons);
//
// Most lessons are called by the engine as it is, whoever wrote them. What later lessons have
// replaced (07 and 10 by 13, 12 by 14, and 06's tiles by its call of cuBLAS) is put back for a
// learner who has written it. Only lesson 00 has no place in an engine.
#pragma once

#include <string>
#include <vector>

#include "lessons/14_engine/engine.h"

namespace tinyvllm {

// The lessons that --//:exercise named when this was built, in their order.
std::vector<std::string> LearnersLessons();

// What the engine must do for the code of all of them to run in it.
EarlierLessons StagesOf(const std::vector<std::string>& lessons);

// "with your code: 04_rmsnorm, 07_attention (in place of lesson 13's)\n"; nothing for no lessons.
std::string DescribeLearnersCode(const std::vector<std::string>& lessons);

// After a failure: which checks may say why. Nothing for no lessons.
std::string WhereToLook(const std::vector<std::string>& lessons);

}  // namespace tinyvllm
