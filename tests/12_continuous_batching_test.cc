// Checks of lesson 12: the slots' bookkeeping against a simple model of time, the flat batch
// against what a person would write down, and that requests get what lesson 10 gives them alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <set>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/cuda/device.h"
#include "common/testing/expect_error.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"
#include "lessons/12_continuous_batching/batch_generator.h"
#include "lessons/12_continuous_batching/slots.h"
#include "lessons/12_continuous_batching/timeline.h"
#include "tests/tiny_checkpoint.h"

namespace tinyvllm {
namespace {

constexpr Refill kBothWays[] = {Refill::kWhenAllAreFree, Refill::kAtOnce};

std::string ToString(Refill refill) { return refill == Refill::kAtOnce ? "continuous" : "static"; }

// --- First steps: who gets which slot, drawn; then a batch of three sequences.

// Requests that choose so many tokens each, and two slots. Nobody here runs longer than kMostSteps.
const std::vector<int> kChosen = {4, 1, 2, 3, 1};
constexpr int kMostSteps = 12, kNobody = -1;

std::vector<std::string> Lines(const std::vector<Step>& steps) {
  if (steps.empty()) return {};
  std::vector<std::string> lines = {""};
  for (char c : DrawTimeline(steps, 2, 1)) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  lines.pop_back();
  if (steps.size() == kMostSteps) lines.push_back("and so on without an end");
  return lines;
}

// The steps that a rule for the free slots leads to. `fill` gets the slots, each with the request
// that has it or kNobody, and the queue.
using Fill = std::function<void(std::vector<int>* slots, std::deque<int>* queue)>;

std::vector<std::string> Timeline(const Fill& fill) {
  std::vector<int> slots(2, kNobody), left(kChosen);
  std::deque<int> queue;
  for (size_t i = 0; i < kChosen.size(); ++i) queue.push_back(static_cast<int>(i));
  std::vector<Step> steps;
  while (steps.size() < kMostSteps && !(queue.empty() && slots == std::vector<int>(2, kNobody))) {
    const std::vector<int> before = slots;
    fill(&slots, &queue);
    Step step;
    for (int slot = 0; slot < 2; ++slot) {
      const int request = slots[slot];
      if (request == kNobody) continue;
      const bool is_prefill = before[slot] != request;
      step.push_back({slot, static_cast<size_t>(request), 0, 1, is_prefill, true});
      if (--left[request] == 0) slots[slot] = kNobody;
    }
    if (step.empty()) break;
    steps.push_back(step);
  }
  return Lines(steps);
}

// What the table of slots makes of the same requests.
std::vector<std::string> TableTimeline(Refill refill) {
  SlotTable table(2, 128, refill);
  for (size_t i = 0; i < kChosen.size(); ++i) table.Add(i, 3);
  std::vector<int> left(kChosen);
  std::vector<Step> steps;
  while (steps.size() < kMostSteps && !table.done()) {
    try {
      steps.push_back(table.NextStep());
    } catch (const Error&) {  // nobody got a slot
      break;
    }
    for (const SlotWork& work : steps.back()) {
      if (work.chooses_token && --left[work.request] == 0) table.Release(work.slot);
    }
  }
  // Further checks would never end.
  if (steps.size() == kMostSteps) GTEST_FLAG_SET(fail_fast, true);
  return Lines(steps);
}

int Running(const std::vector<int>& slots) {
  return static_cast<int>(slots.size() - std::count(slots.begin(), slots.end(), kNobody));
}

void Take(int* slot, std::deque<int>* queue) {
  *slot = queue->front();
  queue->pop_front();
}

Fill Rule(Refill refill) {
  return [refill](std::vector<int>* slots, std::deque<int>* queue) {
    if (refill == Refill::kWhenAllAreFree && Running(*slots) > 0) return;
    for (int& slot : *slots) {
      if (slot == kNobody && !queue->empty()) Take(&slot, queue);
    }
  };
}

testing::AssertionResult CheckSlots(Refill refill) {
  const bool is_static = refill == Refill::kWhenAllAreFree;
  const auto IfAllowed = [&](const Fill& fill) {
    return Timeline([&](std::vector<int>* slots, std::deque<int>* queue) {
      if (!is_static || Running(*slots) == 0) fill(slots, queue);
    });
  };
  return Guide(is_static ? "docs/12_continuous_batching.md#why-this-piece-exists"
                         : "docs/12_continuous_batching.md#the-table-of-slots")
      .Input("slots", 2)
      .Input("refill", is_static ? "kWhenAllAreFree, static batches" : "kAtOnce")
      .Input("queue", "a chooses 4 tokens, b 1, c 2, d 3, e 1 (a capital is a prompt)")
      .Start(
          "write FillFreeSlots in lessons/12_continuous_batching/exercise/slots.cc; begin with "
          "one free slot, which gets the front of queue_, and that is then off the queue")
      .Mistake(is_static
                   ? "a slot was filled while another had a request: static batches wait until "
                     "all are free (refill_, num_running)"
                   : "the slots waited until all were free, which is the rule of static "
                     "batches alone: ask refill_ before you return early",
               Timeline(Rule(is_static ? Refill::kAtOnce : Refill::kWhenAllAreFree)))
      .Mistake(
          "the first request that got a slot kept the others of its batch away: ask "
          "num_running() once, before you go over the slots",
          Timeline([](std::vector<int>* slots, std::deque<int>* queue) {
            for (int& slot : *slots) {
              if (Running(*slots) == 0 && !queue->empty()) Take(&slot, queue);
            }
          }))
      .Mistake(
          "one request a step only: every free slot is filled before the step, as long as "
          "somebody waits",
          IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
            for (int& slot : *slots) {
              if (slot != kNobody || queue->empty()) continue;
              Take(&slot, queue);
              return;
            }
          }))
      .Mistake(
          "the walk over the slots ended at the first that has a request: pass that one over, and "
          "go on to the next",
          IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
            for (int& slot : *slots) {
              if (slot != kNobody || queue->empty()) return;
              Take(&slot, queue);
            }
          }))
      .Mistake("slot 0 alone was filled: go over all of slots_",
               IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
                 if ((*slots)[0] == kNobody && !queue->empty()) Take(&(*slots)[0], queue);
               }))
      .Mistake("the request that came last went first: who has waited longest is at the front",
               IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
                 for (int& slot : *slots) {
                   if (slot != kNobody || queue->empty()) continue;
                   slot = queue->back();
                   queue->pop_back();
                 }
               }))
      .Mistake("the slots were filled from the last to the first",
               IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
                 for (int i : {1, 0}) {
                   if ((*slots)[i] == kNobody && !queue->empty()) Take(&(*slots)[i], queue);
                 }
               }))
      .Mistake(
          "the request was given a slot and stayed in the queue, from where it got the next "
          "one too: take it off the front",
          IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
            for (int& slot : *slots) {
              if (slot == kNobody && !queue->empty()) slot = queue->front();
            }
          }))
      .Mistake(
          "a slot that had a request was given to another, which throws the first one out: "
          "only free slots are filled",
          IfAllowed([](std::vector<int>* slots, std::deque<int>* queue) {
            for (int& slot : *slots) {
              if (!queue->empty()) Take(&slot, queue);
            }
          }))
      .Otherwise(
          "go through the columns, which are steps: the first that differs from what is "
          "expected is the one that FillFreeSlots filled wrongly")
      .Compare([&] { return TableTimeline(refill); }, Timeline(Rule(refill)));
}

TEST(SlotTableFirstSteps, AFreeSlotIsFilledAtOnce) { EXPECT_TRUE(CheckSlots(Refill::kAtOnce)); }

TEST(SlotTableFirstSteps, StaticBatchesWaitForTheLast) {
  EXPECT_TRUE(CheckSlots(Refill::kWhenAllAreFree));
}

// The four arrays of a batch, a line each.
std::vector<std::string> Arrays(const Batch& batch) {
  const auto Line = [](std::string name, const std::vector<int>& numbers) {
    name.resize(18, ' ');
    for (int number : numbers) name += StrCat(" ", number);
    return name;
  };
  return {Line("token_ids", batch.token_ids), Line("positions", batch.positions),
          Line("sequence_offsets", batch.sequence_offsets), Line("logit_rows", batch.logit_rows)};
}

constexpr char kRowIsNotSlot[] = "docs/12_continuous_batching.md#pitfalls";

testing::AssertionResult CheckFlatBatch() {
  const std::vector<std::vector<int>> sequences = {{10, 11, 12, 13}, {20, 21, 22}, {30, 31, 32}};
  const Step step = {
      {0, 0, 3, 1, false, true}, {1, 1, 0, 2, true, false}, {2, 2, 0, 3, true, true}};
  const auto With = [](auto bend) {
    Batch batch;
    batch.token_ids = {13, 20, 21, 30, 31, 32};
    batch.positions = {3, 0, 1, 0, 1, 2};
    batch.sequence_offsets = {0, 1, 3, 6};
    batch.logit_rows = {0, 5};
    bend(&batch);
    return Arrays(batch);
  };
  const std::vector<std::string> expected = With([](Batch*) {});
  Batch nothing;
  nothing.sequence_offsets = {0};
  return Guide("docs/12_continuous_batching.md#one-flat-batch-no-padding")
      .Input("request 0", "tokens 10 11 12 13; first_position 3, num_tokens 1, chooses a token")
      .Input("request 1", "tokens 20 21 22; first_position 0, num_tokens 2: a chunk, chooses none")
      .Input("request 2", "tokens 30 31 32; first_position 0, num_tokens 3, chooses a token")
      .Start(
          "write the heart of FlatBatch in lessons/12_continuous_batching/exercise/slots.cc; "
          "begin with the token ids: a loop over the positions that the work wants",
          Arrays(nothing))
      .Mistake("the tokens are right; positions, offsets and logit rows are missing",
               With([](Batch* batch) {
                 batch->positions = batch->logit_rows = {};
                 batch->sequence_offsets = {0};
               }))
      .Mistake("tokens and positions are right; offsets and logit rows are missing",
               With([](Batch* batch) {
                 batch->logit_rows = {};
                 batch->sequence_offsets = {0};
               }))
      .Mistake("the logit rows are missing", With([](Batch* batch) { batch->logit_rows = {}; }))
      .Mistake("the offsets are missing: one for each sequence, where its tokens end in the batch",
               With([](Batch* batch) { batch->sequence_offsets = {0}; }))
      .Mistake("the positions count through the batch; each counts in its own sequence",
               With([](Batch* batch) { batch->positions = {0, 1, 2, 3, 4, 5}; }))
      .Mistake("the positions begin anew in every chunk; they go on at first_position",
               With([](Batch* batch) { batch->positions[0] = 0; }))
      .Mistake(
          "the tokens were taken from the sequence's beginning; they are those from "
          "first_position on",
          With([](Batch* batch) { batch->token_ids[0] = 10; }))
      .Mistake(
          "all of a sequence's tokens were appended, also those before first_position, which "
          "have gone through the model",
          With([](Batch* batch) {
            batch->token_ids = {10, 11, 12, 13, 20, 21, 30, 31, 32};
            batch->positions = {0, 1, 2, 3, 0, 1, 0, 1, 2};
            batch->sequence_offsets = {0, 4, 6, 9};
            batch->logit_rows = {3, 8};
          }))
      .Mistake("tokens and positions begin at 0; they begin at first_position",
               With([](Batch* batch) { batch->token_ids[0] = 10, batch->positions[0] = 0; }))
      .Mistake(
          "the offsets are the lengths of the sequences; they say where each ends in the batch",
          With([](Batch* batch) {
            batch->sequence_offsets = {0, 1, 2, 3};
          }))
      .Mistake(
          "the offsets say where each sequence begins; the first 0 is there already, so append "
          "where each ends",
          With([](Batch* batch) {
            batch->sequence_offsets = {0, 0, 1, 3};
          }))
      .Mistake("the offsets are positions in the sequences; they count in the batch",
               With([](Batch* batch) {
                 batch->sequence_offsets = {0, 4, 2, 3};
               }))
      .Mistake("an offset for each token; one for each sequence, after its last token",
               With([](Batch* batch) { batch->sequence_offsets = {0, 1, 2, 3, 4, 5, 6}; }))
      .Mistake("a logit row for a chunk that chooses nothing: ask chooses_token",
               With([](Batch* batch) {
                 batch->logit_rows = {0, 2, 5};
               }))
      .Mistake("a logit row for every token; only the last of a sequence decides its next one",
               With([](Batch* batch) { batch->logit_rows = {0, 1, 2, 3, 4, 5}; }))
      .Mistake("a logit row for every token; only the last of a sequence decides its next one",
               With([](Batch* batch) {
                 batch->logit_rows = {0, 3, 4, 5};
               }))
      .Mistake(
          "the logit row is one too far: the last token's row is one before where the sequence "
          "ends",
          With([](Batch* batch) {
            batch->logit_rows = {1, 6};
          }))
      .Mistake("the logit rows are positions; rows count in the batch", With([](Batch* batch) {
                 batch->logit_rows = {3, 2};
               }),
               kRowIsNotSlot)
      .Mistake("the logit rows are numbers of sequences, or of slots; rows are tokens of the batch",
               With([](Batch* batch) {
                 batch->logit_rows = {0, 2};
               }),
               kRowIsNotSlot)
      .Mistake("the logit row is that of the sequence's first token; the last decides what follows",
               With([](Batch* batch) {
                 batch->logit_rows = {0, 3};
               }))
      .Otherwise(
          "find the first of the four lines that differs, and what each of its numbers means "
          "in the picture of lessons/09_forward_pass/batch.h")
      .Compare([&] { return Arrays(FlatBatch(step, sequences)); }, expected);
}

TEST(FlatBatchFirstSteps, ATokenAChunkAndAPrompt) { EXPECT_TRUE(CheckFlatBatch()); }

// --- the bookkeeping

// Steps that a request keeps its slot: a step for each chunk of the prompt, of which the last
// chooses the first token; then one for each further token.
int StepsInSlot(const RequestLengths& request, int chunk) {
  return (request.prompt_tokens + chunk - 1) / chunk + request.chosen_tokens - 1;
}

// A model of time without any slots in it. Static: groups in the order of the queue, each as long
// as its longest. Continuous: each request begins when the first of those before it makes room.
int ExpectedSteps(const std::vector<RequestLengths>& requests, int num_slots, int chunk,
                  Refill refill) {
  int total = 0;
  if (refill == Refill::kWhenAllAreFree) {
    for (size_t first = 0; first < requests.size(); first += num_slots) {
      int longest = 0;
      for (size_t i = first; i < std::min(requests.size(), first + num_slots); ++i) {
        longest = std::max(longest, StepsInSlot(requests[i], chunk));
      }
      total += longest;
    }
    return total;
  }
  std::multiset<int> free_at;
  for (int i = 0; i < num_slots; ++i) free_at.insert(0);
  for (const RequestLengths& request : requests) {
    const int end = *free_at.begin() + StepsInSlot(request, chunk);
    free_at.erase(free_at.begin());
    free_at.insert(end);
    total = std::max(total, end);
  }
  return total;
}

// What must hold of any steps for these requests; the tokens of a request come in order and once.
void CheckSteps(const std::vector<Step>& steps, const std::vector<RequestLengths>& requests,
                int num_slots, int chunk) {
  std::vector<int> next(requests.size(), 0), chosen(requests.size(), 0);
  std::vector<int> last_step(requests.size(), -1), slot_of(requests.size(), -1);
  size_t newest = 0;  // requests begin in the order of the queue
  for (size_t s = 0; s < steps.size(); ++s) {
    int last_slot = -1;
    ASSERT_FALSE(steps[s].empty()) << "step " << s;
    for (const SlotWork& work : steps[s]) {
      SCOPED_TRACE(StrCat("step ", s, ", slot ", work.slot, ", request ", work.request));
      ASSERT_GT(work.slot, last_slot);
      ASSERT_LT(work.slot, num_slots);
      ASSERT_LT(work.request, requests.size());
      last_slot = work.slot;
      const RequestLengths& request = requests[work.request];
      if (next[work.request] == 0) {
        EXPECT_EQ(work.request, newest++);
        slot_of[work.request] = work.slot;
      } else {
        EXPECT_EQ(last_step[work.request], static_cast<int>(s) - 1) << "it was left out of a step";
      }
      last_step[work.request] = static_cast<int>(s);
      EXPECT_EQ(work.slot, slot_of[work.request]);
      EXPECT_EQ(work.first_position, next[work.request]);
      EXPECT_EQ(work.is_prefill, next[work.request] < request.prompt_tokens);
      const int left = request.prompt_tokens - next[work.request];
      EXPECT_EQ(work.num_tokens, left > 0 ? std::min(left, chunk) : 1);
      next[work.request] += work.num_tokens;
      EXPECT_EQ(work.chooses_token, next[work.request] >= request.prompt_tokens);
      chosen[work.request] += work.chooses_token;
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(chosen[i], requests[i].chosen_tokens) << "request " << i;
    EXPECT_EQ(next[i], requests[i].prompt_tokens + requests[i].chosen_tokens - 1)
        << "request " << i << ": its last token need not go through the model";
  }
}

TEST(SlotTable, TheExampleOfThePage) {
  const std::vector<RequestLengths> requests = {{3, 8}, {3, 2}, {3, 3}, {3, 7}, {3, 2}, {3, 2}};
  const std::vector<Step> batches = PlanSteps(requests, 2, 128, Refill::kWhenAllAreFree);
  EXPECT_EQ(batches.size(), 8u + 7 + 2);
  EXPECT_DOUBLE_EQ(SlotUtilisation(batches, 2), 24 / 34.0);
  EXPECT_EQ(DrawTimeline(batches, 2, 1),
            "step    1       10\n"
            "slot 0  AaaaaaaaCcc····Ee\n"
            "slot 1  Bb······DddddddFf\n");
  const std::vector<Step> continuous = PlanSteps(requests, 2, 128, Refill::kAtOnce);
  EXPECT_EQ(continuous.size(), 12u);
  EXPECT_DOUBLE_EQ(SlotUtilisation(continuous, 2), 1);
  EXPECT_EQ(DrawTimeline(continuous, 2, 1),
            "step    1       10\n"
            "slot 0  AaaaaaaaEeFf\n"
            "slot 1  BbCccDdddddd\n");
  EXPECT_EQ(TokensComputed(continuous), 6 * 3 + 24 - 6);
}

TEST(SlotTable, TakesTheStepsThatTimeAllows) {
  Random random(1);
  for (int round = 0; round < 150; ++round) {
    const int num_slots = random.Integer(1, 9), chunk = random.Integer(1, 20);
    std::vector<RequestLengths> requests(random.Integer(0, 30));
    for (RequestLengths& request : requests) {
      request.prompt_tokens = random.Integer(1, 50);
      request.chosen_tokens = random.Integer(1, random.Integer(1, 60));
    }
    size_t batches = 0;
    for (const Refill refill : kBothWays) {
      SCOPED_TRACE(StrCat("round ", round, ", ", ToString(refill), ", ", requests.size(),
                          " requests, ", num_slots, " slots, chunks of ", chunk));
      const std::vector<Step> steps = PlanSteps(requests, num_slots, chunk, refill);
      EXPECT_EQ(static_cast<int>(steps.size()), ExpectedSteps(requests, num_slots, chunk, refill));
      CheckSteps(steps, requests, num_slots, chunk);
      if (HasFatalFailure()) return;
      if (refill == Refill::kWhenAllAreFree) {
        batches = steps.size();
      } else {
        EXPECT_LE(steps.size(), batches);
      }
      if (num_slots == 1) {
        EXPECT_DOUBLE_EQ(SlotUtilisation(steps, 1), requests.empty() ? 0 : 1);
      }
    }
  }
}

TEST(SlotTable, ALongRequestThatComesLastIsWaitedForEitherWay) {
  const std::vector<RequestLengths> requests = {{4, 9}, {4, 5}, {4, 30}, {4, 208}};
  EXPECT_EQ(PlanSteps(requests, 2, 128, Refill::kWhenAllAreFree).size(), 9u + 208);
  EXPECT_EQ(PlanSteps(requests, 2, 128, Refill::kAtOnce).size(), 9u + 208);
}

TEST(SlotTable, AFreeSlotIsFilledInTheVeryNextStep) {
  SlotTable table(2, 8, Refill::kAtOnce);
  for (const size_t request : {7, 5, 3}) table.Add(request, 20);
  EXPECT_EQ(table.num_waiting(), 3);
  Step step = table.NextStep();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].request, 7u);
  EXPECT_EQ(step[1].request, 5u);
  EXPECT_EQ(table.num_running(), 2);
  EXPECT_EQ(table.num_waiting(), 1);
  table.Release(1);  // in the middle of its prompt, even
  EXPECT_EQ(table.num_running(), 1);
  step = table.NextStep();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[1].request, 3u);
  EXPECT_EQ(step[1].first_position, 0);
  EXPECT_EQ(step[1].num_tokens, 8);
  EXPECT_TRUE(step[1].is_prefill);
  EXPECT_FALSE(step[1].chooses_token);
  table.Release(0);
  EXPECT_FALSE(table.done());
  table.Release(1);
  EXPECT_TRUE(table.done());
}

TEST(SlotTable, ARequestMayComeWhileOthersRun) {
  for (const Refill refill : kBothWays) {
    SlotTable table(2, 8, refill);
    table.Add(0, 4);
    EXPECT_EQ(table.NextStep().size(), 1u);
    table.Add(1, 4);
    EXPECT_EQ(table.NextStep().size(), refill == Refill::kAtOnce ? 2u : 1u) << ToString(refill);
  }
}

TEST(SlotTable, RefusesWhatMakesNoSense) {
  EXPECT_ERROR(SlotTable(0, 1, Refill::kAtOnce), "slots: 0", "at least 1");
  EXPECT_ERROR(SlotTable(1, 0, Refill::kAtOnce), "chunk is 0", "at least 1");
  SlotTable table(2, 1, Refill::kAtOnce);
  EXPECT_ERROR(table.Add(4, 0), "request 4", "0 tokens");
  EXPECT_ERROR(table.NextStep(), "idle", "0 requests wait");
  table.Add(4, 1);
  table.NextStep();
  for (const int slot : {-1, 1, 2}) {
    const std::string name = StrCat("slot ", slot);
    EXPECT_ERROR(table.Release(slot), name.c_str(), "no request");
  }
  table.Release(0);
  EXPECT_ERROR(table.Release(0), "slot 0", "no request");
  EXPECT_ERROR(PlanSteps({{1, 0}}, 1, 1, Refill::kAtOnce), "request 0", "at least 1");
}

// --- the flat batch

SlotWork Work(int slot, size_t request, int first_position, int num_tokens, bool chooses_token) {
  return {slot, request, first_position, num_tokens, true, chooses_token};
}

TEST(FlatBatch, LaysPromptsChunksAndSingleTokensSideBySide) {
  const std::vector<std::vector<int>> sequences = {
      {10, 11, 12}, {20, 21, 22, 23, 24}, {30, 31, 32, 33}};
  // Request 2 begins, request 0 goes on with its newest token, request 1 is within its prompt.
  const Batch batch = FlatBatch(
      {Work(0, 2, 0, 4, true), Work(1, 0, 2, 1, true), Work(4, 1, 1, 3, false)}, sequences);
  EXPECT_EQ(batch.token_ids, (std::vector<int>{30, 31, 32, 33, 12, 21, 22, 23}));
  EXPECT_EQ(batch.positions, (std::vector<int>{0, 1, 2, 3, 2, 1, 2, 3}));
  EXPECT_EQ(batch.sequence_offsets, (std::vector<int>{0, 4, 5, 8}));
  EXPECT_EQ(batch.logit_rows, (std::vector<int>{3, 4}));
  EXPECT_NO_THROW(batch.ValidateShape());
}

TEST(FlatBatch, RefusesTokensThatAreNotThere) {
  EXPECT_ERROR(FlatBatch({Work(0, 0, 2, 2, true)}, {{1, 2, 3}}), "request 0", "position 3",
               "3 tokens");
}

// --- the timeline

TEST(Timeline, DrawsColumnsOfSeveralStepsAndManySlots) {
  std::vector<RequestLengths> requests(11, {4, 2});
  requests[3] = {9, 3};  // two chunks of 8
  const std::vector<Step> steps = PlanSteps(requests, 11, 8, Refill::kAtOnce);
  const std::string begin =
      "step     1\n"
      "slot  0  Aa··\n"
      "slot  1  Bb··\n"
      "slot  2  Cc··\n";
  EXPECT_EQ(DrawTimeline(steps, 11, 1).substr(0, begin.size()), begin);
  EXPECT_NE(DrawTimeline(steps, 11, 1).find("slot  3  DDdd\n"), std::string::npos);
  EXPECT_NE(DrawTimeline(steps, 11, 1).find("slot 10  Kk··\n"), std::string::npos);
  EXPECT_NE(DrawTimeline(steps, 11, 3).find("slot  3  Dd\n"), std::string::npos);
  EXPECT_NE(DrawTimeline(steps, 11, 3).find("slot 10  K·\n"), std::string::npos);
  // A prompt is not lost behind the last token of the request before it.
  const std::vector<Step> two = PlanSteps({{1, 2}, {1, 3}}, 1, 1, Refill::kAtOnce);
  EXPECT_EQ(DrawTimeline(two, 1, 3), "step    1\nslot 0  Ab\n");
  EXPECT_EQ(DrawTimeline({two.begin() + 1, two.end()}, 1, 2), "step    1\nslot 0  Bb\n");
  EXPECT_ERROR(DrawTimeline(steps, 11, 0), "0 steps a column");
  EXPECT_EQ(SlotUtilisation({}, 4), 0);
}

TEST(Timeline, TheRulersNumbersEndOverTheirColumns) {
  const std::vector<Step> steps = PlanSteps({{1, 107}}, 1, 1, Refill::kAtOnce);
  const std::string one = DrawTimeline(steps, 1, 1), five = DrawTimeline(steps, 1, 5);
  EXPECT_EQ(one.substr(0, 8 + 20), "step    1       10        20");
  EXPECT_EQ(one.substr(8 + 97, 4), "100\n");
  EXPECT_EQ(five.substr(0, five.find('\n')), "step    1       50       100");
}

// --- the generators

// On a GPU, cuBLAS sums in another order for another number of rows; lesson 06's tiles do not.
GemmBackend Invariant() { return IsSimulator() ? GemmBackend::kCublas : GemmBackend::kTiled; }

BatchOptions Options(int num_slots, int max_model_len, int chunk) {
  BatchOptions options;
  options.num_slots = num_slots;
  options.max_model_len = max_model_len;
  options.chunk = chunk;
  options.gemm = Invariant();
  return options;
}

std::unique_ptr<BatchGenerator> MakeGenerator(Refill refill, const Model& model,
                                              const BatchOptions& options) {
  if (refill == Refill::kAtOnce) {
    return std::make_unique<ContinuousBatchGenerator>(model.config, model.weights, options);
  }
  return std::make_unique<StaticBatchGenerator>(model.config, model.weights, options);
}

std::vector<GenerationRequest> RandomRequests(const ModelConfig& config, int count, int max_len,
                                              Random* random) {
  std::vector<GenerationRequest> requests(count);
  for (GenerationRequest& request : requests) {
    request.prompt_token_ids =
        random->Integers(random->Integer(1, max_len - 1), 0, config.vocab_size - 1);
    request.max_tokens = random->Integer(1, 12);
    request.ignore_eos = random->Integer(0, 1) == 0;
  }
  return requests;
}

void ExpectSame(const std::vector<Generation>& actual, const std::vector<Generation>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].token_ids, expected[i].token_ids) << "request " << i;
    EXPECT_EQ(actual[i].finish_reason, expected[i].finish_reason) << "request " << i;
  }
}

std::vector<RequestLengths> LengthsOf(const std::vector<GenerationRequest>& requests,
                                      const std::vector<Generation>& generations) {
  std::vector<RequestLengths> lengths;
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool end_token = generations[i].finish_reason == FinishReason::kStop;
    lengths.push_back({static_cast<int>(requests[i].prompt_token_ids.size()),
                       static_cast<int>(generations[i].token_ids.size()) + end_token});
  }
  return lengths;
}

class Generators : public testing::TestWithParam<Refill> {};

INSTANTIATE_TEST_SUITE_P(, Generators, testing::ValuesIn(kBothWays),
                         [](const auto& info) { return ToString(info.param); });

TEST_P(Generators, GiveEachRequestWhatItGetsAlone) {
  Random random(31);
  const std::vector<TinyCheckpoint> checkpoints = {
      TinyCheckpoint(4, {{"num_attention_heads", 9}, {"num_key_value_heads", 3}, {"head_dim", 16}}),
      // Every token of these ends a sequence as often as not.
      TinyCheckpoint(7, {{"eos_token_id", {2, 5, 11, 17, 20, 23, 31, 38, 41, 44}}})};
  for (const TinyCheckpoint& checkpoint : checkpoints) {
    const Model model(checkpoint.Write("alone"));
    constexpr int kMaxLen = 48;
    const std::vector<GenerationRequest> requests =
        RandomRequests(model.config, 6, kMaxLen, &random);
    KvCacheGenerator alone(model.config, model.weights, kMaxLen, Invariant());
    const std::vector<Generation> expected = alone.Generate(requests);
    const std::vector<RequestLengths> lengths = LengthsOf(requests, expected);
    // One slot, fewer slots than requests, more; the last time with slots that still hold keys.
    std::unique_ptr<BatchGenerator> generator;
    for (const auto& [num_slots, chunk] :
         std::vector<std::pair<int, int>>{{1, 128}, {8, 7}, {3, 1}, {2, 5}, {2, 5}}) {
      SCOPED_TRACE(StrCat(num_slots, " slots, chunks of ", chunk));
      if (generator == nullptr || generator->options().num_slots != num_slots) {
        generator = MakeGenerator(GetParam(), model, Options(num_slots, kMaxLen, chunk));
      }
      ExpectSame(generator->Generate(requests), expected);
      EXPECT_EQ(static_cast<int>(generator->steps().size()),
                ExpectedSteps(lengths, num_slots, chunk, GetParam()));
      CheckSteps(generator->steps(), lengths, num_slots, chunk);
    }
  }
}

TEST_P(Generators, ReportTokensAsTheyCome) {
  Random random(32);
  const Model model(TinyCheckpoint(3).Write("report"));
  const std::vector<GenerationRequest> requests = RandomRequests(model.config, 7, 48, &random);
  const auto generator = MakeGenerator(GetParam(), model, Options(3, 48, 9));
  std::vector<std::vector<int>> reported(requests.size());
  const std::vector<Generation> answers =
      generator->Generate(requests, [&](const GeneratedToken& token) {
        EXPECT_EQ(token.logits, nullptr);
        reported.at(token.request).push_back(token.token_id);
      });
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(reported[i], answers[i].token_ids);
}

TEST_P(Generators, AnEndTokenFreesTheSlot) {
  TinyCheckpoint checkpoint(3);
  const std::vector<int> prompt = {1, 20, 30, 40};
  int first = 0;
  {
    const Model model(checkpoint.Write("end_a"));
    GenerationRequest request;
    request.prompt_token_ids = prompt;
    request.max_tokens = 1;
    first = KvCacheGenerator(model.config, model.weights, 32, Invariant())
                .Generate({request})[0]
                .token_ids.at(0);
  }
  // The same model, for which the prompt's first answer is the end.
  checkpoint.config["eos_token_id"] = first;
  const Model model(checkpoint.Write("end_b"));
  std::vector<GenerationRequest> requests(3);
  for (GenerationRequest& request : requests) {
    request.prompt_token_ids = prompt;
    request.max_tokens = 6;
    request.ignore_eos = true;
  }
  requests[0].ignore_eos = false;
  const auto generator = MakeGenerator(GetParam(), model, Options(2, 32, 16));
  const std::vector<Generation> answers = generator->Generate(requests);
  EXPECT_EQ(answers[0].finish_reason, FinishReason::kStop);
  EXPECT_TRUE(answers[0].token_ids.empty());
  EXPECT_EQ(answers[1].finish_reason, FinishReason::kLength);
  EXPECT_EQ(answers[1].token_ids.size(), 6u);
  EXPECT_EQ(answers[1].token_ids[0], first);
  EXPECT_EQ(answers[2].token_ids, answers[1].token_ids);
  // Request 2 begins in the step after the end, or when request 1 has ended as well.
  const size_t begin = GetParam() == Refill::kAtOnce ? 1 : 6;
  ASSERT_GT(generator->steps().size(), begin);
  EXPECT_EQ(generator->steps()[begin][0].request, 2u);
  EXPECT_EQ(generator->steps()[begin][0].slot, 0);
  EXPECT_EQ(generator->steps().size(), begin + 6);
}

TEST_P(Generators, EndAtMaxTokensAndAtTheModelsLength) {
  const Model model(TinyCheckpoint(3).Write("ends"));
  std::vector<GenerationRequest> requests(3);
  for (GenerationRequest& request : requests) {
    request.prompt_token_ids = {1, 20, 30, 40};
    request.ignore_eos = true;
  }
  requests[0].max_tokens = 1;
  requests[1].max_tokens = 100;
  requests[2].prompt_token_ids = std::vector<int>(11, 7);
  const auto generator = MakeGenerator(GetParam(), model, Options(3, 12, 16));
  const std::vector<Generation> answers = generator->Generate(requests);
  EXPECT_EQ(answers[0].token_ids.size(), 1u);
  EXPECT_EQ(answers[1].token_ids.size(), 8u);  // 12 with the prompt
  EXPECT_EQ(answers[2].token_ids.size(), 1u);
  EXPECT_EQ(generator->steps().size(), 8u);
  EXPECT_EQ(generator->steps()[0].size(), 3u);
  EXPECT_EQ(generator->steps()[1].size(), 1u);
}

TEST_P(Generators, RefuseARequestBeforeAnythingRuns) {
  const Model model(TinyCheckpoint(3).Write("refuse"));
  const auto generator = MakeGenerator(GetParam(), model, Options(2, 8, 4));
  std::vector<GenerationRequest> requests(3);
  for (GenerationRequest& request : requests) {
    request.prompt_token_ids = {1, 2};
    request.max_tokens = 2;
  }
  const std::vector<Generation> before = generator->Generate(requests);
  const auto refuse = [&](const GenerationRequest& bad) {
    std::vector<GenerationRequest> all = requests;
    all[1] = bad;
    generator->Generate(all, [](const GeneratedToken&) { ADD_FAILURE() << "a token came"; });
  };
  GenerationRequest bad = requests[1];
  bad.prompt_token_ids.clear();
  EXPECT_ERROR(refuse(bad), "request 1: prompt", "empty");
  bad.prompt_token_ids = std::vector<int>(8, 1);
  EXPECT_ERROR(refuse(bad), "request 1: prompt", "8 tokens");
  bad.prompt_token_ids = {1, 50};
  EXPECT_ERROR(refuse(bad), "request 1: prompt", "token 50");
  bad = requests[1];
  bad.max_tokens = 0;
  EXPECT_ERROR(refuse(bad), "request 1: max_tokens is 0");
  SampledRequest sampled = {requests[0], {}};
  sampled.sampling.top_p = 2;
  EXPECT_ERROR(generator->GenerateSampled({{requests[0], {}}, sampled}), "request 1: top_p", "2");
  ExpectSame(generator->Generate(requests), before);
  EXPECT_TRUE(generator->Generate({}).empty());
  EXPECT_TRUE(generator->steps().empty());
}

TEST_P(Generators, RefuseOptionsOutOfRange) {
  const Model model(TinyCheckpoint(3).Write("options"));
  const auto make = [&](int num_slots, int max_model_len, int chunk) {
    MakeGenerator(GetParam(), model, Options(num_slots, max_model_len, chunk));
  };
  EXPECT_ERROR(make(0, 8, 4), "num_slots is 0");
  EXPECT_ERROR(make(1, 8, 0), "chunk is 0");
  EXPECT_ERROR(make(1, 65, 4), "max_model_len is 65", "64");
  EXPECT_ERROR(make(1 << 30, 64, 64), "num_slots is 1073741824", "fewer slots");
}

TEST_P(Generators, SayWhenNoTokenCanBeChosen) {
  TinyCheckpoint checkpoint(3);
  checkpoint.tensors.at("model.norm.weight")[0] = NAN;
  const Model model(checkpoint.Write("nan"));
  const auto generator = MakeGenerator(GetParam(), model, Options(2, 16, 4));
  GenerationRequest request;
  request.prompt_token_ids = {1, 2, 3};
  EXPECT_ERROR(generator->Generate({request}), "request 0", "position 3", "NaN");
}

// A request's random numbers are its own: of its seed and the position, not of its slot, its
// neighbours or the step.
TEST_P(Generators, ASeedGivesTheSameTokensInAnyCompany) {
  Random random(33);
  const Model model(TinyCheckpoint(3).Write("seeds"));
  std::vector<SampledRequest> requests;
  for (const GenerationRequest& request : RandomRequests(model.config, 8, 40, &random)) {
    SamplingParams sampling;
    if (requests.size() % 4 != 3) {  // one in four stays greedy
      sampling.temperature = 1.5f;
      sampling.top_p = 0.95f;
      sampling.seed = requests.size();
      sampling.repetition_penalty = requests.size() % 2 == 0 ? 1.3f : 1.0f;
    }
    requests.push_back({request, sampling});
  }
  std::vector<Generation> expected;
  const auto alone = MakeGenerator(GetParam(), model, Options(1, 40, 64));
  for (const SampledRequest& request : requests) {
    expected.push_back(alone->GenerateSampled({request})[0]);
  }
  ExpectSame(MakeGenerator(GetParam(), model, Options(3, 40, 6))->GenerateSampled(requests),
             expected);
  // In another order they get other slots and other neighbours.
  std::reverse(requests.begin(), requests.end());
  std::reverse(expected.begin(), expected.end());
  ExpectSame(MakeGenerator(GetParam(), model, Options(2, 40, 64))->GenerateSampled(requests),
             expected);
  // And the seeds do something.
  for (SampledRequest& request : requests) request.sampling.seed += 100;
  const std::vector<Generation> others =
      MakeGenerator(GetParam(), model, Options(3, 40, 6))->GenerateSampled(requests);
  int different = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    different += others[i].token_ids != expected[i].token_ids;
  }
  EXPECT_GE(different, 3);
}

// What the demo shows.
TEST_P(Generators, FourPromptsThroughTwoSlots) {
  const std::string folder = DataPath("models/pocket");
  const Model model(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  std::vector<GenerationRequest> requests;
  for (const char* prompt : {"Tell me a short story about a robot and a lighthouse.",
                             "What is 2+2?", "Name a color.", "What is a KV cache?"}) {
    GenerationRequest request;
    request.prompt_token_ids = ChatPrompt(tokenizer, {{"user", prompt}});
    request.max_tokens = 16;
    requests.push_back(request);
  }
  const auto generator = MakeGenerator(GetParam(), model, Options(2, 128, 128));
  const std::vector<Generation> answers = generator->Generate(requests);
  KvCacheGenerator alone(model.config, model.weights, 128, Invariant());
  ExpectSame(answers, alone.Generate(requests));
  EXPECT_EQ(tokenizer.Decode(answers[1].token_ids), "2 + 2 = 4.");
  EXPECT_EQ(static_cast<int>(generator->steps().size()),
            ExpectedSteps(LengthsOf(requests, answers), 2, 128, GetParam()));
}

}  // namespace
}  // namespace tinyvllm
