// A file mapped read-only into memory: its bytes without a copy, read from disk page by page as
// they are touched.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tinyvllm {

class MappedFile {
 public:
  // Throws Error when `path` is missing, is not a regular file, or cannot be read. An empty file
  // maps to an empty view.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small text file (config.json, tokenizer.json). Throws Error as MappedFile does,
// and when the file is larger than `max_bytes`.
std::string ReadTextFile(const std::string& path, size_t max_bytes = size_t{1} << 28);

}  // namespace tinyvllm
