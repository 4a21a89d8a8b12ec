// Rotary position embedding (RoPE): tells attention where a token stands by turning pairs of
// coordinates of its queries and keys through an angle that grows with the position.
//
//   RopeConfig config{/*theta=*/500000, /*head_dim=*/64, Llama3Scaling{32, 1, 4, 8192}};
//   RopeTable table(config, /*max_positions=*/131072);     // once
//   // The row of a token in the fused q|k|v buffer: the queries' and the keys' heads are
//   // neighbours, so that one call rotates both and leaves v alone.
//   Rope(qkv, positions, table, num_tokens, num_heads + num_kv_heads, 64, qkv_width, stream);
//
// Element i of a head is paired with element i + head_dim / 2 ("half-split"), as in Hugging Face
// checkpoints; never with its neighbour i + 1, as in the paper and in Meta's own files.
//
// The mathematics: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2. The llama3 scaling: the
// model card and code of Llama 3.1; `_compute_llama3_parameters` in Hugging Face transformers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"

namespace tinyvllm {

// config.json's rope_scaling with rope_type "llama3": what Llama 3.1 and later did to read 131,072
// tokens with a model trained on 8,192.
struct Llama3Scaling {
  float factor = 8;            // slow pairs turn this many times slower
  float low_freq_factor = 1;   // slow: less than this many turns in the original length
  float high_freq_factor = 4;  // fast, and left alone: more than this many turns in it
  int original_max_position_embeddings = 8192;
};

struct RopeConfig {
  float theta = 10000;  // rope_theta: the slowest pair's wavelength is about 2 pi theta tokens
  int head_dim = 0;     // even
  std::optional<Llama3Scaling> scaling;
};

// Radians a token for each of the head_dim / 2 pairs, fastest first, in f32 as transformers
// computes them. Throws Error for a configuration that has no meaning.
std::vector<float> InverseFrequencies(const RopeConfig& config);

// cos and sin of every angle, computed on the device, once. The angle is the f32 product of
// position and inverse frequency, as in transformers.
class RopeTable {
 public:
  // 8 bytes a pair and position: 32 MiB for head_dim 64 and 131,072 positions. Waits until it is
  // built, so that any stream may use it. Throws Error for a bad configuration, or for
  // max_positions outside 1 to 2^24 (beyond that an f32 cannot hold every position).
  RopeTable(const RopeConfig& config, int max_positions);

  const float2* data() const { return table_.data(); }  // (max_positions, head_dim / 2): cos, sin
  const float* inverse_frequencies() const {            // (head_dim / 2), on the device
    return inverse_frequencies_.data();
  }
  int max_positions() const { return max_positions_; }
  int head_dim() const { return head_dim_; }

 private:
  int max_positions_;
  int head_dim_;
  DeviceBuffer<float> inverse_frequencies_;
  DeviceBuffer<float2> table_;
};

// Rotates the first num_heads * head_dim elements of each row in place, and touches no other.
// PRECONDITION: every position is in [0, table.max_positions()); they lie on the device, so that
// the caller checks them on the host beforehand. Throws Error when head_dim is not the table's or
// the heads do not fit the row.
void Rope(bf16* x,               // (num_tokens, row_stride)
          const int* positions,  // (num_tokens)
          const RopeTable& table, int num_tokens, int num_heads, int head_dim, int64_t row_stride,
          cudaStream_t stream);

// The same by each version of the lesson, from naive to fast.
struct RopeVersion {
  int number;
  const char* name;
  const char* idea;  // the one that this version adds
  decltype(&Rope) launch;
};
extern const RopeVersion kRopeVersions[3];

}  // namespace tinyvllm
