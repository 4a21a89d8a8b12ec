// The runtime's error state.
//
// An error of one call is returned, remembered for cudaGetLastError of the same OS thread, and gone
// once that has reported it. An error inside a kernel is sticky: it belongs to the device, every
// later call returns it, and only cudaDeviceReset clears it.
#pragma once

#include "cuda_runtime_api.h"

namespace tinyvllm::simulator {

// Remembers `error`, if it is one, for cudaGetLastError, and returns it.
cudaError_t Report(cudaError_t error);

// The same, after printing one line that says what the code alone cannot: printf's format and
// arguments, with no newline at the end.
__attribute__((format(printf, 2, 3))) cudaError_t Report(cudaError_t error, const char* format,
                                                         ...);

// The error that a kernel left, or cudaSuccess.
cudaError_t StickyError();
// Keeps the first one.
void SetStickyError(cudaError_t error);
void ClearErrors();

// What every runtime function does first: returns the sticky error if there is one, and refuses a
// call from inside a kernel.
cudaError_t BeginCall(const char* function = __builtin_FUNCTION());

}  // namespace tinyvllm::simulator

// Leaves the runtime function with the error that already stands.
#define TINYVLLM_SIM_BEGIN_CALL()                                                                 \
  if (cudaError_t begin_error = ::tinyvllm::simulator::BeginCall(); begin_error != cudaSuccess) { \
    return begin_error;                                                                           \
  }
