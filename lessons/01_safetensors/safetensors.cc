#include "lessons/01_safetensors/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/base/error.h"
#include "common/base/quote.h"

namespace tinyvllm {

std::string ShapeText(const std::vector<size_t>& shape) {
  constexpr size_t kMaxShown = 16;  // a hostile shape may be long, a message may not
  std::string text = "(";
  for (size_t i = 0; i < std::min(shape.size(), kMaxShown); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() > kMaxShown ? ", ...)" : ")");
}

// tag::header_length[]
size_t HeaderLength(std::string_view file, const std::string& path) {
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  if (file.size() < kLengthBytes) {
    throw Error(path, ": holds ", file.size(), " bytes, expected at least ", kLengthBytes,
                " for the header's length; was it downloaded to its end?");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {  // little-endian on every machine
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    throw Error(path, ": the header claims ", length, " bytes, expected at most ", kMaxHeaderBytes,
                "; is this a safetensors file?");
  }
  if (length > file.size() - kLengthBytes) {
    throw Error(path, ": the header claims ", length, " bytes but only ",
                file.size() - kLengthBytes, " follow; was it downloaded to its end?");
  }
  return length;
}
// end::header_length[]

// tag::make_views[]
std::vector<TensorView> MakeViews(const std::vector<HeaderEntry>& entries, std::string_view data,
                                  const std::string& path) {
  std::vector<TensorView> views;
  views.reserve(entries.size());
  // exercise: Every entry claims a dtype, a shape and the bytes [begin, end) of `data`. Believe
  // none of it: check, then push_back {name, dtype, shape, data.substr(begin, end - begin)}. The
  // first tensor begins at byte 0, each next where the one before it ended, the last at the end of
  // `data`. Beware of a product that overflows 64 bits (__builtin_mul_overflow tells).
  // starter: for (const HeaderEntry& entry : entries) {
  // starter:   views.push_back({entry.name, entry.dtype, entry.shape, data.substr(0, 0)});
  // starter: }
  size_t expected_begin = 0;
  for (const HeaderEntry& entry : entries) {
    const auto fail = [&](const auto&... parts) {
      throw Error(path, ": tensor ", Quote(entry.name), " ", parts...);
    };
    if (entry.begin != expected_begin) {
      fail("begins at byte ", entry.begin,
           entry.begin < expected_begin ? " inside the tensor before it" : " after a hole",
           ", expected ", expected_begin, ", where the tensor before it ends");
    }
    if (entry.end < entry.begin) {
      fail("ends at byte ", entry.end, " before it begins, at ", entry.begin);
    }
    if (entry.end > data.size()) {
      fail("ends at byte ", entry.end, " but the file holds only ", data.size(),
           " bytes of tensors; was it downloaded to its end?");
    }
    size_t size = 1;
    bool overflow = false;
    for (const size_t extent : entry.shape) overflow |= __builtin_mul_overflow(size, extent, &size);
    overflow |= __builtin_mul_overflow(size, DTypeBytes(entry.dtype), &size);
    if (overflow) {
      fail("has shape ", ShapeText(entry.shape), ", more bytes than 64 bits can count");
    }
    if (entry.end - entry.begin != size) {
      fail("has ", entry.end - entry.begin, " bytes, expected ", size, " for ",
           DTypeName(entry.dtype), " ", ShapeText(entry.shape));
    }
    views.push_back({entry.name, entry.dtype, entry.shape, data.substr(entry.begin, size)});
    expected_begin = entry.end;
  }
  if (expected_begin != data.size()) {
    throw Error(path, ": the tensors end at byte ", expected_begin,
                " of the data but the file holds ", data.size(),
                ", expected every byte to belong to a tensor");
  }
  // end exercise
  return views;
}
// end::make_views[]

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  header_length_ = HeaderLength(file_.bytes(), path);
  Header header = ParseHeader(file_.bytes().substr(sizeof(uint64_t), header_length_), path);
  tensors_ = MakeViews(header.tensors, file_.bytes().substr(data_offset()), path);
  metadata_ = std::move(header.metadata);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](size_t i, std::string_view key) { return tensors_[i].name < key; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace tinyvllm
