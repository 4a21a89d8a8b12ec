// The first two steps of sampling: what a request adds to its logits, forbids, and repels.
//
//   AdjustLogits(logits, slots, row_slots, adjusted, num_rows, vocab_size, stream);
//
// The repetition penalty is that of CTRL (Keskar et al. 2019, section 4.1), made safe for negative
// logits as Hugging Face and vLLM do; presence and frequency are OpenAI's.
#pragma once

#include <cuda_runtime.h>

#include "lessons/11_sampling/slot.h"

namespace tinyvllm {

// Each row by its slot's parameters. A NaN becomes minus infinity.
void AdjustLogits(const float* __restrict__ logits,   // (num_rows, vocab_size)
                  SlotArrays slots,                   //
                  const int* __restrict__ row_slots,  // (num_rows): the slot of each row
                  float* __restrict__ adjusted,       // (num_rows, vocab_size)
                  int num_rows, int vocab_size, cudaStream_t stream);

// Enters tokens into a slot's history: the first num_prompt_tokens as the prompt's, the others as
// generated. Adds to what the history holds.
void RecordTokens(const int* __restrict__ token_ids,  // (num_tokens)
                  int num_prompt_tokens, int num_tokens,
                  uint32_t* __restrict__ history,  // (vocab_size), of the slot
                  cudaStream_t stream);

}  // namespace tinyvllm
