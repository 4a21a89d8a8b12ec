#include "tools/random_model/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "common/base/error.h"
#include "tools/random_model/random_word.h"

namespace tinyvllm {
namespace {

// Elements of one piece of work: 2 MB of BF16.
constexpr size_t kChunkElements = size_t{1} << 20;

// One random word of 64 bits gives four elements of 16 bits each.
constexpr size_t kElementsPerWord = 4;
constexpr size_t kTableSize = size_t{1} << 16;

// The x below which a standard normal variable lies with probability p (0 < p < 1): bisection, then
// Newton's steps, on the distribution function.
double NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 12; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  double x = (low + high) / 2;
  for (int i = 0; i < 4; ++i) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    x -= (std::erfc(-x / std::sqrt(2.0)) / 2 - p) / density;
  }
  return x;
}

const std::vector<double>& NormalTable() {
  static const std::vector<double> table = [] {
    std::vector<double> values(kTableSize);
    for (size_t i = 0; i < kTableSize / 2; ++i) {
      values[i] = NormalQuantile((static_cast<double>(i) + 0.5) / kTableSize);
      values[kTableSize - 1 - i] = -values[i];
    }
    return values;
  }();
  return table;
}

uint16_t F16FromF32(float value) {
  // By way of an integer multiple of the spacing that F16 has at this size: nearbyint rounds ties
  // to even, as F16 does.
  const double magnitude = std::abs(static_cast<double>(value));
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int spacing = std::max(exponent - 11, -24);  // 11 significant bits, subnormal below 2^-14
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -spacing)));
  // A carry to 2048 units runs into the exponent by itself.
  return static_cast<uint16_t>(sign | (units + (spacing + 24) * 1024));
}

uint64_t KeyOf(uint64_t seed, const std::string& name) {
  uint64_t key = RandomWord(0x7469'6e79'766c'6c6du, seed);
  for (const char c : name) key = RandomWord(key, static_cast<unsigned char>(c));
  return key;
}

// Values of a distribution, as they are stored: T is the bits of a BF16 or F16, or an F32.
template <typename T>
std::vector<T> StoredTable(double mean, double deviation, T (*store)(float)) {
  std::vector<T> table;
  table.reserve(kTableSize);
  for (const double x : NormalTable())
    table.push_back(store(static_cast<float>(mean + deviation * x)));
  return table;
}

template <typename T>
void FillChunk(uint64_t key, size_t first, size_t count, const std::vector<T>& table, char* out) {
  T* values = reinterpret_cast<T*>(out);
  for (size_t i = 0; i < count; i += kElementsPerWord) {
    uint64_t word = RandomWord(key, (first + i) / kElementsPerWord);
    const size_t n = std::min(kElementsPerWord, count - i);
    for (size_t j = 0; j < n; ++j, word >>= 16) values[i + j] = table[word & 0xffff];
  }
}

// What one kind of tensor is filled from.
struct Source {
  std::vector<uint16_t> half;
  std::vector<float> single;

  Source(DType dtype, double mean, double deviation) {
    switch (dtype) {
      case DType::kBF16:
        half = StoredTable<uint16_t>(mean, deviation, BF16FromF32);
        break;
      case DType::kF16:
        half = StoredTable<uint16_t>(mean, deviation, F16FromF32);
        break;
      case DType::kF32:
        single = StoredTable<float>(mean, deviation, [](float value) { return value; });
        break;
      default:
        throw Error("--dtype: found ", DTypeName(dtype), ", expected BF16, F16 or F32");
    }
  }
};

struct Chunk {
  uint64_t key;
  const Source* source;
  size_t element_bytes;
  size_t first;
  size_t count;
  size_t offset;  // in the file
};

class OutputFile {
 public:
  OutputFile(const std::string& path, size_t size) : path_(path), temporary_(path + ".part") {
    fd_ = open(temporary_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
    if (fd_ < 0) throw Error(temporary_, ": cannot be created: ", std::strerror(errno));
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) Fail();
  }
  ~OutputFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(temporary_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // From any thread.
  void Write(const char* data, size_t size, size_t offset) {
    while (size > 0) {
      const ssize_t written = pwrite(fd_, data, size, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) Fail();
      data += written;
      offset += written;
      size -= written;
    }
  }

  void Finish() {
    const int fd = std::exchange(fd_, -1);
    if (close(fd) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) Fail();
  }

 private:
  [[noreturn]] void Fail() const {
    throw Error(path_, ": cannot be written: ", std::strerror(errno));
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

void WriteChunks(const std::vector<Chunk>& chunks, std::atomic<size_t>* next, OutputFile* file,
                 Progress* progress) {
  std::vector<char> buffer(kChunkElements * sizeof(float));
  for (size_t i; (i = next->fetch_add(1)) < chunks.size();) {
    const Chunk& chunk = chunks[i];
    if (chunk.element_bytes == sizeof(float)) {
      FillChunk(chunk.key, chunk.first, chunk.count, chunk.source->single, buffer.data());
    } else {
      FillChunk(chunk.key, chunk.first, chunk.count, chunk.source->half, buffer.data());
    }
    const size_t bytes = chunk.count * chunk.element_bytes;
    file->Write(buffer.data(), bytes, chunk.offset);
    if (progress != nullptr) progress->Advance(static_cast<int64_t>(bytes));
  }
}

// Runs `work` on as many threads as there are processors; rethrows the first exception.
template <typename Work>
void OnAllThreads(std::atomic<size_t>* next, size_t end, Work work) {
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, 16u); ++i) {
    threads.emplace_back([&] {
      try {
        work();
      } catch (...) {
        *next = end;
        const std::lock_guard<std::mutex> lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace

void WriteRandomSafetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                            const WeightOptions& options, Progress* progress) {
  if (tensors.empty()) throw Error(path, ": no tensors, expected at least one");
  const DType dtype = tensors[0].dtype;
  const Source matrices(dtype, 0, options.initializer_range);
  const Source vectors(dtype, 1, options.initializer_range);
  const std::string header = FormatHeader(tensors, {{"format", "pt"}});
  std::vector<Chunk> chunks;
  size_t offset = header.size();
  for (const TensorSpec& tensor : tensors) {
    Check(tensor.dtype == dtype, path, ": tensors of several dtypes, expected one");
    const size_t element_bytes = DTypeBytes(dtype);
    const size_t total = TensorBytes(tensor) / element_bytes;
    const Source* source = tensor.shape.size() == 1 ? &vectors : &matrices;
    for (size_t first = 0; first < total; first += kChunkElements) {
      const size_t count = std::min(kChunkElements, total - first);
      chunks.push_back({KeyOf(options.seed, tensor.name), source, element_bytes, first, count,
                        offset + first * element_bytes});
    }
    offset += total * element_bytes;
  }
  if (options.header_only) chunks.clear();

  const size_t to_write = options.header_only ? header.size() : offset;
  std::error_code ignored;
  const auto space = std::filesystem::space(std::filesystem::path(path).parent_path(), ignored);
  if (!ignored && space.available < to_write) {
    throw Error(path, ": needs ", HumanBytes(to_write), ", the disk has ",
                HumanBytes(space.available), " free");
  }
  OutputFile file(path, offset);
  file.Write(header.data(), header.size(), 0);
  std::atomic<size_t> next{0};
  OnAllThreads(&next, chunks.size(), [&] { WriteChunks(chunks, &next, &file, progress); });
  file.Finish();
}

}  // namespace tinyvllm
