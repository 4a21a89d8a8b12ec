#include "lessons/01_safetensors/challenge/write_safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace tinyvllm {

void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // Your turn: Check the tensors, sort them, make the header (nlohmann::json writes what it reads),
  // then write all of it. The page tells where the data begins. What keeps every tensor aligned?
}

}  // namespace tinyvllm
