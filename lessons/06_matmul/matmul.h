// Matrix multiplication, where a language model spends nearly all of its time: one Linear for every
// projection of the engine.
//
//   Linear linear(stream);
//   linear(input, weight, output, num_tokens, in_features, out_features);
//
// computes output = input · weightᵀ:
//
//   output[t][f] = Σ_k input[t][k] weight[f][k]
//
//   input   // (num_tokens, in_features), bf16
//   weight  // (out_features, in_features), bf16: as Hugging Face stores it, a row a feature
//   output  // (num_tokens, out_features), bf16, or float where it must not be rounded
//
// All three row-major and without gaps; products are summed in f32. The sizes are any positive
// numbers; with no tokens nothing is done. The work is queued on the stream; nothing waits.
// Throws Error for a negative number of tokens, for features below 1 and for null pointers.
//
// The three ways to do it, under one interface (docs/06_matmul.md explains them):
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"

namespace tinyvllm {

enum class GemmBackend {
  kLoops,   // a thread an output element
  kTiled,   // our own tiles; a row's result never depends on the other rows, bit for bit
  kCublas,  // NVIDIA's library: the fastest, and it chooses the order of its sums by the shape
};

struct MatmulVersion {
  int number;
  const char* name;
  const char* idea;
  GemmBackend backend;
};

constexpr MatmulVersion kMatmulVersions[] = {
    {1, "loops", "a thread an output element, which reads a row of each matrix",
     GemmBackend::kLoops},
    {2, "tiles", "a block stages tiles in shared memory, so that each value read serves 64 outputs",
     GemmBackend::kTiled},
    {3, "cuBLAS", "the library, told that our matrices are their own transposes",
     GemmBackend::kCublas},
};

class Linear {
 public:
  // `stream` must outlive the object. All memory that cuBLAS works in is allocated here, so that a
  // later capture of the calls in a CUDA graph sees no allocation.
  explicit Linear(cudaStream_t stream, GemmBackend backend = GemmBackend::kCublas);
  ~Linear();
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  // See the top of this file.
  void operator()(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                  int in_features, int out_features) const;
  void operator()(const bf16* input, const bf16* weight, float* output, int num_tokens,
                  int in_features, int out_features) const;

  GemmBackend backend() const { return backend_; }

 private:
  template <typename Out>
  void Run(const bf16* input, const bf16* weight, Out* output, int num_tokens, int in_features,
           int out_features) const;

  cudaStream_t stream_;
  GemmBackend backend_;
  DeviceBuffer<char> workspace_;     // cuBLAS's own scratch memory
  cublasHandle_t handle_ = nullptr;  // only for kCublas
};

}  // namespace tinyvllm
