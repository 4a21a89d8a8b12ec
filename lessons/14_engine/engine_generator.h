// Generation by the engine: all requests at once, over the pool. The same tokens as lesson 10's
// generator gives one after the other.
#pragma once

#include "lessons/09_forward_pass/generator.h"
#include "lessons/14_engine/engine.h"

namespace tinyvllm {

class EngineGenerator : public Generator {
 public:
  // `weights` must outlive the generator. Throws Error as Engine does.
  EngineGenerator(const ModelConfig& model, const Weights& weights, const EngineConfig& config = {})
      : engine_(model, weights, config) {}

  std::string name() const override { return "14 engine"; }
  int64_t num_passes() const override { return engine_.stats().steps; }

  // The logits stay on the device: GeneratedToken::logits is null.
  std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token = nullptr) override;

  Engine& engine() { return engine_; }

 private:
  Engine engine_;
};

}  // namespace tinyvllm
