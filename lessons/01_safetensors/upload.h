// From a mapped file to where the weights are computed with, converting to BF16 on the way.
//
//   std::vector<UploadItem> items;
//   items.push_back({&checkpoint.Get("model.norm.weight"), arena.data() + offset});
//   Upload(items);   // when it returns, every byte has arrived
//
// Two versions of one idea. A GPU fetches bytes by itself (DMA), but only from page-locked (pinned)
// memory, whose pages cannot move. Version 1 hands cudaMemcpy the mapping and lets the driver stage
// it; reading, converting and sending then take turns. Version 2 stages by itself, with several
// threads, so that they overlap.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/progress.h"
#include "lessons/01_safetensors/safetensors.h"

namespace tinyvllm {

enum class StoreAs {
  kBF16,  // converted where the file holds F16 or F32; other dtypes are refused
  kAsIs,  // byte by byte, any dtype
};

enum class MemoryKind { kDevice, kHost };

// One tensor's way. The destination must hold StoredBytes(*tensor, store_as) bytes, aligned to 2
// for kBF16.
struct UploadItem {
  const TensorView* tensor;
  void* destination;
  StoreAs store_as = StoreAs::kBF16;
  MemoryKind memory = MemoryKind::kDevice;  // kHost: pinned or not, it is written by the CPU
};

// Bytes that a tensor takes at its destination. Throws Error, naming the tensor, when it cannot be
// stored so.
size_t StoredBytes(const TensorView& tensor, StoreAs store_as);

// Each version checks every item before it copies anything, and returns when all has arrived.
// `progress` counts stored bytes and may be null.
void UploadPlain(const std::vector<UploadItem>& items, Progress* progress);   // version 1
void UploadStaged(const std::vector<UploadItem>& items, Progress* progress);  // version 2

struct UploadVersion {
  int number;
  const char* name;
  const char* idea;
  void (*upload)(const std::vector<UploadItem>& items, Progress* progress);
};

inline constexpr UploadVersion kUploadVersions[] = {
    {1, "plain", "cudaMemcpy from the mapped file", UploadPlain},
    {2, "staged", "threads fill pinned buffers while earlier ones are on their way", UploadStaged},
};

// What the engine calls: version 2, with a progress bar on standard error.
void Upload(const std::vector<UploadItem>& items);

}  // namespace tinyvllm
