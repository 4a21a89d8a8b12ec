// Every status is checked: of CUDA calls, of kernel launches, of cuBLAS calls.
//
//   CUDA_CHECK(cudaMalloc(&pointer, bytes));
//   RmsNormKernel<<<grid, block, 0, stream>>>(...);
//   CUDA_CHECK_LAUNCH();
//   CUBLAS_CHECK(cublasCreate(&handle));
//
// Each throws Error with the file, the line, the call and CUDA's own words.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

namespace tinyvllm {

void CheckCuda(cudaError_t status, const char* call, const char* file, int line);
void CheckCublas(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace tinyvllm

#define CUDA_CHECK(call) ::tinyvllm::CheckCuda((call), #call, __FILE__, __LINE__)

// A launch returns nothing: a bad configuration shows in cudaGetLastError, which also clears it, so
// it is asked exactly once. What goes wrong while the kernel runs shows at the next
// synchronisation.
#define CUDA_CHECK_LAUNCH() \
  ::tinyvllm::CheckCuda(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

#define CUBLAS_CHECK(call) ::tinyvllm::CheckCublas((call), #call, __FILE__, __LINE__)
