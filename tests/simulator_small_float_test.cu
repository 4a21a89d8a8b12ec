// bf16 and half: every operation to the bit. The expected values are checksums of what CUDA 13.0's
// own headers give on the host, over all 65,536 numbers or many pairs. The same operations then run
// inside a kernel, where on a GPU its own instructions answer.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

// FNV-1a, byte by byte.
class Checksum {
 public:
  void Add(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i, value >>= 8) hash_ = (hash_ ^ (value & 0xff)) * 1099511628211u;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 14695981039346656037u;
};

// xorshift64 (Marsaglia, 2003).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }

 private:
  uint64_t state_;
};

template <typename To, typename From>
__host__ __device__ To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

// Zeros, ones, subnormals, the largest and smallest, infinities, NaN of both formats, and others.
std::vector<uint16_t> Interesting() {
  std::vector<uint16_t> bits = {0,      0x8000, 1,      0x8001, 2,      0x7f,   0x80,
                                0x3ff,  0x400,  0x3f80, 0x3c00, 0xbf80, 0xbc00, 0x7f80,
                                0x7c00, 0xff80, 0xfc00, 0x7fff, 0xffff, 0x7fc0, 0x7e00,
                                0x7f7f, 0x7bff, 0xfbff, 0x3f81, 0x3c01};
  Numbers numbers(99);
  for (int i = 0; i < 400; ++i) bits.push_back(static_cast<uint16_t>(numbers.Next()));
  return bits;
}

// Over all numbers: `Result` is what is compared, T's bits or an integer of 8 bytes.
template <typename T, typename Function>
uint64_t OverAll(Function function) {
  Checksum sum;
  for (int a = 0; a < 65536; ++a) {
    const auto result = function(Bits<T>(static_cast<uint16_t>(a)));
    if constexpr (std::is_same_v<decltype(result), const T>) {
      sum.Add(Bits<uint16_t>(result), 2);
    } else {
      sum.Add(static_cast<uint64_t>(result), 8);
    }
  }
  return sum.value();
}

template <typename T, typename Function>
uint64_t OverPairs(Function function) {
  Checksum sum;
  const std::vector<uint16_t> bits = Interesting();
  for (const uint16_t a : bits) {
    for (const uint16_t b : bits) {
      const auto result = function(Bits<T>(a), Bits<T>(b));
      if constexpr (std::is_same_v<decltype(result), const T>) {
        sum.Add(Bits<uint16_t>(result), 2);
      } else {
        sum.Add(static_cast<uint64_t>(result), 1);
      }
    }
  }
  return sum.value();
}

template <typename T, typename Function>
uint64_t OverFloats(Function function) {
  Checksum sum;
  Numbers numbers(7);
  for (int i = 0; i < 3000000; ++i) {
    sum.Add(Bits<uint16_t>(T(function(Bits<float>(static_cast<uint32_t>(numbers.Next()))))), 2);
  }
  // Every upper half with lower halves around the ties.
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low :
         {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, 0x1000u, 0x0fffu, 0x1001u, 0x3000u}) {
      sum.Add(Bits<uint16_t>(T(function(Bits<float>(high << 16 | low)))), 2);
    }
  }
  return sum.value();
}

template <typename T>
uint64_t OverDoubles() {
  Checksum sum;
  Numbers numbers(7);
  for (int i = 0; i < 3000000; ++i) {
    uint64_t bits = numbers.Next();
    if (i % 2) bits = (bits & 0x800fffffffffffffu) | (1023 - 30 + numbers.Next() % 60) << 52;
    sum.Add(Bits<uint16_t>(T(Bits<double>(bits))), 2);
  }
  return sum.value();
}

template <typename T, typename Integer>
uint64_t OverIntegers() {
  Checksum sum;
  Numbers numbers(7);
  for (int i = 0; i < 2000000; ++i) {
    // The order in which the two random numbers are drawn is part of the checksum.
    const uint64_t bits = numbers.Next();
    const uint64_t shift = numbers.Next() % 64;
    Integer value = static_cast<Integer>(bits >> shift);
    if (i & 1) value = static_cast<Integer>(0 - value);
    sum.Add(Bits<uint16_t>(T(value)), 2);
  }
  return sum.value();
}

struct Expected {
  const char* name;
  uint64_t bf16, half;
};
const Expected kExpected[] = {
    {"__hneg", 0x8a42c1ce904853a5u, 0xc42bd4074cb475b9u},
    {"__habs", 0x946892d653e34525u, 0x41ab4da64244f939u},
    {"__hadd", 0xd60c0252a028b40du, 0x7b35991c3228297eu},
    {"__hsub", 0x97a0b7b7fa0333edu, 0x6aaaf90b05ec8271u},
    {"__hmul", 0x889c69ebe1d73ef0u, 0x38f8639c3fbe26b5u},
    {"__hdiv", 0x27cdaa0873fe6701u, 0x9c3311e5f1587934u},
    {"__hadd_sat", 0xad87d5fcfc128854u, 0xc482b06bb77c47dbu},
    {"__hsub_sat", 0xdafaab9a61ab3108u, 0x1ba87d8ee03c4459u},
    {"__hmul_sat", 0xee00e37b5bc4fa42u, 0xda1a53812ab39dd3u},
    {"__hmax", 0x98aa1b43eb256c04u, 0x511c872051c68aacu},
    {"__hmin", 0xaede9b35e0e7d394u, 0x9fc706a742f2e7b0u},
    {"__heq", 0xdc08ba76e38969f5u, 0xaa05662250840f49u},
    {"__hne", 0x0e0ca9f2fb958dddu, 0x4afa77b5be657a89u},
    {"__hlt", 0x44093cf98edd5e1du, 0x9d8675a13f23dc58u},
    {"__hle", 0x81d956f2a7926585u, 0x9aa62105b5e75628u},
    {"__hgt", 0xa6a63258045f9499u, 0xcb21f6dfe88c7b78u},
    {"__hge", 0x54d8e98ca2661719u, 0x4865c35edacb0c00u},
    {"__hequ", 0xa010fa536dc15f41u, 0x814386ef8b68f7a5u},
    {"__hneu", 0x0bc24e7d0aea1279u, 0x0d7305eefee2d345u},
    {"__hltu", 0xdbb2e8eb12b92139u, 0x045c0dbe50023228u},
    {"__hleu", 0xf115112a2fd66f49u, 0x2ea7abaa1866d028u},
    {"__hgtu", 0xd0fcde63258f83e5u, 0x290d25b04bfb8f20u},
    {"__hgeu", 0x87f57ae64582327du, 0xba494ab8b6f74548u},
    {"__hisnan", 0x8ffd85164cb22325u, 0x0ec73d8accb22325u},
    {"static_cast<signed char>", 0x352338c32692039du, 0x64e5ea2baab2469du},
    {"static_cast<unsigned char>", 0x05083477af894fdau, 0xef1b1e3a2277c3dau},
    {"static_cast<short>", 0x4dbcaa99d9ca3b8cu, 0x83dba77fadb42b3du},
    {"static_cast<unsigned short>", 0xcf230b345a9a592bu, 0xd849f6e45d41ccabu},
    {"static_cast<int>", 0x630d2e6c77a6fab6u, 0xd315dc56855b7625u},
    {"static_cast<unsigned>", 0xcdf5ba3f56d03d41u, 0xa2577652461249c1u},
    {"static_cast<long long>", 0xc62ca73c8f6bff5au, 0x24e5a5b69142d36du},
    {"static_cast<unsigned long long>", 0x194a833b4dc72d1du, 0x737266e2c5d70b9du},
    {"static_cast<bool>", 0xaddb36ceccb22325u, 0xaddb36ceccb22325u},
    {"to float", 0x72ebc5b4bb3175a5u, 0x769a45d48914b525u},
    {"from float", 0xb992969bdcfd5760u, 0x7b6e0b7ccbeb85c1u},
    {"from double", 0x7001a74e1e66d992u, 0x6c73ab478150eb88u},
    {"from int", 0x2b38705c0430348bu, 0x11869d8d2ceada56u},
    {"from unsigned", 0x797804e105f1202bu, 0xfc21fce366e9d829u},
    {"from short", 0x38f098aefd70b0c2u, 0x043fcc2996b97d03u},
    {"from unsigned short", 0xb3cd028c4df6b6c7u, 0x6e01042938485f88u},
    {"from long long", 0x148348d727769007u, 0x1a8ba60849155142u},
    {"from unsigned long long", 0x6b34512a18529237u, 0x63ca4431a8198bfau},
    {"rz", 0xbf7d74a0fe137a94u, 0xbbbd9bfff409194cu},
    {"rd", 0x037fa4d691db1eb8u, 0xfade5970aa2e0d6cu},
    {"ru", 0x1c3612b306e7477au, 0xa11b6c147b47fa71u},
};

template <typename T>
uint64_t Find(const std::string& name) {
  for (const Expected& expected : kExpected) {
    if (expected.name == name) return std::is_same_v<T, __half> ? expected.half : expected.bf16;
  }
  ADD_FAILURE() << "no expected value for " << name;
  return 0;
}

#define CHECK_SUM(name, value) \
  EXPECT_EQ(value, Find<T>(name)) << name << " gives " << std::hex << value
#define CHECK_ALL(f) CHECK_SUM(#f, (OverAll<T>([](T a) { return f(a); })))
#define CHECK_PAIRS(f) CHECK_SUM(#f, (OverPairs<T>([](T a, T b) { return f(a, b); })))

template <typename T>
class SmallFloatTest : public testing::Test {};
using Types = testing::Types<__nv_bfloat16, __half>;
TYPED_TEST_SUITE(SmallFloatTest, Types);

TYPED_TEST(SmallFloatTest, Arithmetic) {
  using T = TypeParam;
  CHECK_ALL(__hneg);
  CHECK_ALL(__habs);
  CHECK_PAIRS(__hadd);
  CHECK_PAIRS(__hsub);
  CHECK_PAIRS(__hmul);
  CHECK_PAIRS(__hdiv);
  CHECK_PAIRS(__hadd_sat);
  CHECK_PAIRS(__hsub_sat);
  CHECK_PAIRS(__hmul_sat);
  CHECK_PAIRS(__hmax);
  CHECK_PAIRS(__hmin);
}

TYPED_TEST(SmallFloatTest, Comparisons) {
  using T = TypeParam;
  CHECK_ALL(__hisnan);
  CHECK_PAIRS(__heq);
  CHECK_PAIRS(__hne);
  CHECK_PAIRS(__hlt);
  CHECK_PAIRS(__hle);
  CHECK_PAIRS(__hgt);
  CHECK_PAIRS(__hge);
  CHECK_PAIRS(__hequ);
  CHECK_PAIRS(__hneu);
  CHECK_PAIRS(__hltu);
  CHECK_PAIRS(__hleu);
  CHECK_PAIRS(__hgtu);
  CHECK_PAIRS(__hgeu);
}

TYPED_TEST(SmallFloatTest, Conversions) {
  using T = TypeParam;
  CHECK_ALL(static_cast<signed char>);
  CHECK_ALL(static_cast<unsigned char>);
  CHECK_ALL(static_cast<short>);
  CHECK_ALL(static_cast<unsigned short>);
  CHECK_ALL(static_cast<int>);
  CHECK_ALL(static_cast<unsigned>);
  CHECK_ALL(static_cast<long long>);
  CHECK_ALL(static_cast<unsigned long long>);
  CHECK_ALL(static_cast<bool>);
  Checksum as_float;
  for (int a = 0; a < 65536; ++a) {
    const auto bits = Bits<uint32_t>(static_cast<float>(Bits<T>(static_cast<uint16_t>(a))));
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;  // of any payload
    as_float.Add(is_nan ? 0x7fffffff : bits, 4);
  }
  CHECK_SUM("to float", as_float.value());
  CHECK_SUM("from float", OverFloats<T>([](float x) { return x; }));
  CHECK_SUM("from double", OverDoubles<T>());
  CHECK_SUM("from short", (OverIntegers<T, short>()));
  CHECK_SUM("from unsigned short", (OverIntegers<T, unsigned short>()));
  CHECK_SUM("from int", (OverIntegers<T, int>()));
  CHECK_SUM("from unsigned", (OverIntegers<T, unsigned>()));
  CHECK_SUM("from long long", (OverIntegers<T, long long>()));
  CHECK_SUM("from unsigned long long", (OverIntegers<T, unsigned long long>()));
}

TEST(SmallFloat, DirectedRoundingOfFloats) {
  {
    using T = __nv_bfloat16;
    CHECK_SUM("rz", OverFloats<T>([](float x) { return __float2bfloat16_rz(x); }));
    CHECK_SUM("rd", OverFloats<T>([](float x) { return __float2bfloat16_rd(x); }));
    CHECK_SUM("ru", OverFloats<T>([](float x) { return __float2bfloat16_ru(x); }));
  }
  {
    using T = __half;
    CHECK_SUM("rz", OverFloats<T>([](float x) { return __float2half_rz(x); }));
    CHECK_SUM("rd", OverFloats<T>([](float x) { return __float2half_rd(x); }));
    CHECK_SUM("ru", OverFloats<T>([](float x) { return __float2half_ru(x); }));
  }
}

// --- In a kernel.

// A fused multiply-add against the exact value, which long double holds: 16 bits of product over a
// range of exponents that the operands below keep small.
template <typename T>
__global__ void FmaKernel(const T* a, const T* b, const T* c, T* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hfma(a[i], b[i], c[i]);
}

TYPED_TEST(SmallFloatTest, FusedMultiplyAddRoundsOnce) {
  using T = TypeParam;
  const int n = 1 << 18;
  std::vector<T> a(n), b(n), c(n);
  Numbers numbers(5);
  for (int i = 0; i < n; ++i) {
    const auto pick = [&](int exponents) {
      const float fraction = 1.0f + (numbers.Next() % 1024) / 1024.0f;
      const int exponent = static_cast<int>(numbers.Next() % exponents) - exponents / 2;
      return static_cast<T>((numbers.Next() & 1 ? -1 : 1) * std::ldexp(fraction, exponent));
    };
    a[i] = pick(6);
    b[i] = pick(6);
    c[i] = pick(24);
  }
  const DeviceBuffer<T> device_a(a), device_b(b), device_c(c);
  DeviceBuffer<T> out(n);
  FmaKernel<<<n / 256, 256>>>(device_a.data(), device_b.data(), device_c.data(), out.data(), n);
  CUDA_CHECK_LAUNCH();
  const std::vector<T> result = out.ToHost();
  for (int i = 0; i < n; ++i) {
    const long double exact =
        static_cast<long double>(static_cast<float>(a[i])) * static_cast<float>(b[i]) +
        static_cast<float>(c[i]);
    // No neighbour is nearer, and of two equally near ones it is the even one.
    const uint16_t bits = Bits<uint16_t>(result[i]);
    const auto distance = [&](uint16_t x) {
      return std::fabs(static_cast<long double>(static_cast<float>(Bits<T>(x))) - exact);
    };
    if (exact == 0) continue;
    const long double mine = distance(bits);
    for (const uint16_t other :
         {static_cast<uint16_t>(bits + 1), static_cast<uint16_t>(bits - 1)}) {
      ASSERT_TRUE(mine < distance(other) || (mine == distance(other) && bits % 2 == 0))
          << static_cast<float>(a[i]) << " * " << static_cast<float>(b[i]) << " + "
          << static_cast<float>(c[i]) << " gave " << static_cast<float>(result[i]);
    }
  }
}

// Host and device agree on every operation. (A NaN is a NaN: negating one keeps its payload on some
// GPUs.)
template <typename T>
__host__ __device__ T Operation(int which, T a, T b) {
  switch (which) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return __hmax(a, b);
    case 4:
      return __hmin(a, b);
    case 5:
      return -a;
    case 6:
      return __habs(a);
    case 7:
      return static_cast<T>(static_cast<float>(a) * 1.0009765625f);
    case 8:
      return static_cast<T>(a < b ? 1.0f : 0.0f);
    case 9:
      return static_cast<T>(static_cast<int>(a));
    default:
      return static_cast<T>(a == b ? 1.0f : 0.0f);
  }
}
constexpr int kOperations = 11;

template <typename T>
__global__ void OperationKernel(const T* values, int n, T* out) {
  const int a = blockIdx.x, b = threadIdx.x;
  for (int which = 0; which < kOperations; ++which) {
    out[(static_cast<size_t>(which) * n + a) * n + b] = Operation(which, values[a], values[b]);
  }
}

TYPED_TEST(SmallFloatTest, HostAndDeviceAgree) {
  using T = TypeParam;
  std::vector<T> values;
  for (const uint16_t bits : Interesting()) values.push_back(Bits<T>(bits));
  const int n = static_cast<int>(values.size());
  const DeviceBuffer<T> device(values);
  DeviceBuffer<T> out(static_cast<size_t>(kOperations) * n * n);
  OperationKernel<<<n, n>>>(device.data(), n, out.data());
  CUDA_CHECK_LAUNCH();
  const std::vector<T> result = out.ToHost();
  for (int which = 0; which < kOperations; ++which) {
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        const T expected = Operation(which, values[a], values[b]);
        const T found = result[(static_cast<size_t>(which) * n + a) * n + b];
        if (__hisnan(found) && __hisnan(expected)) continue;
        ASSERT_EQ(Bits<uint16_t>(found), Bits<uint16_t>(expected))
            << "operation " << which << " of " << static_cast<float>(values[a]) << " and "
            << static_cast<float>(values[b]);
      }
    }
  }
}

// Pairs, and their conversions.
__global__ void PairKernel(float* out) {
  const __nv_bfloat162 a = __floats2bfloat162_rn(1.5f, -2.0f);
  const __nv_bfloat162 b = __float22bfloat162_rn(make_float2(3.0f, 0.5f));
  const __half2 c = __floats2half2_rn(0.25f, 8.0f), d = __float2half2_rn(2.0f);
  int i = 0;
  const float2 sum = __bfloat1622float2(__hadd2(a, b));
  out[i++] = sum.x;
  out[i++] = sum.y;
  out[i++] = __low2float(__hmul2(a, b));
  out[i++] = __high2float(__hfma2(a, b, a));
  out[i++] = __bfloat162float(__low2bfloat16(__lowhigh2highlow(a)));
  out[i++] = __bfloat162float(__high2bfloat16(__highs2bfloat162(a, b)));
  out[i++] = __hbgt2(b, a);
  out[i++] = __low2float(__hmax2(a, b));
  const float2 product = __half22float2(__hmul2(c, d));
  out[i++] = product.x;
  out[i++] = product.y;
  out[i++] = __half2float(__low2half(__halves2half2(__float2half(4.0f), __float2half(5.0f))));
  out[i++] = __half2float(hsqrt(__float2half(16.0f)));
  out[i++] = __bfloat162float(hexp2(__float2bfloat16(3.0f)));
  out[i++] = static_cast<float>(__bfloat162int_rn(__float2bfloat16(2.5f)));
  out[i++] = static_cast<float>(__half2int_rd(__float2half(-2.5f)));
  out[i++] = __bfloat162float(__int2bfloat16_rz(257));
}

TEST(SmallFloat, Pairs) {
  const std::vector<float> expected = {4.5f, -1.5f, 4.5f, -3.0f, -2.0f, 0.5f, 1,     3.0f,
                                       0.5f, 16.0f, 4.0f, 4.0f,  8.0f,  2.0f, -3.0f, 256.0f};
  DeviceBuffer<float> out(expected.size());
  PairKernel<<<1, 1>>>(out.data());
  CUDA_CHECK_LAUNCH();
  EXPECT_EQ(out.ToHost(), expected);
}

}  // namespace
}  // namespace tinyvllm
