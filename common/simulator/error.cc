#include "common/simulator/error.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "common/simulator/block.h"

namespace tinyvllm::simulator {
namespace {

std::atomic<cudaError_t> sticky_error{cudaSuccess};
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t Report(cudaError_t error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("CUDA simulator: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  return Report(error);
}

cudaError_t StickyError() { return sticky_error.load(std::memory_order_relaxed); }

void SetStickyError(cudaError_t error) {
  cudaError_t none = cudaSuccess;
  sticky_error.compare_exchange_strong(none, error);
}

void ClearErrors() {
  sticky_error = cudaSuccess;
  last_error = cudaSuccess;
}

cudaError_t BeginCall(const char* function) {
  if (InsideKernel()) {
    return Report(cudaErrorNotPermitted, "%s called inside a kernel; only the host may call it",
                  function);
  }
  const cudaError_t sticky = StickyError();
  return sticky == cudaSuccess ? sticky : Report(sticky);
}

}  // namespace tinyvllm::simulator

using namespace tinyvllm::simulator;

extern "C" {

cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = StickyError();
  return sticky != cudaSuccess ? sticky : last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

#define TINYVLLM_SIM_NAME(name, value, text) \
  case name:                                 \
    return #name;
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) { TINYVLLM_SIM_ERRORS(TINYVLLM_SIM_NAME) }
  return "unrecognized error code";
}

#define TINYVLLM_SIM_TEXT(name, value, text) \
  case name:                                 \
    return text;
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) { TINYVLLM_SIM_ERRORS(TINYVLLM_SIM_TEXT) }
  return "unrecognized error code";
}
}
