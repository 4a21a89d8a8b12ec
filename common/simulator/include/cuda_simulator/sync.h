// Barriers, votes and exchanges between the threads of a block. Part of the simulator's
// cuda_runtime.h; the engine behind it is block.h.
//
// Each function takes the place in the .cu it was called from, so that a divergence can be reported
// with file and line. Masks have 64 bits, for warps of 64 threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../device_launch_parameters.h"
#include "fiber.h"

#define TINYVLLM_SIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace tinyvllm::simulator {

// Which thread of its block runs now; the engine keeps it up to date.
struct CurrentThread {
  uint32_t thread;  // x + y * blockDim.x + z * blockDim.x * blockDim.y
  uint32_t lane;    // thread % warpSize
};
extern __thread CurrentThread current_thread TINYVLLM_SIM_TLS;

constexpr int kMaxWarpSize = 64;

// What the lanes of a mask gave, by lane, and which lanes they are: those of the mask that exist.
struct Exchange {
  uint64_t values[kMaxWarpSize];
  uint64_t lanes;
};

// The engine's half of a wait: notes that this thread has arrived and returns the fiber to switch
// to, null where this thread may go on.
Fiber* ArriveAtBarrier(const char* file, int line);
struct Vote {
  Fiber* next;
  const int* count;  // of true, once the switch has come back
};
Vote ArriveAndVote(bool predicate, const char* file, int line);
struct Meeting {
  Fiber* next;
  const Exchange* exchange;  // complete once the switch has come back, until this thread's next one
};
Meeting ArriveInWarp(uint64_t mask, uint64_t value, const char* operation, const char* file,
                     int line);

// Waits for the whole block and returns how many of its threads gave true.
TINYVLLM_SIM_INLINE int SyncThreadsCount(bool predicate, const char* file, int line) {
  const Vote vote = ArriveAndVote(predicate, file, line);
  SwitchTo(vote.next);
  return *vote.count;
}

// Waits for the lanes of `mask`.
TINYVLLM_SIM_INLINE const Exchange& WarpExchange(uint64_t mask, uint64_t value,
                                                 const char* operation, const char* file,
                                                 int line) {
  const Meeting meeting = ArriveInWarp(mask, value, operation, file, line);
  SwitchTo(meeting.next);
  return *meeting.exchange;
}

// The lanes of this warp whose threads have not returned.
uint64_t ActiveLanes();
// Lets the other threads of the block go on: a thread that polls would starve them. Inlined, so
// that a report names the kernel's line.
Fiber* ArriveAtYield();
TINYVLLM_SIM_INLINE void Yield() { SwitchTo(ArriveAtYield()); }
[[noreturn]] void Trap(const char* file, int line);
[[noreturn]] void BadShuffleWidth(int width, const char* file, int line);

template <typename T>
uint64_t ToBits(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a warp exchanges at most 8 bytes a lane");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  memcpy(static_cast<void*>(&value), &bits, sizeof(value));
  return value;
}

// CUDA has shuffles for these types only; smaller integers become int, as in CUDA.
template <typename T>
constexpr bool kShuffles =
    std::is_arithmetic_v<T> || std::is_same_v<T, __half> || std::is_same_v<T, __half2> ||
    std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __nv_bfloat162>;

template <typename T, bool = std::is_integral_v<T> && (sizeof(T) < sizeof(int))>
struct Shuffled {
  static_assert(kShuffles<T>, "CUDA has no shuffle for this type");
  using Type = T;
};
template <typename T>
struct Shuffled<T, true> {
  using Type = int;
};
template <typename T>
using ShuffledType = typename Shuffled<T>::Type;

// What lane `source` gave. A lane outside the mask (or of a thread that does not exist) has no
// defined value in CUDA: here all bits are set, which is NaN in floating point.
template <typename T>
TINYVLLM_SIM_INLINE T Shuffle(uint64_t mask, T value, unsigned source, const char* operation,
                              const char* file, int line) {
  const Exchange& given = WarpExchange(mask, ToBits(value), operation, file, line);
  return FromBits<T>(given.lanes >> source & 1 ? given.values[source] : ~uint64_t{0});
}

inline void CheckShuffleWidth(int width, const char* file, int line) {
  if (width <= 0 || width > warpSize || (width & (width - 1)) != 0) {
    BadShuffleWidth(width, file, line);
  }
}

template <typename T, typename Combine>
TINYVLLM_SIM_INLINE T WarpReduce(uint64_t mask, T value, const char* operation, const char* file,
                                 int line, Combine combine) {
  const Exchange& given = WarpExchange(mask, ToBits(value), operation, file, line);
  T result = FromBits<T>(given.values[__builtin_ctzll(given.lanes)]);
  for (uint64_t rest = given.lanes & (given.lanes - 1); rest != 0; rest &= rest - 1) {
    result = combine(result, FromBits<T>(given.values[__builtin_ctzll(rest)]));
  }
  return result;
}

// The lanes that gave what this one gave.
template <typename T>
TINYVLLM_SIM_INLINE uint64_t WarpMatch(uint64_t mask, T value, const char* operation,
                                       const char* file, int line, uint64_t* lanes) {
  const uint64_t bits = ToBits(value);
  const Exchange& given = WarpExchange(mask, bits, operation, file, line);
  *lanes = given.lanes;
  uint64_t equal = 0;
  for (uint64_t rest = given.lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctzll(rest);
    if (given.values[lane] == bits) equal |= uint64_t{1} << lane;
  }
  return equal;
}

}  // namespace tinyvllm::simulator

// --- The block.

TINYVLLM_SIM_INLINE void __syncthreads(TINYVLLM_SIM_HERE) {
  tinyvllm::simulator::SwitchTo(tinyvllm::simulator::ArriveAtBarrier(file, line));
}
TINYVLLM_SIM_INLINE int __syncthreads_count(int predicate, TINYVLLM_SIM_HERE) {
  return tinyvllm::simulator::SyncThreadsCount(predicate != 0, file, line);
}
TINYVLLM_SIM_INLINE int __syncthreads_and(int predicate, TINYVLLM_SIM_HERE) {
  return tinyvllm::simulator::SyncThreadsCount(predicate == 0, file, line) == 0;
}
TINYVLLM_SIM_INLINE int __syncthreads_or(int predicate, TINYVLLM_SIM_HERE) {
  return tinyvllm::simulator::SyncThreadsCount(predicate != 0, file, line) != 0;
}

// --- The warp.

TINYVLLM_SIM_INLINE void __syncwarp(uint64_t mask = ~uint64_t{0}, TINYVLLM_SIM_HERE) {
  tinyvllm::simulator::WarpExchange(mask, 0, "__syncwarp", file, line);
}

template <typename T>
TINYVLLM_SIM_INLINE tinyvllm::simulator::ShuffledType<T> __shfl_sync(uint64_t mask, T value,
                                                                     int source_lane,
                                                                     int width = warpSize,
                                                                     TINYVLLM_SIM_HERE) {
  using namespace tinyvllm::simulator;
  CheckShuffleWidth(width, file, line);
  const unsigned base = current_thread.lane & ~(width - 1);
  return Shuffle<ShuffledType<T>>(mask, value, base | (source_lane & (width - 1)), "__shfl_sync",
                                  file, line);
}

template <typename T>
TINYVLLM_SIM_INLINE tinyvllm::simulator::ShuffledType<T> __shfl_up_sync(uint64_t mask, T value,
                                                                        unsigned delta,
                                                                        int width = warpSize,
                                                                        TINYVLLM_SIM_HERE) {
  using namespace tinyvllm::simulator;
  CheckShuffleWidth(width, file, line);
  const unsigned lane = current_thread.lane;
  const unsigned source = (lane & (width - 1)) >= delta ? lane - delta : lane;
  return Shuffle<ShuffledType<T>>(mask, value, source, "__shfl_up_sync", file, line);
}

template <typename T>
TINYVLLM_SIM_INLINE tinyvllm::simulator::ShuffledType<T> __shfl_down_sync(uint64_t mask, T value,
                                                                          unsigned delta,
                                                                          int width = warpSize,
                                                                          TINYVLLM_SIM_HERE) {
  using namespace tinyvllm::simulator;
  CheckShuffleWidth(width, file, line);
  const unsigned lane = current_thread.lane;
  const unsigned left = width - 1 - (lane & (width - 1));  // lanes above this one in its segment
  const unsigned source = delta <= left ? lane + delta : lane;
  return Shuffle<ShuffledType<T>>(mask, value, source, "__shfl_down_sync", file, line);
}

template <typename T>
TINYVLLM_SIM_INLINE tinyvllm::simulator::ShuffledType<T> __shfl_xor_sync(uint64_t mask, T value,
                                                                         int lane_mask,
                                                                         int width = warpSize,
                                                                         TINYVLLM_SIM_HERE) {
  using namespace tinyvllm::simulator;
  CheckShuffleWidth(width, file, line);
  const unsigned lane = current_thread.lane;
  const unsigned last = lane | (width - 1);  // of this lane's segment; a later segment is not read
  const unsigned partner = lane ^ lane_mask;
  return Shuffle<ShuffledType<T>>(mask, value, partner <= last ? partner : lane, "__shfl_xor_sync",
                                  file, line);
}

TINYVLLM_SIM_INLINE uint64_t __ballot_sync(uint64_t mask, int predicate, TINYVLLM_SIM_HERE) {
  const tinyvllm::simulator::Exchange& given =
      tinyvllm::simulator::WarpExchange(mask, predicate != 0, "__ballot_sync", file, line);
  uint64_t ballot = 0;
  for (uint64_t rest = given.lanes; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctzll(rest);
    ballot |= given.values[lane] << lane;
  }
  return ballot;
}
TINYVLLM_SIM_INLINE int __any_sync(uint64_t mask, int predicate, TINYVLLM_SIM_HERE) {
  return tinyvllm::simulator::WarpReduce<int>(mask, predicate != 0, "__any_sync", file, line,
                                              [](int a, int b) { return a | b; });
}
TINYVLLM_SIM_INLINE int __all_sync(uint64_t mask, int predicate, TINYVLLM_SIM_HERE) {
  return tinyvllm::simulator::WarpReduce<int>(mask, predicate != 0, "__all_sync", file, line,
                                              [](int a, int b) { return a & b; });
}
TINYVLLM_SIM_INLINE uint64_t __activemask() { return tinyvllm::simulator::ActiveLanes(); }

template <typename T>
TINYVLLM_SIM_INLINE uint64_t __match_any_sync(uint64_t mask, T value, TINYVLLM_SIM_HERE) {
  uint64_t lanes;
  return tinyvllm::simulator::WarpMatch(mask, value, "__match_any_sync", file, line, &lanes);
}
template <typename T>
TINYVLLM_SIM_INLINE uint64_t __match_all_sync(uint64_t mask, T value, int* all_equal,
                                              TINYVLLM_SIM_HERE) {
  uint64_t lanes;
  const uint64_t equal =
      tinyvllm::simulator::WarpMatch(mask, value, "__match_all_sync", file, line, &lanes);
  *all_equal = equal == lanes;
  return *all_equal ? equal : 0;
}

#define TINYVLLM_SIM_REDUCE(name, T, expression)                                         \
  TINYVLLM_SIM_INLINE T name(uint64_t mask, T value, TINYVLLM_SIM_HERE) {                \
    return tinyvllm::simulator::WarpReduce<T>(mask, value, #name, file, line,            \
                                              [](T a, T b) -> T { return expression; }); \
  }
TINYVLLM_SIM_REDUCE(__reduce_add_sync, unsigned, a + b)
TINYVLLM_SIM_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
TINYVLLM_SIM_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
TINYVLLM_SIM_REDUCE(__reduce_and_sync, unsigned, a& b)
TINYVLLM_SIM_REDUCE(__reduce_or_sync, unsigned, a | b)
TINYVLLM_SIM_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
TINYVLLM_SIM_REDUCE(__reduce_min_sync, int, a < b ? a : b)
TINYVLLM_SIM_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef TINYVLLM_SIM_REDUCE
// Sums wrap round, as on the GPU.
TINYVLLM_SIM_INLINE int __reduce_add_sync(uint64_t mask, int value, TINYVLLM_SIM_HERE) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value), file, line));
}

// --- Memory order and the rest.

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// One OS thread runs the whole block.
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TINYVLLM_SIM_INLINE void __nanosleep(unsigned) { tinyvllm::simulator::Yield(); }
inline void __trap(TINYVLLM_SIM_HERE) { tinyvllm::simulator::Trap(file, line); }
