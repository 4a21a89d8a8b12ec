#include "lessons/01_safetensors/upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "common/base/error.h"
#include "common/base/quote.h"
#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"

namespace tinyvllm {
namespace {

// Large enough that a copy's start-up does not count, small enough that two buffers a thread are
// soon allocated (page-locking costs about as much time as sending the page) and that several
// threads share even a small model.
constexpr size_t kChunkBytes = size_t{2} << 20;

// A core copies some 8 GB/s out of the file cache, and no link of today takes more than eight such.
constexpr unsigned kMaxThreads = 8;

// Bytes of one element at the destination.
size_t StoredElementBytes(const UploadItem& item) {
  return DTypeBytes(item.store_as == StoreAs::kBF16 ? DType::kBF16 : item.tensor->dtype);
}

// A run of elements of one tensor, at most kChunkBytes at the destination.
struct Chunk {
  const UploadItem* item;
  size_t first;
  size_t count;

  size_t bytes() const { return count * StoredElementBytes(*item); }
  char* destination() const {
    return static_cast<char*>(item->destination) + first * StoredElementBytes(*item);
  }
};

std::vector<Chunk> SplitIntoChunks(const std::vector<UploadItem>& items) {
  std::vector<Chunk> chunks;
  for (const UploadItem& item : items) {
    StoredBytes(*item.tensor, item.store_as);  // throws for what cannot be stored so
    const size_t total = item.tensor->element_count();
    const size_t step = kChunkBytes / StoredElementBytes(item);
    for (size_t first = 0; first < total; first += step) {
      chunks.push_back({&item, first, std::min(step, total - first)});
    }
  }
  return chunks;
}

// Writes the chunk, as it is to be stored, to memory of the host.
void Fill(const Chunk& chunk, char* out) {
  const TensorView& tensor = *chunk.item->tensor;
  const char* in = tensor.bytes.data() + chunk.first * DTypeBytes(tensor.dtype);
  if (chunk.item->store_as == StoreAs::kBF16) {
    ConvertToBF16(tensor.dtype, in, chunk.count, reinterpret_cast<uint16_t*>(out));
  } else {
    std::memcpy(out, in, chunk.bytes());
  }
}

void Advance(Progress* progress, size_t bytes) {
  if (progress != nullptr) progress->Advance(static_cast<int64_t>(bytes));
}

}  // namespace

size_t StoredBytes(const TensorView& tensor, StoreAs store_as) {
  if (store_as == StoreAs::kAsIs) return tensor.bytes.size();
  if (!ConvertsToBF16(tensor.dtype)) {
    throw Error("tensor ", Quote(tensor.name), " is ", DTypeName(tensor.dtype),
                ", expected BF16, or F16 or F32 to convert; convert the checkpoint first");
  }
  return tensor.element_count() * DTypeBytes(DType::kBF16);
}

// tag::plain[]
void UploadPlain(const std::vector<UploadItem>& items, Progress* progress) {
  std::vector<char> converted(kChunkBytes);
  for (const Chunk& chunk : SplitIntoChunks(items)) {
    if (chunk.item->memory == MemoryKind::kHost) {
      Fill(chunk, chunk.destination());
    } else {
      const TensorView& tensor = *chunk.item->tensor;
      const char* source = tensor.bytes.data() + chunk.first * DTypeBytes(tensor.dtype);
      if (chunk.item->store_as == StoreAs::kBF16 && tensor.dtype != DType::kBF16) {
        Fill(chunk, converted.data());
        source = converted.data();
      }
      CUDA_CHECK(cudaMemcpy(chunk.destination(), source, chunk.bytes(), cudaMemcpyHostToDevice));
    }
    Advance(progress, chunk.bytes());
  }
  // From pageable memory cudaMemcpy may return when the driver holds a copy, before the device has
  // it, and a stream of our own would not wait for it.
  CUDA_CHECK(cudaDeviceSynchronize());
}
// end::plain[]

namespace {

// tag::staged[]
// One thread's work: takes the next chunk that nobody has, fills one of its two pinned buffers, and
// sends it. While that copy is on its way, it fills the other.
void SendChunks(const std::vector<Chunk>& chunks, std::atomic<size_t>* next, Progress* progress) {
  struct Staging {
    PinnedBuffer<char> buffer;
    Event sent;
  };
  Staging stagings[2];
  const Stream stream;
  size_t turn = 0;
  for (size_t i; (i = next->fetch_add(1)) < chunks.size();) {
    const Chunk& chunk = chunks[i];
    if (chunk.item->memory == MemoryKind::kHost) {
      Fill(chunk, chunk.destination());
    } else {
      Staging& staging = stagings[turn % 2];
      if (turn < 2) {
        staging.buffer = PinnedBuffer<char>(kChunkBytes);
      } else {
        staging.sent.Synchronize();  // until then its last copy still reads the buffer
      }
      Fill(chunk, staging.buffer.data());
      CUDA_CHECK(cudaMemcpyAsync(chunk.destination(), staging.buffer.data(), chunk.bytes(),
                                 cudaMemcpyHostToDevice, stream.get()));
      staging.sent.Record(stream.get());
      ++turn;
    }
    Advance(progress, chunk.bytes());
  }
  stream.Synchronize();
}
// end::staged[]

}  // namespace

void UploadStaged(const std::vector<UploadItem>& items, Progress* progress) {
  const std::vector<Chunk> chunks = SplitIntoChunks(items);
  const size_t thread_count = std::min<size_t>(
      chunks.size(), std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads));
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  // The threads' streams wait for nobody: a memset of the destination that is still queued would
  // come after the weights.
  CUDA_CHECK(cudaDeviceSynchronize());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&] {
      try {
        CUDA_CHECK(cudaSetDevice(device));  // each thread has its own
        SendChunks(chunks, &next, progress);
      } catch (...) {
        next = chunks.size();  // the others stop at their next chunk
        const std::lock_guard<std::mutex> lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void Upload(const std::vector<UploadItem>& items) {
  size_t total = 0;
  for (const UploadItem& item : items) total += StoredBytes(*item.tensor, item.store_as);
  Progress progress("loading weights", static_cast<int64_t>(total), Progress::Unit::kBytes);
  UploadStaged(items, &progress);
}

}  // namespace tinyvllm
