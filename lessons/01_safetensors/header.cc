#include "lessons/01_safetensors/header.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/base/error.h"
#include "common/base/quote.h"

namespace tinyvllm {
namespace {

constexpr char kMetadataKey[] = "__metadata__";

// The reference implementation's own limit.
constexpr int kMaxDepth = 128;

// Takes the JSON piece by piece as the parser meets it (SAX), because the usual way, a tree of
// values, silently keeps the last of two equal keys and needs many times the header's size.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, Header* header) : path_(path), header_(header) {}

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kHeader:
        return Go(Place::kNames);
      case Place::kTensor:
        return Go(Place::kFields);
      case Place::kMetadata:
        return Go(Place::kMetadataItems);
      default:
        return Nested("an object");
    }
  }

  bool key(std::string& name) override {
    switch (place_) {
      case Place::kNames:
        return StartTensor(name);
      case Place::kFields:
        return StartField(name);
      case Place::kMetadataItems:
        metadata_key_ = name;
        return true;
      default:
        return true;  // inside a field that we pass over
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::kNames:
        return Go(Place::kEnd);
      case Place::kFields:
        return EndTensor();
      case Place::kMetadataItems:
        return Go(Place::kNames);
      default:
        return EndNested();
    }
  }

  bool start_array(size_t) override {
    switch (place_) {
      case Place::kShape:
        return Go(Place::kShapeItems);
      case Place::kOffsets:
        return Go(Place::kOffsetItems);
      default:
        return Nested("a list");
    }
  }

  bool end_array() override {
    switch (place_) {
      case Place::kShapeItems:
        return Go(Place::kFields);
      case Place::kOffsetItems:
        if (offset_count_ != 2) Fail(StrCat(offset_count_, " numbers"));
        return Go(Place::kFields);
      default:
        return EndNested();
    }
  }

  bool string(std::string& text) override {
    switch (place_) {
      case Place::kDType: {
        const std::optional<DType> dtype = DTypeFromName(text);
        if (!dtype) Fail(Quote(text));
        entry().dtype = *dtype;
        return Go(Place::kFields);
      }
      case Place::kMetadataItems:
        if (!header_->metadata.emplace(metadata_key_, text).second) {
          throw Error(path_, ": __metadata__ has the key ", Quote(metadata_key_),
                      " twice, expected every key once");
        }
        return true;
      default:
        return Scalar(Quote(text));
    }
  }

  bool number_unsigned(uint64_t number) override {
    switch (place_) {
      case Place::kShapeItems:
        entry().shape.push_back(number);
        return true;
      case Place::kOffsetItems:
        if (offset_count_ == 2) Fail("more than two numbers");
        (offset_count_ == 0 ? entry().begin : entry().end) = number;
        ++offset_count_;
        return true;
      default:
        return Scalar(StrCat(number));
    }
  }

  bool null() override {
    // The reference implementation takes a null for "no metadata".
    if (place_ == Place::kMetadata) return Go(Place::kNames);
    return Scalar("null");
  }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(int64_t number) override { return Scalar(StrCat(number)); }
  bool number_float(double, const std::string& text) override {
    return Scalar(Quote(text, /*max_bytes=*/40));
  }
  bool binary(nlohmann::json::binary_t&) override { return Scalar("binary"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception...] parse error at line 1, column 5: what happened": only the last part.
    const std::string_view what = error.what();
    const size_t colon = what.find(": ");
    throw Error(path_, ": the header is not valid JSON, at its byte ", position, ": ",
                Quote(what.substr(colon == std::string_view::npos ? 0 : colon + 2)));
  }

 private:
  // What the next piece belongs to.
  enum class Place {
    kHeader,         // the whole object, about to begin
    kNames,          // a tensor's name, or the end of the header
    kTensor,         // the object that describes a tensor
    kFields,         // one of its fields, or its end
    kDType,          // the value of "dtype"
    kShape,          // the list of "shape"
    kShapeItems,     // one of its numbers
    kOffsets,        // the list of "data_offsets"
    kOffsetItems,    // one of its numbers
    kPassedOver,     // the value of a field that the format does not know
    kMetadata,       // the object of "__metadata__"
    kMetadataItems,  // one of its pairs
    kEnd,
  };

  bool Go(Place place) {
    place_ = place;
    return true;
  }

  HeaderEntry& entry() { return header_->tensors.back(); }

  bool StartTensor(const std::string& name) {
    if (name != kMetadataKey) {
      header_->tensors.push_back({name, DType::kBOOL, {}, 0, 0});
      has_dtype_ = has_shape_ = has_offsets_ = false;
      offset_count_ = 0;
      return Go(Place::kTensor);
    }
    if (has_metadata_) throw Error(path_, ": __metadata__ is there twice, expected once");
    has_metadata_ = true;
    return Go(Place::kMetadata);
  }

  bool StartField(const std::string& name) {
    if (name == "dtype") return StartKnownField(name, &has_dtype_, Place::kDType);
    if (name == "shape") return StartKnownField(name, &has_shape_, Place::kShape);
    if (name == "data_offsets") return StartKnownField(name, &has_offsets_, Place::kOffsets);
    depth_ = 0;
    return Go(Place::kPassedOver);
  }

  bool StartKnownField(const std::string& name, bool* seen, Place place) {
    if (*seen) {
      throw Error(path_, ": tensor ", Quote(entry().name), " has the field ", Quote(name),
                  " twice, expected every key once");
    }
    *seen = true;
    return Go(place);
  }

  bool EndTensor() {
    const char* missing = !has_dtype_     ? "dtype"
                          : !has_shape_   ? "shape"
                          : !has_offsets_ ? "data_offsets"
                                          : nullptr;
    if (missing != nullptr) {
      throw Error(path_, ": tensor ", Quote(entry().name), " has no \"", missing,
                  "\", expected dtype, shape and data_offsets");
    }
    return Go(Place::kNames);
  }

  // A value that has no meaning at this place: fine in a field that we pass over.
  bool Scalar(const std::string& found) {
    if (place_ != Place::kPassedOver) Fail(found);
    return depth_ > 0 || Go(Place::kFields);
  }

  bool Nested(const char* found) {
    if (place_ != Place::kPassedOver) Fail(found);
    // Two objects are open around a field: the header and the tensor.
    if (++depth_ + 2 > kMaxDepth) {
      throw Error(path_, ": tensor ", Quote(entry().name), " nests its fields deeper than ",
                  kMaxDepth, " levels, expected a list of numbers at most");
    }
    return true;
  }

  bool EndNested() { return --depth_ > 0 || Go(Place::kFields); }

  [[noreturn]] void Fail(const std::string& found) {
    switch (place_) {
      case Place::kTensor:
        throw Error(path_, ": tensor ", Quote(entry().name), " is ", found,
                    ", expected an object with dtype, shape and data_offsets");
      case Place::kDType:
        throw Error(path_, ": tensor ", Quote(entry().name), " has dtype ", found,
                    ", expected one of ", DTypeNames());
      case Place::kShape:
      case Place::kShapeItems:
        throw Error(path_, ": tensor ", Quote(entry().name), " has ", found,
                    " in its shape, expected a list of non-negative integers");
      case Place::kOffsets:
      case Place::kOffsetItems:
        throw Error(path_, ": tensor ", Quote(entry().name), " has ", found,
                    " in data_offsets, expected two non-negative integers, begin and end");
      case Place::kMetadata:
      case Place::kMetadataItems:
        throw Error(path_, ": __metadata__ holds ", found,
                    ", expected an object of texts by their keys");
      default:
        throw Error(path_, ": the header is ", found, ", expected an object of tensors");
    }
  }

  const std::string& path_;
  Header* header_;
  Place place_ = Place::kHeader;
  int depth_ = 0;  // of objects and lists open inside a field that we pass over
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  int offset_count_ = 0;
  std::string metadata_key_;
};

void CheckNamesAreUnique(const Header& header, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const HeaderEntry& entry : header.tensors) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw Error(path, ": tensor ", Quote(*twice), " is in the header twice, expected once");
  }
}

}  // namespace

Header ParseHeader(std::string_view json, const std::string& path) {
  if (json.empty() || json[0] != '{') {
    throw Error(path, ": the header begins with ",
                json.empty() ? "nothing" : Quote(json.substr(0, 1)),
                ", expected '{'; is this a safetensors file?");
  }
  // The parser takes a zero byte for the end of the text and would not look at what follows.
  const size_t zero = json.find('\0');
  if (zero != std::string_view::npos) {
    throw Error(path, ": the header has a zero byte at ", zero, ", expected JSON");
  }
  Header header;
  HeaderReader reader(path, &header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  CheckNamesAreUnique(header, path);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  return header;
}

size_t TensorBytes(const TensorSpec& spec) {
  size_t bytes = DTypeBytes(spec.dtype);
  for (const size_t extent : spec.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      throw Error("tensor ", Quote(spec.name), " has more bytes than 64 bits can count");
    }
  }
  return bytes;
}

std::string FormatHeader(const std::vector<TensorSpec>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  size_t offset = 0;
  for (const TensorSpec& spec : tensors) {
    const size_t end = offset + TensorBytes(spec);
    header.push_back({spec.name,
                      {{"dtype", DTypeName(spec.dtype)},
                       {"shape", spec.shape},
                       {"data_offsets", {offset, end}}}});
    offset = end;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>(static_cast<uint64_t>(json.size()) >> shift & 0xff);
  }
  return bytes + json;
}

}  // namespace tinyvllm
