#include "lessons/12_continuous_batching/timeline.h"

#include <algorithm>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

constexpr int kStepsPerMark = 10;  // columns between two numbers of the ruler

// A 1, then the number of every tenth column.
std::string Ruler(int num_columns, int steps_per_column) {
  std::string ruler = "1";
  for (int column = kStepsPerMark; column <= num_columns; column += kStepsPerMark) {
    const std::string mark = std::to_string(column * steps_per_column);
    // The mark's last digit stands over its column.
    ruler.resize(std::max(ruler.size(), column - std::min<size_t>(column, mark.size())), ' ');
    ruler += mark;
  }
  return ruler;
}

std::string Letter(const SlotWork* work) {
  if (work == nullptr) return "·";
  return std::string(1, (work->is_prefill ? 'A' : 'a') + work->request % 26);
}

}  // namespace

// tag::plan[]
std::vector<Step> PlanSteps(const std::vector<RequestLengths>& requests, int num_slots, int chunk,
                            Refill refill) {
  SlotTable table(num_slots, chunk, refill);
  std::vector<int> left;
  for (size_t i = 0; i < requests.size(); ++i) {
    Check(requests[i].chosen_tokens >= 1, "request ", i, ": ", requests[i].chosen_tokens,
          " tokens to choose, expected at least 1");
    table.Add(i, requests[i].prompt_tokens);
    left.push_back(requests[i].chosen_tokens);
  }
  std::vector<Step> steps;
  while (!table.done()) {
    steps.push_back(table.NextStep());
    for (const SlotWork& work : steps.back()) {
      if (work.chooses_token && --left[work.request] == 0) table.Release(work.slot);
    }
  }
  return steps;
}
// end::plan[]

double SlotUtilisation(const std::vector<Step>& steps, int num_slots) {
  if (steps.empty()) return 0;
  double busy = 0;
  for (const Step& step : steps) busy += step.size();
  return busy / (static_cast<double>(steps.size()) * num_slots);
}

int64_t TokensComputed(const std::vector<Step>& steps) {
  int64_t tokens = 0;
  for (const Step& step : steps) {
    for (const SlotWork& work : step) tokens += work.num_tokens;
  }
  return tokens;
}

std::string DrawTimeline(const std::vector<Step>& steps, int num_slots, int steps_per_column) {
  Check(steps_per_column >= 1, "timeline: ", steps_per_column,
        " steps a column, expected 1 or more");
  const int num_steps = static_cast<int>(steps.size());
  const int num_columns = (num_steps + steps_per_column - 1) / steps_per_column;
  std::vector<std::vector<const SlotWork*>> cells(
      num_slots, std::vector<const SlotWork*>(num_columns, nullptr));
  for (int s = 0; s < num_steps; ++s) {
    for (const SlotWork& work : steps[s]) {
      const SlotWork*& cell = cells.at(work.slot)[s / steps_per_column];
      if (cell == nullptr || (work.is_prefill && !cell->is_prefill)) cell = &work;
    }
  }
  const size_t name_width = std::to_string(num_slots - 1).size();
  const std::string indent(name_width - 1, ' ');
  std::string text = "step  " + indent + "  " + Ruler(num_columns, steps_per_column) + "\n";
  for (int slot = 0; slot < num_slots; ++slot) {
    const std::string name = std::to_string(slot);
    text += "slot " + std::string(name_width - name.size(), ' ') + name + "  ";
    for (const SlotWork* work : cells[slot]) text += Letter(work);
    text += "\n";
  }
  return text;
}

}  // namespace tinyvllm
