#include "lessons/00_first_kernel/challenge/prefix_sums.h"

#include "common/cuda/check.h"
#include "lessons/00_first_kernel/first_kernel.h"

namespace tinyvllm {
namespace {

// Your turn: Write the kernels. One block can do its own 256 elements, in 8 rounds with a barrier
// each; what it cannot know is the sum of all blocks before it. (BlockSums has half of the idea.)

}  // namespace

void PrefixSums(const int* input, int64_t* sums, int64_t* scratch, int n, cudaStream_t stream) {
  if (n == 0) return;
  // Your turn: Launch them, and check each launch.
}

}  // namespace tinyvllm
