// Checks that the engine can run on the code of earlier lessons (EarlierLessons) and says the same:
// it is how final runs the learner's code of a lesson that a later one has replaced.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/cuda/device.h"
#include "common/testing/random.h"
#include "final/learner.h"
#include "final/request.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "lessons/14_engine/engine.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

struct Setting {
  const char* name;
  EarlierLessons earlier;
};

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = {
      {"06's tiles", {true, false, false, false}},
      {"07's attention over 10's store", {false, true, false, false}},
      {"07 and 13 by turns", {false, true, true, false}},
      {"12's slots", {false, false, false, true}},
      {"all at once", {true, true, true, true}},
  };
  return settings;
}

struct Answer {
  std::vector<int> token_ids;
  std::vector<float> logprobs;
};

struct Model {
  explicit Model(const std::string& folder)
      : config(ModelConfig::FromFolder(folder)), weights(Checkpoint(folder), config) {}
  ModelConfig config;
  Weights weights;
};

// The answers to all requests, and how the engine got there, step by step.
struct Outcome {
  std::map<int, Answer> answers;
  std::vector<std::vector<int>> plan;  // of a step: request, first position, tokens; and so on
  EngineStats stats;
};

Outcome RunAll(const Model& model, const EngineConfig& config,
               const std::vector<EngineRequest>& requests) {
  Engine engine(model.config, model.weights, config);
  for (const EngineRequest& request : requests) engine.Add(request);
  Outcome outcome;
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.Step()) {
      EXPECT_EQ(output.error, "");
      if (output.token_id < 0) continue;
      outcome.answers[output.request].token_ids.push_back(output.token_id);
      outcome.answers[output.request].logprobs.push_back(output.logprobs.logprob);
    }
    std::vector<int>& plan = outcome.plan.emplace_back();
    for (const ScheduledSequence& part : engine.last_step().sequences) {
      plan.insert(plan.end(), {part.request, part.first_position, part.num_tokens});
    }
    engine.scheduler().CheckInvariants();
  }
  outcome.stats = engine.stats();
  return outcome;
}

// --- the same answers

TEST(EarlierLessons, AnswerFinalsPromptsAlike) {
  const std::string folder = DataPath("models/pocket");
  const Model model(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  Options options;
  options.prompts = {"What is 2+2?", "Name a color.", "What is a KV cache?",
                     "Tell me a short story about a robot and a lighthouse."};
  options.request.max_tokens = 24;
  std::vector<EngineRequest> requests;
  for (const Request& request : ReadRequests(options, tokenizer)) {
    requests.push_back(request.engine);
    requests.back().sampling.logprobs = 0;
  }
  EngineConfig config;
  config.max_num_seqs = 2;
  config.max_model_len = 256;
  config.num_gpu_blocks_override = 64;
  const Outcome usual = RunAll(model, config, requests);
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    config.earlier = setting.earlier;
    const Outcome outcome = RunAll(model, config, requests);
    EXPECT_EQ(outcome.plan, usual.plan);
    ASSERT_EQ(outcome.answers.size(), usual.answers.size());
    for (const auto& [request, answer] : usual.answers) {
      SCOPED_TRACE(StrCat("request ", request));
      EXPECT_EQ(outcome.answers.at(request).token_ids, answer.token_ids);
      for (size_t i = 0; i < answer.logprobs.size(); ++i) {
        // Another order of sums: bf16 keeps 8 bits of each activation.
        EXPECT_NEAR(outcome.answers.at(request).logprobs[i], answer.logprobs[i], 0.05) << i;
      }
    }
  }
}

// Small blocks, a small budget, a pool too small for all, and beginnings in common: so prompts come
// in chunks, blocks are shared, and requests are put off.
struct Crowd {
  explicit Crowd(const nlohmann::json& shape, uint64_t seed)
      : model(TinyCheckpoint(seed, shape).Write("crowd")) {
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 12;
    config.max_model_len = 64;
    config.block_size = 4;
    config.num_gpu_blocks_override = 17;
    config.batch_invariant = true;  // what the simulator does in any case
    Random random(seed);
    const std::vector<int> beginning = random.Integers(9, 0, 49);
    for (int i = 0; i < 10; ++i) {
      EngineRequest request;
      if (i % 2 == 0) request.prompt_token_ids = beginning;
      for (const int token : random.Integers(random.Integer(1, 16), 0, 49)) {
        request.prompt_token_ids.push_back(token);
      }
      request.max_tokens = random.Integer(12, 36);
      request.ignore_eos = true;
      request.sampling.logprobs = 0;
      requests.push_back(request);
    }
  }

  Model model;
  EngineConfig config;
  std::vector<EngineRequest> requests;
};

const std::vector<nlohmann::json>& Shapes() {
  static const std::vector<nlohmann::json> shapes = {
      {{"head_dim", 32}, {"num_hidden_layers", 3}},
      {{"num_attention_heads", 6},
       {"num_key_value_heads", 3},
       {"head_dim", 6}},  // rows of 36 bytes
      {{"num_attention_heads", 4}, {"num_key_value_heads", 1}, {"num_hidden_layers", 1}},
  };
  return shapes;
}

TEST(EarlierLessons, KeepChunksSharedBlocksAndPreemption) {
  for (const nlohmann::json& shape : Shapes()) {
    SCOPED_TRACE(shape.dump());
    Crowd crowd(shape, 5);
    const Outcome usual = RunAll(crowd.model, crowd.config, crowd.requests);
    EXPECT_GT(usual.stats.preemptions, 0);
    EXPECT_GT(usual.stats.cached_tokens, 0);
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(setting.name);
      crowd.config.earlier = setting.earlier;
      const Outcome outcome = RunAll(crowd.model, crowd.config, crowd.requests);
      // The plan follows from lengths alone; prefixes that answers share are chance.
      EXPECT_EQ(outcome.stats.generated_tokens, usual.stats.generated_tokens);
      EXPECT_GT(outcome.stats.preemptions, 0);
      EXPECT_GT(outcome.stats.cached_tokens, 0);
      // In company and alone, the same bits.
      for (size_t i = 0; i < crowd.requests.size(); i += 3) {
        SCOPED_TRACE(StrCat("request ", i));
        const Outcome alone = RunAll(crowd.model, crowd.config, {crowd.requests[i]});
        const Answer& answer = outcome.answers.at(static_cast<int>(i));
        EXPECT_EQ(answer.token_ids, alone.answers.at(0).token_ids);
        EXPECT_EQ(answer.logprobs, alone.answers.at(0).logprobs);
      }
    }
  }
}

// Lesson 12's table gives slots in the order of arrival, as the scheduler does.
TEST(EarlierLessons, SlotsChangeNothing) {
  Crowd crowd(Shapes()[0], 6);
  const Outcome usual = RunAll(crowd.model, crowd.config, crowd.requests);
  crowd.config.earlier.slot_table = true;
  const Outcome outcome = RunAll(crowd.model, crowd.config, crowd.requests);
  EXPECT_EQ(outcome.plan, usual.plan);
  for (const auto& [request, answer] : usual.answers) {
    EXPECT_EQ(outcome.answers.at(request).token_ids, answer.token_ids);
    EXPECT_EQ(outcome.answers.at(request).logprobs, answer.logprobs);
  }
}

// Store and attention are lesson 10's and 07's own: so the answer is lesson 10's, with no doubt at
// nearly equal logits.
TEST(EarlierLessons, AttentionGivesLesson10sTokens) {
  if (!IsSimulator()) GTEST_SKIP() << "cuBLAS on a GPU sums in an order of its own";
  for (const nlohmann::json& shape : Shapes()) {
    SCOPED_TRACE(shape.dump());
    Crowd crowd(shape, 7);
    crowd.config.earlier.attention = true;
    const Outcome outcome = RunAll(crowd.model, crowd.config, crowd.requests);
    std::vector<GenerationRequest> requests;
    for (const EngineRequest& request : crowd.requests) {
      requests.push_back({request.prompt_token_ids, request.max_tokens, request.ignore_eos});
    }
    KvCacheGenerator lesson10(crowd.model.config, crowd.model.weights, 64);
    const std::vector<Generation> expected = lesson10.Generate(requests);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(outcome.answers.at(static_cast<int>(i)).token_ids, expected[i].token_ids) << i;
    }
  }
}

// --- the slot table knows nothing of requests that go away

TEST(EarlierLessons, ARequestMayGoWhileItWaitsForItsSlot) {
  Crowd crowd(Shapes()[0], 8);
  crowd.config.max_num_seqs = 2;
  crowd.config.max_num_batched_tokens = 64;
  crowd.config.num_gpu_blocks_override = 40;
  crowd.config.earlier.slot_table = true;
  Engine engine(crowd.model.config, crowd.model.weights, crowd.config);
  for (const EngineRequest& request : crowd.requests) engine.Add(request);
  engine.Step();
  EXPECT_EQ(engine.scheduler().num_running(), 2);
  for (const int request : {0, 2, 3, 5}) engine.Abort(request);  // one runs, three wait
  std::map<int, bool> finished;
  while (engine.has_work()) {
    for (const EngineOutput& output : engine.Step()) finished[output.request] |= output.finished;
    EXPECT_LE(engine.scheduler().num_running(), 2);
  }
  const std::map<int, bool> expected = {{1, true}, {4, true}, {6, true},
                                        {7, true}, {8, true}, {9, true}};
  EXPECT_EQ(finished, expected);
  for (int request = 0; request < 4; ++request) engine.Add(crowd.requests[request]);
  for (int request = 10; request < 14; ++request) engine.Abort(request);  // nobody is left
  EXPECT_FALSE(engine.has_work());
  engine.Step();
  EXPECT_TRUE(engine.last_step().sequences.empty());
  engine.Add(crowd.requests[0]);
  while (engine.has_work()) engine.Step();
  EXPECT_EQ(engine.stats().finished, 7);
}

// --- which lessons ask for what

TEST(LearnersCode, IsPutBackWhereALaterLessonHasReplacedIt) {
  const auto expect = [](const std::vector<std::string>& lessons, const EarlierLessons& expected) {
    const EarlierLessons stages = StagesOf(lessons);
    EXPECT_EQ(stages.matmul, expected.matmul);
    EXPECT_EQ(stages.attention, expected.attention);
    EXPECT_EQ(stages.paged_too, expected.paged_too);
    EXPECT_EQ(stages.slot_table, expected.slot_table);
  };
  expect({}, {});
  expect({"00_first_kernel", "03_embedding", "13_paged_attention", "14_engine"}, {});
  expect({"06_matmul"}, {true, false, false, false});
  expect({"07_attention"}, {false, true, false, false});
  expect({"10_kv_cache"}, {false, true, false, false});
  expect({"07_attention", "13_paged_attention"}, {false, true, true, false});
  expect({"12_continuous_batching"}, {false, false, false, true});
}

TEST(LearnersCode, IsNamed) {
  EXPECT_EQ(DescribeLearnersCode({}), "");
  EXPECT_EQ(DescribeLearnersCode({"04_rmsnorm", "07_attention"}),
            "with your code: 04_rmsnorm, 07_attention (in place of lesson 13's kernels)\n");
  EXPECT_EQ(DescribeLearnersCode({"07_attention", "13_paged_attention"}),
            "with your code: 07_attention (in every second layer), "
            "13_paged_attention (in every second layer)\n");
}

}  // namespace
}  // namespace tinyvllm
