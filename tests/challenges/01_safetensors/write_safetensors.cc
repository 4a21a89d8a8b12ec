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
  // exercise: Check the tensors, sort them, make the header (nlohmann::json writes what it reads),
  // then write all of it. The page tells where the data begins. What keeps every tensor aligned?
  std::vector<TensorView> sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const TensorView& a, const TensorView& b) {
    const size_t a_bytes = DTypeBytes(a.dtype), b_bytes = DTypeBytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const TensorView& tensor : sorted) {
    Check(tensor.name != "__metadata__", path, ": no tensor can have the name __metadata__");
    Check(!header.contains(tensor.name), path, ": two tensors have the name ", tensor.name);
    size_t bytes = DTypeBytes(tensor.dtype);
    for (size_t extent : tensor.shape) bytes *= extent;
    Check(bytes == tensor.bytes.size(), path, ": ", tensor.name, " has ", tensor.bytes.size(),
          " bytes, expected ", bytes, " for ", DTypeName(tensor.dtype), " ",
          ShapeText(tensor.shape));
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the length before it takes 8 bytes itself
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{json.size()} >> (8 * i));

  const std::string unfinished = path + ".unfinished";
  std::ofstream out(unfinished, std::ios::binary);
  out.write(length, sizeof length).write(json.data(), json.size());
  for (const TensorView& tensor : sorted) out.write(tensor.bytes.data(), tensor.bytes.size());
  out.close();
  if (!out || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    std::remove(unfinished.c_str());
    throw Error(path, ": cannot be written: ", std::strerror(errno));
  }
  // end exercise
}

}  // namespace tinyvllm
