// threadIdx and its kin. Part of the simulator's cuda_runtime.h.
//
// They are objects of the OS thread, not macros: cudaLaunchConfig_t has members of the same names.
// The engine sets them before a thread of the block runs (see block.h), kernels can only read them.
#pragma once

#include "vector_types.h"

// The address of such an object is one register plus a constant, even inside a shared library.
#define TINYVLLM_SIM_TLS __attribute__((tls_model("initial-exec")))

extern "C" {
extern __thread const uint3 threadIdx TINYVLLM_SIM_TLS;
extern __thread const uint3 blockIdx TINYVLLM_SIM_TLS;
extern __thread const dim3 blockDim TINYVLLM_SIM_TLS;
extern __thread const dim3 gridDim TINYVLLM_SIM_TLS;
}

// 32, or 64 by TINYVLLM_SIM_WARP_SIZE: known only when the program runs.
extern const int warpSize;
namespace tinyvllm::simulator {
int WarpSize();
}
