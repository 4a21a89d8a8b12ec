#include <cmath>

#include "common/base/error.h"
#include "lessons/05_rope/rope.h"

namespace tinyvllm {
namespace {

void CheckConfig(const RopeConfig& config) {
  Check(config.head_dim > 0 && config.head_dim % 2 == 0, "RoPE: head_dim is ", config.head_dim,
        ", expected an even number, because coordinates are rotated in pairs");
  Check(config.theta > 1 && std::isfinite(config.theta), "RoPE: rope_theta is ", config.theta,
        ", expected more than 1");
  if (!config.scaling) return;
  const Llama3Scaling& scaling = *config.scaling;
  Check(scaling.factor >= 1 && std::isfinite(scaling.factor), "rope_scaling: factor is ",
        scaling.factor, ", expected 1 or more");
  Check(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor &&
            std::isfinite(scaling.high_freq_factor),
        "rope_scaling: low_freq_factor ", scaling.low_freq_factor, " and high_freq_factor ",
        scaling.high_freq_factor, ", expected 0 < low < high");
  Check(scaling.original_max_position_embeddings > 0,
        "rope_scaling: original_max_position_embeddings is ",
        scaling.original_max_position_embeddings, ", expected more than 0");
}

// tag::scale[]
float Scale(float inverse_frequency, const Llama3Scaling& scaling) {
  const float wavelength = static_cast<float>(2 * M_PI) / inverse_frequency;  // tokens a turn
  const float turns = scaling.original_max_position_embeddings / wavelength;
  const float slowest_left_alone =
      scaling.original_max_position_embeddings / scaling.high_freq_factor;
  const float fastest_slowed = scaling.original_max_position_embeddings / scaling.low_freq_factor;
  if (wavelength < slowest_left_alone) return inverse_frequency;
  if (wavelength > fastest_slowed) return inverse_frequency / scaling.factor;
  const float smooth = (turns - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);  // 0 slow, 1 fast
  return (1 - smooth) * inverse_frequency / scaling.factor + smooth * inverse_frequency;
}
// end::scale[]

}  // namespace

// tag::frequencies[]
std::vector<float> InverseFrequencies(const RopeConfig& config) {
  CheckConfig(config);
  std::vector<float> inverse_frequencies(config.head_dim / 2);
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / config.head_dim;
    const float inverse_frequency = 1 / std::pow(config.theta, exponent);
    inverse_frequencies[i] =
        config.scaling ? Scale(inverse_frequency, *config.scaling) : inverse_frequency;
  }
  return inverse_frequencies;
}
// end::frequencies[]

}  // namespace tinyvllm
