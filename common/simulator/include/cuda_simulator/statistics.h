// What kernels did, counted: the simulator's answer to "why is this one faster?", where times mean
// nothing. docs/simulator.md#statistics explains each number.
//
//   using tinyvllm::simulator::KernelStatistics;
//   for (const KernelStatistics& kernel : tinyvllm::simulator::CountKernels([&] {
//          Scale<<<grid, block>>>(x, n);
//        })) {
//     std::printf("%s: %lu sectors\n", kernel.kernel.c_str(), kernel.sectors);
//   }
//
// Launches, threads and barriers are counted in every build. Accesses to memory are, in code that
// calls the hooks: --//:instrumented=on, or a cuda_library's twin ":NAME.counted".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tinyvllm::simulator {

// Of one kernel, over all its launches from one file. An access is what a warp does at once: the
// n-th execution of one instruction by each lane since the lanes last met.
struct KernelStatistics {
  std::string kernel;  // as the launch spells it
  std::string file;    // of the launch, from the workspace's root
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t threads = 0;
  uint64_t barriers = 0;   // __syncthreads, counted once for a block
  uint64_t exchanges = 0;  // shuffles, votes, __syncwarp and their kin, counted once for a warp
  uint64_t partial_exchanges = 0;  // those that not all lanes of the warp took part in

  // Global memory. What several lanes ask for in one access counts once, among the bytes and among
  // the sectors of 32 bytes. The fewest sectors are those that the bytes would fill.
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t accesses = 0;
  uint64_t sectors = 0;
  uint64_t fewest_sectors = 0;
  uint64_t atomics = 0;  // in global and shared memory, by threads

  // Shared memory. One pass serves 128 bytes, one word of each of the 32 banks.
  uint64_t shared_accesses = 0;
  uint64_t shared_passes = 0;
  uint64_t fewest_shared_passes = 0;

  // Lanes that took part in the accesses, and lanes that the warps had.
  uint64_t lanes = 0;
  uint64_t possible_lanes = 0;

  void Add(const KernelStatistics& other);
};

// Runs `work`, waits for the device, and returns what each kernel launched meanwhile has done, in
// the order of their first launches. One call at a time.
std::vector<KernelStatistics> CountKernels(const std::function<void()>& work);

// The aligned table that TINYVLLM_SIM_STATS=1 prints when the program ends.
std::string StatisticsTable(const std::vector<KernelStatistics>& kernels);

}  // namespace tinyvllm::simulator
