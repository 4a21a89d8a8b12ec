#include "lessons/14_engine/challenge/prefix_order.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tinyvllm {

// Your turn: Take the prompts that are alike so far, divide them by their next block, put the groups
// in order, and do the same within each. Where do those go that have no next block?
std::vector<size_t> PrefixOrder(const std::vector<std::vector<int>>&, int,
                                const std::function<int(const std::vector<int>&)>&) {
  return {};
}

}  // namespace tinyvllm
