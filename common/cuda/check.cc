#include "common/cuda/check.h"

#include "common/base/error.h"

namespace tinyvllm {

void CheckCuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const char* remedy = "";
  if (status == cudaErrorMemoryAllocation) remedy = "; a smaller model or batch may fit";
  if (status == cudaErrorNoDevice) remedy = "; --config=cpu runs the simulator";
  if (status == cudaErrorInsufficientDriver) remedy = "; update the driver, or use --config=cpu";
  throw Error(file, ":", line, ": ", call, ": ", cudaGetErrorName(status), ": ",
              cudaGetErrorString(status), remedy);
}

void CheckCublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(file, ":", line, ": ", call, ": ", cublasGetStatusString(status));
}

}  // namespace tinyvllm
