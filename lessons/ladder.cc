#include "lessons/ladder.h"

#include <algorithm>
#include <chrono>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/cuda/check.h"
#include "common/cuda/device.h"
#include "common/cuda/device_memory.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/09_forward_pass/recompute_generator.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "lessons/12_continuous_batching/batch_generator.h"
#include "lessons/13_paged_attention/paged_generator.h"
#include "lessons/14_engine/engine_generator.h"

namespace tinyvllm {
namespace {

// --- the rungs

template <typename CachingGenerator>
MadeGenerator WithCache(std::unique_ptr<CachingGenerator> generator) {
  const size_t kv_cache_bytes = generator->cache().bytes();
  return {std::move(generator), kv_cache_bytes};
}

BatchOptions BatchOptionsOf(const LadderOptions& options) {
  BatchOptions batch;
  batch.num_slots = options.num_slots;
  batch.max_model_len = options.max_model_len;
  batch.chunk = options.chunk;
  return batch;
}

// Blocks for as many tokens as lesson 12's slots have room for.
int NumBlocks(const LadderOptions& options) {
  return options.num_slots * options.max_model_len / options.block_size;
}

PagedOptions PagedOptionsOf(const LadderOptions& options) {
  PagedOptions paged;
  paged.num_blocks = NumBlocks(options);
  paged.block_size = options.block_size;
  paged.max_sequences = options.max_sequences;
  paged.max_model_len = options.max_model_len;
  paged.chunk = options.chunk;
  return paged;
}

EngineConfig EngineConfigOf(const LadderOptions& options) {
  EngineConfig engine;
  engine.max_num_seqs = options.max_sequences;
  engine.max_num_batched_tokens = options.chunk;
  engine.max_model_len = options.max_model_len;
  engine.block_size = options.block_size;
  engine.num_gpu_blocks_override = NumBlocks(options);
  return engine;
}

}  // namespace

// tag::rungs[]
const std::vector<Rung>& LadderRungs() {
  using Config = ModelConfig;
  using Options = LadderOptions;
  static const auto& rungs = *new std::vector<Rung>{
      {"the whole model, anew for every token", /*slow=*/true,
       [](const Config& config, const Weights& weights, const Options& options) -> MadeGenerator {
         return {std::make_unique<RecomputeGenerator>(config, weights, options.max_model_len), 0};
       }},
      {"keys and values kept: one token a pass", /*slow=*/false,
       [](const Config& config, const Weights& weights, const Options& options) {
         return WithCache(std::make_unique<KvCacheGenerator>(config, weights, options.max_model_len,
                                                             GemmBackend::kCublas, options.chunk));
       }},
      {"requests share a pass, and its weights", /*slow=*/false,
       [](const Config& config, const Weights& weights, const Options& options) {
         return WithCache(
             std::make_unique<StaticBatchGenerator>(config, weights, BatchOptionsOf(options)));
       }},
      {"who ends makes room at once", /*slow=*/false,
       [](const Config& config, const Weights& weights, const Options& options) {
         return WithCache(
             std::make_unique<ContinuousBatchGenerator>(config, weights, BatchOptionsOf(options)));
       }},
      {"the cache in blocks, promised as needed", /*slow=*/false,
       [](const Config& config, const Weights& weights, const Options& options) {
         return WithCache(
             std::make_unique<PagedGenerator>(config, weights, PagedOptionsOf(options)));
       }},
      {"no promises: who finds no block is put off", /*slow=*/false,
       [](const Config& config, const Weights& weights, const Options& options) -> MadeGenerator {
         auto engine = std::make_unique<EngineGenerator>(config, weights, EngineConfigOf(options));
         const size_t pool_bytes = engine->engine().pool_bytes();
         return {std::move(engine), pool_bytes};
       }},
  };
  return rungs;
}
// end::rungs[]

namespace {

// --- the climb

// The most requests that were under way at once, from the order in which their tokens came.
class UnderWay {
 public:
  explicit UnderWay(size_t num_requests) : spans_(num_requests) {}

  void Token(size_t request) {
    Span& span = spans_[request];
    if (span.first < 0) span.first = num_tokens_;
    span.last = num_tokens_++;
  }

  int Most() const {
    std::vector<int> change(num_tokens_ + 1);
    for (const Span& span : spans_) {
      if (span.first < 0) continue;
      ++change[span.first];
      --change[span.last + 1];
    }
    int now = 0, most = 0;
    for (const int by : change) most = std::max(most, now += by);
    return most;
  }

 private:
  struct Span {
    int first = -1;  // token, counted over all requests
    int last = -1;
  };
  std::vector<Span> spans_;
  int num_tokens_ = 0;
};

// What is slow at the first launch does not count. The shortest of prompts: the engine shall find
// no prefix of it again.
GenerationRequest WarmUp(const GenerationRequest& request) {
  GenerationRequest warm_up;
  warm_up.prompt_token_ids = {request.prompt_token_ids.at(0)};
  warm_up.max_tokens = 2;
  warm_up.ignore_eos = true;
  return warm_up;
}

// tag::measure[]
std::vector<Generation> Measure(Generator* generator,
                                const std::vector<GenerationRequest>& requests,
                                RungResult* result) {
  using Clock = std::chrono::steady_clock;
  generator->Generate({WarmUp(requests[0])});
  UnderWay under_way(requests.size());
  const int64_t passes_before = generator->num_passes();
  CUDA_CHECK(cudaDeviceSynchronize());
  const Clock::time_point start = Clock::now();
  std::vector<Generation> generations = generator->Generate(
      requests, [&](const GeneratedToken& token) { under_way.Token(token.request); });
  CUDA_CHECK(cudaDeviceSynchronize());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result->seconds = result->seconds == 0 ? seconds : std::min(result->seconds, seconds);
  result->num_passes = generator->num_passes() - passes_before;
  result->most_at_once = under_way.Most();
  return generations;
}
// end::measure[]

// What every ForwardPass takes for its Linear.
size_t ScratchBytes() {
  const size_t before = DeviceMemory::bytes();
  const Linear linear(nullptr);
  return DeviceMemory::bytes() - before;
}

// An answer, and whose it is.
struct Answer {
  std::string by;  // empty: nobody has given one so far
  std::vector<int> token_ids;
};

// Holds the generations against the answers, and completes those.
std::optional<Parting> Compare(const std::vector<Generation>& generations, const std::string& name,
                               std::vector<Answer>* answers) {
  std::optional<Parting> parting;
  for (size_t i = 0; i < generations.size(); ++i) {
    const std::vector<int>& tokens = generations[i].token_ids;
    Answer& answer = (*answers)[i];
    if (answer.by.empty()) answer = {name, tokens};
    if (tokens == answer.token_ids || parting) continue;
    const size_t shorter = std::min(tokens.size(), answer.token_ids.size());
    const size_t same =
        std::mismatch(tokens.begin(), tokens.begin() + shorter, answer.token_ids.begin()).first -
        tokens.begin();
    parting = Parting{i, same, answer.by};
  }
  return parting;
}

}  // namespace

bool Ladder::same_tokens() const {
  return std::none_of(rungs.begin(), rungs.end(),
                      [](const RungResult& rung) { return rung.parting.has_value(); });
}

Ladder Climb(const std::vector<Rung>& rungs, const ModelConfig& config, const Weights& weights,
             const std::vector<GenerationRequest>& requests, const LadderOptions& options,
             std::ostream& log) {
  Check(!requests.empty() && options.slow_requests > 0, "ladder: no requests");
  Ladder ladder;
  ladder.device = DescribeDevice().name;
  ladder.simulated = IsSimulator();
  ladder.num_requests = requests.size();
  ladder.weight_bytes = weights.bytes();
  ladder.scratch_bytes = ScratchBytes();
  std::vector<Answer> answers(requests.size());
  for (const Rung& rung : rungs) {
    RungResult result;
    result.idea = rung.idea;
    result.num_requests =
        rung.slow ? std::min(options.slow_requests, requests.size()) : requests.size();
    const std::vector<GenerationRequest> own(requests.begin(),
                                             requests.begin() + result.num_requests);
    std::vector<Generation> generations;
    for (int round = 0; round < options.rounds; ++round) {
      // A new one for each round: the engine would find the prompts of the last one again.
      DeviceMemory::ForgetPeak();
      const size_t before = DeviceMemory::bytes();
      const MadeGenerator made = rung.make(config, weights, options);
      if (round == 0) {
        result.name = made.generator->name();
        log << result.name << " ... " << std::flush;
      }
      try {
        generations = Measure(made.generator.get(), own, &result);
      } catch (const Error& error) {
        log << "failed\n";
        throw Error(result.name, ": ", error.what());
      }
      result.kv_cache_bytes = made.kv_cache_bytes;
      const size_t taken = DeviceMemory::peak_bytes() - before;
      const size_t known = ladder.scratch_bytes + made.kv_cache_bytes;
      Check(taken >= known, result.name, ": took ", taken, " bytes, expected at least ", known,
            " for its cache and cuBLAS");
      result.activation_bytes = taken - known;
    }
    for (const Generation& generation : generations) {
      result.num_tokens += generation.token_ids.size();
    }
    result.parting = Compare(generations, result.name, &answers);
    log << Fixed(result.seconds, 1) << " s\n";
    ladder.rungs.push_back(result);
  }
  return ladder;
}

}  // namespace tinyvllm
