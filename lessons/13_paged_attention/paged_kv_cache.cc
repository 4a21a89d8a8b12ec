#include "lessons/13_paged_attention/paged_kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/check.h"

namespace tinyvllm {
namespace {

constexpr size_t kIntsPerAlignment = 4;  // the kernels read a PagedSpan by one load of 16 bytes

template <typename T>
constexpr size_t kInts = sizeof(T) / sizeof(int);

int BlocksFor(int64_t tokens, int block_size) {
  return static_cast<int>((tokens + block_size - 1) / block_size);
}

int64_t MaxSpans(const PassLimits& limits) {
  return int64_t{limits.max_sequences} * PagedSpansOf(limits.max_sequence_len);
}

}  // namespace

size_t PagedKvCache::BytesPerBlock(const ModelConfig& config, int block_size) {
  return size_t{2} * config.num_hidden_layers * block_size * config.kv_size() * sizeof(bf16);
}

PagedKvCache::PagedKvCache(const ModelConfig& config, const PassLimits& limits, int num_blocks,
                           int block_size)
    : limits_(limits),
      shape_(AttentionShapeOf(config)),
      num_layers_(config.num_hidden_layers),
      num_blocks_(num_blocks),
      block_size_(block_size),
      max_spans_(MaxSpans(limits)) {
  Check(num_blocks >= 1 && block_size >= 1, "KV cache: ", num_blocks, " blocks of ", block_size,
        " tokens; expected at least one of each");
  Check(int64_t{num_blocks} * block_size <=
            std::numeric_limits<int>::max() / config.num_key_value_heads,
        "KV cache: ", num_blocks, " blocks of ", block_size, " tokens and ",
        config.num_key_value_heads, " KV heads are more rows than 2^31 - 1; take fewer blocks");
  const size_t bytes = BytesPerBlock(config, block_size) * num_blocks;
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  Check(bytes <= free, "KV cache: ", num_blocks, " blocks of ", block_size, " tokens take ",
        HumanBytes(bytes), ", and the device has ", HumanBytes(free), " of ", HumanBytes(total),
        " free; take fewer blocks");
  pool_ = DeviceBuffer<bf16>(bytes / sizeof(bf16));
  tickets_ = DeviceBuffer<int>(PagedAttentionTickets(shape_, max_spans_, limits.max_sequence_len));
  tickets_.Fill(0);

  const size_t sequences = limits.max_sequences;
  const size_t max_tiles = sequences + size_t{static_cast<size_t>(limits.max_tokens)} *
                                           (shape_.num_heads / shape_.num_kv_heads) /
                                           kPagedTileRows;
  size_t ints = 0;
  const auto add = [&](Region* region, size_t size) {
    *region = {ints, size};
    ints += (size + kIntsPerAlignment - 1) / kIntsPerAlignment * kIntsPerAlignment;
  };
  add(&tables_, sequences * BlocksFor(limits.max_sequence_len, block_size));
  add(&kv_lens_, sequences);
  add(&table_offsets_, sequences);
  add(&slots_, limits.max_tokens);
  add(&tiles_, max_tiles * kInts<PagedTile>);
  add(&spans_, max_spans_ * kInts<PagedSpan>);
  host_ = PinnedBuffer<int>(ints);
  device_ = DeviceBuffer<int>(ints);
  work_.spans.reserve(max_spans_);
  work_.tiles.reserve(max_tiles);
  sequence_kv_lens_.reserve(sequences);
  sequence_tables_.reserve(sequences);
  written_.assign(num_blocks, 0);
  writer_.assign(num_blocks, 0);
}

KvPages PagedKvCache::pages(int layer) {
  const size_t layer_size = pool_.size() / 2 / num_layers_;  // of K, and of V
  KvPages pages;
  pages.k = pool_.data() + 2 * layer * layer_size;
  pages.v = pages.k + layer_size;
  pages.num_blocks = num_blocks_;
  pages.block_size = block_size_;
  return pages;
}

size_t PagedKvCache::WorkspaceBytes(const ModelConfig& config, const PassLimits& limits) {
  return PagedAttentionWorkspaceBytes(AttentionShapeOf(config), MaxSpans(limits),
                                      limits.max_sequence_len);
}

// tag::begin[]
void PagedKvCache::Begin(const Batch& batch, const std::vector<BlockSpan>& tables,
                         cudaStream_t stream) {
  planned_tokens_ = 0;
  Validate(batch, tables);
  copied_.Synchronize();  // the copy before this one has been made
  Fill(batch, tables);

  const size_t first = tables_.begin + sequence_tables_.front();
  const size_t end = spans_.begin + work_.spans.size() * kInts<PagedSpan>;
  CUDA_CHECK(cudaMemcpyAsync(device_.data() + first, host_.data() + first,
                             (end - first) * sizeof(int), cudaMemcpyHostToDevice, stream));
  copied_.Record(stream);
  planned_tokens_ = batch.num_tokens();
}
// end::begin[]

// Checks what the kernels take for granted, and works out how long each sequence will be.
void PagedKvCache::Validate(const Batch& batch, const std::vector<BlockSpan>& tables) {
  batch.ValidateShape();
  Check(batch.num_tokens() >= 1 && batch.num_tokens() <= limits_.max_tokens,
        "KV cache: ", batch.num_tokens(), " tokens, expected 1 to ", limits_.max_tokens);
  Check(batch.num_sequences() <= limits_.max_sequences, "KV cache: ", batch.num_sequences(),
        " sequences, expected at most ", limits_.max_sequences);
  Check(static_cast<int>(tables.size()) == batch.num_sequences(), "KV cache: ", tables.size(),
        " block tables for ", batch.num_sequences(), " sequences");
  sequence_kv_lens_.clear();
  ++batches_;
  for (int s = 0; s < batch.num_sequences(); ++s) {
    const int begin = batch.sequence_offsets[s];
    const int end = batch.sequence_offsets[s + 1];
    if (begin == end) {
      sequence_kv_lens_.push_back(0);
      continue;
    }
    const int first = batch.positions[begin];
    Check(first >= 0 && end - begin <= limits_.max_sequence_len - first, "KV cache: sequence ", s,
          " has positions ", first, " to ", int64_t{first} + end - begin - 1, ", expected 0 to ",
          limits_.max_sequence_len - 1);
    for (int t = begin; t < end; ++t) {
      Check(batch.positions[t] == first + t - begin, "KV cache: positions[", t, "] is ",
            batch.positions[t], ", expected ", first + t - begin, ", the next of sequence ", s);
    }
    const int kv_len = first + end - begin;
    const int needed = BlocksFor(kv_len, block_size_);
    Check(tables[s].count >= needed && tables[s].blocks != nullptr, "KV cache: sequence ", s,
          " has ", kv_len, " tokens and ", tables[s].count, " blocks of ", block_size_,
          ", but needs ", needed);
    for (int i = 0; i < needed; ++i) {
      const int block = tables[s].blocks[i];
      Check(block >= 0 && block < num_blocks_, "KV cache: block ", i, " of sequence ", s, " is ",
            block, ", expected 0 to ", num_blocks_ - 1);
      if (i < first / block_size_) continue;  // it is only read
      Check(written_[block] != batches_, "KV cache: sequences ", writer_[block], " and ", s,
            " would both write to block ", block);
      written_[block] = batches_;
      writer_[block] = s;
    }
    sequence_kv_lens_.push_back(kv_len);
  }
}

// tag::fill[]
void PagedKvCache::Fill(const Batch& batch, const std::vector<BlockSpan>& tables) {
  // The tables, one after the other, right before the lists that follow them.
  size_t used = 0;
  for (const int kv_len : sequence_kv_lens_) used += BlocksFor(kv_len, block_size_);
  int next = static_cast<int>(kv_lens_.begin - tables_.begin - used);
  sequence_tables_.clear();
  planned_max_kv_len_ = 0;
  for (int s = 0; s < batch.num_sequences(); ++s) {
    const int kv_len = sequence_kv_lens_[s];
    const int count = BlocksFor(kv_len, block_size_);
    std::copy_n(tables[s].blocks, count, Host(tables_) + next);
    sequence_tables_.push_back(next);
    next += count;
    planned_max_kv_len_ = std::max(planned_max_kv_len_, kv_len);
    for (int t = batch.sequence_offsets[s]; t < batch.sequence_offsets[s + 1]; ++t) {
      const int position = batch.positions[t];
      Host(slots_)[t] =
          tables[s].blocks[position / block_size_] * block_size_ + position % block_size_;
    }
  }
  std::copy(sequence_kv_lens_.begin(), sequence_kv_lens_.end(), Host(kv_lens_));
  std::copy(sequence_tables_.begin(), sequence_tables_.end(), Host(table_offsets_));
  work_.Make(shape_, batch.num_sequences(), batch.sequence_offsets.data(), sequence_kv_lens_.data(),
             sequence_tables_.data(), /*tiles_wanted=*/true);
  std::memcpy(Host(tiles_), work_.tiles.data(), work_.tiles.size() * sizeof(PagedTile));
  std::memcpy(Host(spans_), work_.spans.data(), work_.spans.size() * sizeof(PagedSpan));
}
// end::fill[]

void PagedKvCache::CheckAnnounced(const PassContext& pass) const {
  Check(planned_tokens_ == pass.batch.num_tokens, "KV cache: a pass of ", pass.batch.num_tokens,
        " tokens, but Begin announced ", planned_tokens_, "; call Begin before each pass");
}

// tag::attend[]
void PagedKvCache::Attend(const PassContext& pass, int layer) {
  CheckAnnounced(pass);
  const ModelConfig& config = pass.config;
  const bf16* qkv = pass.activations.Get(Buffer::kQkv);  // (tokens, qkv_size)
  StoreKvPagesRows rows;
  rows.k = qkv + config.q_size();
  rows.v = qkv + config.q_size() + config.kv_size();
  rows.stride = config.qkv_size();
  rows.slots = Device(slots_);
  rows.num_tokens = pass.batch.num_tokens;
  rows.num_kv_heads = shape_.num_kv_heads;
  rows.head_dim = shape_.head_dim;
  rows.pages = pages(layer);
  StoreKvPages(rows, pass.stream);

  PagedAttentionBatch batch;
  batch.num_sequences = pass.batch.num_sequences;
  batch.num_queries = pass.batch.num_tokens;
  batch.max_kv_len = planned_max_kv_len_;
  batch.query_offsets = pass.batch.sequence_offsets();
  batch.kv_lens = Device(kv_lens_);
  batch.table_offsets = Device(table_offsets_);
  batch.block_tables = Device(tables_);
  batch.spans = reinterpret_cast<const PagedSpan*>(Device(spans_));
  batch.tiles = reinterpret_cast<const PagedTile*>(Device(tiles_));
  batch.num_spans = static_cast<int>(work_.spans.size());
  batch.num_tiles = static_cast<int>(work_.tiles.size());
  batch.tickets = tickets_.data();
  PagedAttentionTensors tensors;
  tensors.q = qkv;
  tensors.q_stride = config.qkv_size();
  tensors.pages = rows.pages;
  tensors.output = pass.activations.Begin(Buffer::kAttended, batch.num_queries,
                                          pass.stream);  // (tokens, q_size)
  PagedAttention(shape_, batch, tensors,
                 pass.activations.Begin<void>(Buffer::kWorkspace, 1, pass.stream),
                 pass.activations.bytes(Buffer::kWorkspace), pass.stream);
  LayerDone(layer);
}
// end::attend[]

void PagedKvCache::LayerDone(int layer) {
  if (layer + 1 == num_layers_) planned_tokens_ = 0;
}

LayerStage PagedAttend(PagedKvCache* cache) {
  return [cache](const PassContext& pass, int layer) { cache->Attend(pass, layer); };
}

Stages PagedStages(PagedKvCache* cache) {
  Stages stages = PlainStages();
  stages.attend = PagedAttend(cache);
  stages.attend_workspace = PagedKvCache::WorkspaceBytes;
  return stages;
}

}  // namespace tinyvllm
