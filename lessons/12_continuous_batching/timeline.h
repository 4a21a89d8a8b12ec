// Steps as a person sees them: planned for made-up lengths, counted, and drawn.
//
//   const std::vector<Step> steps = PlanSteps({{4, 9}, {4, 5}}, 2, 128, Refill::kAtOnce);
//   std::cout << DrawTimeline(steps, 2, 1);
//
//     step    1        10
//     slot 0  Aaaaaaaaa
//     slot 1  Bbbbb····
#pragma once

#include <string>
#include <vector>

#include "lessons/12_continuous_batching/slots.h"

namespace tinyvllm {

struct RequestLengths {
  int prompt_tokens;
  int chosen_tokens;  // at least 1; an end-of-text token counts, for it is chosen like the others
};

// The steps that requests of these lengths take, by the bookkeeping alone: nothing is computed.
std::vector<Step> PlanSteps(const std::vector<RequestLengths>& requests, int num_slots, int chunk,
                            Refill refill);

// The share of all slots in all steps that had work; 0 without steps.
double SlotUtilisation(const std::vector<Step>& steps, int num_slots);

// Tokens that went through the model.
int64_t TokensComputed(const std::vector<Step>& steps);

// A ruler, then a line a slot; a column stands for `steps_per_column` steps. A request is a letter
// (0: a, 25: z, 26: a again), a capital where a part of its prompt is in the column; · is a slot
// without work. A column shows the first prefill in it, else the first request.
std::string DrawTimeline(const std::vector<Step>& steps, int num_slots, int steps_per_column);

}  // namespace tinyvllm
