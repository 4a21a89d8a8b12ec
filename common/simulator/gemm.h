// Matrix products for cublas.cc.
//
// A contract beyond cuBLAS's own: an element of the result depends on its row of op(A), its column
// of op(B), and k. It does not depend on how many rows or columns are computed with it, on where it
// stands among them, or on the number of OS threads. A request served alone and in a batch gets the
// same bits. gemm.cc says how.
#pragma once

#include <cstdint>

#include "library_types.h"

namespace tinyvllm::simulator {

// C = alpha * op(A) * op(B) + beta * C, column-major as in BLAS: op(A) is (m, k), op(B) (k, n), C
// (m, n), and column j of X begins j * ldx elements in. f32 accumulation; CUDA_R_32F, CUDA_R_16BF
// or CUDA_R_16F.
struct GemmArguments {
  bool transpose_a, transpose_b;
  int m, n, k;
  float alpha;
  const void* a;
  cudaDataType a_type;
  int64_t lda;
  const void* b;
  cudaDataType b_type;
  int64_t ldb;
  float beta;  // 0: C is not read
  void* c;
  cudaDataType c_type;
  int64_t ldc;
};
void Gemm(const GemmArguments& arguments);

}  // namespace tinyvllm::simulator
