#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"

namespace tinyvllm {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe would wait for someone to write into it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(path, ": cannot be opened: ", std::strerror(errno));
  struct stat status;
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (regular && status.st_size > 0) {
    void* address = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address != MAP_FAILED) {
      data_ = static_cast<const char*>(address);
      size_ = status.st_size;
    }
  }
  const int error = errno;
  close(fd);  // the mapping keeps the file
  if (!regular) throw Error(path, ": is not a regular file");
  if (status.st_size > 0 && data_ == nullptr) {
    throw Error(path, ": cannot be mapped: ", std::strerror(error));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string ReadTextFile(const std::string& path, size_t max_bytes) {
  const MappedFile file(path);
  Check(file.size() <= max_bytes, path, ": holds ", file.size(), " bytes, expected at most ",
        max_bytes);
  return std::string(file.bytes());
}

}  // namespace tinyvllm
