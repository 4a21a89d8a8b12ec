// From adjusted logits to a token: temperature, min_p, top_k, top_p, and the draw.
//
// Nucleus sampling (top_p): Holtzman et al., The Curious Case of Neural Text Degeneration, 2019,
// section 3.1. min_p: Nguyen et al. 2024.
#pragma once

#include <cuda_runtime.h>

#include "lessons/11_sampling/slot.h"

namespace tinyvllm {

// One token a row, by its slot's parameters; -1 for a row in which none can be chosen. Adds the
// token to the slot's history where that is kept. Exact to the last bit of the weights: ties go to
// the lower id, and a row's token depends on its logits, parameters and position alone.
void ChooseTokens(const float* __restrict__ adjusted,  // (num_rows, vocab_size), no NaN
                  SlotArrays slots,                    //
                  const int* __restrict__ row_slots,   // (num_rows): the slot of each row
                  const int* __restrict__ positions,   // (num_rows): of the token that is chosen
                  int* __restrict__ token_ids,         // (num_rows)
                  float* __restrict__ probabilities,   // (num_rows, vocab_size) of what was drawn
                                                       // from; null: not wanted
                  int num_rows, int vocab_size, cudaStream_t stream);

}  // namespace tinyvllm
