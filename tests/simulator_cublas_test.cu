// cuBLAS as far as the simulator has it, against plain loops in f64; and its answers to bad
// arguments. Plain cuBLAS: on a GPU the same checks prove that the simulator tells the truth.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

template <typename T>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
constexpr cudaDataType kType<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType kType<__half> = CUDA_R_16F;

// Half a unit in the last place of T, relative.
template <typename T>
constexpr double kRounding = 6e-8;
template <>
constexpr double kRounding<__nv_bfloat16> = 1.0 / 256;
template <>
constexpr double kRounding<__half> = 1.0 / 2048;

// Some of the real library's algorithms round the product to the output's type before they add beta
// times C; the simulator rounds once.
#ifdef TINYVLLM_SIMULATOR
constexpr bool kProductRoundedFirst = false;
#else
constexpr bool kProductRoundedFirst = true;
#endif

class CublasTest : public testing::Test {
 protected:
  CublasTest() {
    CUBLAS_CHECK(cublasCreate(&handle_));
    // f32 products in f32, as on the CPU, and partial sums of a split product kept in f32 too.
    CUBLAS_CHECK(cublasSetMathMode(
        handle_, static_cast<cublasMath_t>(CUBLAS_PEDANTIC_MATH |
                                           CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  }
  ~CublasTest() override { cublasDestroy(handle_); }

  template <typename T>
  std::vector<T> Random(size_t count) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(uniform(random_));
    return values;
  }

  struct Shape {
    bool ta, tb;
    int m, n, k;
    int pad_a, pad_b, pad_c;  // how much the leading dimensions exceed the least
    float alpha, beta;
    int batch;
  };

  template <typename In, typename Out>
  void CheckGemm(const Shape& s) {
    const int lda = (s.ta ? s.k : s.m) + s.pad_a, ldb = (s.tb ? s.n : s.k) + s.pad_b;
    const int ldc = s.m + s.pad_c;
    const long long stride_a = static_cast<long long>(lda) * (s.ta ? s.m : s.k) + 8;
    const long long stride_b = static_cast<long long>(ldb) * (s.tb ? s.k : s.n) + 16;
    const long long stride_c = static_cast<long long>(ldc) * s.n + 24;
    const auto a = Random<In>(stride_a * s.batch), b = Random<In>(stride_b * s.batch);
    const auto c = Random<Out>(stride_c * s.batch);
    const DeviceBuffer<In> device_a(a), device_b(b);
    DeviceBuffer<Out> device_c(c);
    CUBLAS_CHECK(cublasGemmStridedBatchedEx(
        handle_, s.ta ? CUBLAS_OP_T : CUBLAS_OP_N, s.tb ? CUBLAS_OP_T : CUBLAS_OP_N, s.m, s.n, s.k,
        &s.alpha, device_a.data(), kType<In>, lda, stride_a, device_b.data(), kType<In>, ldb,
        stride_b, &s.beta, device_c.data(), kType<Out>, ldc, stride_c, s.batch, CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT));
    const auto result = device_c.ToHost();
    for (int batch = 0; batch < s.batch; ++batch) {
      const In *pa = &a[stride_a * batch], *pb = &b[stride_b * batch];
      for (long long at = 0; at < stride_c; ++at) {
        const long long i = at % ldc, j = at / ldc;
        const float before = static_cast<float>(c[stride_c * batch + at]);
        const float found = static_cast<float>(result[stride_c * batch + at]);
        if (i >= s.m || j >= s.n) {
          ASSERT_EQ(found, before) << "written beyond C";
          continue;
        }
        double sum = 0, magnitude = 0;
        for (int x = 0; x < s.k; ++x) {
          const double product =
              static_cast<double>(static_cast<float>(pa[s.ta ? i * lda + x : x * lda + i])) *
              static_cast<float>(pb[s.tb ? x * ldb + j : j * ldb + x]);
          sum += product;
          magnitude += std::fabs(product);
        }
        const double expected = s.alpha * sum + s.beta * before;
        const double roundings =
            std::fabs(expected) + (kProductRoundedFirst ? std::fabs(s.alpha * sum) : 0);
        const double tolerance = kRounding<Out> * roundings +
                                 1e-6 * (std::fabs(s.alpha) * magnitude + std::fabs(before)) + 1e-7;
        ASSERT_NEAR(found, expected, tolerance)
            << (s.ta ? "T" : "N") << (s.tb ? "T" : "N") << " m=" << s.m << " n=" << s.n
            << " k=" << s.k << " at (" << i << ", " << j << ")";
      }
    }
  }

  template <typename In, typename Out>
  void CheckGemms() {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        CheckGemm<In, Out>({ta, tb, 64, 64, 64, 0, 0, 0, 1, 0, 1});
        CheckGemm<In, Out>({ta, tb, 1, 1, 1, 0, 0, 0, 1, 0, 1});
        CheckGemm<In, Out>({ta, tb, 130, 1, 200, 8, 8, 8, 1, 0, 1});
        CheckGemm<In, Out>({ta, tb, 72, 2, 1032, 8, 0, 0, 0.5f, 1, 1});
        CheckGemm<In, Out>({ta, tb, 40, 17, 24, 8, 16, 24, -2, 0.25f, 3});
        CheckGemm<In, Out>({ta, tb, 8, 264, 40, 0, 0, 0, 1, 1, 2});
      }
    }
    for (int round = 0; round < 10; ++round) {
      std::uniform_int_distribution<int> size(1, 150);
      const auto any = [&] { return size(random_); };
      // Multiples of 8 elements: tensor cores need 16-byte rows, and so does the course.
      CheckGemm<In, Out>({any() % 2 == 0, any() % 2 == 0, any() / 8 * 8 + 8, any(),
                          any() / 8 * 8 + 8, any() / 8 * 8, any() / 8 * 8, any() / 8 * 8, 1.5f,
                          -0.5f, 1 + any() % 2});
    }
  }

  std::mt19937 random_{42};
  cublasHandle_t handle_;
};

TEST_F(CublasTest, Bf16) { CheckGemms<__nv_bfloat16, __nv_bfloat16>(); }
TEST_F(CublasTest, Bf16ToFloat) { CheckGemms<__nv_bfloat16, float>(); }
TEST_F(CublasTest, Half) { CheckGemms<__half, __half>(); }
TEST_F(CublasTest, HalfToFloat) { CheckGemms<__half, float>(); }
TEST_F(CublasTest, Float) { CheckGemms<float, float>(); }

TEST_F(CublasTest, BetaZeroDoesNotReadC) {
  const int n = 32;
  const DeviceBuffer<float> a(std::vector<float>(n * n, 1)), b(std::vector<float>(n * n, 2));
  DeviceBuffer<float> c(n * n);
  c.Fill(0xff);  // NaN
  const float one = 1, zero = 0;
  CUBLAS_CHECK(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data(), n, b.data(),
                           n, &zero, c.data(), n));
  EXPECT_EQ(c.ToHost(), std::vector<float>(n * n, 2 * n));
}

TEST_F(CublasTest, PointerArrays) {
  const int n = 16, batch = 3;
  std::vector<DeviceBuffer<float>> matrices;
  std::vector<const void*> a, b;
  std::vector<void*> c;
  for (int i = 0; i < batch; ++i) {
    matrices.emplace_back(std::vector<float>(n * n, i + 1.0f));
    a.push_back(matrices.back().data());
    matrices.emplace_back(std::vector<float>(n * n, 2.0f));
    b.push_back(matrices.back().data());
    matrices.emplace_back(std::vector<float>(n * n, 100.0f));
    c.push_back(matrices.back().data());
  }
  const DeviceBuffer<const void*> device_a(a), device_b(b);
  const DeviceBuffer<void*> device_c(c);
  const float one = 1;
  CUBLAS_CHECK(cublasGemmBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one,
                                   device_a.data(), CUDA_R_32F, n, device_b.data(), CUDA_R_32F, n,
                                   &one, device_c.data(), CUDA_R_32F, n, batch, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT));
  for (int i = 0; i < batch; ++i) {
    EXPECT_EQ(matrices[3 * i + 2].ToHost(), std::vector<float>(n * n, 100 + 2.0f * n * (i + 1)));
  }
}

TEST_F(CublasTest, BadArgumentsAreRefused) {
  DeviceBuffer<float> x(64 * 64);
  const float one = 1;
  const auto gemm = [&](cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                        int n, int k, int lda, int ldb, int ldc) {
    return cublasSgemm(handle, ta, tb, m, n, k, &one, x.data(), lda, x.data(), ldb, &one, x.data(),
                       ldc);
  };
  const auto kN = CUBLAS_OP_N, kT = CUBLAS_OP_T;
  EXPECT_EQ(gemm(handle_, kN, kN, 16, 8, 4, 16, 4, 16), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(gemm(nullptr, kN, kN, 16, 8, 4, 16, 4, 16), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(gemm(handle_, kN, kN, -1, 8, 4, 16, 4, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 16, -8, 4, 16, 4, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 16, 8, -4, 16, 4, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 16, 8, 4, 15, 4, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kT, kN, 16, 8, 4, 3, 4, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 16, 8, 4, 16, 3, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kT, 16, 8, 4, 16, 7, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 16, 8, 4, 16, 4, 15), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(handle_, kN, kN, 0, 8, 4, 1, 4, 1), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasTest, StatusesHaveNamesAndTexts) {
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_SUCCESS), "CUBLAS_STATUS_SUCCESS");
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE), "CUBLAS_STATUS_INVALID_VALUE");
  EXPECT_STREQ(cublasGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED),
               "the requested functionality is not supported");
}

TEST_F(CublasTest, ProductsRunInTheirStream) {
  cudaStream_t stream, got = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUBLAS_CHECK(cublasSetStream(handle_, stream));
  CUBLAS_CHECK(cublasGetStream(handle_, &got));
  EXPECT_EQ(got, stream);
  DeviceBuffer<char> workspace(1 << 20);
  CUBLAS_CHECK(cublasSetWorkspace(handle_, workspace.data(), workspace.bytes()));
  const int n = 64;
  PinnedBuffer<float> ones(n * n), result(n * n);
  for (int i = 0; i < n * n; ++i) ones[i] = 1;
  DeviceBuffer<float> a(n * n), c(n * n);
  const float one = 1, zero = 0;
  CUDA_CHECK(cudaMemcpyAsync(a.data(), ones.data(), a.bytes(), cudaMemcpyHostToDevice, stream));
  CUBLAS_CHECK(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data(), n, a.data(),
                           n, &zero, c.data(), n));
  CUDA_CHECK(cudaMemcpyAsync(result.data(), c.data(), c.bytes(), cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < n * n; ++i) ASSERT_EQ(result[i], n);
  CUBLAS_CHECK(cublasSetStream(handle_, nullptr));
  CUDA_CHECK(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace tinyvllm
