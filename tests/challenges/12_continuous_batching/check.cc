// The challenge of lesson 12: fair among those who wait, no credit for those who did not, in order
// within a user.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/12_continuous_batching/challenge/fair_queue.h"

namespace tinyvllm {
namespace {

// Empties the queue; each turn costs `tokens`.
std::vector<std::string> Turns(FairQueue* queue, int64_t tokens) {
  std::vector<std::string> turns;
  while (!queue->empty()) {
    const FairQueue::Turn turn = queue->Pop();
    queue->Charge(turn.user, tokens);
    turns.push_back(std::to_string(turn.user) + ":" + std::to_string(turn.request));
  }
  return turns;
}

TEST(FairQueueChallenge, OneWhoSendsManyDoesNotKeepTheOthersWaiting) {
  EXPECT_TRUE(Guide("docs/12_continuous_batching.md#challenge")
                  .Input("added (user:request)",
                         std::vector<std::string>{"1:0", "1:1", "1:2", "1:3", "2:4", "3:5"})
                  .Input("charged for each turn", 10)
                  .Mistake("this is the order of arrival",
                           std::vector<std::string>{"1:0", "1:1", "1:2", "1:3", "2:4", "3:5"})
                  .Compare(
                      [] {
                        FairQueue queue;
                        for (size_t request : {0, 1, 2, 3}) queue.Add(1, request);
                        queue.Add(2, 4);
                        queue.Add(3, 5);
                        return Turns(&queue, 10);
                      },
                      std::vector<std::string>{"1:0", "2:4", "3:5", "1:1", "1:2", "1:3"}));
}

TEST(FairQueueChallenge, TokensCountNotTurns) {
  FairQueue queue;
  for (size_t i = 0; i < 4; ++i) queue.Add(1, i);
  for (size_t i = 4; i < 8; ++i) queue.Add(2, i);
  std::vector<int> users;
  for (int i = 0; i < 6; ++i) {
    users.push_back(queue.Pop().user);
    queue.Charge(users.back(), users.back() == 1 ? 30 : 10);
  }
  EXPECT_EQ(users, (std::vector<int>{1, 2, 2, 2, 1, 2}));
  EXPECT_EQ(queue.counter(1), 60);
  EXPECT_EQ(queue.counter(2), 40);
}

TEST(FairQueueChallenge, WhoHadNothingWaitingHasMissedNothing) {
  FairQueue queue;
  for (size_t i = 0; i < 10; ++i) {
    queue.Add(1, i);
    queue.Charge(queue.Pop().user, 100);
  }
  queue.Add(1, 10);
  queue.Add(1, 11);
  queue.Add(2, 12);  // new: level with user 1, who waits
  EXPECT_EQ(queue.counter(2), 1000);
  EXPECT_EQ(Turns(&queue, 5), (std::vector<std::string>{"1:10", "2:12", "1:11"}));
  queue.Add(3, 13);  // nobody waits: level with the last turn's
  EXPECT_EQ(queue.counter(3), queue.counter(1));
  EXPECT_EQ(queue.counter(1), 1010);
}

TEST(FairQueueChallenge, ADebtIsNotForgotten) {
  FairQueue queue;
  queue.Add(1, 0);
  queue.Charge(queue.Pop().user, 500);
  queue.Add(2, 1);
  queue.Charge(2, 100);  // raised to 500 before
  queue.Add(1, 2);
  EXPECT_EQ(queue.counter(2), 600);
  EXPECT_EQ(queue.counter(1), 600) << "raised to the smallest of those who wait";
  queue.Charge(1, 50);
  queue.Add(1, 3);  // has one waiting already: nothing changes
  EXPECT_EQ(queue.counter(1), 650);
}

TEST(FairQueueChallenge, RefusesWhatHasNoMeaning) {
  FairQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_THROW(queue.Pop(), Error);
  EXPECT_THROW(queue.Charge(1, -1), Error);
  EXPECT_EQ(queue.counter(99), 0);
}

// Two users who both have requests waiting all the time are never further apart than one request.
TEST(FairQueueChallenge, UsersWhoWaitAreNeverFarApart) {
  Random random(1);
  constexpr int kUsers = 5, kMost = 200;
  FairQueue queue;
  std::map<int, std::vector<size_t>> sent, served;
  size_t next = 0;
  const auto Send = [&](int user) {
    sent[user].push_back(next);
    queue.Add(user, next++);
  };
  for (int user = 0; user < kUsers; ++user) {
    for (int i = 0; i < 3; ++i) Send(user);
  }
  for (int round = 0; round < 2000; ++round) {
    const FairQueue::Turn turn = queue.Pop();
    served[turn.user].push_back(turn.request);
    queue.Charge(turn.user, random.Integer(1, kMost));
    Send(turn.user);
    int64_t least = queue.counter(0), most = least;
    for (int user = 1; user < kUsers; ++user) {
      least = std::min(least, queue.counter(user));
      most = std::max(most, queue.counter(user));
    }
    ASSERT_LE(most - least, kMost) << "round " << round;
  }
  for (auto& [user, requests] : served) {
    sent[user].resize(requests.size());
    EXPECT_EQ(requests, sent[user]) << "user " << user << ": not in the order of arrival";
  }
}

}  // namespace
}  // namespace tinyvllm
