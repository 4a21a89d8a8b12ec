// Random weights, written in parallel: which numbers a tensor gets depends on the seed and its name
// alone, not on threads, shards or the other tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/progress.h"
#include "lessons/01_safetensors/header.h"

namespace tinyvllm {

struct WeightOptions {
  uint64_t seed = 0;
  double initializer_range = 0.02;  // standard deviation; vectors (norms) are 1 and about this
  bool header_only = false;         // the file has its size, but its data is a hole full of zeros
};

// Writes the safetensors file of `tensors`, BF16, F16 or F32 each, under a temporary name that
// becomes `path` at the end: a process that has the old file mapped keeps it. Throws Error when the
// disk is too small or fails.
void WriteRandomSafetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                            const WeightOptions& options, Progress* progress);

}  // namespace tinyvllm
