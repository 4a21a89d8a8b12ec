// The simulator's promise beyond cuBLAS's own: an element of a product has the same bits whatever
// is computed with it, so that a request gives the same tokens alone and in a batch.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

template <typename T>
constexpr cudaDataType kType = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF;

template <typename T>
class Product {
 public:
  Product(bool ta, bool tb, int m, int max_n, int k)
      : ta_(ta), tb_(tb), m_(m), max_n_(max_n), k_(k), a_(Random(m * k)), b_(Random(max_n * k)) {
    CUBLAS_CHECK(cublasCreate(&handle_));
  }
  ~Product() { cublasDestroy(handle_); }

  // Columns first .. first + n - 1 of the product, and rows from `row` on.
  std::vector<float> Compute(int row, int first, int n) {
    const int lda = ta_ ? k_ : m_, ldb = tb_ ? max_n_ : k_;
    const int rows = m_ - row;
    DeviceBuffer<float> c(static_cast<size_t>(rows) * n);
    const float one = 1, zero = 0;
    CUBLAS_CHECK(cublasGemmEx(handle_, ta_ ? CUBLAS_OP_T : CUBLAS_OP_N,
                              tb_ ? CUBLAS_OP_T : CUBLAS_OP_N, rows, n, k_, &one,
                              a_.data() + (ta_ ? row * lda : row), kType<T>, lda,
                              b_.data() + (tb_ ? first : first * ldb), kType<T>, ldb, &zero,
                              c.data(), CUDA_R_32F, rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return c.ToHost();
  }

 private:
  std::vector<T> Random(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(normal(random_));
    return values;
  }

  const bool ta_, tb_;
  const int m_, max_n_, k_;
  std::mt19937 random_{7};
  const DeviceBuffer<T> a_, b_;
  cublasHandle_t handle_;
};

template <typename T>
void CheckInvariance(int m, int k) {
  const int max_n = 64;
  for (const bool ta : {true, false}) {
    for (const bool tb : {false, true}) {
      Product<T> product(ta, tb, m, max_n, k);
      const std::vector<float> all = product.Compute(0, 0, max_n);
      for (const int n : {1, 2, 3, 4, 5, 6, 7, 17, 63}) {
        for (int first = 0; first + n <= max_n; first += 13) {
          for (const int row : {0, 3}) {
            if (row >= m) continue;
            const std::vector<float> part = product.Compute(row, first, n);
            for (int c = 0; c < n; ++c) {
              for (int r = 0; r < m - row; ++r) {
                const float x = part[static_cast<size_t>(c) * (m - row) + r];
                const float y = all[static_cast<size_t>(first + c) * m + row + r];
                ASSERT_EQ(std::memcmp(&x, &y, sizeof(x)), 0)
                    << "m=" << m << " k=" << k << " n=" << n << " ta=" << ta << " tb=" << tb << ": "
                    << x << " and " << y << " at row " << row + r << ", column " << first + c;
              }
            }
          }
        }
      }
    }
  }
}

TEST(SimulatorGemmInvariance, Bf16) {
  CheckInvariance<__nv_bfloat16>(70, 256);
  CheckInvariance<__nv_bfloat16>(9, 2061);
  CheckInvariance<__nv_bfloat16>(1, 37);
}

TEST(SimulatorGemmInvariance, Float) {
  CheckInvariance<float>(70, 256);
  CheckInvariance<float>(9, 2061);
}

}  // namespace
}  // namespace tinyvllm
