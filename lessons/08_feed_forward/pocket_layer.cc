#include "lessons/08_feed_forward/pocket_layer.h"

#include <cstring>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/dtype.h"

namespace tinyvllm {
namespace {

std::vector<bf16> ReadBf16(const TensorView& tensor) {
  std::vector<bf16> values(tensor.element_count());
  ConvertToBF16(tensor.dtype, tensor.bytes.data(), values.size(),
                reinterpret_cast<uint16_t*>(values.data()));
  return values;
}

std::vector<float> ReadF32(const TensorView& tensor) {
  std::vector<float> values(tensor.element_count());
  if (tensor.dtype == DType::kBF16) {
    const std::vector<bf16> stored = ReadBf16(tensor);
    for (size_t i = 0; i < values.size(); ++i) values[i] = __bfloat162float(stored[i]);
    return values;
  }
  Check(tensor.dtype == DType::kF32, tensor.name, ": ", DTypeName(tensor.dtype),
        ", expected BF16 or F32");
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace

PocketLayer LoadPocketLayer(int layer) {
  const Checkpoint model(DataPath("models/pocket"));
  const Checkpoint fixture(DataPath("tests/fixtures/pocket_sum.safetensors"));
  const std::string weights = StrCat("model.layers.", layer, ".mlp.");
  const std::string activations = StrCat("layers.", layer, ".");

  PocketLayer result;
  const TensorView& gate = model.Get(weights + "gate_proj.weight");
  const TensorView& after_attention = fixture.Get(activations + "after_attention.f32");
  result.intermediate_size = static_cast<int>(gate.shape.at(0));
  result.hidden_size = static_cast<int>(gate.shape.at(1));
  result.num_tokens = static_cast<int>(after_attention.shape.at(0));
  result.residual = ReadBf16(after_attention);
  result.normed = ReadBf16(fixture.Get(activations + "post_norm.f32"));
  result.gate_up_weight = ReadBf16(gate);
  const std::vector<bf16> up = ReadBf16(model.Get(weights + "up_proj.weight", gate.shape));
  result.gate_up_weight.insert(result.gate_up_weight.end(), up.begin(), up.end());
  result.down_weight = ReadBf16(model.Get(weights + "down_proj.weight"));

  const auto run = [&](const std::string& type) {
    return PocketLayer::Run{ReadF32(fixture.Get(activations + "swiglu." + type)),
                            ReadF32(fixture.Get(activations + "mlp." + type)),
                            ReadF32(fixture.Get(activations + "output." + type))};
  };
  result.f32 = run("f32");
  result.bf16_run = run("bf16");
  return result;
}

}  // namespace tinyvllm
