#include "lessons/14_engine/challenge/prefix_order.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tinyvllm {

// exercise: Take the prompts that are alike so far, divide them by their next block, put the groups
// in order, and do the same within each. Where do those go that have no next block?
// starter: std::vector<size_t> PrefixOrder(const std::vector<std::vector<int>>&, int,
// starter:                                 const std::function<int(const std::vector<int>&)>&) {
// starter:   return {};
// starter: }
namespace {

using Numbers = std::vector<size_t>;

class Sorter {
 public:
  Sorter(const std::vector<std::vector<int>>& prompts, int block_size,
         const std::function<int(const std::vector<int>&)>& num_cached_blocks)
      : prompts_(prompts), block_size_(block_size) {
    for (const std::vector<int>& prompt : prompts) cached_.push_back(num_cached_blocks(prompt));
  }

  // Of prompts whose first `depth` blocks are equal, in order of arrival.
  void Visit(const Numbers& group, int depth, Numbers* order) const {
    std::map<std::vector<int>, Numbers> by_block;
    std::vector<Numbers> groups;
    for (size_t number : group) {
      const std::vector<int>& prompt = prompts_[number];
      const size_t begin = static_cast<size_t>(depth) * block_size_;
      if (prompt.size() < begin + block_size_) {
        groups.push_back({number});  // no next block: a group of its own
      } else {
        by_block[{prompt.begin() + begin, prompt.begin() + begin + block_size_}].push_back(number);
      }
    }
    const size_t num_ended = groups.size();
    for (const auto& [block, numbers] : by_block) groups.push_back(numbers);
    Numbers positions(groups.size());
    std::iota(positions.begin(), positions.end(), size_t{0});
    std::sort(positions.begin(), positions.end(), [&](size_t a, size_t b) {
      const int cached_a = MostCached(groups[a]), cached_b = MostCached(groups[b]);
      return cached_a != cached_b ? cached_a > cached_b : groups[a][0] < groups[b][0];
    });
    for (size_t position : positions) {
      if (position < num_ended) {
        order->push_back(groups[position][0]);
      } else {
        Visit(groups[position], depth + 1, order);
      }
    }
  }

 private:
  int MostCached(const Numbers& group) const {
    int most = 0;
    for (size_t number : group) most = std::max(most, cached_[number]);
    return most;
  }

  const std::vector<std::vector<int>>& prompts_;
  const int block_size_;
  std::vector<int> cached_;  // (prompts)
};

}  // namespace

std::vector<size_t> PrefixOrder(
    const std::vector<std::vector<int>>& prompts, int block_size,
    const std::function<int(const std::vector<int>& prompt)>& num_cached_blocks) {
  Numbers all(prompts.size()), order;
  std::iota(all.begin(), all.end(), size_t{0});
  Sorter(prompts, block_size, num_cached_blocks).Visit(all, 0, &order);
  return order;
}
// end exercise

}  // namespace tinyvllm
