// How fast the device reads its memory: the limit of a decode step, which reads every weight once
// and writes next to nothing.
#pragma once

#include "common/cuda/benchmark.h"

namespace tinyvllm {

// GB/s of a kernel that reads a buffer much larger than the cache, 16 bytes a load; the best of a
// few grid sizes, each the median of the benchmark's runs.
double ReadGigabytesPerSecond(Benchmark* benchmark);

}  // namespace tinyvllm
