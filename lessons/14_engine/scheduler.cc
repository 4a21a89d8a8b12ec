#include "lessons/14_engine/scheduler.h"

#include <algorithm>
#include <string>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

const SchedulerConfig& Checked(const SchedulerConfig& config) {
  Scheduler::CheckConfig(config);
  return config;
}

}  // namespace

void Scheduler::CheckConfig(const SchedulerConfig& config) {
  const auto at_least = [](const char* name, int value, int least) {
    Check(value >= least, name, " is ", value, ", expected at least ", least);
  };
  at_least("max_num_seqs", config.max_num_seqs, 1);
  at_least("block_size", config.block_size, 1);
  at_least("the number of KV blocks", config.num_blocks, 1);
  Check(config.max_model_len >= 2, "max_model_len is ", config.max_model_len,
        ", expected at least 2: a token of the prompt and one of the answer");
  Check(config.max_num_batched_tokens >= config.max_num_seqs, "max_num_batched_tokens is ",
        config.max_num_batched_tokens, ", expected at least max_num_seqs, ", config.max_num_seqs,
        ": each request that decodes needs a token a step");
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(Checked(config)),
      pool_(config.num_blocks),
      prefix_cache_(config.num_blocks, config.block_size),
      slots_(config.max_num_seqs, nullptr) {
  for (int slot = config.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  found_.reserve(config.num_blocks);
  plan_.sequences.reserve(config.max_num_seqs);
  plan_.admitted.reserve(config.max_num_seqs);
  plan_.cached_tokens.reserve(config.max_num_seqs);
  plan_.preempted.reserve(config.max_num_seqs);
}

// --- requests come and go

int Scheduler::Add(const std::vector<int>& prompt_token_ids, int max_tokens,
                   bool use_cached_prefix) {
  Check(!prompt_token_ids.empty(), "prompt: is empty; expected at least one token");
  Check(max_tokens >= 1, "max_tokens is ", max_tokens, ", expected at least 1");
  const int64_t length = static_cast<int64_t>(prompt_token_ids.size());
  Check(length < config_.max_model_len, "prompt: ", length,
        " tokens leave no room for an answer in the length of ", config_.max_model_len,
        "; shorten the prompt or raise --max-model-len");
  const int64_t pool_tokens = int64_t{config_.num_blocks} * config_.block_size;
  Check(length <= pool_tokens, "prompt: ", length, " tokens need ",
        BlocksFor(static_cast<int>(length)), " KV blocks, and the whole pool has ",
        config_.num_blocks, "; shorten the prompt or raise --num-gpu-blocks-override");
  Request request;
  request.number = next_number_++;
  request.num_tokens = static_cast<int>(length);
  request.limit = static_cast<int>(
      std::min({length + max_tokens, int64_t{config_.max_model_len}, pool_tokens + 1}));
  request.use_cached_prefix = use_cached_prefix;
  // All that it will ever need, so that no step allocates.
  request.token_ids.reserve(request.limit);
  request.token_ids = prompt_token_ids;
  request.blocks.reserve(BlocksFor(request.limit));
  waiting_.push_back(std::move(request));
  requests_.emplace(waiting_.back().number, std::prev(waiting_.end()));
  return waiting_.back().number;
}

void Scheduler::Append(int number, int token_id) {
  const auto found = requests_.find(number);
  Check(found != requests_.end(), "scheduler: there is no request ", number);
  Request& request = *found->second;
  Check(static_cast<int>(request.token_ids.size()) < request.num_tokens, "scheduler: request ",
        number, " is given a token that was not planned");
  request.token_ids.push_back(token_id);
  RememberBlocks(&request);
}

void Scheduler::Finish(int number) {
  const auto found = requests_.find(number);
  Check(found != requests_.end(), "scheduler: there is no request ", number);
  Request& request = *found->second;
  const bool running = request.slot >= 0;
  GiveBack(&request);
  (running ? running_ : waiting_).erase(found->second);
  requests_.erase(found);
}

// --- a step

const StepPlan& Scheduler::Next() {
  plan_.sequences.clear();
  plan_.admitted.clear();
  plan_.cached_tokens.clear();
  plan_.preempted.clear();
  budget_ = config_.max_num_batched_tokens;
  SpendBudget();
  const auto could_run = [](const Request& request) { return request.remaining() > 0; };
  Check(!plan_.sequences.empty() ||
            !(running_.empty() ? !waiting_.empty() && could_run(waiting_.front())
                               : std::any_of(running_.begin(), running_.end(), could_run)),
        "scheduler: nothing is planned, though there are requests that could run");
  return plan_;
}

// tag::budget[]
void Scheduler::SpendBudget() {
  // exercise: Spend budget_ in three rounds. Run(request, n) plans the next n tokens of a request
  // and takes them off the budget; remaining() tells how many tokens of it are to be computed.
  // 1. Requests of running_ with one token remaining, the oldest first; MakeRoom(request) sees to
  //    it that the token has a block, and is false where the request itself was put off for that.
  // 2. Requests of running_ with more tokens than one: as many as the budget still has.
  // 3. TryToAdmit() until it is false, while there is budget; not at all if someone was put off.
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if (it->remaining() != 1) continue;
    if (!MakeRoom(&*it)) break;  // it was the youngest, so there is none after it
    Run(&*it, 1);
  }
  for (Request& request : running_) {
    const int num_tokens = std::min(request.remaining(), budget_);
    if (request.remaining() > 1 && num_tokens > 0) Run(&request, num_tokens);
  }
  while (budget_ > 0 && plan_.preempted.empty() && TryToAdmit()) {
  }
  // end exercise
}
// end::budget[]

// tag::room[]
// A block for the request's next token, at the cost of the youngest, which may be itself.
bool Scheduler::MakeRoom(Request* request) {
  // exercise: If the request's blocks have a place for one more token than num_computed, all is
  // well. Otherwise it needs AddBlock, for which a block of pool_ must be free: until one is,
  // PutOffYoungest(). False if that was the request itself.
  // starter: return false;
  if (BlocksFor(request->num_computed + 1) <= static_cast<int>(request->blocks.size())) return true;
  while (pool_.num_free() == 0) {
    const Request* youngest = &running_.back();
    PutOffYoungest();
    if (youngest == request) return false;
  }
  AddBlock(request);
  return true;
  // end exercise
}

// Last come, first out: it goes back to the front of the queue, since it came before all who wait.
// What it had computed is lost, but for the blocks that the prefix cache finds again in time.
void Scheduler::PutOffYoungest() {
  Request& youngest = running_.back();
  plan_.preempted.push_back(youngest.number);
  GiveBack(&youngest);
  waiting_.splice(waiting_.begin(), running_, std::prev(running_.end()));
}
// end::room[]

// tag::admit[]
// Admits the first of those who wait and may run, if there is a slot and room for all its tokens;
// and plans as many of them as the budget allows.
bool Scheduler::TryToAdmit() {
  const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Request& request) { return MayRun(request.number); });
  if (first == waiting_.end() || free_slots_.empty()) return false;
  Request& request = *first;
  if (request.remaining() == 0) return false;  // put off at its end: Finish is to come
  const Prefix prefix = FindPrefix(request);
  const int found = static_cast<int>(found_.size());
  const int found_free = static_cast<int>(std::count_if(
      found_.begin(), found_.end(), [&](int block) { return pool_.references(block) == 0; }));
  const int total = BlocksFor(request.num_tokens);
  // A block stays free for each that runs, so that they need not put it off in the next step.
  const int64_t taken = int64_t{total} - found + found_free;
  if (taken + num_running() > pool_.num_free()) return false;

  for (const int block : found_) pool_.Retain(block);  // before any free one is overwritten
  request.blocks = found_;
  while (static_cast<int>(request.blocks.size()) < total) AddBlock(&request);
  request.num_computed = found * config_.block_size;
  request.prefix = prefix;
  request.num_known_blocks = found;
  request.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[request.slot] = &request;
  running_.splice(running_.end(), waiting_, first);
  plan_.admitted.push_back(request.number);
  plan_.cached_tokens.push_back(request.num_computed);
  Run(&request, std::min(request.remaining(), budget_));
  return true;
}

// The longest beginning of the request that lies in the pool, into found_. Its last token is always
// left to be computed, for its logits are what the next token is chosen from.
Prefix Scheduler::FindPrefix(const Request& request) {
  found_.clear();
  Prefix prefix;
  if (!config_.enable_prefix_caching || !request.use_cached_prefix) return prefix;
  const int known = static_cast<int>(request.token_ids.size());
  const int most = std::min(known, request.num_tokens - 1) / config_.block_size;
  while (static_cast<int>(found_.size()) < most) {
    const int* tokens = request.token_ids.data() + found_.size() * config_.block_size;
    const int block = prefix_cache_.Find(&prefix, tokens);
    if (block < 0) break;
    found_.push_back(block);
  }
  return prefix;
}
// end::admit[]

// tag::run[]
void Scheduler::Run(Request* request, int num_tokens) {
  const int end = request->num_computed + num_tokens;
  Check(request->slot >= 0, "scheduler: request ", request->number, " is planned and has no slot");
  Check(num_tokens >= 1 && num_tokens <= std::min(request->remaining(), budget_),
        "scheduler: ", num_tokens, " tokens of request ", request->number, " are planned, of ",
        request->remaining(), " that remain and a budget of ", budget_);
  Check(BlocksFor(end) <= static_cast<int>(request->blocks.size()), "scheduler: request ",
        request->number, " is planned up to token ", end, ", and has ", request->blocks.size(),
        " blocks");
  ScheduledSequence part;
  part.request = request->number;
  part.slot = request->slot;
  part.first_position = request->num_computed;
  part.num_tokens = num_tokens;
  part.samples = num_tokens == request->remaining();
  plan_.sequences.push_back(part);
  budget_ -= num_tokens;
  request->num_computed = end;
  if (part.samples) ++request->num_tokens;  // whichever it will be
  RememberBlocks(request);
}

// Tells the prefix cache of blocks that are full, and whose tokens are known. That they are planned
// is enough: who finds them reads them in the same pass or a later one, and a pass writes before it
// reads.
void Scheduler::RememberBlocks(Request* request) {
  if (!config_.enable_prefix_caching) return;
  const int known = static_cast<int>(request->token_ids.size());
  const int full = std::min(known, request->num_computed) / config_.block_size;
  for (int& next = request->num_known_blocks; next < full; ++next) {
    const int* tokens = request->token_ids.data() + size_t{1} * next * config_.block_size;
    request->prefix = prefix_cache_.Insert(request->prefix, tokens, request->blocks[next]);
  }
}
// end::run[]

// --- blocks

int Scheduler::BlocksFor(int num_tokens) const {
  return static_cast<int>((int64_t{num_tokens} + config_.block_size - 1) / config_.block_size);
}

// tag::give_back[]
void Scheduler::AddBlock(Request* request) {
  const int block = pool_.Allocate();  // free the longest: least recently used
  prefix_cache_.Forget(block);
  request->blocks.push_back(block);
}

// The last block is given back first, and so is overwritten first: without the blocks before it,
// nobody could find it.
void Scheduler::GiveBack(Request* request) {
  for (; !request->blocks.empty(); request->blocks.pop_back()) {
    pool_.Release(request->blocks.back());
  }
  request->num_computed = 0;
  if (request->slot < 0) return;
  slots_[request->slot] = nullptr;
  free_slots_.push_back(request->slot);
  request->slot = -1;
}
// end::give_back[]

const Scheduler::Request& Scheduler::Get(int request) const {
  const auto found = requests_.find(request);
  Check(found != requests_.end(), "scheduler: there is no request ", request);
  return *found->second;
}

void Scheduler::CheckInvariants() const {
  pool_.CheckInvariants();
  std::vector<int> holders(config_.num_blocks, 0);
  int last = -1;
  for (const RequestList* list : {&running_, &waiting_}) {
    for (const Request& request : *list) {
      const std::string who = StrCat("scheduler: request ", request.number);
      Check(request.number > last, who, " is behind request ", last, ", which came later");
      last = request.number;
      const bool runs = list == &running_;
      Check(runs == (request.slot >= 0), who, runs ? " runs without a slot" : " waits in a slot");
      Check(!runs || slots_[request.slot] == &request, who, " is not the one in its slot");
      Check(runs || (request.blocks.empty() && request.num_computed == 0), who,
            " waits and holds blocks");
      Check(BlocksFor(request.num_computed) <= static_cast<int>(request.blocks.size()), who,
            " has computed ", request.num_computed, " tokens into ", request.blocks.size(),
            " blocks");
      for (const int block : request.blocks) ++holders[block];
    }
  }
  for (int block = 0; block < config_.num_blocks; ++block) {
    Check(holders[block] == pool_.references(block), "scheduler: block ", block, " is held by ",
          holders[block], " requests and has ", pool_.references(block), " references");
  }
  Check(running_.size() + free_slots_.size() == slots_.size(), "scheduler: ", running_.size(),
        " requests run, and ", free_slots_.size(), " of ", slots_.size(), " slots are free");
}

}  // namespace tinyvllm
