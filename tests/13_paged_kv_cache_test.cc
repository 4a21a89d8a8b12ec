// Checks of lesson 13's cache and generator: what a model says over pages is what lessons 09 and 10
// say, bit for bit the same in any chunks, company and blocks; and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <numeric>
#include <set>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/cuda/device.h"
#include "common/testing/expect_error.h"
#include "common/testing/random.h"
#include "common/testing/tolerance.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "lessons/13_paged_attention/block_pool.h"
#include "lessons/13_paged_attention/paged_generator.h"
#include "lessons/13_paged_attention/paged_kv_cache.h"
#include "tests/reference.h"
#include "tests/tiny_checkpoint.h"
#include "tests/tiny_passes.h"

// --- counting allocations of this thread

namespace {
thread_local int allocations = 0;
}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tinyvllm {
namespace {

// One order of sums whatever the batch: the simulator's cuBLAS keeps to it, a GPU's does not, but
// lesson 06's own matrix product does.
const GemmBackend kInvariantGemm = IsSimulator() ? GemmBackend::kCublas : GemmBackend::kTiled;

// A pass over pages, and what it says of every token it is given.
class PagedPass {
 public:
  PagedPass(const Model& model, const PassLimits& limits, int num_blocks, int block_size)
      : cache(model.config, limits, num_blocks, block_size),
        pass_(model.config, model.weights, limits, stream_.get(), PagedStages(&cache),
              kInvariantGemm) {
    Poison();
  }

  struct Part {
    std::vector<int> blocks;
    std::vector<int> token_ids;
    int first_position;
  };

  // (tokens, vocab_size)
  std::vector<float> Run(const std::vector<Part>& parts) {
    const Batch batch = BatchOf(parts);
    std::vector<BlockSpan> tables;
    for (const Part& part : parts) {
      tables.push_back({part.blocks.data(), static_cast<int>(part.blocks.size())});
    }
    cache.Begin(batch, tables, stream_.get());
    pass_.Run(batch);
    return pass_.LogitsToHost();
  }

  // NaN in every place of the pool.
  void Poison() {
    stream_.Synchronize();
    CUDA_CHECK(cudaMemset(cache.pages(0).k, 0xff, cache.bytes()));
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  const Stream& stream() const { return stream_; }
  ForwardPass& pass() { return pass_; }

 private:
  Stream stream_;

 public:
  PagedKvCache cache;

 private:
  ForwardPass pass_;
};

// Another order of summation than lesson 07's: what lesson 09's checks allow these models.
constexpr double kLogitError = 0.02;

void ExpectCloseLogits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kLogitError) << "element " << i;
  }
}

std::vector<int> RandomBlocks(Random& random, int num_blocks) {
  std::vector<int> blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  for (int i = 0; i < num_blocks; ++i) {
    std::swap(blocks[i], blocks[random.Integer(i, num_blocks - 1)]);
  }
  return blocks;
}

// Every way through the kernels: head_dim 64, 32 and 128 in pages read by eights; any other.
std::vector<TinyCheckpoint> Checkpoints() {
  return {
      TinyCheckpoint(3, {{"head_dim", 64}}),
      TinyCheckpoint(4, {{"num_attention_heads", 3}, {"num_key_value_heads", 1}, {"head_dim", 32}}),
      TinyCheckpoint(5, {{"num_attention_heads", 2}, {"head_dim", 128}, {"num_hidden_layers", 1}}),
      TinyCheckpoint(6, {{"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 6}})};
}

TEST(PagedKvCache, TakesWhatThePlanSays) {
  const Model model(TinyCheckpoint().Write("plan"));
  // K and V, two layers, sixteen tokens, two heads of eight.
  EXPECT_EQ(PagedKvCache::BytesPerBlock(model.config, 16), 2u * 2 * 16 * 2 * 8 * sizeof(bf16));
  const PagedKvCache cache(model.config, Limits(), 5, 16);
  EXPECT_EQ(cache.bytes(), 5 * PagedKvCache::BytesPerBlock(model.config, 16));
}

TEST(PagedKvCache, SaysHowMuchWorkspaceItWants) {
  const Model model(TinyCheckpoint(1, {{"head_dim", 64}}).Write("workspace"));
  PagedPass pass(model, Limits(64, 4, 64), 4, 16);
  // A span each for four sequences, four heads.
  EXPECT_EQ(PagedStages(&pass.cache).attend_workspace(model.config, Limits(64, 4, 64)),
            4u * 4 * (64 + 2) * sizeof(float));
}

TEST(PagedKvCache, RefusesMoreThanThereIs) {
  const Model model(TinyCheckpoint().Write("more"));
  EXPECT_ERROR(PagedKvCache(model.config, Limits(), 1 << 30, 16), "KV cache", "2^31");
  EXPECT_ERROR(PagedKvCache(model.config, Limits(), 0, 16), "0 blocks", "at least one");
  EXPECT_ERROR(PagedKvCache(model.config, Limits(), 4, 0), "blocks of 0 tokens");
  ModelConfig huge = model.config;
  huge.num_hidden_layers = 1 << 20;
  EXPECT_ERROR(PagedKvCache(huge, Limits(), 1 << 20, 16), "KV cache", "free");
}

TEST(PagedKvCache, SaysWhatLesson09Says) {
  Random random(11);
  for (const TinyCheckpoint& checkpoint : Checkpoints()) {
    const Model model(checkpoint.Write("same"));
    const std::vector<int> ids = random.Integers(40, 0, model.config.vocab_size - 1);
    PagedPass pass(model, Limits(), 12, 4);
    ExpectCloseLogits(pass.Run({{RandomBlocks(random, 12), ids, 0}}), Uncached(model, ids));
  }
}

TEST(PagedKvCache, TokensAndChunksAreThePromptsBits) {
  Random random(12);
  for (const TinyCheckpoint& checkpoint : Checkpoints()) {
    const Model model(checkpoint.Write("chunks"));
    for (const int block_size : {1, 7, 16}) {
      const int num_blocks = 64 / block_size + 3;
      const std::vector<int> ids = random.Integers(50, 0, model.config.vocab_size - 1);
      PagedPass pass(model, Limits(), num_blocks, block_size);
      const std::vector<float> expected = pass.Run({{RandomBlocks(random, num_blocks), ids, 0}});
      for (const bool single : {true, false}) {
        pass.Poison();
        const std::vector<int> blocks = RandomBlocks(random, num_blocks);
        std::vector<float> logits;
        for (int first = 0; first < 50;) {
          const int end = single ? first + 1 : random.Integer(first + 1, 50);
          Append(pass.Run({{blocks, Slice(ids, first, end), first}}), &logits);
          first = end;
        }
        EXPECT_EQ(logits, expected)
            << (single ? "tokens" : "chunks") << ", blocks of " << block_size;
      }
    }
  }
}

TEST(PagedKvCache, ManySpansOfContext) {
  const Model model(TinyCheckpoint(7, {{"num_attention_heads", 4},
                                       {"num_key_value_heads", 1},
                                       {"head_dim", 64},
                                       {"num_hidden_layers", 1},
                                       {"max_position_embeddings", 640}})
                        .Write("spans"));
  Random random(13);
  const std::vector<int> ids = random.Integers(600, 0, model.config.vocab_size - 1);
  PagedPass pass(model, Limits(600, 2, 640), 40, 16);
  const std::vector<int> blocks = RandomBlocks(random, 40);
  const std::vector<float> expected = pass.Run({{blocks, ids, 0}});
  ExpectCloseLogits(expected, Uncached(model, ids));
  pass.Poison();
  std::vector<float> logits = pass.Run({{blocks, Slice(ids, 0, 509), 0}});
  for (int t = 509; t < 516; ++t) Append(pass.Run({{blocks, {ids[t]}, t}}), &logits);
  Append(pass.Run({{blocks, Slice(ids, 516, 600), 516}}), &logits);
  EXPECT_EQ(logits, expected);
}

TEST(PagedKvCache, PromptsChunksAndSingleTokensTravelTogether) {
  Random random(14);
  for (const TinyCheckpoint& checkpoint : Checkpoints()) {
    const Model model(checkpoint.Write("together"));
    constexpr int kSequences = 4, kBlockSize = 8;
    PagedPass pass(model, Limits(160, kSequences), 24, kBlockSize);
    std::vector<std::vector<int>> ids(kSequences), blocks(kSequences);
    std::vector<std::vector<float>> logits(kSequences), expected;
    for (std::vector<int>& sequence : ids) {
      sequence = random.Integers(random.Integer(10, 40), 0, model.config.vocab_size - 1);
      expected.push_back(pass.Run({{RandomBlocks(random, 24), sequence, 0}}));
    }
    pass.Poison();
    BlockPool pool(24);
    std::vector<size_t> done(kSequences, 0);
    while (done[0] + done[1] + done[2] + done[3] <
           ids[0].size() + ids[1].size() + ids[2].size() + ids[3].size()) {
      std::vector<PagedPass::Part> parts;
      std::vector<int> order = RandomBlocks(random, kSequences), in_batch;
      for (const int s : order) {
        const int left = static_cast<int>(ids[s].size() - done[s]);
        if (left == 0) continue;
        const int count = random.Integer(0, 1) == 0 ? 1 : random.Integer(1, left);
        while (blocks[s].size() * kBlockSize < done[s] + count) {
          blocks[s].push_back(pool.Allocate());
        }
        parts.push_back(
            {blocks[s], Slice(ids[s], done[s], done[s] + count), static_cast<int>(done[s])});
        in_batch.push_back(s);
      }
      const std::vector<float> all = pass.Run(parts);
      int row = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const int count = static_cast<int>(parts[i].token_ids.size());
        Append(Rows(model, all, row, row + count), &logits[in_batch[i]]);
        row += count;
        done[in_batch[i]] += count;
      }
    }
    for (int s = 0; s < kSequences; ++s) EXPECT_EQ(logits[s], expected[s]) << "sequence " << s;
  }
}

// What lesson 14's prefix cache will do.
TEST(PagedKvCache, TwoSequencesReadOnePrefix) {
  Random random(15);
  const Model model(TinyCheckpoint(8, {{"head_dim", 64}}).Write("prefix"));
  const std::vector<int> a = random.Integers(20, 0, 49);
  std::vector<int> b = a;
  for (int i = 16; i < 20; ++i) b[i] = (a[i] + 7) % 50;
  PagedPass pass(model, Limits(), 8, 8);
  const std::vector<float> expected_a = pass.Run({{{0, 1, 2}, a, 0}});
  const std::vector<float> expected_b = pass.Run({{{5, 6, 7}, b, 0}});
  pass.Poison();
  pass.Run({{{4, 2}, Slice(a, 0, 16), 0}});
  const std::vector<float> both =
      pass.Run({{{4, 2, 0}, Slice(a, 16, 20), 16}, {{4, 2, 7}, Slice(b, 16, 20), 16}});
  EXPECT_EQ(Rows(model, both, 0, 4), Rows(model, expected_a, 16, 20));
  EXPECT_EQ(Rows(model, both, 4, 8), Rows(model, expected_b, 16, 20));
}

TEST(PagedKvCache, ASequenceOfNoTokensIsLeftAlone) {
  const Model model(TinyCheckpoint(9, {{"head_dim", 64}}).Write("none"));
  PagedPass pass(model, Limits(), 4, 16);
  const std::vector<float> alone = pass.Run({{{0}, {4, 5}, 0}});
  EXPECT_EQ(pass.Run({{{}, {}, 0}, {{1}, {4, 5}, 0}, {{2}, {}, 7}}), alone);
}

TEST(PagedKvCache, BeginRefusesWhatTheKernelsCannotBear) {
  const Model model(TinyCheckpoint().Write("begin"));
  PagedPass pass(model, Limits(16, 2, 24), 4, 8);
  EXPECT_ERROR(pass.Run({{{0}, std::vector<int>(9, 1), 0}}), "sequence 0", "9 tokens",
               "1 blocks of 8", "needs 2");
  EXPECT_ERROR(pass.Run({{{0, 1}, {1}, 16}}), "17 tokens", "needs 3");
  EXPECT_ERROR(pass.Run({{{0, 4}, std::vector<int>(9, 1), 0}}), "block 1 of sequence 0 is 4",
               "0 to 3");
  EXPECT_ERROR(pass.Run({{{-1}, {1}, 0}}), "block 0 of sequence 0 is -1");
  EXPECT_ERROR(pass.Run({{{0}, {1}, -1}}), "sequence 0", "-1", "0 to 23");
  EXPECT_ERROR(pass.Run({{{0, 1, 2, 3}, {1}, 24}}), "24", "0 to 23");
  EXPECT_ERROR(pass.Run({{{0, 1, 2}, std::vector<int>(17, 1), 0}}), "17 tokens", "1 to 16");
  EXPECT_ERROR(pass.Run({{{0}, {1}, 0}, {{1}, {1}, 0}, {{2}, {1}, 0}}), "3 sequences", "at most 2");
  EXPECT_ERROR(pass.Run({{{2}, {1}, 0}, {{2}, {1}, 3}}), "sequences 0 and 1", "block 2");
  EXPECT_ERROR(pass.Run({{{2, 2}, std::vector<int>(9, 1), 0}}), "sequences 0 and 0", "block 2");
  pass.Run({{{2}, std::vector<int>(8, 1), 0}});
  EXPECT_NO_THROW(pass.Run({{{2}, {1}, 7}, {{2, 3}, {1}, 8}})) << "the second only reads block 2";
  Batch batch = Batch::PartOfSequence({4, 5}, 3);
  const int block = 0;
  const cudaStream_t stream = pass.stream().get();
  EXPECT_ERROR(pass.cache.Begin(batch, {}, stream), "0 block tables for 1 sequences");
  batch.positions[1] = 5;
  EXPECT_ERROR(pass.cache.Begin(batch, {{&block, 1}}, stream), "positions[1] is 5", "expected 4");
  EXPECT_ERROR(pass.cache.Begin(Batch(), {}, stream), "batch");
}

TEST(PagedKvCache, APassThatWasNotAnnouncedIsRefused) {
  const Model model(TinyCheckpoint().Write("unannounced"));
  PagedPass pass(model, Limits(), 4, 16);
  pass.Run({{{0}, {1, 2, 3}, 0}});
  EXPECT_ERROR(pass.pass().Run(Batch::PartOfSequence({4}, 3)), "Begin");
  const int block = 0;
  pass.cache.Begin(Batch::PartOfSequence({4, 5}, 3), {{&block, 1}}, pass.stream().get());
  EXPECT_ERROR(pass.pass().Run(Batch::PartOfSequence({4}, 3)), "1 tokens", "announced 2");
}

TEST(PagedKvCache, BeginAllocatesNothing) {
  const Model model(TinyCheckpoint(9, {{"head_dim", 64}}).Write("allocations"));
  const PassLimits limits = Limits(64, 4, 64);
  const Stream stream;
  PagedKvCache cache(model.config, limits, 16, 8);
  std::vector<int> blocks(16);
  std::iota(blocks.begin(), blocks.end(), 0);
  Batch batch;
  batch.sequence_offsets = {0, 1, 1, 40, 41};
  for (int t = 0; t < 41; ++t) {
    batch.token_ids.push_back(1);
    batch.positions.push_back(t == 0 ? 15 : t < 40 ? t - 1 : 20);
  }
  const std::vector<BlockSpan> tables = {
      {&blocks[0], 2}, {&blocks[2], 1}, {&blocks[3], 5}, {&blocks[8], 3}};
  // What the runtime's calls in it allocate by themselves: a simulator with late streams does.
  PinnedBuffer<int> host(1000);
  DeviceBuffer<int> device(1000);
  const Event copied;
  const auto count = [](const auto& call) {
    const int before = allocations;
    call();
    return allocations - before;
  };
  const int runtimes_own = count([&] {
    copied.Synchronize();
    CUDA_CHECK(cudaMemcpyAsync(device.data(), host.data(), device.bytes(), cudaMemcpyHostToDevice,
                               stream.get()));
    copied.Record(stream.get());
  });
  size_t free_before = 0, free_after = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_before, &total));
  for (int round = 0; round < 3; ++round) {
    EXPECT_LE(count([&] { cache.Begin(batch, tables, stream.get()); }), runtimes_own);
  }
  stream.Synchronize();
  CUDA_CHECK(cudaMemGetInfo(&free_after, &total));
  EXPECT_EQ(free_after, free_before);
}

// A layer of more than 2^31 elements of K, and as many of V, with the live block at its end.
TEST(PagedKvCache, APoolOfMoreThan31Bits) {
  const Model model(TinyCheckpoint(10, {{"num_attention_heads", 2},
                                        {"num_key_value_heads", 2},
                                        {"head_dim", 128},
                                        {"num_hidden_layers", 1}})
                        .Write("huge"));
  const int num_blocks = static_cast<int>((int64_t{1} << 31) / (256 * 16)) + 2;
  const size_t bytes = PagedKvCache::BytesPerBlock(model.config, 16) * num_blocks;
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (IsSimulator() || free < bytes + (size_t{1} << 30)) {
    GTEST_SKIP() << "needs 9 GB of a GPU's memory";
  }
  const std::vector<int> ids = {1, 20, 30, 40, 41, 42, 43};
  PagedPass pass(model, Limits(), num_blocks, 16);
  const std::vector<float> expected = pass.Run({{{0}, ids, 0}});
  std::vector<float> logits = pass.Run({{{num_blocks - 1}, Slice(ids, 0, 6), 0}});
  Append(pass.Run({{{num_blocks - 1}, {43}, 6}}), &logits);
  EXPECT_EQ(logits, expected);
  ExpectCloseLogits(logits, Uncached(model, ids));
}

// --- the generator

PagedOptions Options(int num_blocks, int block_size, int max_model_len, int max_sequences = 4,
                     int chunk = 16) {
  PagedOptions options;
  options.num_blocks = num_blocks;
  options.block_size = block_size;
  options.max_model_len = max_model_len;
  options.max_sequences = max_sequences;
  options.chunk = chunk;
  options.gemm = kInvariantGemm;
  options.logits_to_host = true;
  return options;
}

struct Answer {
  Generation generation;
  std::vector<std::vector<float>> logits;
};

std::vector<Answer> Answers(Generator* generator, const std::vector<GenerationRequest>& requests,
                            int vocab_size) {
  std::vector<Answer> answers(requests.size());
  const std::vector<Generation> generations =
      generator->Generate(requests, [&](const GeneratedToken& token) {
        answers[token.request].logits.emplace_back(token.logits, token.logits + vocab_size);
      });
  for (size_t i = 0; i < requests.size(); ++i) answers[i].generation = generations[i];
  return answers;
}

// Equal, up to the first token that is nearly a draw.
void ExpectSameText(const Answer& actual, const Answer& expected) {
  const std::vector<int>& tokens = actual.generation.token_ids;
  const std::vector<int>& wanted = expected.generation.token_ids;
  for (size_t i = 0; i < std::min(tokens.size(), wanted.size()); ++i) {
    if (tokens[i] != wanted[i]) {
      const std::vector<float>& logits = expected.logits[i];
      EXPECT_LT(logits[wanted[i]] - logits[tokens[i]], 2 * kLogitError) << "token " << i;
      return;
    }
    ExpectCloseLogits(actual.logits[i], expected.logits[i]);
  }
  EXPECT_EQ(tokens.size(), wanted.size());
  EXPECT_EQ(actual.generation.finish_reason, expected.generation.finish_reason);
}

std::vector<GenerationRequest> RandomRequests(Random& random, const ModelConfig& config, int count,
                                              int max_prompt, int max_tokens) {
  std::vector<GenerationRequest> requests(count);
  for (GenerationRequest& request : requests) {
    request.prompt_token_ids =
        random.Integers(random.Integer(1, max_prompt), 0, config.vocab_size - 1);
    request.max_tokens = random.Integer(1, max_tokens);
    request.ignore_eos = random.Integer(0, 1) == 0;
  }
  return requests;
}

TEST(PagedGenerator, GeneratesLesson10sTokens) {
  Random random(21);
  for (const TinyCheckpoint& checkpoint : Checkpoints()) {
    const Model model(checkpoint.Write("generator"));
    const std::vector<GenerationRequest> requests = RandomRequests(random, model.config, 8, 30, 20);
    KvCacheGenerator cached(model.config, model.weights, 48, kInvariantGemm);
    const std::vector<Answer> expected = Answers(&cached, requests, model.config.vocab_size);
    PagedGenerator paged(model.config, model.weights, Options(30, 4, 48));
    const std::vector<Answer> actual = Answers(&paged, requests, model.config.vocab_size);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(StrCat("request ", i));
      ExpectSameText(actual[i], expected[i]);
    }
  }
}

TEST(PagedGenerator, ARequestsTokensDependOnItAlone) {
  Random random(22);
  const Model model(TinyCheckpoint(23, {{"head_dim", 64}}).Write("alone"));
  const std::vector<GenerationRequest> requests = RandomRequests(random, model.config, 12, 30, 20);
  PagedGenerator crowded(model.config, model.weights, Options(30, 4, 48));
  const std::vector<Answer> together = Answers(&crowded, requests, model.config.vocab_size);
  PagedGenerator lonely(model.config, model.weights, Options(3, 16, 48, 1, 64));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer alone = Answers(&lonely, {requests[i]}, model.config.vocab_size)[0];
    EXPECT_EQ(together[i].generation.token_ids, alone.generation.token_ids) << "request " << i;
    EXPECT_EQ(together[i].logits, alone.logits) << "request " << i;
  }
}

// Blocks are taken when they are needed, owned once, and all come back.
TEST(PagedGenerator, OwnsNoBlockTwiceAndLosesNone) {
  Random random(24);
  const Model model(TinyCheckpoint(25).Write("owns"));
  PagedGenerator generator(model.config, model.weights, Options(20, 4, 48));
  size_t most_running = 0;
  generator.set_on_step([&](const std::vector<PagedSequence>& running) {
    std::set<int> owned;
    size_t blocks = 0;
    for (const PagedSequence& sequence : running) {
      EXPECT_EQ(static_cast<int>(sequence.blocks.size()), (sequence.cached + 3) / 4)
          << "no block before it is needed";
      EXPECT_LE(static_cast<int>(sequence.blocks.size()), sequence.promised);
      owned.insert(sequence.blocks.begin(), sequence.blocks.end());
      blocks += sequence.blocks.size();
    }
    EXPECT_EQ(owned.size(), blocks);
    EXPECT_EQ(generator.pool().num_free(), 20 - static_cast<int>(blocks));
    generator.pool().CheckInvariants();
    most_running = std::max(most_running, running.size());
  });
  for (int round = 0; round < 3; ++round) {
    generator.Generate(RandomRequests(random, model.config, 10, 30, 20));
    EXPECT_EQ(generator.pool().num_free(), 20);
  }
  EXPECT_GT(most_running, 1u);
}

TEST(PagedGenerator, APromptLargerThanThePoolIsRefusedAndTheNextWorks) {
  const Model model(TinyCheckpoint(26).Write("prompt"));
  PagedGenerator generator(model.config, model.weights, Options(2, 8, 48));
  GenerationRequest request;
  request.prompt_token_ids.assign(17, 1);
  request.max_tokens = 2;
  request.ignore_eos = true;
  EXPECT_ERROR(generator.Generate({request}), "17 tokens", "3 blocks of 8", "the pool has 2");
  request.prompt_token_ids.assign(3, 1);
  EXPECT_EQ(generator.Generate({request})[0].token_ids.size(), 2u);
}

TEST(PagedGenerator, ASequenceThatOutgrowsThePoolEndsWithLength) {
  const Model model(TinyCheckpoint(27).Write("outgrows"));
  GenerationRequest request;
  request.prompt_token_ids = {1, 2, 3, 4, 5};
  request.max_tokens = 40;
  request.ignore_eos = true;
  PagedGenerator large(model.config, model.weights, Options(16, 8, 64));
  PagedGenerator small(model.config, model.weights, Options(2, 8, 64));
  const std::vector<int> all = large.Generate({request})[0].token_ids;
  ASSERT_EQ(all.size(), 40u);
  const std::vector<Generation> cut = small.Generate({request, request});
  for (const Generation& generation : cut) {
    // Places for 16 tokens; the last one chosen needs none.
    EXPECT_EQ(generation.token_ids, Slice(all, 0, 16 + 1 - 5));
    EXPECT_EQ(generation.finish_reason, FinishReason::kLength);
  }
  EXPECT_EQ(small.pool().num_free(), 2);
}

TEST(PagedGenerator, TheModelsLengthEndsASequence) {
  const Model model(TinyCheckpoint(28).Write("length"));
  GenerationRequest request;
  request.prompt_token_ids = {1, 2, 3, 4, 5};
  request.max_tokens = 40;
  request.ignore_eos = true;
  PagedGenerator generator(model.config, model.weights, Options(8, 8, 20));
  EXPECT_EQ(generator.Generate({request})[0].token_ids.size(), 15u);
}

TEST(PagedGenerator, RefusesWhatItCannotGenerate) {
  const Model model(TinyCheckpoint(29).Write("refuses"));
  PagedGenerator generator(model.config, model.weights, Options(8, 8, 20));
  EXPECT_ERROR(generator.Generate({GenerationRequest()}), "prompt", "empty");
  EXPECT_ERROR(PagedGenerator(model.config, model.weights, Options(8, 8, 65)), "65", "64");
  EXPECT_ERROR(PagedGenerator(model.config, model.weights, Options(8, 8, 20, 0)), "0 sequences");
  EXPECT_ERROR(PagedGenerator(model.config, model.weights, Options(8, 8, 20, 4, 3)), "3 tokens");
  EXPECT_ERROR(PagedGenerator(model.config, model.weights, Options(0, 8, 20)), "0 blocks");
}

// --- the bundled model

std::vector<GenerationRequest> PocketRequests() {
  std::vector<GenerationRequest> requests;
  for (const char* name : {"sum", "raw", "chat", "story"}) {
    const Fixture fixture(StrCat("tests/fixtures/pocket_", name, ".safetensors"));
    GenerationRequest request;
    request.prompt_token_ids = fixture.Ints("token_ids");
    request.max_tokens = 12;
    request.ignore_eos = true;
    requests.push_back(request);
  }
  return requests;
}

// The text of transformers, wherever the best two tokens are further apart than bf16's own error.
TEST(Pocket, FourPromptsAtOnceGiveLesson10sText) {
  const Model model(DataPath("models/pocket"));
  const std::vector<GenerationRequest> requests = PocketRequests();
  PagedOptions options;
  options.num_blocks = 96;
  PagedGenerator paged(model.config, model.weights, options);
  KvCacheGenerator cached(model.config, model.weights, 512);
  const std::vector<Generation> actual = paged.Generate(requests);
  const std::vector<Generation> expected = cached.Generate(requests);
  const char* names[] = {"sum", "raw", "chat", "story"};
  for (size_t i = 0; i < requests.size(); ++i) {
    const Fixture fixture(StrCat("tests/fixtures/pocket_", names[i], ".safetensors"));
    const std::vector<double> gap = fixture.Values("generated.gap");
    const std::vector<double> error = fixture.Values("generated.bf16_max_error");
    size_t comparable = 0;
    while (comparable < std::min<size_t>(12, gap.size()) &&
           gap[comparable] > 2 * error[comparable]) {
      ++comparable;
    }
    ASSERT_GT(comparable, 0u) << names[i];
    ASSERT_GE(actual[i].token_ids.size(), comparable);
    EXPECT_EQ(Slice(actual[i].token_ids, 0, comparable),
              Slice(expected[i].token_ids, 0, comparable))
        << names[i];
  }
}

// As close to transformers' f32 logits as its own bf16 run, half of the prompt as chunks, the rest
// token by token.
TEST(Pocket, LogitsAreAsCloseAsTransformersOwn) {
  const Model model(DataPath("models/pocket"));
  const Fixture fixture("tests/fixtures/pocket_chat.safetensors");
  const std::vector<int> ids = fixture.Ints("token_ids");
  const int length = static_cast<int>(ids.size()), half = length / 2;
  const int num_blocks = length / 16 + 4;
  Random random(31);
  const std::vector<int> blocks = RandomBlocks(random, num_blocks);
  PagedPass pass(model, Limits(length, 1, length), num_blocks, 16);
  std::vector<float> logits = pass.Run({{blocks, Slice(ids, 0, half), 0}});
  for (int t = half; t < length; ++t) Append(pass.Run({{blocks, {ids[t]}, t}}), &logits);
  std::vector<double> ours;
  for (const int position : fixture.Ints("logit_positions")) {
    for (const float logit : Rows(model, logits, position, position + 1)) ours.push_back(logit);
  }
  ExpectLogitsCloseTo(ours, fixture.Values("logits.f32"), fixture.Values("logits.bf16"),
                      model.config.vocab_size);
}

}  // namespace
}  // namespace tinyvllm
