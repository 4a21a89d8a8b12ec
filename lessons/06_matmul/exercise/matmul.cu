#include "lessons/06_matmul/matmul.h"

#include <climits>
#include <type_traits>

#include "common/base/error.h"
#include "common/cuda/check.h"
#include "lessons/03_embedding/bf16x8.cuh"

namespace tinyvllm {
namespace {

__device__ void Store(float* to, float value) { *to = value; }
__device__ void Store(bf16* to, float value) { *to = __float2bfloat16(value); }

unsigned GridSize(int64_t blocks) {
  Check(blocks <= INT_MAX, "matmul: ", blocks, " blocks, expected at most ", INT_MAX,
        "; split the tokens");
  return static_cast<unsigned>(blocks);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- 1: plain loops

constexpr int kLoopsThreads = 256;

template <typename Out>
__global__ void LoopsKernel(const bf16* __restrict__ input,   // (num_tokens, in_features)
                            const bf16* __restrict__ weight,  // (out_features, in_features)
                            Out* __restrict__ output,         // (num_tokens, out_features)
                            int num_tokens, int in_features, int out_features) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t token = index / out_features;
  const int64_t feature = index % out_features;
  if (token >= num_tokens) return;
  float sum = 0;
  for (int64_t k = 0; k < in_features; ++k) {
    sum += __bfloat162float(input[token * in_features + k]) *
           __bfloat162float(weight[feature * in_features + k]);
  }
  Store(&output[index], sum);
}

template <typename Out>
void MatmulLoops(const bf16* input, const bf16* weight, Out* output, int num_tokens,
                 int in_features, int out_features, cudaStream_t stream) {
  const int64_t outputs = int64_t{num_tokens} * out_features;
  LoopsKernel<Out><<<GridSize(CeilDiv(outputs, kLoopsThreads)), kLoopsThreads, 0, stream>>>(
      input, weight, output, num_tokens, in_features, out_features);
  CUDA_CHECK_LAUNCH();
}

// --- 2: tiles
//
// The order of every sum is fixed, whatever the shape: in_features is cut into chunks of kChunk, a
// chunk is summed from its first product to its last, and the sums of the chunks are added from
// first to last. A product of two bf16 has 16 significant bits and is exact in f32 (unless it
// is nearly as small as f32 can be), so a fused multiply-add and a multiplication followed by an
// addition give the same bits.

constexpr int kTile = 64;   // a block computes a tile of 64 tokens by 64 features
constexpr int kChunk = 64;  // and stages 64 elements of in_features at a time
constexpr int kPieces = kChunk / Bf16x8::kSize;
constexpr int kPatch = 4;  // a thread computes a patch of 4 by 4 of the tile
constexpr int kPatches = kTile / kPatch;
constexpr int kTileThreads = kPatches * kPatches;

// Where element k of row `row` lies in its tile: tile[k][Swizzle(k, row)]. Rows change places in
// fours, so that the eight threads that stage one row write to eight different groups of banks, and
// four rows that stand together still do.
__device__ int Swizzle(int k, int row) { return row ^ (4 * (k / Bf16x8::kSize)); }

// Elements k to k + 7 of a row; zeros after its end.
// PRECONDITION: kByEights only if in_features is a multiple of 8 and the row is 16-byte aligned.
template <bool kByEights>
__device__ Bf16x8 LoadEight(const bf16* __restrict__ row, int64_t k, int in_features) {
  if constexpr (kByEights) {
    return k < in_features ? LoadBf16x8(row + k) : Bf16x8{};
  } else {
    float values[Bf16x8::kSize];
    for (int i = 0; i < Bf16x8::kSize; ++i) {
      values[i] = k + i < in_features ? __bfloat162float(row[k + i]) : 0.0f;
    }
    return Bf16x8::FromFloats(values);
  }
}

constexpr int kPiecesPerThread = kTile * kPieces / kTileThreads;

// This thread's share of a tile: rows first_row to first_row + 63, elements first_k to first_k + 63
// of a row-major matrix. What lies outside the matrix is 0.
template <bool kByEights>
__device__ void FetchTile(const bf16* __restrict__ matrix, int64_t first_row, int64_t num_rows,
                          int64_t first_k, int in_features, Bf16x8 (&share)[kPiecesPerThread]) {
#pragma unroll
  for (int i = 0; i < kPiecesPerThread; ++i) {
    const int piece = threadIdx.x + i * kTileThreads;
    const int64_t row = first_row + piece / kPieces;  // eight neighbouring threads read 128 bytes
    const int64_t k = first_k + piece % kPieces * Bf16x8::kSize;
    share[i] = row < num_rows ? LoadEight<kByEights>(matrix + row * in_features, k, in_features)
                              : Bf16x8{};
  }
}

// Puts the shares of all threads into shared memory, as f32 and transposed: four rows' elements k
// are then one 16-byte read.
__device__ void StageTile(const Bf16x8 (&share)[kPiecesPerThread], float (&tile)[kChunk][kTile]) {
#pragma unroll
  for (int i = 0; i < kPiecesPerThread; ++i) {
    const int piece = threadIdx.x + i * kTileThreads;
    const int row = piece / kPieces;
    const int k = piece % kPieces * Bf16x8::kSize;
    float values[Bf16x8::kSize];
    share[i].ToFloats(values);
#pragma unroll
    for (int j = 0; j < Bf16x8::kSize; ++j) tile[k + j][Swizzle(k, row)] = values[j];
  }
}

// PRECONDITION: `from` is a multiple of 16 bytes.
__device__ void LoadFour(const float* from, float (&values)[kPatch]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}

template <bool kByEights, typename Out>
__global__ void __launch_bounds__(kTileThreads)
    TiledKernel(const bf16* __restrict__ input,   // (num_tokens, in_features)
                const bf16* __restrict__ weight,  // (out_features, in_features)
                Out* __restrict__ output,         // (num_tokens, out_features)
                int num_tokens, int in_features, int out_features, int token_tiles) {
  __shared__ alignas(16) float input_tile[kChunk][kTile];
  __shared__ alignas(16) float weight_tile[kChunk][kTile];

  // Neighbouring blocks share their weights, the larger matrix: the L2 cache reads them once.
  const int64_t tile_token = int64_t{blockIdx.x % token_tiles} * kTile;
  const int64_t tile_feature = int64_t{blockIdx.x / token_tiles} * kTile;
  const int patch_token = threadIdx.x / kPatches * kPatch;
  const int patch_feature = threadIdx.x % kPatches * kPatch;

  Bf16x8 input_share[kPiecesPerThread];
  Bf16x8 weight_share[kPiecesPerThread];
  const auto fetch = [&](int64_t first_k) {
    FetchTile<kByEights>(input, tile_token, num_tokens, first_k, in_features, input_share);
    FetchTile<kByEights>(weight, tile_feature, out_features, first_k, in_features, weight_share);
  };

  float total[kPatch][kPatch] = {};
  fetch(0);
  for (int64_t first_k = 0; first_k < in_features; first_k += kChunk) {
    StageTile(input_share, input_tile);
    StageTile(weight_share, weight_tile);
    __syncthreads();
    fetch(first_k + kChunk);  // on its way while this chunk is summed
    // Your turn: The two tiles are staged: input_tile[k][Swizzle(k, row)] holds element k of a row.
    // Sum this chunk's products for the thread's 4 by 4 patch, k from 0 to kChunk - 1, in a
    // partial[4][4] that begins at zero, then add it to total. LoadFour reads four rows at once.
    __syncthreads();  // nobody stages the next chunk while somebody still reads this one
  }

  for (int i = 0; i < kPatch; ++i) {
    const int64_t token = tile_token + patch_token + i;
    for (int j = 0; j < kPatch; ++j) {
      const int64_t feature = tile_feature + patch_feature + j;
      if (token < num_tokens && feature < out_features) {
        Store(&output[token * out_features + feature], total[i][j]);
      }
    }
  }
}

template <typename Out>
void MatmulTiles(const bf16* input, const bf16* weight, Out* output, int num_tokens,
                 int in_features, int out_features, cudaStream_t stream) {
  const int64_t token_tiles = CeilDiv(num_tokens, kTile);
  const int64_t feature_tiles = CeilDiv(out_features, kTile);
  const auto kernel =
      FitsBf16x8(in_features, input, weight) ? TiledKernel<true, Out> : TiledKernel<false, Out>;
  kernel<<<GridSize(token_tiles * feature_tiles), kTileThreads, 0, stream>>>(
      input, weight, output, num_tokens, in_features, out_features, static_cast<int>(token_tiles));
  CUDA_CHECK_LAUNCH();
}

// --- 2, for few tokens
//
// While text is generated there is one token a sequence. Tiles of 64 tokens would be nearly empty,
// and blocks of 64 features too few to fill a GPU. So the threads of a block share a feature's sum:
// a thread a chunk. The chunks' sums are then added in their order, so the bits are those of the
// tiles.

constexpr int kFewTokens = 4;  // a block computes 4 tokens by 4 features
constexpr int kFewFeatures = 4;
constexpr int kSlab = 32;  // chunks that it stages at a time
constexpr int kFewThreads = kFewFeatures * kSlab;
constexpr int kFewBlocks = 4;      // on a multiprocessor at once, which bounds the registers
constexpr int kMaxFewTokens = 16;  // above it the tiles are as fast

// The pieces of a chunk, and an unused one: so eight threads that read the same piece of
// neighbouring chunks find it in different banks.
using StagedChunk = Bf16x8[kPieces + 1];

// A thread's share of kRows rows of a slab.
template <int kRows>
using SlabShare = Bf16x8[kRows * kSlab * kPieces / kFewThreads];

// Loads this thread's share of the elements from first_k on of the first `rows` rows.
template <bool kByEights, int kRows>
__device__ void FetchSlab(const bf16* __restrict__ matrix, int rows, int64_t first_k,
                          int in_features, SlabShare<kRows>& share) {
#pragma unroll
  for (int i = 0; i < kRows * kSlab * kPieces / kFewThreads; ++i) {
    const int piece = threadIdx.x + i * kFewThreads;
    const int row = piece / (kSlab * kPieces);
    const int64_t k = first_k + piece % (kSlab * kPieces) * Bf16x8::kSize;
    if (row < rows) {
      share[i] = LoadEight<kByEights>(matrix + int64_t{row} * in_features, k, in_features);
    }
  }
}

// Puts the shares of all threads into shared memory, as they are: `chunks` chunks of `rows` rows.
template <int kRows>
__device__ void StageSlab(const SlabShare<kRows>& share, int rows, int chunks,
                          StagedChunk (&slab)[kRows][kSlab]) {
#pragma unroll
  for (int i = 0; i < kRows * kSlab * kPieces / kFewThreads; ++i) {
    const int piece = threadIdx.x + i * kFewThreads;
    const int row = piece / (kSlab * kPieces);
    const int chunk = piece / kPieces % kSlab;
    if (row < rows && chunk < chunks) slab[row][chunk][piece % kPieces] = share[i];
  }
}

template <bool kByEights, typename Out>
__global__ void __launch_bounds__(kFewThreads, kFewBlocks)
    FewTokensKernel(const bf16* __restrict__ input,   // (num_tokens, in_features)
                    const bf16* __restrict__ weight,  // (out_features, in_features)
                    Out* __restrict__ output,         // (num_tokens, out_features)
                    int num_tokens, int in_features, int out_features, int token_groups) {
  __shared__ StagedChunk input_slab[kFewTokens][kSlab];
  __shared__ StagedChunk weight_slab[kFewFeatures][kSlab];
  __shared__ float partial[kFewFeatures][kFewTokens][kSlab + 1];

  const int64_t first_token = int64_t{blockIdx.x % token_groups} * kFewTokens;
  const int64_t first_feature = int64_t{blockIdx.x / token_groups} * kFewFeatures;
  const int tokens = static_cast<int>(min(int64_t{kFewTokens}, num_tokens - first_token));
  const int features = static_cast<int>(min(int64_t{kFewFeatures}, out_features - first_feature));
  input += first_token * in_features;
  weight += first_feature * in_features;

  const int feature = threadIdx.x / kSlab;  // of the chunk that this thread sums
  const int chunk = threadIdx.x % kSlab;
  const int total_feature = threadIdx.x / kFewTokens;  // of the output that it adds up
  const int total_token = threadIdx.x % kFewTokens;
  const bool has_output = total_feature < features && total_token < tokens;

  float total = 0;
  for (int64_t first_k = 0; first_k < in_features; first_k += kSlab * kChunk) {
    const int chunks =
        static_cast<int>(min(int64_t{kSlab}, (in_features - first_k + kChunk - 1) / kChunk));
    // All loads are under way before the first of them is waited for.
    SlabShare<kFewFeatures> weight_share;
    SlabShare<kFewTokens> input_share;
    FetchSlab<kByEights, kFewFeatures>(weight, features, first_k, in_features, weight_share);
    FetchSlab<kByEights, kFewTokens>(input, tokens, first_k, in_features, input_share);
    StageSlab<kFewTokens>(input_share, tokens, chunks, input_slab);
    StageSlab<kFewFeatures>(weight_share, features, chunks, weight_slab);
    __syncthreads();
    if (feature < features && chunk < chunks) {
      float sums[kFewTokens] = {};
      for (int piece = 0; piece < kPieces; ++piece) {
        float w[Bf16x8::kSize];
        weight_slab[feature][chunk][piece].ToFloats(w);
#pragma unroll
        for (int token = 0; token < kFewTokens; ++token) {
          if (token >= tokens) break;
          float x[Bf16x8::kSize];
          input_slab[token][chunk][piece].ToFloats(x);
#pragma unroll
          for (int i = 0; i < Bf16x8::kSize; ++i) sums[token] += x[i] * w[i];
        }
      }
#pragma unroll
      for (int token = 0; token < kFewTokens; ++token) partial[feature][token][chunk] = sums[token];
    }
    __syncthreads();
    if (has_output) {
      for (int c = 0; c < chunks; ++c) total += partial[total_feature][total_token][c];
    }
    // No third barrier: what is staged next is not read here, and the next partial sums are written
    // after the barrier that follows the staging.
  }
  if (has_output) {
    Store(&output[(first_token + total_token) * out_features + first_feature + total_feature],
          total);
  }
}

template <typename Out>
void MatmulFewTokens(const bf16* input, const bf16* weight, Out* output, int num_tokens,
                     int in_features, int out_features, cudaStream_t stream) {
  const int64_t token_groups = CeilDiv(num_tokens, kFewTokens);
  const int64_t feature_groups = CeilDiv(out_features, kFewFeatures);
  const auto kernel = FitsBf16x8(in_features, input, weight) ? FewTokensKernel<true, Out>
                                                             : FewTokensKernel<false, Out>;
  kernel<<<GridSize(token_groups * feature_groups), kFewThreads, 0, stream>>>(
      input, weight, output, num_tokens, in_features, out_features, static_cast<int>(token_groups));
  CUDA_CHECK_LAUNCH();
}

template <typename Out>
void MatmulTiled(const bf16* input, const bf16* weight, Out* output, int num_tokens,
                 int in_features, int out_features, cudaStream_t stream) {
  // Your turn: This is what the engine calls. Let it run your tiles, whatever the number of tokens;
  // when the checks pass, try MatmulFewTokens here for up to kMaxFewTokens.
  MatmulTiles(input, weight, output, num_tokens, in_features, out_features, stream);
}

// --- 3: cuBLAS

// What NVIDIA recommends for Hopper; older GPUs are content with less.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

template <typename T>
constexpr cudaDataType_t kCudaType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

// cuBLAS reads and writes column-major matrices. The bytes of our row-major (rows, columns) matrix
// are, read column-major, its transpose: (columns, rows) with `columns` as the leading dimension.
// So we ask for outputᵀ = weight · inputᵀ, and what cuBLAS writes column-major is our row-major
// output. The result of the call is (m, n) in cuBLAS's letters, with k products in each sum.
template <typename Out>
void MatmulCublas(cublasHandle_t handle, const bf16* input, const bf16* weight, Out* output,
                  int num_tokens, int in_features, int out_features) {
  // Your turn: Call cublasGemmEx so that what it writes column-major is our row-major output. The
  // weight comes first, transposed; each leading dimension is a row's length in our memory.
}

}  // namespace

Linear::Linear(cudaStream_t stream, GemmBackend backend) : stream_(stream), backend_(backend) {
  if (backend != GemmBackend::kCublas) return;
  workspace_ = DeviceBuffer<char>(kWorkspaceBytes);
  CUBLAS_CHECK(cublasCreate(&handle_));
  CUBLAS_CHECK(cublasSetStream(handle_, stream));  // this resets the workspace: so it comes first
  CUBLAS_CHECK(cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes()));
  // Sums split over k must be put together in f32, not in bf16.
  CUBLAS_CHECK(cublasSetMathMode(
      handle_, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                         CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
}

Linear::~Linear() {
  if (handle_ != nullptr) cublasDestroy(handle_);
}

template <typename Out>
void Linear::Run(const bf16* input, const bf16* weight, Out* output, int num_tokens,
                 int in_features, int out_features) const {
  Check(num_tokens >= 0, "matmul: ", num_tokens, " tokens, expected 0 or more");
  Check(in_features > 0 && out_features > 0, "matmul: weight of (out_features, in_features) (",
        out_features, ", ", in_features, "), expected both to be positive");
  if (num_tokens == 0) return;
  Check(input != nullptr && weight != nullptr && output != nullptr, "matmul: null pointer for ",
        input == nullptr    ? "input"
        : weight == nullptr ? "weight"
                            : "output",
        ", expected device memory");
  switch (backend_) {
    case GemmBackend::kLoops:
      return MatmulLoops(input, weight, output, num_tokens, in_features, out_features, stream_);
    case GemmBackend::kTiled:
      return MatmulTiled(input, weight, output, num_tokens, in_features, out_features, stream_);
    case GemmBackend::kCublas:
      return MatmulCublas(handle_, input, weight, output, num_tokens, in_features, out_features);
  }
}

void Linear::operator()(const bf16* input, const bf16* weight, bf16* output, int num_tokens,
                        int in_features, int out_features) const {
  Run(input, weight, output, num_tokens, in_features, out_features);
}

void Linear::operator()(const bf16* input, const bf16* weight, float* output, int num_tokens,
                        int in_features, int out_features) const {
  Run(input, weight, output, num_tokens, in_features, out_features);
}

}  // namespace tinyvllm
