// Checks of lesson 14's scheduler: schedules worked out by hand, and thousands of random ones, with
// what must hold after every step held against the checks' own books.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <map>
#include <new>
#include <numeric>
#include <set>

#include "common/base/error.h"
#include "common/testing/expect_error.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/14_engine/prefix_cache.h"
#include "lessons/14_engine/scheduler.h"

namespace {
int64_t allocations = 0;
}  // namespace

// Kept whole, or the compiler sees free() take what new gave, and warns.
#define WHOLE __attribute__((noinline))
WHOLE void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
WHOLE void operator delete(void* memory) noexcept { std::free(memory); }
WHOLE void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tinyvllm {
namespace {

// --- First steps: short schedules, beside those of a scheduler with a mistake in it.

std::vector<int> Tokens(int count, int first = 0) {
  std::vector<int> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

SchedulerConfig SmallConfig(int num_blocks, int max_num_seqs = 4, int budget = 16) {
  SchedulerConfig config;
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = budget;
  config.max_model_len = 1000;
  config.num_blocks = num_blocks;
  config.block_size = 4;
  return config;
}

// "3[0,5)+" is request 3 from position 0 to 5, and the next token is chosen.
std::string Shown(const StepPlan& plan) {
  std::string text;
  for (const ScheduledSequence& part : plan.sequences) {
    text += StrCat(text.empty() ? "" : " ", part.request, "[", part.first_position, ",",
                   part.first_position + part.num_tokens, ")", part.samples ? "+" : "");
  }
  for (size_t i = 0; i < plan.admitted.size(); ++i) {
    text += StrCat(" in", plan.admitted[i]);
    if (plan.cached_tokens[i] > 0) text += StrCat("(", plan.cached_tokens[i], ")");
  }
  for (const int request : plan.preempted) text += StrCat(" out", request);
  return text;
}

// Blocks of four tokens, no prefix cache, no request that ends by itself: the rules alone, and what
// the usual mistakes make of them.
struct Mistakes {
  // The order of the rounds: d decodes, c chunks, n newcomers.
  std::string rounds = "dcn";
  bool chunks_serve_decodes = false;  // round 2 does not ask for more than one token
  bool decodes_serve_chunks = false;  // round 1 does not ask for exactly one
  bool youngest_first = false;
  bool one_newcomer = false;
  bool room_is_never_made = false;  // MakeRoom is false
  bool puts_off_oldest = false;
  bool always_puts_off = false;  // also where a block is free
  bool always_adds = false;      // a block for each token
  bool adds_one_late_or_early = false;
  bool gives_up_after_putting_off = false;
  bool puts_off_nobody = false;
};

constexpr char kNothingPlanned[] = "nothing is planned, though there are requests that could run";

class ModelScheduler {
 public:
  ModelScheduler(const SchedulerConfig& config, const Mistakes& mistakes)
      : config_(config), mistakes_(mistakes), free_(config.num_blocks) {}

  void Add(int prompt_tokens) { waiting_.push_back({next_number_++, prompt_tokens, 0, 0}); }

  std::string Step() {
    parts_.clear();
    in_.clear();
    out_.clear();
    budget_ = config_.max_num_batched_tokens;
    for (const char round : mistakes_.rounds) {
      if (round == 'd') Decodes();
      if (round == 'c') Chunks();
      if (round == 'n') Newcomers();
    }
    const auto could_run = [](const Request& request) { return request.remaining() > 0; };
    const bool anybody = running_.empty()
                             ? !waiting_.empty()
                             : std::any_of(running_.begin(), running_.end(), could_run);
    return parts_.empty() && anybody ? kNothingPlanned : parts_ + in_ + out_;
  }

 private:
  struct Request {
    int number, num_tokens, num_computed, blocks;
    int remaining() const { return num_tokens - num_computed; }
  };

  static int BlocksFor(int tokens) { return (tokens + 3) / 4; }

  void Run(Request* request, int tokens) {
    const int end = request->num_computed + tokens;
    const bool samples = tokens == request->remaining();
    parts_ += StrCat(parts_.empty() ? "" : " ", request->number, "[", request->num_computed, ",",
                     end, ")", samples ? "+" : "");
    request->num_computed = end;
    request->num_tokens += samples;
    budget_ -= tokens;
  }

  void Decodes() {
    if (mistakes_.youngest_first) {
      for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
        if (it->remaining() == 1 && MakeRoom(it->number)) Run(&*it, 1);
      }
      return;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].remaining() != 1 && !mistakes_.decodes_serve_chunks) continue;
      if (!MakeRoom(running_[i].number)) break;
      Run(&running_[i], 1);
    }
  }

  void Chunks() {
    for (Request& request : running_) {
      const int tokens = std::min(request.remaining(), budget_);
      if (request.remaining() > (mistakes_.chunks_serve_decodes ? 0 : 1) && tokens > 0) {
        Run(&request, tokens);
      }
    }
  }

  void Newcomers() {
    while (budget_ > 0 && out_.empty()) {
      if (waiting_.empty() || static_cast<int>(running_.size()) == config_.max_num_seqs) return;
      const int total = BlocksFor(waiting_.front().num_tokens);
      if (total + static_cast<int>(running_.size()) > free_) return;
      running_.push_back(waiting_.front());
      waiting_.pop_front();
      Request& request = running_.back();
      free_ -= total;
      request.blocks = total;
      in_ += StrCat(" in", request.number);
      Run(&request, std::min(request.remaining(), budget_));
      if (mistakes_.one_newcomer) return;
    }
  }

  void PutOff(std::deque<Request>::iterator it) {
    out_ += StrCat(" out", it->number);
    free_ += it->blocks;
    it->blocks = it->num_computed = 0;
    waiting_.push_front(*it);
    running_.erase(it);
  }

  bool MakeRoom(int number) {
    if (mistakes_.room_is_never_made) return false;
    const auto Find = [&] {
      return std::find_if(running_.begin(), running_.end(),
                          [&](const Request& request) { return request.number == number; });
    };
    const int needed = BlocksFor(Find()->num_computed + 1 + mistakes_.adds_one_late_or_early);
    if (needed <= Find()->blocks && !mistakes_.always_adds && !mistakes_.always_puts_off)
      return true;
    if (free_ == 0 && mistakes_.puts_off_nobody) return false;
    while (free_ == 0 || mistakes_.always_puts_off) {
      const auto victim = mistakes_.puts_off_oldest ? running_.begin() : std::prev(running_.end());
      const bool itself = victim->number == number;
      PutOff(victim);
      if (itself || mistakes_.gives_up_after_putting_off) return false;
      if (mistakes_.always_puts_off) break;
    }
    if (needed > Find()->blocks || mistakes_.always_adds) {
      --free_;
      ++Find()->blocks;
    }
    return true;
  }

  const SchedulerConfig config_;
  const Mistakes mistakes_;
  int free_;
  int budget_ = 0, next_number_ = 0;
  std::deque<Request> waiting_, running_;
  std::string parts_, in_, out_;
};

// Requests that come before a step of this number.
struct Arrival {
  int step, prompt_tokens;
};

template <typename AddRequest, typename PlanStep>
std::vector<std::string> Schedule(const std::vector<Arrival>& arrivals, int num_steps,
                                  AddRequest add, PlanStep plan) {
  std::vector<std::string> lines;
  for (int step = 0; step < num_steps; ++step) {
    for (const Arrival& arrival : arrivals) {
      if (arrival.step == step) add(arrival.prompt_tokens);
    }
    const std::string planned = plan();
    lines.push_back(StrCat("step ", step, "  ", planned));
    if (planned == kNothingPlanned) break;
  }
  return lines;
}

constexpr char kBudget[] = "docs/14_engine.md#one-budget-a-step";
constexpr char kWrongOneGoes[] =
    "either the oldest was put off, where it is the youngest, the last of running_, that has least "
    "to "
    "lose; or another was put off, and MakeRoom said false all the same: false is for the request "
    "that "
    "was put off itself, else it gets the block that is free now";
constexpr char kRoom[] = "docs/14_engine.md#when-the-pool-runs-dry";

constexpr char kBegin[] =
    "SpendBudget, in lessons/14_engine/exercise/scheduler.cc. Begin with round 3, which is one "
    "loop "
    "over TryToAdmit(), then round 1, and for it the easiest case of MakeRoom: true, where the "
    "blocks have a place for the next token";
constexpr char kLegend[] =
    "0[3,5)+ is request 0, its tokens 3 and 4, and + that the next one is then chosen; in1: "
    "admitted; out1: put off";

// Ends the program, and says why, where a schedule of a few steps takes longer than it ever could.
class Patience {
 public:
  Patience() {
    std::signal(SIGALRM, [](int) {
      constexpr char kWhy[] =
          "\nlikely cause  SpendBudget does not come to an end. A loop over running_ that goes on "
          "from "
          "a request which was put off goes on in waiting_, for there it is now, and never finds "
          "the "
          "end of running_: where MakeRoom is false, leave round 1 (break, not continue)\n"
          "read          docs/14_engine.md#when-the-pool-runs-dry\n";
      if (write(STDERR_FILENO, kWhy, sizeof kWhy - 1) > 0) _exit(1);
      _exit(2);
    });
    alarm(10);
  }
  ~Patience() { alarm(0); }
};

// What the lesson's scheduler plans, when every token of every request is the same.
std::vector<std::string> PlannedByTheLesson(const SchedulerConfig& config,
                                            const std::vector<Arrival>& arrivals, int num_steps) {
  constexpr int kToken = 7;
  const Patience patience;
  Scheduler scheduler(config);
  return Schedule(
      arrivals, num_steps,
      [&](int prompt) { scheduler.Add(std::vector<int>(prompt, kToken), 100); },
      [&] {
        StepPlan plan;
        try {
          plan = scheduler.Next();
        } catch (const Error& error) {
          if (std::string(error.what()).find(kNothingPlanned) == std::string::npos) throw;
          return std::string(kNothingPlanned);
        }
        for (const ScheduledSequence& part : plan.sequences) {
          if (part.samples) scheduler.Append(part.request, kToken);
        }
        return Shown(plan);
      });
}

testing::AssertionResult CheckSchedule(SchedulerConfig config, const std::vector<Arrival>& arrivals,
                                       int num_steps) {
  config.enable_prefix_caching = false;
  const auto With = [&](auto change) {
    Mistakes mistakes;
    change(&mistakes);
    ModelScheduler model(config, mistakes);
    return Schedule(
        arrivals, num_steps, [&](int prompt) { model.Add(prompt); }, [&] { return model.Step(); });
  };
  const auto Rounds = [&](const char* rounds) {
    return With([&](Mistakes* mistakes) { mistakes->rounds = rounds; });
  };
  std::vector<std::string> requests;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    requests.push_back(StrCat("request ", i, ": a prompt of ", arrivals[i].prompt_tokens,
                              " tokens, which comes before step ", arrivals[i].step));
  }
  return Guide(kBudget)
      .Input("requests", requests)
      .Input("budget", config.max_num_batched_tokens)
      .Input("slots", config.max_num_seqs)
      .Input("blocks", StrCat(config.num_blocks, " of 4 tokens"))
      .Input("a line", kLegend)
      .Start(kBegin, std::vector<std::string>{StrCat("step 0  ", kNothingPlanned)})
      .Mistake(
          "the newcomers get their tokens, and nobody else does: next come round 1, for requests "
          "with one token remaining, and round 2, for those with more",
          Rounds("n"))
      .Mistake(
          "round 1 is missing, or MakeRoom says false, which means that the request itself was "
          "put off: requests that have one token to compute get it before all others",
          Rounds("cn"))
      .Mistake(
          "MakeRoom is false, which means that the request itself was put off. Where its blocks "
          "have a place for the next token, it is true",
          With([](Mistakes* mistakes) { mistakes->room_is_never_made = true; }), kRoom)
      .Mistake("round 2 is missing: prompts that are under way get what the decodes have left",
               Rounds("dn"))
      .Mistake(
          "the prompts came before the decodes: who decodes is served first, for a person reads "
          "along",
          Rounds("cdn"))
      .Mistake(
          "the newcomers came before those who run: first the decodes, then the prompts that "
          "are under way, then who waits",
          Rounds("ndc"))
      .Mistake("the newcomers came before the prompts that are under way", Rounds("dnc"))
      .Mistake("nobody was admitted after the first: round 3 admits as long as there is budget",
               With([](Mistakes* mistakes) { mistakes->one_newcomer = true; }))
      .Mistake(
          "a request that decodes was served twice in one step: after Run it has one token "
          "remaining again, which nobody knows yet. Round 2 is for those with more than one",
          With([](Mistakes* mistakes) { mistakes->chunks_serve_decodes = true; }))
      .Mistake(
          "a request got a token in round 1 that has more than one remaining: such a prompt has "
          "its "
          "turn in round 2, and then gets all that is left",
          With([](Mistakes* mistakes) { mistakes->decodes_serve_chunks = true; }))
      .Mistake("the youngest was served first; it is the oldest whose turn comes first",
               With([](Mistakes* mistakes) { mistakes->youngest_first = true; }))
      .Mistake(kWrongOneGoes, With([](Mistakes* mistakes) { mistakes->puts_off_oldest = true; }),
               kRoom)
      .Mistake("somebody was put off though a block was free, or none was needed",
               With([](Mistakes* mistakes) { mistakes->always_puts_off = true; }), kRoom)
      .Mistake(
          "a block was taken for each token; a block holds four. Ask first whether BlocksFor "
          "the tokens with the next one is more than the request has",
          With([](Mistakes* mistakes) { mistakes->always_adds = true; }), kRoom)
      .Mistake("a block was taken one token too early: the next token is number num_computed + 1",
               With([](Mistakes* mistakes) { mistakes->adds_one_late_or_early = true; }), kRoom)
      .Mistake(
          "no block was free, and nobody was put off: the youngest must give back its blocks, even "
          "if it is the request itself",
          With([](Mistakes* mistakes) { mistakes->puts_off_nobody = true; }), kRoom)
      .Mistake(kWrongOneGoes,
               With([](Mistakes* mistakes) { mistakes->gives_up_after_putting_off = true; }), kRoom)
      .WhenThrown(
          "is free",
          "AddBlock found no free block: as long as the pool has none, put off the youngest "
          "first",
          kRoom)
      .WhenThrown("blocks",
                  "a request got a token and has no block for it. In round 1 MakeRoom comes before "
                  "Run, and is true only when BlocksFor(num_computed + 1) blocks are there; in "
                  "round 2 only requests with more than one token remaining are served",
                  kRoom)
      .WhenThrown("has no slot",
                  "a request was planned that had just been put off: where MakeRoom is "
                  "false, round 1 ends, for it was the youngest",
                  kRoom)
      .WhenThrown("a budget of",
                  "more was planned than is left. Either the decodes do not come first, where the "
                  "budget always has a token for each, or a request got more than the smaller of "
                  "what remains of it and what the budget has")
      .Otherwise(
          "find the first step that differs, and ask the three rounds in their order who "
          "should get what")
      .Compare([&] { return PlannedByTheLesson(config, arrivals, num_steps); },
               With([](Mistakes*) {}));
}

// With the prefix cache, and all tokens of all requests equal: who was put off finds its keys in
// the blocks of the one who runs, needs a single block more, and could come back at once.
testing::AssertionResult CheckWhoWasPutOffWaits() {
  const SchedulerConfig config = SmallConfig(/*num_blocks=*/6);
  std::vector<std::string> expected = {"step 0  0[0,8)+ 1[4,8)+ in0 in1(4)"};
  for (int step = 1; step < 5; ++step) {
    expected.push_back(StrCat("step ", step, "  0[", step + 7, ",", step + 8, ")+ 1[", step + 7,
                              ",", step + 8, ")+"));
  }
  std::vector<std::string> at_once = expected;
  at_once.insert(at_once.end(),
                 {"step 5  0[12,13)+ 1[12,13)+ in1(12) out1", "step 6  0[13,14)+ 1[13,14)+"});
  expected.insert(expected.end(),
                  {"step 5  0[12,13)+ out1", "step 6  0[13,14)+ 1[12,13)+ in1(12)"});
  return Guide(kRoom)
      .Input("requests",
             "two that come before step 0, each with the same prompt of 8 tokens; and "
             "the same tokens follow, too")
      .Input("budget", config.max_num_batched_tokens)
      .Input("blocks", "6 of 4 tokens, and those with the same beginning are shared")
      .Input("a line", StrCat(kLegend, "; in1(4): 4 of its tokens lay in the pool"))
      .Start(kBegin, std::vector<std::string>{StrCat("step 0  ", kNothingPlanned)})
      .Mistake(
          "who was put off came back in the very step that had put it off. Nobody is admitted in "
          "such a step: the third round asks whether plan_.preempted is empty",
          at_once)
      .WhenThrown("", "something else is wrong, which the checks before this one explain better")
      .Otherwise("if the checks before this one pass, look at the third round and at MakeRoom")
      .Compare(
          [&] {
            return PlannedByTheLesson(config, {{0, 8}, {0, 8}}, 7);
          },
          expected);
}

TEST(SchedulerFirstSteps, DecodesThenChunksThenNewcomers) {
  EXPECT_TRUE(CheckSchedule(SmallConfig(/*num_blocks=*/100, /*max_num_seqs=*/4, /*budget=*/8),
                            {{0, 3}, {0, 2}, {1, 20}, {1, 5}}, 6));
}

TEST(SchedulerFirstSteps, ABlockIsTakenWhenTheLastIsFull) {
  EXPECT_TRUE(CheckSchedule(SmallConfig(/*num_blocks=*/4), {{0, 7}, {1, 2}}, 5));
}

TEST(SchedulerFirstSteps, WhereNoBlockIsFreeTheYoungestMustGo) {
  EXPECT_TRUE(CheckSchedule(SmallConfig(/*num_blocks=*/5), {{0, 7}, {0, 6}, {3, 1}}, 6));
}

TEST(SchedulerFirstSteps, TheOldestGetsABlockOfTheYoungest) {
  EXPECT_TRUE(CheckSchedule(SmallConfig(/*num_blocks=*/5), {{0, 6}, {0, 8}}, 6));
}

TEST(SchedulerFirstSteps, WhoWasPutOffIsNotAdmittedInTheSameStep) {
  EXPECT_TRUE(CheckWhoWasPutOffWaits());
}

// --- the prefix cache

TEST(PrefixCache, FindsWhatItWasToldOf) {
  PrefixCache cache(8, 2);
  const std::vector<int> text = {1, 2, 3, 4, 5, 6};
  Prefix prefix = cache.Insert(Prefix(), text.data(), 5);
  prefix = cache.Insert(prefix, text.data() + 2, 3);
  EXPECT_EQ(cache.num_known(), 2);

  Prefix walk;
  EXPECT_EQ(cache.Find(&walk, text.data()), 5);
  EXPECT_EQ(cache.Find(&walk, text.data() + 2), 3);
  EXPECT_EQ(walk.number, prefix.number);
  EXPECT_EQ(cache.Find(&walk, text.data() + 4), -1);
  EXPECT_EQ(walk.number, prefix.number) << "what is not found leaves the prefix as it was";

  // The same tokens elsewhere in a text are not the same block.
  Prefix start;
  EXPECT_EQ(cache.Find(&start, text.data() + 2), -1);

  cache.Forget(5);
  cache.Forget(5);
  start = Prefix();
  EXPECT_EQ(cache.Find(&start, text.data()), -1);
}

TEST(PrefixCache, KeepsTheBlockThatItKnows) {
  PrefixCache cache(4, 2);
  const std::vector<int> text = {1, 2};
  const Prefix first = cache.Insert(Prefix(), text.data(), 0);
  const Prefix second = cache.Insert(Prefix(), text.data(), 1);
  EXPECT_EQ(first.number, second.number);
  EXPECT_TRUE(cache.Knows(0));
  EXPECT_FALSE(cache.Knows(1));
  EXPECT_ERROR(cache.Insert(Prefix(), text.data(), 0), "block 0", "known already");
}

// One token over and over, and above all token 0, must not lead to one bucket.
TEST(PrefixCache, TheSameTokensFurtherOnHaveAnotherHash) {
  for (const int token : {0, 1, 77}) {
    PrefixCache cache(500, 4);
    const std::vector<int> tokens(4, token);
    std::set<uint64_t> hashes;
    Prefix prefix;
    for (int block = 0; block < 500; ++block) {
      prefix = cache.Insert(prefix, tokens.data(), block);
      hashes.insert(prefix.hash);
    }
    EXPECT_EQ(hashes.size(), 500u);
  }
}

// A text whose beginning was forgotten is not found through its end, whatever took its place.
TEST(PrefixCache, AForgottenBeginningDoesNotComeBackAsAnother) {
  for (const uint64_t mask : {~uint64_t{0}, uint64_t{0}}) {
    PrefixCache cache(4, 1, mask);
    const int a = 1, b = 2, c = 3;
    const Prefix of_a = cache.Insert(Prefix(), &a, 0);
    cache.Insert(of_a, &c, 1);  // the text a c
    cache.Forget(0);
    const Prefix of_b = cache.Insert(Prefix(), &b, 0);  // the same block, another text
    Prefix walk = of_b;
    EXPECT_EQ(cache.Find(&walk, &c), -1) << "b c was never computed";
  }
}

// Against a map from whole texts to blocks; with hashes that always, often and never collide.
TEST(PrefixCache, HoldsAgainstAMapOfWholeTexts) {
  for (const uint64_t mask : {uint64_t{0}, uint64_t{3}, ~uint64_t{0}}) {
    Random random(14 + mask);
    const int num_blocks = 24, block_size = 2;
    PrefixCache cache(num_blocks, block_size, mask);
    std::vector<std::vector<int>> text_of(num_blocks);
    int hits = 0;
    for (int round = 0; round < 20000; ++round) {
      const std::vector<int> text = random.Integers(block_size * random.Integer(1, 5), 0, 1);
      // As far as it is known, and the block after that is told.
      Prefix prefix;
      std::vector<int> part;
      for (size_t at = 0; at < text.size(); at += block_size) {
        part.insert(part.end(), text.begin() + at, text.begin() + at + block_size);
        const int found = cache.Find(&prefix, text.data() + at);
        if (found >= 0) {
          ++hits;
          ASSERT_EQ(text_of[found], part);
          continue;
        }
        const int block = random.Integer(0, num_blocks - 1);
        cache.Forget(block);
        // What lies under the walk's own prefix may be what was forgotten just now; then the text
        // can be told all the same, and nobody will find it.
        cache.Insert(prefix, text.data() + at, block);
        text_of[block] = part;
        break;
      }
      ASSERT_LE(cache.num_known(), num_blocks);
    }
    EXPECT_GT(hits, 10000);
  }
}

// --- schedules by hand

// Plans a step and gives every request that samples the same token.
std::string Step(Scheduler* scheduler, int token = 7) {
  const StepPlan plan = scheduler->Next();
  for (const ScheduledSequence& part : plan.sequences) {
    if (part.samples) scheduler->Append(part.request, token);
  }
  scheduler->CheckInvariants();
  return Shown(plan);
}

TEST(Scheduler, DecodesFirstThenChunksThenNewcomers) {
  Scheduler scheduler(SmallConfig(/*num_blocks=*/100, /*max_num_seqs=*/3, /*budget=*/8));
  scheduler.Add(Tokens(3), 100);
  EXPECT_EQ(Step(&scheduler), "0[0,3)+ in0");
  scheduler.Add(Tokens(20, 50), 100);
  scheduler.Add(Tokens(2, 90), 100);
  scheduler.Add(Tokens(2, 95), 100);
  EXPECT_EQ(Step(&scheduler), "0[3,4)+ 1[0,7) in1");
  EXPECT_EQ(Step(&scheduler), "0[4,5)+ 1[7,14)");
  EXPECT_EQ(Step(&scheduler), "0[5,6)+ 1[14,20)+ 2[0,1) in2");
  // What is left of a prompt is one token: it goes with those that decode.
  EXPECT_EQ(Step(&scheduler), "0[6,7)+ 1[20,21)+ 2[1,2)+");
  EXPECT_EQ(Step(&scheduler), "0[7,8)+ 1[21,22)+ 2[2,3)+") << "three slots, so 3 waits";
  scheduler.Finish(1);
  EXPECT_EQ(Step(&scheduler), "0[8,9)+ 2[3,4)+ 3[0,2)+ in3");
}

TEST(Scheduler, PutsOffTheYoungest) {
  // Five blocks of four tokens.
  Scheduler scheduler(SmallConfig(5));
  scheduler.Add(Tokens(7), 100);
  scheduler.Add(Tokens(6, 20), 100);
  EXPECT_EQ(Step(&scheduler), "0[0,7)+ 1[0,6)+ in0 in1");
  EXPECT_EQ(Step(&scheduler), "0[7,8)+ 1[6,7)+");
  EXPECT_EQ(Step(&scheduler), "0[8,9)+ 1[7,8)+") << "0 takes the last block";
  // Each has 10 and 9 tokens now. 1 needs a third block, and is itself the youngest.
  EXPECT_EQ(Step(&scheduler), "0[9,10)+ out1");
  EXPECT_EQ(scheduler.pool().num_free(), 2);
  // It is the first that waits, whoever comes.
  scheduler.Add(Tokens(1, 40), 100);
  EXPECT_EQ(Step(&scheduler), "0[10,11)+") << "1 would need three blocks, and 2 came later";
  scheduler.Finish(0);
  // Its first two blocks are where they were.
  EXPECT_EQ(Step(&scheduler), "1[8,9)+ 2[0,1)+ in1(8) in2");
}

TEST(Scheduler, LeavesABlockFreeForEachThatRuns) {
  Scheduler scheduler(SmallConfig(4));
  scheduler.Add(Tokens(4), 100);
  scheduler.Add(Tokens(9, 20), 100);
  // Three blocks are free and three are needed, but then 0's next token would put 1 off again.
  EXPECT_EQ(Step(&scheduler), "0[0,4)+ in0");
  EXPECT_EQ(scheduler.pool().num_free(), 3);
  scheduler.Finish(0);
  EXPECT_EQ(Step(&scheduler), "1[0,9)+ in1") << "where nobody runs, none need be left";
  scheduler.Add(Tokens(1, 40), 100);
  EXPECT_EQ(Step(&scheduler), "1[9,10)+");
}

TEST(Scheduler, WithoutPrefixCachingItIsComputedAnew) {
  SchedulerConfig config = SmallConfig(5);
  config.enable_prefix_caching = false;
  Scheduler scheduler(config);
  scheduler.Add(Tokens(7), 100);
  scheduler.Add(Tokens(6, 20), 100);
  for (int i = 0; i < 3; ++i) Step(&scheduler);
  EXPECT_EQ(Step(&scheduler), "0[9,10)+ out1");
  scheduler.Finish(0);
  EXPECT_EQ(Step(&scheduler), "1[0,9)+ in1");
}

TEST(Scheduler, FindsTheBeginningOfAPrompt) {
  Scheduler scheduler(SmallConfig(100));
  std::vector<int> prompt = Tokens(10);
  const int first = scheduler.Add(prompt, 100);
  prompt[9] = 77;
  const int second = scheduler.Add(prompt, 100);
  // In the very step that computes the blocks: a pass writes before it reads.
  EXPECT_EQ(Step(&scheduler), "0[0,10)+ 1[8,10)+ in0 in1(8)");
  EXPECT_EQ(scheduler.blocks(first)[0], scheduler.blocks(second)[0]);
  EXPECT_EQ(scheduler.blocks(first)[1], scheduler.blocks(second)[1]);
  EXPECT_NE(scheduler.blocks(first)[2], scheduler.blocks(second)[2]);
  EXPECT_EQ(scheduler.pool().references(scheduler.blocks(first)[0]), 2);

  // Of a prompt that is found as a whole, the last block is computed: its logits are wanted.
  scheduler.Add(Tokens(8), 100);
  EXPECT_EQ(Step(&scheduler), "0[10,11)+ 1[10,11)+ 2[4,8)+ in2(4)");
  // A prompt whose logprobs are asked for is not looked up.
  scheduler.Add(Tokens(8), 100, /*use_cached_prefix=*/false);
  EXPECT_EQ(Step(&scheduler), "0[11,12)+ 1[11,12)+ 2[8,9)+ 3[0,8)+ in3");
}

TEST(Scheduler, FindsWhatOthersHaveGenerated) {
  Scheduler scheduler(SmallConfig(100));
  scheduler.Add(Tokens(3), 6);
  std::vector<int> text = Tokens(3);
  for (int i = 0; i < 6; ++i) {
    Step(&scheduler, 50 + i);
    text.push_back(50 + i);
  }
  scheduler.Finish(0);
  // Nine tokens; the last one was never computed, so two full blocks are known.
  text.push_back(99);
  scheduler.Add(text, 5);
  EXPECT_EQ(Step(&scheduler), "1[8,10)+ in1(8)");
}

TEST(Scheduler, OverwritesWhatWasUsedTheLongestAgo) {
  Scheduler scheduler(SmallConfig(4));
  const auto Complete = [&](const std::vector<int>& prompt) {
    const int request = scheduler.Add(prompt, 1);
    const std::string plan = Step(&scheduler);
    scheduler.Finish(request);
    return plan.substr(plan.find(" in"));
  };
  EXPECT_EQ(Complete(Tokens(5, 10)), " in0");     // two blocks, one of them full
  EXPECT_EQ(Complete(Tokens(5, 20)), " in1");     // the other two
  EXPECT_EQ(Complete(Tokens(5, 10)), " in2(4)");  // used again, so younger than 20's
  EXPECT_EQ(Complete(Tokens(8, 30)), " in3");     // two blocks: those that were free the longest
  EXPECT_EQ(Complete(Tokens(5, 10)), " in4(4)");
  EXPECT_EQ(Complete(Tokens(5, 20)), " in5");
}

TEST(Scheduler, APromptThatCanNeverFitIsRefusedAndOthersRun) {
  Scheduler scheduler(SmallConfig(2));
  EXPECT_ERROR(scheduler.Add(Tokens(9), 5), "prompt", "9 tokens", "3 KV blocks", "pool has 2",
               "--num-gpu-blocks-override");
  EXPECT_ERROR(scheduler.Add({}, 5), "prompt", "empty");
  EXPECT_ERROR(scheduler.Add(Tokens(2), 0), "max_tokens is 0");
  EXPECT_ERROR(scheduler.Add(Tokens(1000), 5), "1000 tokens", "--max-model-len");
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.Add(Tokens(8), 5), 0) << "what is refused takes no number";
  EXPECT_EQ(Step(&scheduler), "0[0,8)+ in0");
}

TEST(Scheduler, OneThatOutgrowsThePoolEnds) {
  Scheduler scheduler(SmallConfig(2));
  scheduler.Add(Tokens(7), 100);
  EXPECT_EQ(scheduler.length_limit(0), 9) << "8 tokens in the pool, and the last one chosen";
  EXPECT_EQ(Step(&scheduler), "0[0,7)+ in0");
  EXPECT_EQ(Step(&scheduler), "0[7,8)+");
  EXPECT_EQ(Step(&scheduler), "") << "nothing more can come";
  scheduler.Finish(0);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(Scheduler, ALongPromptDelaysOthersByOneChunk) {
  SchedulerConfig config = SmallConfig(3000, 4, 512);
  config.max_model_len = 10000;
  Scheduler scheduler(config);
  scheduler.Add(Tokens(3), 100);
  Step(&scheduler);
  scheduler.Add(Tokens(8192, 50), 1);
  int steps = 0;
  for (; scheduler.blocks(1).empty() || steps < 17; ++steps) {
    const StepPlan plan = scheduler.Next();
    ASSERT_EQ(plan.sequences[0].request, 0);
    ASSERT_TRUE(plan.sequences[0].samples) << "a token in every step";
    int total = 0;
    for (const ScheduledSequence& part : plan.sequences) {
      total += part.num_tokens;
      if (part.samples) scheduler.Append(part.request, 1);
    }
    ASSERT_LE(total, 512);
    if (plan.sequences.size() > 1 && plan.sequences[1].samples) break;
  }
  EXPECT_EQ(steps, 16) << "8192 tokens, 511 a step";
}

TEST(Scheduler, RefusesWhatMakesNoSense) {
  SchedulerConfig config = SmallConfig(4);
  config.max_num_batched_tokens = 3;
  EXPECT_ERROR(Scheduler{config}, "max_num_batched_tokens is 3", "max_num_seqs, 4");
  config = SmallConfig(0);
  EXPECT_ERROR(Scheduler{config}, "KV blocks is 0");
  config = SmallConfig(4, 0);
  EXPECT_ERROR(Scheduler{config}, "max_num_seqs is 0");
  config = SmallConfig(4);
  config.block_size = 0;
  EXPECT_ERROR(Scheduler{config}, "block_size is 0");
  config = SmallConfig(4);
  config.max_model_len = 1;
  EXPECT_ERROR(Scheduler{config}, "max_model_len is 1");

  Scheduler scheduler(SmallConfig(4));
  EXPECT_ERROR(scheduler.Finish(0), "no request 0");
  EXPECT_ERROR(scheduler.Append(3, 1), "no request 3");
  scheduler.Add(Tokens(3), 3);
  EXPECT_ERROR(scheduler.Append(0, 1), "request 0", "not planned");
}

// --- random schedules

// Plays the engine, the model and the user. The model is one whose next token follows from the
// text, as a real one's does, so that requests with equal texts go on alike.
class Simulation {
 public:
  struct Options {
    SchedulerConfig config;
    int num_requests;
    int vocab;        // small, so that prompts often begin alike
    int longest;      // prompt
    int lag;          // steps by which values come late
    double arrivals;  // chance of a new request a step
    double aborts;    // chance of one
    double stops;     // chance that a token ends its request
  };

  Simulation(const Options& options, uint64_t seed)
      : options_(options),
        random_(seed),
        scheduler_(options.config),
        content_(options.config.num_blocks * options.config.block_size, 0) {}

  void Run() {
    int added = 0;
    for (int64_t step = 0; added < options_.num_requests || scheduler_.has_work(); ++step) {
      ASSERT_LT(step, 100000) << "requests do not end";
      while (added < options_.num_requests && random_.Uniform() < options_.arrivals) {
        ++added;
        AddRequest();
      }
      if (!live_.empty() && random_.Uniform() < options_.aborts) AbortOne();
      const int64_t before = allocations;
      const StepPlan& plan = scheduler_.Next();
      ASSERT_EQ(allocations, before) << "a step allocates";
      CheckPlan(plan);
      if (testing::Test::HasFatalFailure()) return;
      Compute(plan);
      if (testing::Test::HasFatalFailure()) return;
      scheduler_.CheckInvariants();
      if (static_cast<int>(pending_.size()) > options_.lag) TakeValues();
      scheduler_.CheckInvariants();
    }
    EXPECT_EQ(scheduler_.pool().num_free(), options_.config.num_blocks) << "blocks are lost";
  }

  int preemptions = 0, hits = 0, ended = 0, longest_chunked = 0;

 private:
  struct Live {
    std::vector<int> tokens;      // prompt, and all that has been planned
    std::vector<uint64_t> texts;  // a number for each beginning of it, itself included
    int prompt;
    int limit;
    bool use_cached_prefix;
    int known;         // tokens whose value the scheduler has been told
    int computed = 0;  // since it was admitted
    bool running = false;
  };

  static uint64_t Extend(uint64_t text, int token) {
    text = (text ^ (token + 1)) * 0xbf58476d1ce4e5b9u;
    return text ^ text >> 29;
  }

  void Push(Live* live, int token) {
    live->tokens.push_back(token);
    live->texts.push_back(Extend(live->texts.empty() ? 12345 : live->texts.back(), token));
  }

  int NextToken(const Live& live) const {
    return static_cast<int>(live.texts.back() % options_.vocab);
  }

  void AddRequest() {
    const int length = random_.Integer(0, options_.longest);
    const int max_tokens = random_.Integer(0, 12) * random_.Integer(1, 3);
    const bool use_cached_prefix = random_.Integer(0, 5) > 0;
    // Most prompts are of few families that begin alike.
    std::vector<int> prompt(length);
    const int family = random_.Integer(0, 3), same = random_.Integer(0, length);
    for (int i = 0; i < length; ++i) {
      prompt[i] =
          i < same ? (family * 7 + i * i) % options_.vocab : random_.Integer(0, options_.vocab - 1);
    }
    const SchedulerConfig& config = options_.config;
    const int room = config.num_blocks * config.block_size;
    if (length == 0 || max_tokens == 0 || length > room || length >= config.max_model_len) {
      const int waiting = scheduler_.num_waiting();
      EXPECT_THROW(scheduler_.Add(prompt, max_tokens, use_cached_prefix), Error);
      EXPECT_EQ(scheduler_.num_waiting(), waiting);
      return;
    }
    const int number = scheduler_.Add(prompt, max_tokens, use_cached_prefix);
    Live live;
    for (const int token : prompt) Push(&live, token);
    live.prompt = live.known = length;
    live.limit = std::min({length + max_tokens, config.max_model_len, room + 1});
    live.use_cached_prefix = use_cached_prefix;
    EXPECT_EQ(scheduler_.length_limit(number), live.limit);
    EXPECT_TRUE(live_.empty() || number > live_.rbegin()->first);
    live_[number] = live;
  }

  void AbortOne() {
    auto live = live_.begin();
    std::advance(live, random_.Integer(0, static_cast<int>(live_.size()) - 1));
    End(live->first);
  }

  void End(int number) {
    const int64_t before = allocations;
    scheduler_.Finish(number);
    ASSERT_EQ(allocations, before) << "an end allocates";
    live_.erase(number);
    ++ended;
  }

  // What a plan promises, from the state before it.
  void CheckPlan(const StepPlan& plan) {
    std::set<int> decoding;  // in its answer, with a token to compute
    for (const auto& [number, live] : live_) {
      const bool at_limit = static_cast<int>(live.tokens.size()) == live.limit;
      if (live.running && !at_limit && live.computed + 1 == static_cast<int>(live.tokens.size())) {
        decoding.insert(number);
      }
    }
    for (const int number : plan.preempted) {
      Live& live = live_.at(number);
      ASSERT_TRUE(live.running);
      for (const auto& [other, state] : live_) {
        ASSERT_FALSE(state.running && other > number) << "a younger one runs on";
      }
      live.running = false;
      live.computed = 0;
      decoding.erase(number);
      ++preemptions;
      ASSERT_TRUE(plan.admitted.empty());
    }
    ASSERT_EQ(plan.admitted.size(), plan.cached_tokens.size());
    for (size_t i = 0; i < plan.admitted.size(); ++i) {
      Live& live = live_.at(plan.admitted[i]);
      ASSERT_FALSE(live.running);
      for (const auto& [other, state] : live_) {
        ASSERT_FALSE(!state.running && other < plan.admitted[i]) << "one that came before waits";
      }
      live.running = true;
      live.computed = plan.cached_tokens[i];
      ASSERT_EQ(live.computed % options_.config.block_size, 0);
      ASSERT_LT(live.computed, static_cast<int>(live.tokens.size()));
      ASSERT_TRUE(live.use_cached_prefix || live.computed == 0);
      ASSERT_TRUE(options_.config.enable_prefix_caching || live.computed == 0);
      hits += live.computed > 0;
    }
    int total = 0, oldest_unfinished = -1;
    std::set<int> slots, numbers;
    for (const ScheduledSequence& part : plan.sequences) {
      const Live& live = live_.at(part.request);
      ASSERT_TRUE(live.running);
      ASSERT_TRUE(numbers.insert(part.request).second) << "a request twice in one step";
      ASSERT_TRUE(slots.insert(part.slot).second) << "a slot twice in one step";
      ASSERT_GE(part.slot, 0);
      ASSERT_LT(part.slot, options_.config.max_num_seqs);
      ASSERT_GE(part.num_tokens, 1);
      ASSERT_EQ(part.first_position, live.computed) << "a position twice, or left out";
      const int end = part.first_position + part.num_tokens, size = live.tokens.size();
      ASSERT_LE(end, size);
      ASSERT_LT(size, live.limit) << "beyond its end";
      ASSERT_EQ(part.samples, end == size);
      ASSERT_GE(
          static_cast<int>(scheduler_.blocks(part.request).size()) * options_.config.block_size,
          end);
      if (end < size) {
        ++longest_chunked;
        oldest_unfinished = part.request;
      }
      decoding.erase(part.request);
      total += part.num_tokens;
    }
    ASSERT_TRUE(decoding.empty()) << "request " << *decoding.begin() << " was left out of a step";
    ASSERT_LE(total, options_.config.max_num_batched_tokens);
    if (oldest_unfinished >= 0) {
      ASSERT_EQ(total, options_.config.max_num_batched_tokens) << "budget is left over";
    }
    ASSERT_LE(scheduler_.num_running(), options_.config.max_num_seqs);
  }

  // A pass: first all parts write, then all read all that came before them.
  void Compute(const StepPlan& plan) {
    const int block_size = options_.config.block_size;
    const auto place = [&](int request, int position) -> uint64_t& {
      return content_[scheduler_.blocks(request)[position / block_size] * block_size +
                      position % block_size];
    };
    pending_.emplace_back();
    for (const ScheduledSequence& part : plan.sequences) {
      Live& live = live_.at(part.request);
      for (int p = part.first_position; p < part.first_position + part.num_tokens; ++p) {
        place(part.request, p) = live.texts[p];
      }
      live.computed += part.num_tokens;
    }
    for (const ScheduledSequence& part : plan.sequences) {
      Live& live = live_.at(part.request);
      for (int p = 0; p < live.computed; ++p) {
        ASSERT_EQ(place(part.request, p), live.texts[p])
            << "request " << part.request << " reads what is not its own at position " << p;
      }
      if (!part.samples) continue;
      Push(&live, NextToken(live));
      pending_.back().push_back(part.request);
    }
  }

  // The values of a step arrive; some end their request.
  void TakeValues() {
    const std::vector<int> values = pending_.front();
    pending_.pop_front();
    for (const int number : values) {
      const auto found = live_.find(number);
      if (found == live_.end()) continue;  // ended while the value was under way
      Live& live = found->second;
      if (random_.Uniform() < options_.stops) {
        End(number);
        continue;
      }
      const int64_t before = allocations;
      scheduler_.Append(number, live.tokens[live.known++]);
      ASSERT_EQ(allocations, before) << "a value allocates";
      if (live.known == live.limit) End(number);
    }
  }

  const Options options_;
  Random random_;
  Scheduler scheduler_;
  std::map<int, Live> live_;
  std::vector<uint64_t> content_;  // (num_blocks, block_size): the text whose end lies there
  // Of each step whose values have not arrived: the requests whose next token it has chosen.
  std::deque<std::vector<int>> pending_;
};

class RandomSchedules : public testing::TestWithParam<int> {};

TEST_P(RandomSchedules, HoldWhatMustHold) {
  const int lag = GetParam();
  int preemptions = 0, hits = 0, ended = 0, chunks = 0;
  for (int seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Random random(seed * 3 + lag);
    Simulation::Options options;
    options.config.max_num_seqs = random.Integer(1, 6);
    options.config.max_num_batched_tokens =
        options.config.max_num_seqs + random.Integer(0, 3) * random.Integer(0, 8);
    options.config.max_model_len = random.Integer(2, 60);
    options.config.num_blocks = random.Integer(1, 24);
    options.config.block_size = random.Integer(1, 5);
    options.config.enable_prefix_caching = random.Integer(0, 3) > 0;
    options.num_requests = random.Integer(1, 20);
    options.vocab = random.Integer(1, 4);
    options.longest = random.Integer(1, 40);
    options.lag = lag;
    options.arrivals = random.Integer(1, 9) / 10.0;
    options.aborts = random.Integer(0, 2) / 20.0;
    options.stops = random.Integer(0, 2) / 20.0;
    Simulation simulation(options, seed);
    simulation.Run();
    if (testing::Test::HasFailure()) return;
    preemptions += simulation.preemptions;
    hits += simulation.hits;
    ended += simulation.ended;
    chunks += simulation.longest_chunked;
  }
  // The checks have seen what they are there for.
  EXPECT_GT(preemptions, 500);
  EXPECT_GT(hits, 1000);
  EXPECT_GT(chunks, 1000);
  EXPECT_GT(ended, 10000);
}

INSTANTIATE_TEST_SUITE_P(Lag, RandomSchedules, testing::Values(0, 1, 2),
                         [](const auto& info) { return StrCat(info.param); });

}  // namespace
}  // namespace tinyvllm
