#include "lessons/12_continuous_batching/challenge/fair_queue.h"

#include <deque>
#include <map>

#include "common/base/error.h"

namespace tinyvllm {

// exercise: What has to be kept for each user? Write State and the functions that use it.
// starter: struct FairQueue::State {};
// starter: FairQueue::FairQueue() : state_(new State) {}
// starter: FairQueue::~FairQueue() = default;
// starter: void FairQueue::Add(int, size_t) {}
// starter: FairQueue::Turn FairQueue::Pop() { throw Error("no request waits"); }
// starter: void FairQueue::Charge(int, int64_t) {}
// starter: bool FairQueue::empty() const { return true; }
// starter: int64_t FairQueue::counter(int) const { return 0; }
struct FairQueue::State {
  // The waiting user with the smallest counter; null: nobody waits.
  std::pair<const int, std::deque<size_t>>* Next() {
    std::pair<const int, std::deque<size_t>>* next = nullptr;
    for (auto& waiting : queues) {
      if (next == nullptr || counters[waiting.first] < counters[next->first]) next = &waiting;
    }
    return next;
  }

  std::map<int, int64_t> counters;           // of everyone ever heard of
  std::map<int, std::deque<size_t>> queues;  // of those who wait
  int last_user = 0;
  bool had_a_turn = false;
};

FairQueue::FairQueue() : state_(new State) {}
FairQueue::~FairQueue() = default;

void FairQueue::Add(int user, size_t request) {
  int64_t& counter = state_->counters[user];
  if (state_->queues.count(user) == 0) {
    const auto* next = state_->Next();
    if (next != nullptr) {
      counter = std::max(counter, state_->counters[next->first]);
    } else if (state_->had_a_turn) {
      counter = std::max(counter, state_->counters[state_->last_user]);
    }
  }
  state_->queues[user].push_back(request);
}

FairQueue::Turn FairQueue::Pop() {
  auto* next = state_->Next();
  Check(next != nullptr, "fair queue: no request waits");
  const Turn turn = {next->first, next->second.front()};
  next->second.pop_front();
  if (next->second.empty()) state_->queues.erase(turn.user);
  state_->last_user = turn.user;
  state_->had_a_turn = true;
  return turn;
}

void FairQueue::Charge(int user, int64_t tokens) {
  Check(tokens >= 0, "fair queue: ", tokens, " tokens charged to user ", user,
        ", expected 0 or more");
  state_->counters[user] += tokens;
}

bool FairQueue::empty() const { return state_->queues.empty(); }

int64_t FairQueue::counter(int user) const {
  const auto found = state_->counters.find(user);
  return found == state_->counters.end() ? 0 : found->second;
}
// end exercise

}  // namespace tinyvllm
