// Streams and events.
//
// Work given to a stream runs at once, inside the call: the simplest order that CUDA allows. With
// TINYVLLM_SIM_LAZY_STREAMS=1 it runs as late as CUDA allows instead: when something waits for it.
// Of several streams with work that nothing orders, the one with the latest comes first. A program
// that forgets to wait then sees the memory as it was.
#pragma once

#include <functional>
#include <utility>

#include "cuda_runtime_api.h"
#include "cuda_simulator/launch.h"

namespace tinyvllm::simulator {

// Runs `work` when its turn in `stream` comes.
template <typename Work>
void RunInOrder(cudaStream_t stream, Work&& work) {
  if (RunsNow(stream)) {
    work();
  } else {
    Enqueue(stream, std::forward<Work>(work));
  }
}

// Runs what a stream, or every stream, has been given.
void FinishStream(cudaStream_t stream);
void FinishDevice();

// Forgets all streams and events, for cudaDeviceReset.
void DestroyAllStreams();

}  // namespace tinyvllm::simulator
