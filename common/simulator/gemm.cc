#include "common/simulator/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/simulator/pool.h"
#include "cuda_simulator/small_float.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tinyvllm::simulator {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

namespace portable {
#include "common/simulator/gemm_kernel.inc"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TINYVLLM_GEMM_FMA
namespace avx2 {
#include "common/simulator/gemm_kernel.inc"
}
#undef TINYVLLM_GEMM_FMA
#pragma GCC pop_options
#endif

// The inner loops for this machine.
struct Kernels {
  decltype(&portable::StripFloat) strip_float = &portable::StripFloat;
  decltype(&portable::StripBf16) strip_bf16 = &portable::StripBf16;
  decltype(&portable::Widen) widen = &portable::Widen;

  Kernels() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    strip_float = &avx2::StripFloat;
    strip_bf16 = &avx2::StripBf16;
    widen = &avx2::Widen;
#endif
  }
};

const Kernels& GetKernels() {
  static const Kernels kernels;
  return kernels;
}

// k is summed in blocks of this length, each from zero: a part of the order of additions, so of the
// contract. A block of 64 rows fits the second-level cache.
constexpr int kBlock = 1024;
constexpr int kPanelRows = 64;
constexpr int kPanelColumns = 240;
// Up to so many columns, bf16 rows are widened in registers, again for each column group; with more
// it pays to widen a panel once.
constexpr int kDirectColumns = 8;
// A product with fewer multiplications is done before a helper has woken up.
constexpr double kWorthHelpers = 1e6;

size_t ElementBytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

const char* Element(const void* matrix, cudaDataType type, int64_t index) {
  return static_cast<const char*>(matrix) + index * static_cast<int64_t>(ElementBytes(type));
}

float ReadElement(const void* matrix, cudaDataType type, int64_t index) {
  const char* address = Element(matrix, type, index);
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, address, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, address, sizeof(bits));
  return type == CUDA_R_16BF ? Bf16BitsToFloat(bits) : Fp16BitsToFloat(bits);
}

void WriteElement(void* matrix, cudaDataType type, int64_t index, float value) {
  char* address = const_cast<char*>(Element(matrix, type, index));
  if (type == CUDA_R_32F) {
    std::memcpy(address, &value, sizeof(value));
    return;
  }
  const uint16_t bits = type == CUDA_R_16BF ? FloatToBf16Bits(value) : FloatToFp16Bits(value);
  std::memcpy(address, &bits, sizeof(bits));
}

// `count` elements from `index` on, as f32.
void Widen(const void* matrix, cudaDataType type, int64_t index, int count, float* to) {
  const char* from = Element(matrix, type, index);
  if (type == CUDA_R_32F) {
    std::memcpy(to, from, count * sizeof(float));
  } else if (type == CUDA_R_16BF) {
    GetKernels().widen(reinterpret_cast<const Bf16*>(from), to, count);
  } else {
    for (int i = 0; i < count; ++i) {
      to[i] = Fp16BitsToFloat(reinterpret_cast<const Fp16*>(from)[i].bits);
    }
  }
}

// Vectors first .. first + count - 1 of a matrix, elements k0 .. k0 + k - 1 of each, as f32, one
// after another. `contiguous`: a vector's elements are neighbours, vectors are `ld` apart; else the
// reverse.
void Pack(const void* matrix, cudaDataType type, int64_t ld, bool contiguous, int first, int count,
          int k0, int k, float* to) {
  if (contiguous) {
    for (int v = 0; v < count; ++v) {
      Widen(matrix, type, (first + v) * ld + k0, k, to + static_cast<int64_t>(v) * k);
    }
    return;
  }
  float elements[kPanelColumns];
  for (int i = 0; i < k; ++i) {
    for (int begin = 0; begin < count; begin += kPanelColumns) {
      const int length = std::min(kPanelColumns, count - begin);
      Widen(matrix, type, (k0 + i) * ld + first + begin, length, elements);
      for (int v = 0; v < length; ++v) to[static_cast<int64_t>(begin + v) * k + i] = elements[v];
    }
  }
}

// A part of the product: up to kPanelRows rows and kPanelColumns columns of C.
struct Panel {
  int row, rows, column, columns;
};

// Scratch of an OS thread.
struct Scratch {
  std::vector<float> a, sums;
};

// `b` holds op(B) as f32, column after column.
void ComputePanel(const GemmArguments& g, const float* b, const Panel& panel) {
  static thread_local Scratch scratch;
  const Kernels& kernels = GetKernels();
  scratch.sums.assign(static_cast<size_t>(panel.rows) * panel.columns, 0.0f);
  const bool direct =
      g.transpose_a &&
      (g.a_type == CUDA_R_32F || (g.a_type == CUDA_R_16BF && panel.columns <= kDirectColumns));
  if (!direct) scratch.a.resize(static_cast<size_t>(kPanelRows) * std::min(g.k, kBlock));
  for (int k0 = 0; k0 < g.k; k0 += kBlock) {
    const int k = std::min(kBlock, g.k - k0);
    const float* columns = b + static_cast<int64_t>(panel.column) * g.k + k0;
    float* sums = scratch.sums.data();
    if (direct && g.a_type == CUDA_R_16BF) {
      const auto* rows =
          reinterpret_cast<const Bf16*>(Element(g.a, g.a_type, panel.row * g.lda + k0));
      kernels.strip_bf16(panel.rows, panel.columns, rows, g.lda, columns, g.k, k, sums,
                         panel.columns);
    } else if (direct) {
      const auto* rows = static_cast<const float*>(g.a) + panel.row * g.lda + k0;
      kernels.strip_float(panel.rows, panel.columns, rows, g.lda, columns, g.k, k, sums,
                          panel.columns);
    } else {
      Pack(g.a, g.a_type, g.lda, g.transpose_a, panel.row, panel.rows, k0, k, scratch.a.data());
      kernels.strip_float(panel.rows, panel.columns, scratch.a.data(), k, columns, g.k, k, sums,
                          panel.columns);
    }
  }
  for (int c = 0; c < panel.columns; ++c) {
    for (int r = 0; r < panel.rows; ++r) {
      const int64_t index = (panel.column + c) * g.ldc + panel.row + r;
      float value = g.alpha * scratch.sums[static_cast<size_t>(r) * panel.columns + c];
      if (g.beta != 0) value += g.beta * ReadElement(g.c, g.c_type, index);
      WriteElement(g.c, g.c_type, index, value);
    }
  }
}

}  // namespace

void Gemm(const GemmArguments& g) {
  if (g.m == 0 || g.n == 0) return;
  static thread_local std::vector<float> packed;  // kept, so that calls allocate nothing
  const float* b = static_cast<const float*>(g.b);
  if (g.b_type != CUDA_R_32F || g.transpose_b || g.ldb != g.k) {
    packed.resize(static_cast<size_t>(g.n) * g.k);
    Pack(g.b, g.b_type, g.ldb, !g.transpose_b, 0, g.n, 0, g.k, packed.data());
    b = packed.data();
  }
  const int row_panels = (g.m + kPanelRows - 1) / kPanelRows;
  const int column_panels = (g.n + kPanelColumns - 1) / kPanelColumns;
  const bool large = static_cast<double>(g.m) * g.n * g.k >= kWorthHelpers;
  const uint64_t num_panels = static_cast<uint64_t>(row_panels) * column_panels;
  WorkerPool::Get().Run(num_panels, large ? WorkerPool::Wake::kNow : WorkerPool::Wake::kIfLong,
                        [&](PoolJob& job) {
                          for (uint64_t i; job.Next(&i);) {
                            Panel panel;
                            panel.row = static_cast<int>(i % row_panels) * kPanelRows;
                            panel.rows = std::min(kPanelRows, g.m - panel.row);
                            panel.column = static_cast<int>(i / row_panels) * kPanelColumns;
                            panel.columns = std::min(kPanelColumns, g.n - panel.column);
                            ComputePanel(g, b, panel);
                          }
                        });
}

}  // namespace tinyvllm::simulator
