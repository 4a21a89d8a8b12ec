// The challenge of lesson 12: whose turn is it? A queue in order of arrival lets one user who sends
// a thousand requests keep all others waiting. Share out the tokens instead.
//
//   FairQueue queue;
//   queue.Add(/*user=*/7, /*request=*/0);
//   const FairQueue::Turn turn = queue.Pop();   // goes to a slot that has become free
//   queue.Charge(turn.user, 120);               // for the tokens that it has cost so far
//
// Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, call this the virtual token
// counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tinyvllm {

// Each user has a counter of the tokens that were charged to them. The next turn is that of the
// user with the smallest counter among those who have requests waiting (the lowest user number
// among equals), with the request that they added first.
//
// A user who had none waiting, and adds one, has missed nothing that could be made up for: if the
// counter is below the smallest of those who have requests waiting, it is raised to that; if nobody
// has, to that of the user whose turn was last.
class FairQueue {
 public:
  struct Turn {
    int user;
    size_t request;
  };

  FairQueue();
  ~FairQueue();

  void Add(int user, size_t request);
  // Throws Error when no request waits.
  Turn Pop();
  // May come at any time, also for a user who has nothing waiting. Throws Error for less than 0.
  void Charge(int user, int64_t tokens);

  bool empty() const;
  // Of a user that was never heard of: 0.
  int64_t counter(int user) const;

 private:
  struct State;  // yours
  std::unique_ptr<State> state_;
};

}  // namespace tinyvllm
