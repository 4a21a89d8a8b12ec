// A safetensors file: 8 bytes of length, a JSON header of that length, and the tensors' bytes, one
// after the other. It is mapped into memory, so opening costs the header alone and a tensor is a
// view of the file, without a copy.
//
//   const SafetensorsFile file("models/pocket/model.safetensors");
//   const TensorView* norm = file.Find("model.norm.weight");
//   norm->dtype, norm->shape, norm->bytes
//
// Everything the header claims is checked before a view is handed out, as the format's
// specification and its reference implementation demand: nothing in a view can lead outside the
// file, no two tensors share a byte, no byte is left unexplained. A file that breaks a rule throws
// one Error that names the file, the tensor, what was found and what was expected.
//
// One thing cannot be checked: if another process truncates the file while it is mapped, touching
// the lost bytes ends this process with SIGBUS. Replace a checkpoint by renaming a new file over
// it, never by writing into the one in use.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mapped_file.h"
#include "lessons/01_safetensors/dtype.h"
#include "lessons/01_safetensors/header.h"

namespace tinyvllm {

// The reference implementation's limit of the header's length, in bytes.
constexpr size_t kMaxHeaderBytes = 100'000'000;

// One tensor of a mapped file, valid as long as the file (or Checkpoint) it came from.
struct TensorView {
  std::string name;
  DType dtype;
  std::vector<size_t> shape;
  std::string_view bytes;  // row-major, little-endian, of any alignment

  size_t element_count() const { return bytes.size() / DTypeBytes(dtype); }
};

// "(2048, 256)", "()" for a scalar.
std::string ShapeText(const std::vector<size_t>& shape);

// Length of the header in bytes, checked against the file it starts. `path` is for messages.
size_t HeaderLength(std::string_view file, const std::string& path);

// Turns the header's claims into views of `data`, the file's bytes after the header, checking each
// claim. `entries` must be sorted by their offsets. `path` is for messages.
std::vector<TensorView> MakeViews(const std::vector<HeaderEntry>& entries, std::string_view data,
                                  const std::string& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::string_view bytes() const { return file_.bytes(); }
  // Bytes of the JSON; the data begins 8 bytes later than this.
  size_t header_length() const { return header_length_; }
  size_t data_offset() const { return sizeof(uint64_t) + header_length_; }

  // In the order of their bytes in the file.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // nullptr when there is no such tensor.
  const TensorView* Find(std::string_view name) const;

 private:
  MappedFile file_;
  size_t header_length_ = 0;
  std::vector<TensorView> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
};

}  // namespace tinyvllm
