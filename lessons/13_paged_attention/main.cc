// The demo: a softmax that sees its scores one at a time; the pages of each request in the pool
// while they run, and what the same memory in one piece a request would hold; and the versions of
// the kernels, timed.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/13_paged_attention/paged_generator.h"

namespace tinyvllm {
namespace {

const std::vector<std::string> kPrompts = {
    "Tell me a short story about a robot and a lighthouse.",
    "What is 2+2?",
    "Name a color.",
    "What is a KV cache?",
    "Tell me a short story about a dog.",
    "What is 27+41?",
};

void Heading(const std::string& text) { std::cout << "\n" << text << "\n\n"; }

std::string Percent(double share) { return Fixed(100 * share, 0) + " %"; }

// --- 1. online softmax

void ShowOnlineSoftmax() {
  Heading("1. A softmax that sees one score at a time");
  const std::vector<double> scores = {1, 3, 2, 5}, values = {10, 20, 30, 40};
  TextTable table(
      {"score", "value", "largest", "shrink", "weight", "sum", "weighted sum", "average so far"});
  double largest = -INFINITY, sum = 0, weighted = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double before = largest;
    largest = std::max(largest, scores[i]);
    const double shrink = std::exp2(before - largest), weight = std::exp2(scores[i] - largest);
    sum = sum * shrink + weight;
    weighted = weighted * shrink + weight * values[i];
    table.AddRow({Fixed(scores[i], 0), Fixed(values[i], 0), Fixed(largest, 0), Fixed(shrink, 3),
                  Fixed(weight, 3), Fixed(sum, 3), Fixed(weighted, 3), Fixed(weighted / sum, 3)});
  }
  double plain = 0, plain_sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    plain += std::exp2(scores[i]) * values[i];
    plain_sum += std::exp2(scores[i]);
  }
  std::cout << table.ToString() << "\nAll four at once: (2 * 10 + 8 * 20 + 4 * 30 + 32 * 40) / ("
            << "2 + 8 + 4 + 32) = " << Fixed(plain / plain_sum, 3)
            << ". No score had to be kept.\n";
}

// --- 2. pages

// The pool at one moment: which request holds each block, and how many tokens lie in it.
struct Picture {
  int step;
  std::vector<int> owner;  // (blocks): request, or -1
  std::vector<int> held;   // (blocks): tokens
  std::vector<PagedSequence> running;
};

struct Usage {
  double tokens = 0;      // stored
  double paged = 0;       // places in blocks that are taken
  double contiguous = 0;  // places that slots of the greatest length would take
};

Usage UsageOf(const std::vector<PagedSequence>& running, const PagedOptions& options) {
  Usage usage;
  for (const PagedSequence& sequence : running) {
    usage.tokens += sequence.cached;
    usage.paged += static_cast<double>(sequence.blocks.size()) * options.block_size;
    usage.contiguous += options.max_model_len;
  }
  return usage;
}

Picture Photograph(int step, const std::vector<PagedSequence>& running,
                   const PagedOptions& options) {
  Picture picture{step, std::vector<int>(options.num_blocks, -1),
                  std::vector<int>(options.num_blocks, 0), running};
  for (const PagedSequence& sequence : running) {
    for (size_t i = 0; i < sequence.blocks.size(); ++i) {
      picture.owner[sequence.blocks[i]] = static_cast<int>(sequence.request);
      picture.held[sequence.blocks[i]] =
          std::min(options.block_size, sequence.cached - static_cast<int>(i) * options.block_size);
    }
  }
  return picture;
}

char Letter(size_t request) { return static_cast<char>('a' + request % 26); }

// In a terminal, a request has its colour.
std::string Paint(size_t request, const std::string& text) {
  static const bool colours = isatty(STDOUT_FILENO) != 0;
  if (!colours) return text;
  return StrCat("\033[", 31 + request % 6, "m", text, "\033[0m");
}

void Draw(const Picture& picture, const PagedOptions& options) {
  std::cout << "step " << picture.step << "\n  pool    ";
  for (int block = 0; block < options.num_blocks; ++block) {
    if (picture.owner[block] < 0) {
      std::cout << "·";
      continue;
    }
    const char letter = Letter(picture.owner[block]);
    const bool full = picture.held[block] == options.block_size;
    std::cout << Paint(picture.owner[block],
                       std::string(1, full ? static_cast<char>(letter - 'a' + 'A') : letter));
  }
  std::cout << "\n";
  for (const PagedSequence& sequence : picture.running) {
    std::cout << "  " << Paint(sequence.request, std::string(1, Letter(sequence.request)))
              << " has "
              << std::string(sequence.cached < 100 ? sequence.cached < 10 ? 2 : 1 : 0, ' ')
              << sequence.cached << " tokens in blocks";
    for (const int block : sequence.blocks) std::cout << " " << block;
    std::cout << "\n";
  }
  std::cout << "\n";
}

std::vector<GenerationRequest> Requests(const std::vector<std::string>& prompts,
                                        const Tokenizer& tokenizer, int max_tokens) {
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : prompts) {
    GenerationRequest request;
    request.prompt_token_ids = ChatPrompt(tokenizer, {{"user", prompt}});
    request.max_tokens = max_tokens;
    requests.push_back(request);
  }
  return requests;
}

// Those at whose ends the picture changed most: the first step, each time a request has come or
// gone, and in between.
std::vector<Picture> Choose(const std::vector<Picture>& pictures, size_t most) {
  std::vector<size_t> chosen = {0};
  for (size_t i = 1; i < pictures.size(); ++i) {
    const auto ids = [](const Picture& picture) {
      std::vector<size_t> requests;
      for (const PagedSequence& sequence : picture.running) requests.push_back(sequence.request);
      return requests;
    };
    if (ids(pictures[i]) != ids(pictures[i - 1])) chosen.push_back(i);
  }
  while (chosen.size() > most) chosen.pop_back();
  std::vector<Picture> result;
  for (const size_t i : chosen) result.push_back(pictures[i]);
  return result;
}

void ShowFragmentation(const std::vector<Picture>& pictures, const PagedOptions& options) {
  Usage mean;
  double worst_paged = 1, worst_contiguous = 1;
  for (const Picture& picture : pictures) {
    const Usage usage = UsageOf(picture.running, options);
    mean.tokens += usage.tokens / pictures.size();
    mean.paged += usage.paged / pictures.size();
    mean.contiguous += usage.contiguous / pictures.size();
    worst_paged = std::min(worst_paged, usage.tokens / usage.paged);
    worst_contiguous = std::min(worst_contiguous, usage.tokens / usage.contiguous);
  }
  TextTable table({"a request's memory", "places taken, mean", "tokens in them", "in use",
                   "at the worst step"});
  table.AddRow({StrCat("in one piece of ", options.max_model_len), Fixed(mean.contiguous, 0),
                Fixed(mean.tokens, 0), Percent(mean.tokens / mean.contiguous),
                Percent(worst_contiguous)});
  table.AddRow({StrCat("in blocks of ", options.block_size), Fixed(mean.paged, 0),
                Fixed(mean.tokens, 0), Percent(mean.tokens / mean.paged), Percent(worst_paged)});
  std::cout << table.ToString();
}

// Llama 3.2 1B: 16 layers, 8 KV heads of 64. The arithmetic of a pool of 2 GiB.
void ShowPoolOfOneB() {
  const int64_t pool = int64_t{2} << 30, page = 2 * 16 * 8 * 64 * sizeof(bf16);
  const int64_t token = 16 * page / 16;  // 16 layers, of which a page holds one, and 16 tokens
  const int64_t places = pool / token;
  std::cout << "\nFor Llama 3.2 1B, 2 GiB are " << pool / page << " pages of " << page / 1024
            << " KiB (16 tokens of one layer, K and V), or " << places
            << " tokens\nin all layers. In one piece of 8,192 each, " << places / 8192
            << " requests fit, however short they are. In blocks\nof 16, requests of 600 tokens "
               "on average find room "
            << places / 608 << " at a time.\n";
}

void ShowPages(const std::vector<std::string>& prompts, const PagedOptions& options,
               int max_tokens) {
  const std::string folder = DataPath("models/pocket");
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const Weights weights(Checkpoint(folder), config);
  const std::vector<GenerationRequest> requests = Requests(prompts, tokenizer, max_tokens);
  PagedGenerator generator(config, weights, options);
  std::vector<Picture> pictures;
  generator.set_on_step([&](const std::vector<PagedSequence>& running) {
    pictures.push_back(Photograph(static_cast<int>(pictures.size()) + 1, running, options));
  });
  const std::vector<Generation> answers = generator.Generate(requests);

  Heading(StrCat("2. ", prompts.size(), " requests, at most ", options.max_sequences,
                 " at a time, in one pool of ", options.num_blocks, " blocks of ",
                 options.block_size, " tokens (", HumanBytes(generator.cache().bytes()), ")"));
  std::cout << "A letter is a block of that request, a capital a full one, · a free one.\n\n";
  for (const Picture& picture : Choose(pictures, 8)) Draw(picture, options);
  for (size_t i = 0; i < answers.size(); ++i) {
    std::cout << "  " << Paint(i, std::string(1, Letter(i))) << "  > " << prompts[i] << "\n     "
              << tokenizer.Decode(answers[i].token_ids, /*skip_special_tokens=*/true)
              << (answers[i].finish_reason == FinishReason::kLength ? " ..." : "") << "\n";
  }
  std::cout << "\n"
            << pictures.size() << " steps. All " << generator.pool().num_free()
            << " blocks are free again.\n\n";
  ShowFragmentation(pictures, options);
  ShowPoolOfOneB();
}

// --- 3. the versions

AttentionShape MakeShape(int num_heads, int num_kv_heads, int head_dim) {
  return {num_heads, num_kv_heads, head_dim,
          static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}

// A batch of sequences of one length each, its keys in blocks that lie anywhere.
class EvenPagedBatch {
 public:
  EvenPagedBatch(const AttentionShape& shape, int num_sequences, int q_len, int kv_len)
      : num_blocks_(num_sequences * ((kv_len + kBlockSize - 1) / kBlockSize)),
        tickets_(PagedAttentionTickets(shape, int64_t{num_sequences} * q_len * PagedSpansOf(kv_len),
                                       kv_len)) {
    Random random(13);
    std::vector<int> tables(num_blocks_);
    std::iota(tables.begin(), tables.end(), 0);
    for (int i = 0; i < num_blocks_; ++i) {
      std::swap(tables[i], tables[random.Integer(i, num_blocks_ - 1)]);
    }
    for (int s = 0; s <= num_sequences; ++s) queries_.push_back(s * q_len);
    for (int s = 0; s < num_sequences; ++s) {
      lens_.push_back(kv_len);
      offsets_.push_back(s * (num_blocks_ / num_sequences));
    }
    device_queries_ = DeviceBuffer<int>(queries_);
    device_lens_ = DeviceBuffer<int>(lens_);
    device_offsets_ = DeviceBuffer<int>(offsets_);
    device_tables_ = DeviceBuffer<int>(tables);
    const size_t kv_elements =
        size_t{static_cast<size_t>(num_blocks_)} * kBlockSize * shape.num_kv_heads * shape.head_dim;
    const int64_t q_width = int64_t{shape.num_heads} * shape.head_dim;
    q_ = DeviceBuffer<bf16>(random.Bf16(num_sequences * q_len * q_width));
    k_ = RandomElements(kv_elements);
    v_ = RandomElements(kv_elements);
    output_ = DeviceBuffer<bf16>(q_.size());
    tickets_.Fill(0);
    tensors_.q = q_.data();
    tensors_.q_stride = q_width;
    tensors_.pages = {k_.data(), v_.data(), num_blocks_, kBlockSize};
    tensors_.output = output_.data();
    batch_.num_sequences = num_sequences;
    batch_.num_queries = num_sequences * q_len;
    batch_.max_kv_len = kv_len;
    batch_.query_offsets = device_queries_.data();
    batch_.kv_lens = device_lens_.data();
    batch_.table_offsets = device_offsets_.data();
    batch_.block_tables = device_tables_.data();
    batch_.tickets = tickets_.data();
  }

  // The lists that the version works from, and its workspace.
  void PrepareFor(const AttentionShape& shape, const PagedAttentionVersion& version) {
    PagedWork work;
    work.Make(shape, batch_.num_sequences, queries_.data(), lens_.data(), offsets_.data(),
              version.makes_tiles);
    spans_ = DeviceBuffer<PagedSpan>(work.spans);
    tiles_ = DeviceBuffer<PagedTile>(work.tiles);
    batch_.spans = spans_.data();
    batch_.tiles = tiles_.data();
    batch_.num_spans = static_cast<int>(spans_.size());
    batch_.num_tiles = static_cast<int>(tiles_.size());
    workspace_ =
        DeviceBuffer<char>(version.workspace_bytes(shape, batch_.num_spans, batch_.max_kv_len));
  }

  void Launch(const AttentionShape& shape, const PagedAttentionVersion& version,
              cudaStream_t stream) {
    version.launch(shape, batch_, tensors_, workspace_.data(), workspace_.bytes(), stream);
  }

 private:
  static constexpr int kBlockSize = 16;

  // A megabyte of them, again and again: hundreds of megabytes would take a while to draw.
  static DeviceBuffer<bf16> RandomElements(size_t size) {
    const std::vector<bf16> some = Random(14).Bf16(std::min(size, size_t{1} << 19));
    DeviceBuffer<bf16> all(size);
    for (size_t at = 0; at < size; at += some.size()) {
      CUDA_CHECK(cudaMemcpy(all.data() + at, some.data(),
                            std::min(some.size(), size - at) * sizeof(bf16),
                            cudaMemcpyHostToDevice));
    }
    return all;
  }

  const int num_blocks_;
  std::vector<int> queries_ = {}, lens_, offsets_;
  DeviceBuffer<int> device_queries_, device_lens_, device_offsets_, device_tables_, tickets_;
  DeviceBuffer<bf16> q_, k_, v_, output_;
  DeviceBuffer<PagedSpan> spans_;
  DeviceBuffer<PagedTile> tiles_;
  DeviceBuffer<char> workspace_;
  PagedAttentionBatch batch_;
  PagedAttentionTensors tensors_;
};

void TimeVersions(const std::string& title, const AttentionShape& shape, int num_sequences,
                  int q_len, int kv_len, Benchmark* benchmark) {
  const bool simulated = IsSimulator();
  EvenPagedBatch even(shape, num_sequences, q_len, kv_len);
  const double width = double{1.0} * shape.num_heads * shape.head_dim;
  const double bytes = 2.0 * num_sequences *
                       (2 * q_len * width + 2.0 * kv_len * shape.num_kv_heads * shape.head_dim);
  const double visible = num_sequences * (q_len * (kv_len - q_len + 0.5 * (q_len + 1)));
  const double operations = 4 * visible * width;
  std::cout << title << ": " << num_sequences << " x " << q_len << " queries, " << kv_len
            << " keys each, " << shape.num_heads << " heads, " << shape.num_kv_heads
            << " KV heads of " << shape.head_dim << "\n\n";
  TextTable table(simulated ? std::vector<std::string>{"version", "ms", "adds the idea"}
                            : std::vector<std::string>{"version", "ms", "GB/s", "of copy",
                                                       "TFLOP/s", "adds the idea"});
  for (const PagedAttentionVersion& version : kPagedAttentionVersions) {
    even.PrepareFor(shape, version);
    const double ms = benchmark->MedianMilliseconds(
        [&] { even.Launch(shape, version, benchmark->stream()); }, simulated ? 3 : 20);
    const std::string name = StrCat(version.number, " ", version.name);
    if (simulated) {
      table.AddRow({name, Fixed(ms, 2), version.idea});
      continue;
    }
    const double gigabytes = GigabytesPerSecond(bytes, ms);
    table.AddRow({name, Fixed(ms, 3), Fixed(gigabytes, 0),
                  Fixed(100 * gigabytes / benchmark->CopyGigabytesPerSecond(), 1) + " %",
                  Fixed(operations / ms * 1e-9, 2), version.idea});
  }
  std::cout << table.ToString() << "\n";
}

void ShowVersions() {
  Heading("3. The versions");
  Benchmark benchmark;
  if (IsSimulator()) {
    TimeVersions("A decode step", MakeShape(8, 2, 64), 4, 1, 300, &benchmark);
    TimeVersions("A prompt", MakeShape(8, 2, 64), 1, 64, 64, &benchmark);
    std::cout << "These are times of a CPU that plays a GPU, where a shuffle costs as much as a\n"
                 "hundred multiplications: they rank nothing. On a GPU this table shows GB/s, the\n"
                 "share of the limit and TFLOP/s.\n";
    return;
  }
  const AttentionShape shape = MakeShape(32, 8, 64);
  TimeVersions("A decode step", shape, 64, 1, 2048, &benchmark);
  TimeVersions("A decode step of one sequence", shape, 1, 1, 2048, &benchmark);
  TimeVersions("A decode step of one long sequence", shape, 1, 1, 65536, &benchmark);
  TimeVersions("A prompt", shape, 1, 2048, 2048, &benchmark);
  TimeVersions("A chunk of a prompt", shape, 1, 512, 8192, &benchmark);
  std::cout << "Copy: " << Fixed(benchmark.CopyGigabytesPerSecond(), 0)
            << " GB/s, measured now. GB/s counts each byte of q, k, v and output once.\n";
}

int Demo(int argc, char** argv) {
  CommandLine command_line("Paged attention: a KV cache in blocks that lie anywhere.");
  PagedOptions options;
  options.num_blocks = 32;
  options.max_sequences = 4;
  std::vector<std::string> prompts;
  int max_tokens = 100;
  command_line.app().add_option("--prompt", prompts, "repeatable; default: six prompts");
  command_line.app()
      .add_option("--max-tokens", max_tokens, "of each answer")
      ->capture_default_str();
  command_line.app()
      .add_option("--blocks", options.num_blocks, "of the pool")
      ->capture_default_str();
  command_line.app()
      .add_option("--block-size", options.block_size, "tokens")
      ->capture_default_str();
  command_line.app()
      .add_option("--max-sequences", options.max_sequences, "at a time")
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  std::cout << "13 paged attention, on " << ToString(DescribeDevice()) << "\n";
  ShowOnlineSoftmax();
  ShowPages(prompts.empty() ? kPrompts : prompts, options, max_tokens);
  ShowVersions();
  std::cout
      << "\nYour own: bazel run //lessons/13_paged_attention -- --block-size 4 --blocks 200\n"
         "The page: docs/13_paged_attention.md. Your turn: write the online softmax and the merge\n"
         "in lessons/13_paged_attention/exercise/paged_attention.cu, and check them with\n"
         "  bazel test --//:exercise=13_paged_attention //tests:13_paged_attention_test\n"
         "Next: bazel run //lessons/14_engine\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Demo); }
