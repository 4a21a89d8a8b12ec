// The header of a safetensors file: a JSON object that says what each tensor is and where it lies.
//
//   {"__metadata__": {"format": "pt"},
//    "model.norm.weight": {"dtype": "BF16", "shape": [256], "data_offsets": [0, 512]}}
//
// The format: https://github.com/huggingface/safetensors, section "Format".
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/01_safetensors/dtype.h"

namespace tinyvllm {

// What the header claims about one tensor. Nothing here is checked against the file yet.
struct HeaderEntry {
  std::string name;
  DType dtype;
  std::vector<size_t> shape;
  size_t begin;  // offsets in bytes from the end of the header: [begin, end)
  size_t end;
};

struct Header {
  std::vector<HeaderEntry> tensors;             // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;  // "__metadata__": free text, not tensors
};

// Reads the JSON. Throws Error, naming `path` and the tensor, when it is not valid UTF-8 JSON that
// begins with '{', nests deeper than 128, has a key twice, an unknown dtype, a shape or an offset
// that is not a non-negative integer, or metadata that is not text. A field of a tensor that the
// format does not know is passed over, as the reference implementation does.
Header ParseHeader(std::string_view json, const std::string& path);

// What a tensor to be written is; its bytes follow the header in the order of the list.
struct TensorSpec {
  std::string name;
  DType dtype;
  std::vector<size_t> shape;
};

// Bytes of one tensor. Throws Error on overflow.
size_t TensorBytes(const TensorSpec& spec);

// The first bytes of a file that holds `tensors`: the length, then the JSON, then spaces until the
// data begins at a multiple of 8.
std::string FormatHeader(const std::vector<TensorSpec>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace tinyvllm
