// The simulator's environment variables. All of them, and nothing else, are read here, once.
//
//   TINYVLLM_SIM_THREADS      OS threads that run blocks; default: one a core, at most 16
//   TINYVLLM_SIM_ORDER        natural (default) | reverse (default with --config=check) |
//                             shuffle:SEED | each. The order in which the threads of a block and
//                             the blocks of a grid run. A kernel that lacks a barrier often gives
//                             the right answer in one order only. each: natural in the first of
//                             bazel's
//                             --runs_per_test, then reverse, then shuffle:1, ...
//   TINYVLLM_SIM_WARP_SIZE    32 (default) | 64, AMD's wavefront
//   TINYVLLM_SIM_POISON       auto (default) | on | off. Fills fresh shared and device memory with
//                             0xFF, NaN in bf16 and f32; auto leaves out allocations above 64 MiB
//   TINYVLLM_SIM_EARLY_EXIT   0 (default) | 1. 1 accepts that threads have returned when the others
//                             meet at a barrier or exchange values in a warp
//   TINYVLLM_SIM_LAZY_STREAMS 0 (default) | 1 (default with --config=check). 1 runs a stream's work
//   only when something waits for
//                             it, so that a missing synchronisation gives a wrong result
//   TINYVLLM_SIM_WATCHDOG     processor seconds after which a block is given up as endless; default
//                             20; 0: never
//   TINYVLLM_SIM_MEMORY       device memory in bytes, or with a suffix K, M or G; default: half of
//                             the machine's
//   TINYVLLM_SIM_RACE         0 | 1. 1 finds races, in kernels that are compiled for it; default: 1
//                             with --config=race
//   TINYVLLM_SIM_MEMCHECK     0 | 1. 1 finds accesses out of bounds, to freed and to unwritten
//                             memory, in kernels that are compiled for it; default: 1 with
//                             --config=check
//   TINYVLLM_SIM_LEAKS        0 | 1. 1 lists at exit what has not been freed; default: 1 with
//                             --config=check
//   TINYVLLM_SIM_STATS        0 (default) | 1. 1 prints at the end what each kernel did
#pragma once

#include <cstddef>
#include <cstdint>

namespace tinyvllm::simulator {

enum class ThreadOrder { kNatural, kReverse, kShuffle };
enum class Poison { kOff, kAuto, kOn };

struct Settings {
  int threads;
  ThreadOrder order;
  uint64_t seed;  // of ThreadOrder::kShuffle
  int warp_size;
  Poison poison;
  bool early_exit;
  bool lazy_streams;
  double watchdog_seconds;  // 0: none
  size_t memory_bytes;
  bool watch_races;
  bool statistics;
  bool watch_memory;
  bool leaks;
  bool note_calls;  // a report may name the place of a call
};

// A value that cannot be read ends the program with one line and exit status 2.
const Settings& GetSettings();

}  // namespace tinyvllm::simulator
