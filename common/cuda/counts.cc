#include "common/cuda/counts.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/error.h"
#include "common/base/text_table.h"

#ifdef TINYVLLM_SIMULATOR
#include "cuda_simulator/statistics.h"
#endif

namespace tinyvllm {

const char* const kCountsLegend =
    "accesses: loads and stores of global memory, those of a warp's lanes counted as one. KB: the\n"
    "bytes that they ask for. sectors: the pieces of 32 bytes that they touch, and how many times\n"
    "the fewest which could hold these bytes. passes: turns that shared memory takes to serve the\n"
    "warps; more than the fewest are bank conflicts. barriers: __syncthreads, a block's counted "
    "as\n"
    "one. (With a GPU you see times and GB/s here.)\n";

std::vector<std::string> CountColumns() {
  return {"barriers", "accesses",  "KB read", "KB written",
          "sectors",  "of fewest", "passes",  "of fewest"};
}

#ifdef TINYVLLM_SIMULATOR

namespace {

std::string Thousands(uint64_t number) {
  std::string text = std::to_string(number);
  for (int64_t i = static_cast<int64_t>(text.size()) - 3; i > 0; i -= 3) text.insert(i, ",");
  return text;
}

std::string Kilobytes(uint64_t bytes) {
  return bytes < 9'950 ? Fixed(1e-3 * bytes, 1) : Thousands((bytes + 500) / 1000);
}

std::string Times(uint64_t actual, uint64_t fewest) {
  return fewest == 0 ? "" : Fixed(static_cast<double>(actual) / fewest, 2) + " x";
}

}  // namespace

std::vector<std::string> CountCells(const std::function<void()>& work) {
  const std::vector<simulator::KernelStatistics> kernels = simulator::CountKernels(work);
  if (kernels.empty()) return std::vector<std::string>(CountColumns().size());
  simulator::KernelStatistics sum;
  for (const simulator::KernelStatistics& kernel : kernels) sum.Add(kernel);
  return {Thousands(sum.barriers),      Thousands(sum.accesses),
          Kilobytes(sum.bytes_read),    Kilobytes(sum.bytes_written),
          Thousands(sum.sectors),       Times(sum.sectors, sum.fewest_sectors),
          Thousands(sum.shared_passes), Times(sum.shared_passes, sum.fewest_shared_passes)};
}

#else

std::vector<std::string> CountCells(const std::function<void()>&) {
  throw Error("CountCells: a GPU counts nothing; only the simulator does (--config=cpu)");
}

#endif

}  // namespace tinyvllm
