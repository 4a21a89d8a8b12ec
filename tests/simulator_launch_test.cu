// Every way to write a launch and a __shared__ declaration that the course, or a reader, may come
// up with. nvcc reads this file as it is; for the simulator cu2cpp has translated it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace launch_test {

extern __shared__ double outer_scratch[];

__global__ void Fill(int* out, int value) { out[threadIdx.x] = value; }

namespace inner {
template <typename T, int kFactor = 1>
__global__ void Fill(T* out, T value) {
  out[threadIdx.x] = value * kFactor;
}
struct Tag {};
}  // namespace inner

template <typename A, typename B>
struct Pair {
  static constexpr int kValue = sizeof(A) + sizeof(B);
};

// Uses the array declared outside of the function.
__global__ void OuterScratch(double* out) {
  outer_scratch[threadIdx.x] = threadIdx.x * 0.5;
  __syncthreads();
  out[threadIdx.x] = outer_scratch[blockDim.x - 1 - threadIdx.x];
}

// Declarations of all shapes.
template <typename T>
__global__ void Declarations(T* out) {
  __shared__ T plain;
  __shared__ T row[4], matrix[2][3];
  static __shared__ T with_static;
  __shared__ alignas(16) T aligned_after[4];
  alignas(32) __shared__ T aligned_before[4];
  __shared__ __align__(16) T aligned_macro[4];
  volatile __shared__ T noisy[2];
  __shared__ struct {
    T x;
    int y[2];
  } record;
  __shared__ Pair<T, Pair<int, T>>* pointer;
  __shared__ typename std::conditional<(sizeof(T) > 2), T, int>::type chosen[8];
  if (threadIdx.x == 0) {
    plain = 1;
    row[3] = 2;
    matrix[1][2] = 3;
    with_static = 4;
    aligned_after[3] = 5;
    aligned_before[3] = 6;
    aligned_macro[3] = 7;
    noisy[1] = 8;
    record.x = 9;
    record.y[1] = 10;
    pointer = nullptr;
    chosen[7] = 11;
  }
  __syncthreads();
  out[threadIdx.x] = plain + row[3] + matrix[1][2] + with_static + aligned_after[3] +
                     aligned_before[3] + aligned_macro[3] + noisy[1] + record.x + record.y[1] +
                     (pointer == nullptr) + chosen[7];
}

#define LAUNCH_ONE(kernel, ...) kernel<<<1, 1>>>(__VA_ARGS__)
#define LAUNCH_LONG(kernel, blocks, ...) \
  do {                                   \
    kernel<<<blocks, 1>>>(__VA_ARGS__);  \
  } while (0)
#define PASS(...) __VA_ARGS__

class Launcher {
 public:
  using Kernel = void (*)(int*, int);
  explicit Launcher(Kernel kernel) : kernel_(kernel) {}
  void Run(int* out, int value) const { kernel_<<<1, 1>>>(out, value); }
  void RunThis(int* out, int value) const { this->kernel_<<<1, 1>>>(out, value); }
  Kernel kernel_;
};

// A launch in a template, of a kernel that depends on it.
template <typename T, int kN>
void LaunchDependent(T* out) {
  constexpr int kTwice = 2 * kN;
  inner::Fill<T, kTwice><<<dim3(1), dim3(1), 0, nullptr>>>(out, T(1));
}

class LaunchTest : public testing::Test {
 protected:
  int Result() {
    CUDA_CHECK_LAUNCH();
    return out_.ToHost()[0];
  }
  int* out() {
    out_.Fill(0xff);
    return out_.data();
  }

 private:
  tinyvllm::DeviceBuffer<int> out_{64};
};

TEST_F(LaunchTest, Spellings) {
  Fill<<<1, 1>>>(out(), 1);
  EXPECT_EQ(Result(), 1);
  ::launch_test::Fill<<<1, 1>>>(out(), 3);
  EXPECT_EQ(Result(), 3);
  inner::Fill<<<1, 1>>>(out(), 4);  // a template, deduced
  EXPECT_EQ(Result(), 4);
  inner::Fill<int><<<1, 1>>>(out(), 5);
  EXPECT_EQ(Result(), 5);
  inner::Fill<int, (3 > 2 ? 2 : 7)><<<1, 1>>>(out(), 3);
  EXPECT_EQ(Result(), 6);
  inner::Fill<int, Pair<Pair<char, char>, Pair<char, Pair<char, char>>>::kValue>
      <<<1, 1>>>(out(), 3);
  EXPECT_EQ(Result(), 6);
  Fill<<<dim3(1, 1, 1), {1, 1, 1}, 0, 0>>>(out(), 7);
  EXPECT_EQ(Result(), 7);
}

// clang-format off
constexpr int kFirstLine = __LINE__;
TEST_F(LaunchTest, OverManyLines) {
  inner::Fill<int,
              2>  // a comment with <<< in it
      <<<
          // the grid
          dim3(1),
          /* the block: >>> */ dim3(1),
          0>>>(
              out(),
              4);
  EXPECT_EQ(__LINE__, kFirstLine + 11);
  EXPECT_EQ(Result(), 8);
  Fill <<< 1, 1 >>> (out(), 9);
  EXPECT_EQ(Result(), 9);
}
// clang-format on

TEST_F(LaunchTest, ThroughPointersAndMembers) {
  void (*pointer)(int*, int) = &inner::Fill<int, 3>;
  pointer<<<1, 1>>>(out(), 3);
  EXPECT_EQ(Result(), 9);
  const Launcher launcher(&Fill);
  launcher.Run(out(), 10);
  EXPECT_EQ(Result(), 10);
  launcher.RunThis(out(), 11);
  EXPECT_EQ(Result(), 11);
  launcher.kernel_<<<1, 1>>>(out(), 12);
  EXPECT_EQ(Result(), 12);
  const Launcher* address = &launcher;
  address->kernel_<<<1, 1>>>(out(), 13);
  EXPECT_EQ(Result(), 13);
  const std::vector<Launcher::Kernel> table = {&Fill, &inner::Fill<int, 2>};
  table[1]<<<1, 1>>>(out(), 7);
  EXPECT_EQ(Result(), 14);
  const bool twice = true;
  (twice ? &inner::Fill<int, 2> : &Fill)<<<1, 1>>>(out(), 8);
  EXPECT_EQ(Result(), 16);
}

TEST_F(LaunchTest, InMacrosStatementsAndLambdas) {
  LAUNCH_ONE(Fill, out(), 17);
  EXPECT_EQ(Result(), 17);
  LAUNCH_LONG(Fill, 1, out(), 18);
  EXPECT_EQ(Result(), 18);
  PASS(Fill<<<1, 1>>>(out(), 19));
  EXPECT_EQ(Result(), 19);
  if (Result() == 19) Fill<<<1, 1>>>(out(), 20);
  EXPECT_EQ(Result(), 20);
  for (int i = 0; i < 3; ++i) Fill<<<1, 1>>>(out(), i);
  EXPECT_EQ(Result(), 2);
  const auto launch = [this](int value) { return Fill<<<1, 1>>>(out(), value); };
  launch(21);
  EXPECT_EQ(Result(), 21);
  const auto generic = [this](auto factor) {
    inner::Fill<int, decltype(factor)::value><<<1, 1>>>(out(), 2);
  };
  generic(std::integral_constant<int, 11>());
  EXPECT_EQ(Result(), 22);
  LaunchDependent<int, 5>(out());
  EXPECT_EQ(Result(), 10);
}

TEST_F(LaunchTest, TextThatOnlyLooksLikeALaunch) {
  const std::string plain = "Fill<<<1, 1>>>(out) __shared__ int x;";
  const std::string raw = R"(Fill<<<1, 1>>>("out");
__shared__ int x;)";
  const char quote = '"';
  const int shifted = 1 << 3 >> 1;  // Fill<<<1, 1>>>(out)
  const long separated = 1'000'000;
  EXPECT_EQ(plain.size(), 37u);
  EXPECT_EQ(raw.size(), 40u);
  EXPECT_EQ(raw[15], quote);
  EXPECT_EQ(shifted, 4);
  EXPECT_EQ(separated, 1000000);
}

TEST_F(LaunchTest, SharedDeclarations) {
  Declarations<<<1, 3>>>(out());
  EXPECT_EQ(Result(), 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 1 + 11);
  tinyvllm::DeviceBuffer<double> halves(100);
  OuterScratch<<<1, 100, 100 * sizeof(double)>>>(halves.data());
  CUDA_CHECK_LAUNCH();
  const std::vector<double> h = halves.ToHost();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(h[i], (99 - i) * 0.5);
}

// Arguments are copied at the launch and converted to the kernel's parameters.
struct Big {
  int values[20];
};
__global__ void TakesMany(int* out, Big big, const int* __restrict__ nothing, float scale, bool add,
                          long long offset) {
  out[0] = static_cast<int>(big.values[19] * scale) + (add ? 1 : 0) +
           (nothing == nullptr ? 10 : 0) + static_cast<int>(offset);
}

TEST_F(LaunchTest, Arguments) {
  Big big = {};
  big.values[19] = 100;
  TakesMany<<<1, 1>>>(out(), big, nullptr, 2, true, 1000);
  EXPECT_EQ(Result(), 200 + 1 + 10 + 1000);
}

}  // namespace launch_test
