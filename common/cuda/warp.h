// The size of a warp, by name: 32 on NVIDIA GPUs, and what TINYVLLM_SIM_WARP_SIZE says on the
// simulator (AMD's wavefronts have 64 lanes). Kernels never write 32 or 0xffffffff.
#pragma once

#include <cuda_runtime.h>

namespace tinyvllm {

#ifdef TINYVLLM_SIMULATOR
using WarpMask = unsigned long long;
// Asked from the engine: warpSize might not be set yet while static objects are made.
inline const int kWarpSize = simulator::WarpSize();
inline const WarpMask kFullWarpMask = kWarpSize == 64 ? ~0ull : (1ull << kWarpSize) - 1;
#else
using WarpMask = unsigned;
constexpr int kWarpSize = 32;
constexpr WarpMask kFullWarpMask = 0xffffffffu;
#endif

// 1,024 threads of 32 lanes: the length of a shared array with one element a warp.
constexpr int kMaxWarpsPerBlock = 32;

}  // namespace tinyvllm
