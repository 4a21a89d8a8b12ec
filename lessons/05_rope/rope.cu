#include "lessons/05_rope/rope.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

constexpr int kMaxThreads = 256;

// tag::table[]
// One thread an entry.
__global__ void RopeTableKernel(const float* __restrict__ inverse_frequencies,  // (half)
                                float2* __restrict__ table,  // (max_positions, half): cos, sin
                                int half, int64_t size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float angle = static_cast<float>(i / half) * inverse_frequencies[i % half];
  table[i] = make_float2(cosf(angle), sinf(angle));
}
// end::table[]

// In all versions, a block rotates one token, and its threads share out the pairs of all heads.

// Version 1: a thread a pair, which computes cos and sin itself.
// tag::direct[]
__global__ void RopeDirectKernel(bf16* __restrict__ x,               // (num_tokens, row_stride)
                                 const int* __restrict__ positions,  // (num_tokens)
                                 const float* __restrict__ inverse_frequencies,  // (half)
                                 int num_heads, int half, int64_t row_stride) {
  bf16* row = x + blockIdx.x * row_stride;
  const float position = positions[blockIdx.x];
  // exercise: Rotate all pairs of this token's row. There are num_heads * half of them: pair p
  // belongs to head p / half, and in that head it is number i = p % half, which is made of the
  // elements i and i + half. Its angle is position * inverse_frequencies[i]; turn the point by it
  // with cosf and sinf, in f32 (__bfloat162float and __float2bfloat16 convert). The block's threads
  // take the pairs threadIdx.x, threadIdx.x + blockDim.x, and so on.
  for (int p = threadIdx.x; p < num_heads * half; p += blockDim.x) {
    const int i = p % half;
    bf16* head = row + p / half * (2 * half);
    const float angle = position * inverse_frequencies[i];
    const float cosine = cosf(angle), sine = sinf(angle);
    const float a = __bfloat162float(head[i]), b = __bfloat162float(head[i + half]);
    head[i] = __float2bfloat16(a * cosine - b * sine);
    head[i + half] = __float2bfloat16(b * cosine + a * sine);
  }
  // end exercise
}
// end::direct[]

// exercise: Later, if you like: versions 2 and 3, kernels that turn the same pairs with cosines and
// sines from a table, and with 16 bytes a load. Until then their launchers run version 1.

// tag::turn[]
// Turns the point (a, b) about the origin.
__device__ void Turn(float& a, float& b, float cosine, float sine) {
  const float turned_a = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = turned_a;
}
// end::turn[]

// Version 2: cos and sin from a table.
//
// Every head of every layer turns by the same angles, and an exact cosf of a large angle costs far
// more than a load that the cache answers.
// tag::lookup[]
__global__ void RopeTableLookupKernel(bf16* __restrict__ x,  // (num_tokens, row_stride)
                                      const int* __restrict__ positions,  // (num_tokens)
                                      const float2* __restrict__ table,   // (max_positions, half)
                                      int num_heads, int half, int64_t row_stride) {
  bf16* row = x + blockIdx.x * row_stride;
  const float2* angles = table + static_cast<int64_t>(positions[blockIdx.x]) * half;
  for (int p = threadIdx.x; p < num_heads * half; p += blockDim.x) {
    const int i = p % half;
    bf16* head = row + p / half * (2 * half);
    const float2 angle = angles[i];  // cos, sin
    float a = __bfloat162float(head[i]), b = __bfloat162float(head[i + half]);
    Turn(a, b, angle.x, angle.y);
    head[i] = __float2bfloat16(a);
    head[i + half] = __float2bfloat16(b);
  }
}
// end::lookup[]

// Version 3: 8 pairs a thread, in 16-byte loads.
//
// Half-split pairs suit it: 8 neighbours from the first half of a head meet 8 neighbours from the
// second half, and nothing has to be shuffled.
// PRECONDITION: half is a multiple of 8, row_stride too, and x is a multiple of 16 bytes.
// tag::vector[]
__global__ void RopeVectorKernel(bf16* __restrict__ x,               // (num_tokens, row_stride)
                                 const int* __restrict__ positions,  // (num_tokens)
                                 const float2* __restrict__ table,   // (max_positions, half)
                                 int num_heads, int half, int64_t row_stride) {
  bf16* row = x + blockIdx.x * row_stride;
  const float2* angles = table + static_cast<int64_t>(positions[blockIdx.x]) * half;
  const int vectors = half / Bf16x8::kSize;  // in half a head
  for (int v = threadIdx.x; v < num_heads * vectors; v += blockDim.x) {
    const int i = v % vectors * Bf16x8::kSize;
    bf16* head = row + v / vectors * (2 * half);
    float a[Bf16x8::kSize], b[Bf16x8::kSize];
    LoadBf16x8(head + i).ToFloats(a);
    LoadBf16x8(head + i + half).ToFloats(b);
#pragma unroll
    for (int k = 0; k < Bf16x8::kSize; k += 2) {
      const float4 two = *reinterpret_cast<const float4*>(angles + i + k);  // cos, sin, cos, sin
      Turn(a[k], b[k], two.x, two.y);
      Turn(a[k + 1], b[k + 1], two.z, two.w);
    }
    StoreBf16x8(head + i, Bf16x8::FromFloats(a));
    StoreBf16x8(head + i + half, Bf16x8::FromFloats(b));
  }
}
// end::vector[]
// end exercise

void CheckArguments(const RopeTable& table, int num_tokens, int num_heads, int head_dim,
                    int64_t row_stride) {
  Check(num_tokens >= 0, "Rope: num_tokens is ", num_tokens, ", expected 0 or more");
  Check(num_heads >= 1, "Rope: num_heads is ", num_heads, ", expected 1 or more");
  Check(head_dim == table.head_dim(), "Rope: head_dim is ", head_dim,
        ", but the table was built for ", table.head_dim());
  Check(row_stride >= static_cast<int64_t>(num_heads) * head_dim, "Rope: ", num_heads, " heads of ",
        head_dim, " do not fit a row of ", row_stride, " elements");
}

// Threads for `work` items a token, at most kMaxThreads.
int ThreadsFor(int64_t work) { return std::min<int64_t>(work, kMaxThreads); }

void RopeDirect(bf16* x, const int* positions, const RopeTable& table, int num_tokens,
                int num_heads, int head_dim, int64_t row_stride, cudaStream_t stream) {
  CheckArguments(table, num_tokens, num_heads, head_dim, row_stride);
  if (num_tokens == 0) return;
  const int half = head_dim / 2;
  const int threads = ThreadsFor(static_cast<int64_t>(num_heads) * half);
  RopeDirectKernel<<<num_tokens, threads, 0, stream>>>(x, positions, table.inverse_frequencies(),
                                                       num_heads, half, row_stride);
  CUDA_CHECK_LAUNCH();
}

void RopeTableLookup(bf16* x, const int* positions, const RopeTable& table, int num_tokens,
                     int num_heads, int head_dim, int64_t row_stride, cudaStream_t stream) {
  // exercise: Later, with version 2: its launch, as in RopeDirect.
  // starter: RopeDirect(x, positions, table, num_tokens, num_heads, head_dim, row_stride, stream);
  CheckArguments(table, num_tokens, num_heads, head_dim, row_stride);
  if (num_tokens == 0) return;
  const int half = head_dim / 2;
  const int threads = ThreadsFor(static_cast<int64_t>(num_heads) * half);
  RopeTableLookupKernel<<<num_tokens, threads, 0, stream>>>(x, positions, table.data(), num_heads,
                                                            half, row_stride);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

void RopeVector(bf16* x, const int* positions, const RopeTable& table, int num_tokens,
                int num_heads, int head_dim, int64_t row_stride, cudaStream_t stream) {
  // exercise: Later, with version 3: its launch, as in RopeDirect.
  // starter: RopeDirect(x, positions, table, num_tokens, num_heads, head_dim, row_stride, stream);
  CheckArguments(table, num_tokens, num_heads, head_dim, row_stride);
  const int half = head_dim / 2;
  if (!FitsBf16x8(half, x) || row_stride % Bf16x8::kSize != 0) {
    RopeTableLookup(x, positions, table, num_tokens, num_heads, head_dim, row_stride, stream);
    return;
  }
  if (num_tokens == 0) return;
  const int threads = ThreadsFor(static_cast<int64_t>(num_heads) * half / Bf16x8::kSize);
  RopeVectorKernel<<<num_tokens, threads, 0, stream>>>(x, positions, table.data(), num_heads, half,
                                                       row_stride);
  CUDA_CHECK_LAUNCH();
  // end exercise
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config, int max_positions)
    : max_positions_(max_positions),
      head_dim_(config.head_dim),
      inverse_frequencies_(InverseFrequencies(config)) {
  constexpr int kMaxPositions = 1 << 24;
  Check(max_positions >= 1 && max_positions <= kMaxPositions, "RopeTable: max_positions is ",
        max_positions, ", expected 1 to ", kMaxPositions);
  const int half = head_dim_ / 2;
  table_ = DeviceBuffer<float2>(static_cast<size_t>(max_positions) * half);
  const int64_t size = table_.size();
  const int64_t blocks = (size + kMaxThreads - 1) / kMaxThreads;
  RopeTableKernel<<<blocks, kMaxThreads>>>(inverse_frequencies_.data(), table_.data(), half, size);
  CUDA_CHECK_LAUNCH();
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void Rope(bf16* x, const int* positions, const RopeTable& table, int num_tokens, int num_heads,
          int head_dim, int64_t row_stride, cudaStream_t stream) {
  // exercise: This is what the engine calls. Let it run your version 1; when the checks pass, try
  // versions 2 and 3 here.
  // starter: RopeDirect(x, positions, table, num_tokens, num_heads, head_dim, row_stride, stream);
  RopeVector(x, positions, table, num_tokens, num_heads, head_dim, row_stride, stream);
  // end exercise
}

const RopeVersion kRopeVersions[3] = {
    {1, "direct", "a thread a pair; each computes its cos and sin", RopeDirect},
    {2, "table", "cos and sin of all angles are computed once and looked up", RopeTableLookup},
    {3, "vector", "16 bytes a load: 8 pairs a thread", RopeVector},
};

}  // namespace tinyvllm
