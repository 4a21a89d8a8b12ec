#include "lessons/14_engine/late_tokens.h"

#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

constexpr int kThreads = 128;

__global__ void FillInKernel(const LateToken* __restrict__ late, int num_late,
                             const int* __restrict__ chosen, int* __restrict__ token_ids) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < num_late) token_ids[late[i].place] = max(chosen[late[i].row], 0);
}

}  // namespace

void FillInLateTokens(const LateToken* __restrict__ late, int num_late,
                      const int* __restrict__ chosen, int* __restrict__ token_ids,
                      cudaStream_t stream) {
  if (num_late == 0) return;
  const int blocks = (num_late + kThreads - 1) / kThreads;
  FillInKernel<<<blocks, kThreads, 0, stream>>>(late, num_late, chosen, token_ids);
  CUDA_CHECK_LAUNCH();
}

}  // namespace tinyvllm
