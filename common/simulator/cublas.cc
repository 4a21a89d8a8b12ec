// cuBLAS's interface: handles, the check of arguments, batches. The arithmetic is in gemm.cc.
#include "cublas_v2.h"

#include <algorithm>
#include <cstdint>

#include "common/simulator/error.h"
#include "common/simulator/gemm.h"
#include "common/simulator/memory_check.h"
#include "common/simulator/stream.h"
#include "cuda_simulator/small_float.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace tinyvllm::simulator {
namespace {

bool IsOperation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

cublasStatus_t NotSupported(const char* what) {
  Report(cudaSuccess,
         "cuBLAS: %s; the simulator has CUBLAS_COMPUTE_32F on bf16, half or float A and B "
         "of one type with C of the same type or float",
         what);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

bool IsKnownType(cudaDataType type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

cublasStatus_t CheckTypes(cudaDataType a, cudaDataType b, cudaDataType c,
                          cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      break;
    default:
      return NotSupported("this compute type is not available");
  }
  if (a != b || !IsKnownType(a) || (c != a && c != CUDA_R_32F)) {
    return NotSupported("this combination of types is not available");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Check(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                     int m, int n, int k, const void* alpha, int lda, int ldb, const void* beta,
                     int ldc, int batch) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (BeginCall("cuBLAS") != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!IsOperation(transa) || !IsOperation(transb)) return CUBLAS_STATUS_INVALID_VALUE;
  if (m < 0 || n < 0 || k < 0 || batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const int rows_a = transa == CUBLAS_OP_N ? m : k;
  const int rows_b = transb == CUBLAS_OP_N ? k : n;
  if (lda < std::max(1, rows_a) || ldb < std::max(1, rows_b) || ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

const void* Offset(const void* matrix, cudaDataType type, int64_t elements) {
  const int64_t bytes = type == CUDA_R_32F ? 4 : 2;
  return static_cast<const char*>(matrix) + elements * bytes;
}

// The columns of a matrix, one after another.
template <typename Act>
void ForEachColumn(const void* matrix, cudaDataType type, int64_t rows, int64_t columns, int64_t ld,
                   Act act) {
  const auto bytes = static_cast<size_t>(rows) * (type == CUDA_R_32F ? 4 : 2);
  if (ld == rows) {
    act(matrix, bytes * columns);
    return;
  }
  for (int64_t column = 0; column < columns; ++column)
    act(Offset(matrix, type, column * ld), bytes);
}

// The product, of which the memory checker learns what it reads and writes.
void Multiply(const GemmArguments& x) {
  if (CheckingMemory() && x.m > 0 && x.n > 0) {
    bool written = true;
    const auto read = [&](const void* begin, size_t bytes) {
      written = written && MemoryRead("a matrix product of cuBLAS", {}, begin, bytes);
    };
    const bool uses_ab = x.k > 0 && x.alpha != 0;
    if (uses_ab) {
      ForEachColumn(x.a, x.a_type, x.transpose_a ? x.k : x.m, x.transpose_a ? x.m : x.k, x.lda,
                    read);
      ForEachColumn(x.b, x.b_type, x.transpose_b ? x.n : x.k, x.transpose_b ? x.k : x.n, x.ldb,
                    read);
    }
    if (x.beta != 0) ForEachColumn(x.c, x.c_type, x.m, x.n, x.ldc, read);
    if (!written) return;
    ForEachColumn(x.c, x.c_type, x.m, x.n, x.ldc, MemoryWritten);
  }
  Gemm(x);
}

}  // namespace
}  // namespace tinyvllm::simulator

using namespace tinyvllm::simulator;

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (BeginCall() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
  if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

#define TINYVLLM_SIM_STATUSES(X)                                                                 \
  X(CUBLAS_STATUS_SUCCESS, "success")                                                            \
  X(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized")                            \
  X(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed")                                \
  X(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function") \
  X(CUBLAS_STATUS_ARCH_MISMATCH,                                                                 \
    "the function requires an architectural feature absent from the device")                     \
  X(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed")                         \
  X(CUBLAS_STATUS_EXECUTION_FAILED, "the function failed to launch on the GPU")                  \
  X(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed")                                \
  X(CUBLAS_STATUS_NOT_SUPPORTED, "the requested functionality is not supported")                 \
  X(CUBLAS_STATUS_LICENSE_ERROR, "the license check failed")

const char* cublasGetStatusName(cublasStatus_t status) {
#define TINYVLLM_SIM_NAME(name, text) \
  case name:                          \
    return #name;
  switch (status) { TINYVLLM_SIM_STATUSES(TINYVLLM_SIM_NAME) }
  return "unrecognized status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
#define TINYVLLM_SIM_TEXT(name, text) \
  case name:                          \
    return text;
  switch (status) { TINYVLLM_SIM_STATUSES(TINYVLLM_SIM_TEXT) }
  return "unrecognized status";
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (stream == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

// The products need no workspace.
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == CUBLAS_POINTER_MODE_HOST) return CUBLAS_STATUS_SUCCESS;
  Report(cudaSuccess,
         "cublasSetPointerMode: the simulator reads alpha and beta from the host alone");
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long int strideA, const void* B,
                                          cudaDataType Btype, int ldb, long long int strideB,
                                          const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount,
                                          cublasComputeType_t computeType, cublasGemmAlgo_t) {
  cublasStatus_t status =
      Check(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, batchCount);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = CheckTypes(Atype, Btype, Ctype, computeType);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const GemmArguments first = {transa != CUBLAS_OP_N,
                               transb != CUBLAS_OP_N,
                               m,
                               n,
                               k,
                               *static_cast<const float*>(alpha),
                               A,
                               Atype,
                               lda,
                               B,
                               Btype,
                               ldb,
                               *static_cast<const float*>(beta),
                               C,
                               Ctype,
                               ldc};
  RunInOrder(handle->stream, [=] {
    for (int i = 0; i < batchCount; ++i) {
      GemmArguments product = first;
      product.a = Offset(A, Atype, i * strideA);
      product.b = Offset(B, Btype, i * strideB);
      product.c = const_cast<void*>(Offset(C, Ctype, i * strideC));
      Multiply(product);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B,
                                    Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1, computeType, algo);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                   const void* const Aarray[], cudaDataType Atype, int lda,
                                   const void* const Barray[], cudaDataType Btype, int ldb,
                                   const void* beta, void* const Carray[], cudaDataType Ctype,
                                   int ldc, int batchCount, cublasComputeType_t computeType,
                                   cublasGemmAlgo_t) {
  cublasStatus_t status =
      Check(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, batchCount);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = CheckTypes(Atype, Btype, Ctype, computeType);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float alpha_value = *static_cast<const float*>(alpha);
  const float beta_value = *static_cast<const float*>(beta);
  RunInOrder(handle->stream, [=] {
    for (int i = 0; i < batchCount; ++i) {
      Multiply({transa != CUBLAS_OP_N, transb != CUBLAS_OP_N, m, n, k, alpha_value, Aarray[i],
                Atype, lda, Barray[i], Btype, ldb, beta_value, Carray[i], Ctype, ldc});
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float* alpha,
                           const float* A, int lda, const float* B, int ldb, const float* beta,
                           float* C, int ldc) {
  return cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, CUDA_R_32F, lda, B, CUDA_R_32F,
                      ldb, beta, C, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float* alpha, const float* A, int lda,
                                         long long int strideA, const float* B, int ldb,
                                         long long int strideB, const float* beta, float* C,
                                         int ldc, long long int strideC, int batchCount) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, CUDA_R_32F, lda,
                                    strideA, B, CUDA_R_32F, ldb, strideB, beta, C, CUDA_R_32F, ldc,
                                    strideC, batchCount, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
}
