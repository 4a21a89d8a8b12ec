// Checks of the ladder: that it measures what it says, notices other answers, and draws both.
#include "lessons/ladder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/text_table.h"
#include "common/cuda/buffer.h"
#include "common/testing/expect_error.h"
#include "common/testing/run_command.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/ladder_report.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// --- memory

TEST(DeviceMemory, CountsWhatBuffersHold) {
  const size_t before = DeviceMemory::bytes();
  DeviceMemory::ForgetPeak();
  {
    DeviceBuffer<float> a(100);
    EXPECT_EQ(DeviceMemory::bytes() - before, 400u);
    DeviceBuffer<float> b(std::move(a));
    EXPECT_EQ(DeviceMemory::bytes() - before, 400u);
    a = DeviceBuffer<float>(50);
    EXPECT_EQ(DeviceMemory::bytes() - before, 600u);
    b = DeviceBuffer<float>();
    EXPECT_EQ(DeviceMemory::bytes() - before, 200u);
  }
  EXPECT_EQ(DeviceMemory::bytes(), before);
  EXPECT_EQ(DeviceMemory::peak_bytes() - before, 600u);
  DeviceMemory::ForgetPeak();
  EXPECT_EQ(DeviceMemory::peak_bytes(), before);
}

TEST(DeviceMemory, DoesNotCountWhatCannotBeTaken) {
  const size_t before = DeviceMemory::bytes();
  EXPECT_THROW(DeviceBuffer<char>(size_t{1} << 60), Error);
  cudaGetLastError();  // or the next launch reports it
  EXPECT_EQ(DeviceMemory::bytes(), before);
}

// --- the climb

// Prompts of 1 to 8 tokens, answers of 3 to 15: no two slots are free at the same time.
std::vector<GenerationRequest> TinyRequests() {
  std::vector<GenerationRequest> requests(7);
  for (int i = 0; i < 7; ++i) {
    for (int t = 0; t < 1 + i * 5 % 9; ++t) {
      requests[i].prompt_token_ids.push_back(3 + (7 * i + t) % 47);
    }
    requests[i].max_tokens = 3 + i * 4 % 13;
    requests[i].ignore_eos = true;
  }
  return requests;
}

LadderOptions TinyOptions() {
  LadderOptions options;
  options.max_model_len = 24;
  options.num_slots = 2;
  options.block_size = 4;
  options.max_sequences = 5;
  options.chunk = 6;
  return options;
}

TEST(Climb, EveryGeneratorOfTheCourseGivesTheSameTokens) {
  const Model model(TinyCheckpoint(5).Write("ladder"));
  std::ostringstream log;
  const Ladder ladder =
      Climb(LadderRungs(), model.config, model.weights, TinyRequests(), TinyOptions(), log);
  EXPECT_TRUE(ladder.same_tokens());
  EXPECT_EQ(ladder.weight_bytes, model.weights.bytes());
  std::string numbers;
  for (const RungResult& rung : ladder.rungs) {
    SCOPED_TRACE(rung.name);
    numbers += rung.name.substr(0, 3);
    EXPECT_EQ(rung.num_requests, 7u);
    EXPECT_EQ(rung.num_tokens, 3 + 7 + 11 + 15 + 6 + 10 + 14);
    EXPECT_GT(rung.seconds, 0);
    EXPECT_GT(rung.activation_bytes, 0u);
    EXPECT_NE(log.str().find(rung.name + " ... "), std::string::npos);
  }
  ASSERT_EQ(numbers, "09 10 12 12 13 14 ");
  const RungResult& recompute = ladder.rungs[0];
  const RungResult& cache = ladder.rungs[1];
  const RungResult& batches = ladder.rungs[2];
  const RungResult& continuous = ladder.rungs[3];
  const RungResult& paged = ladder.rungs[4];
  const RungResult& engine = ladder.rungs[5];
  // K and V, 2 layers, 2 heads of 8, bf16.
  constexpr size_t kTokenBytes = 2 * 2 * 2 * 8 * 2;
  EXPECT_EQ(recompute.kv_cache_bytes, 0u);
  EXPECT_EQ(cache.kv_cache_bytes, 24 * kTokenBytes);
  for (const RungResult* rung : {&batches, &continuous, &paged, &engine}) {
    EXPECT_EQ(rung->kv_cache_bytes, 2 * 24 * kTokenBytes) << rung->name;
  }
  EXPECT_EQ(recompute.num_passes, recompute.num_tokens);
  EXPECT_EQ(cache.num_passes, cache.num_tokens + 2);  // two prompts take two chunks
  EXPECT_LT(continuous.num_passes, batches.num_passes);
  EXPECT_LE(paged.num_passes, continuous.num_passes);
  EXPECT_LT(engine.num_passes, continuous.num_passes);
  EXPECT_EQ(recompute.most_at_once, 1);
  EXPECT_EQ(cache.most_at_once, 1);
  EXPECT_EQ(batches.most_at_once, 2);
  EXPECT_EQ(continuous.most_at_once, 2);
  EXPECT_GE(paged.most_at_once, 2);
  EXPECT_GT(engine.most_at_once, 2);
}

// Continues a prompt by its first token plus 1, 2, 3, ...; or wrongly.
class FakeGenerator : public Generator {
 public:
  std::string name() const override { return name_; }
  int64_t num_passes() const override { return num_passes_; }
  std::vector<Generation> Generate(
      const std::vector<GenerationRequest>& requests,
      const std::function<void(const GeneratedToken&)>& on_token) override {
    std::vector<Generation> generations;
    for (size_t i = 0; i < requests.size(); ++i) {
      Generation generation;
      for (int t = 1; t <= requests[i].max_tokens; ++t) {
        const bool wrong = static_cast<int>(i) == wrong_request && t == wrong_token;
        generation.token_ids.push_back(requests[i].prompt_token_ids[0] + t + wrong);
        if (on_token) on_token({i, generation.token_ids.back(), nullptr});
        ++num_passes_;
      }
      generations.push_back(generation);
    }
    Check(!fails || requests.size() == 1, "a kernel is wrong");
    return generations;
  }

  std::string name_;
  int wrong_request = -1;
  int wrong_token = -1;
  bool fails = false;

 private:
  const Linear linear_{nullptr};  // as in every forward pass
  const DeviceBuffer<char> memory_{1000};
  int64_t num_passes_ = 0;
};

Rung Fake(const std::string& name, int wrong_request = -1, int wrong_token = -1,
          size_t cache = 200) {
  return {"an idea", /*slow=*/name == "slow",
          [=](const ModelConfig&, const Weights&, const LadderOptions&) -> MadeGenerator {
            auto fake = std::make_unique<FakeGenerator>();
            fake->name_ = name;
            fake->wrong_request = wrong_request;
            fake->wrong_token = wrong_token;
            fake->fails = name == "fails";
            return {std::move(fake), cache};
          }};
}

Ladder ClimbFakes(const std::vector<Rung>& rungs, LadderOptions options = {}) {
  const Model model(TinyCheckpoint(5).Write("ladder"));
  std::ostringstream log;
  return Climb(rungs, model.config, model.weights, TinyRequests(), options, log);
}

TEST(Climb, MeasuresWhatAGeneratorTakes) {
  const RungResult rung = ClimbFakes({Fake("a")}).rungs[0];
  EXPECT_EQ(rung.kv_cache_bytes, 200u);
  EXPECT_EQ(rung.activation_bytes, 800u);
  EXPECT_EQ(rung.num_passes, rung.num_tokens);  // the warm-up does not count
  EXPECT_EQ(rung.most_at_once, 1);
}

TEST(Climb, NoticesAnotherAnswer) {
  const Ladder ladder = ClimbFakes({Fake("a"), Fake("b", 3, 2), Fake("c")});
  EXPECT_FALSE(ladder.same_tokens());
  EXPECT_FALSE(ladder.rungs[0].parting);
  ASSERT_TRUE(ladder.rungs[1].parting);
  EXPECT_EQ(ladder.rungs[1].parting->request, 3u);
  EXPECT_EQ(ladder.rungs[1].parting->position, 1u);
  EXPECT_EQ(ladder.rungs[1].parting->from, "a");
  EXPECT_FALSE(ladder.rungs[2].parting);
  EXPECT_NE(
      LadderNotes(ladder).find("b: ANOTHER ANSWER than that of a to prompt 4, from token 2 on."),
      std::string::npos)
      << LadderNotes(ladder);
}

// What a slow rung did not answer is compared with the first that did.
TEST(Climb, GivesASlowRungTheFirstRequestsAlone) {
  LadderOptions options;
  options.slow_requests = 2;
  const Ladder ladder =
      ClimbFakes({Fake("slow"), Fake("b", 4, 1), Fake("c"), Fake("d", 1, 1)}, options);
  EXPECT_EQ(ladder.rungs[0].num_requests, 2u);
  EXPECT_EQ(ladder.rungs[0].num_tokens, 3 + 7);
  EXPECT_EQ(ladder.rungs[1].num_requests, 7u);
  EXPECT_FALSE(ladder.rungs[1].parting);
  ASSERT_TRUE(ladder.rungs[2].parting);
  EXPECT_EQ(ladder.rungs[2].parting->from, "b");
  ASSERT_TRUE(ladder.rungs[3].parting);
  EXPECT_EQ(ladder.rungs[3].parting->from, "slow");
  EXPECT_NE(LadderNotes(ladder).find("slow is slow: it answered 2 of the 7 prompts.\n"),
            std::string::npos);
}

TEST(Climb, NamesTheRungThatFails) {
  EXPECT_EQ(ErrorOf([] { ClimbFakes({Fake("a"), Fake("fails")}); }), "fails: a kernel is wrong");
  EXPECT_NE(ErrorOf([] { ClimbFakes({Fake("a", -1, -1, 2000)}); }).find("a: took "),
            std::string::npos);
}

// --- the report

Ladder SomeLadder() {
  Ladder ladder;
  ladder.model = "models/<pocket>";
  ladder.device = "A & B";
  ladder.num_requests = 16;
  ladder.weight_bytes = 14'000'000;
  ladder.scratch_bytes = 33'000'000;
  RungResult first;
  first.name = "09 first";
  first.idea = "the whole model";
  first.num_requests = 16;
  first.num_tokens = 100;
  first.num_passes = 100;
  first.seconds = 10;
  first.most_at_once = 1;
  first.activation_bytes = 3'000'000;
  RungResult second = first;
  second.name = "10 the second";
  second.idea = "a cache";
  second.num_passes = 20;
  second.seconds = 0.5;
  second.most_at_once = 8;
  second.kv_cache_bytes = 1'000'000;
  ladder.rungs = {first, second};
  return ladder;
}

TEST(Report, Table) {
  EXPECT_EQ(LadderTable(SomeLadder()),
            "lesson         what it adds     tokens  passes  at once  tokens/s\n"
            "─────────────  ───────────────  ──────  ──────  ───────  ────────\n"
            "09 first       the whole model     100     100        1      10.0\n"
            "10 the second  a cache             100      20        8     200.0\n");
}

TEST(Report, BarsAreInProportion) {
  EXPECT_EQ(LadderBars(SomeLadder()),
            "tokens/s, and times the first\n"
            "  09 first       ██ 10.0, 1.0 x\n"
            "  10 the second  ████████████████████████████████████████ 200.0, 20.0 x\n"
            "\n"
            "tokens a pass through the model\n"
            "  09 first       ████████ 1.0\n"
            "  10 the second  ████████████████████████████████████████ 5.0\n"
            "\n"
            "device memory: █ KV cache, ░ activations\n"
            "  09 first       ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 3.00 MB\n"
            "  10 the second  ██████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 1.00 MB + 3.00 MB\n"
            "and for each the same: weights (14.0 MB) and cuBLAS's scratch memory (33.0 MB)\n");
}

TEST(Report, ABarCanAlwaysBeSeenAndHasEighths) {
  Ladder ladder = SomeLadder();
  ladder.rungs[0].seconds = 1e6;
  EXPECT_NE(LadderBars(ladder).find("  09 first       ▏ 0.0, 1.0 x\n"), std::string::npos);
  ladder.rungs[0].seconds = 100.0 / (200.0 * 2.375 / 40);  // 2 3/8 columns of 40
  EXPECT_NE(LadderBars(ladder).find("  09 first       ██▍ "), std::string::npos)
      << LadderBars(ladder);
}

TEST(Report, NotesSayWhereTheTimesAreFrom) {
  Ladder ladder = SomeLadder();
  EXPECT_EQ(LadderNotes(ladder),
            "Every prompt has the same answer on all rungs, token for token.\n");
  ladder.simulated = true;
  EXPECT_NE(LadderNotes(ladder).find("a CPU that plays a GPU"), std::string::npos);
  ladder.rungs[1].parting = Parting{0, 0, "09 first"};
  EXPECT_EQ(LadderNotes(ladder).find("cuBLAS"), std::string::npos) << "no excuse there";
  ladder.simulated = false;
  EXPECT_NE(LadderNotes(ladder).find("cuBLAS"), std::string::npos);
}

TEST(Report, Json) {
  const std::string text = LadderJson(SomeLadder());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["model"], "models/<pocket>");
  EXPECT_EQ(json["same_tokens"], true);
  ASSERT_EQ(json["rungs"].size(), 2u);
  EXPECT_EQ(json["rungs"][1]["tokens_per_second"], 200.0);
  EXPECT_EQ(json["rungs"][1]["num_passes"], 20);
  EXPECT_EQ(json["rungs"][1]["kv_cache_bytes"], 1'000'000);
}

// Every element is closed, in order. Enough of XML for what the ladder writes.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), tag); it != std::sregex_iterator();
       ++it) {
    const std::string name = (*it)[2];
    if ((*it)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    } else if ((*it)[4].length() == 0) {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(std::regex_replace(svg, tag, "").find_first_of("<>"), std::string::npos);
  const std::regex bare("&(?!(amp|lt|gt|quot);)");
  EXPECT_FALSE(std::regex_search(svg, bare));
}

// The widths of the bars of one kind, from the top down.
std::vector<double> BarWidths(const std::string& svg, const std::string& style) {
  std::vector<double> widths;
  const std::regex bar("<rect class=\"" + style + "\"[^>]* width=\"([0-9.]+)\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), bar); it != std::sregex_iterator();
       ++it) {
    widths.push_back(std::stod((*it)[1]));
  }
  return widths;
}

TEST(Report, Svg) {
  const std::string svg = LadderSvg(SomeLadder());
  ExpectWellFormed(svg);
  EXPECT_NE(svg.find("models/&lt;pocket&gt; on A &amp; B"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  const std::vector<double> speed = BarWidths(svg, "speed");
  ASSERT_EQ(speed.size(), 2u);
  EXPECT_NEAR(speed[1] / speed[0], 20, 0.2);
  const std::vector<double> pass = BarWidths(svg, "pass");
  ASSERT_EQ(pass.size(), 2u);
  EXPECT_NEAR(pass[1] / pass[0], 5, 0.05);
  const std::vector<double> all = BarWidths(svg, "rest");  // the legend's, then the rungs'
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[2] / all[1], 4.0 / 3, 0.02);
  const std::vector<double> cache = BarWidths(svg, "cache");
  ASSERT_EQ(cache.size(), 2u);
  EXPECT_NEAR(all[2] / cache[1], 4, 0.05);
}

// --- the programs

TEST(LadderProgram, RunsTheBundledModel) {
  const std::string svg = testing::TempDir() + "ladder.svg";
  const Outcome outcome =
      RunCommand(DataPath("lessons/ladder") + " --max-tokens 2 --json --svg " + svg);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const nlohmann::json json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["model"], "models/pocket");
  EXPECT_EQ(json["same_tokens"], true);
  EXPECT_EQ(json["rungs"].size(), LadderRungs().size());
  EXPECT_NE(outcome.errors.find("14 engine ... "), std::string::npos);
  ExpectWellFormed(ReadTextFile(svg));
}

TEST(LadderProgram, BadInputIsOneLine) {
  const std::string no_tokenizer = TinyCheckpoint(5).Write("no_tokenizer");
  const std::map<std::string, std::string> cases = {
      {"--nope", "--nope"},
      {"extra", "extra"},
      {"--max-tokens 0", "from 1"},
      {"--model ''", "--model: is empty"},
      {"--model /nowhere", "/nowhere"},
      {"--model " + no_tokenizer, "tokenizer.json"},
      {"--svg ''", "--svg: is empty"},
      {"--svg /nowhere/a.svg", "/nowhere is not a folder"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = RunCommand(DataPath("lessons/ladder") + " " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.output, "") << arguments;
    EXPECT_NE(outcome.errors.find(expected), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
  }
}

// A repository whose bazelw tells what it was asked.
TEST(ProgressProgram, BenchHasBazelBuildAndRunTheLadder) {
  const fs::path root = fs::path(testing::TempDir()) / "a repository";
  fs::create_directories(root);
  std::ofstream(root / "bazelw") << "#!/bin/sh\nfor word; do echo \"$word\"; done\nexit 7\n";
  fs::permissions(root / "bazelw", fs::perms::owner_all);
  const std::string progress =
      "BUILD_WORKSPACE_DIRECTORY='" + root.string() + "' " + DataPath("lessons/progress");
  const Outcome outcome = RunCommand(progress + " --bench --max-tokens 3 'a b'");
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.output.find("run\n--//:backend="), 0u) << outcome.output;
  EXPECT_NE(outcome.output.find("\n--//:exercise="), std::string::npos) << outcome.output;
  const std::string end = "\n//lessons:ladder\n--\n--max-tokens\n3\na b\n";
  ASSERT_GE(outcome.output.size(), end.size());
  EXPECT_EQ(outcome.output.substr(outcome.output.size() - end.size()), end);
  fs::remove_all(root);
  EXPECT_EQ(RunCommand(progress + " --bench").status, 2) << "there is no bazelw";
}

TEST(ProgressProgram, BadInputIsOneLine) {
  for (const char* arguments : {"--nope", "x", "--json --bench", "--bench"}) {
    const Outcome outcome = RunCommand("env -u BUILD_WORKSPACE_DIRECTORY " +
                                       DataPath("lessons/progress") + " " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
  }
}

}  // namespace
}  // namespace tinyvllm
