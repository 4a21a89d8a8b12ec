// The words that CUDA adds to C++, as g++ reads them. Part of the simulator's cuda_runtime.h.
#pragma once

// Tells a header whether it is compiled for the simulator.
#define TINYVLLM_SIMULATOR 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

// One OS thread runs one block at a time, so a variable of that OS thread is shared by the block.
#define __shared__ static thread_local

// `__noinline__` stays undefined: libstdc++ uses the word inside __attribute__((...)), where g++
// accepts it as it is.
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDART_CB
