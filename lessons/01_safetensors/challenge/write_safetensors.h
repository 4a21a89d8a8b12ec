// The challenge of lesson 01: the way back, from tensors to a safetensors file.
//
//   WriteSafetensors("copy.safetensors", file.tensors(), file.metadata());
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lessons/01_safetensors/safetensors.h"

namespace tinyvllm {

// Writes a file that SafetensorsFile, and every other reader, accepts:
//
//   - those with the largest elements first, among equals in the order of their names, so that the
//     same tensors give the same file, whatever order they come in;
//   - every tensor begins, in the file, at a multiple of its element's size;
//   - the file appears under its name only when it is complete: after a failure what was there
//     before is still there, whole, and no other file is left in the folder.
//
// Throws Error, naming the path and the tensor, for two tensors of one name, for the name
// "__metadata__", for bytes that are not as many as dtype and shape say, and when the file cannot
// be written.
void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tinyvllm
