#include "lessons/14_engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/cuda/device.h"
#include "lessons/11_sampling/logprobs.h"
#include "lessons/12_continuous_batching/slots.h"
#include "lessons/13_paged_attention/paged_kv_cache.h"
#include "lessons/14_engine/gathered_kv_cache.h"
#include "lessons/14_engine/slot_scheduler.h"

namespace tinyvllm {
namespace {

// What the pool takes on the simulator unless more is asked for: its memory is that of the host,
// and is filled when it is taken.
constexpr size_t kSimulatorPoolBytes = size_t{256} << 20;

PassLimits LimitsOf(const EngineConfig& config) {
  PassLimits limits;
  limits.max_tokens = config.max_num_batched_tokens;
  limits.max_sequences = config.max_num_seqs;
  limits.max_sequence_len = config.max_model_len;
  limits.max_logit_rows = config.max_num_seqs;
  return limits;
}

SchedulerConfig SchedulerConfigOf(const EngineConfig& config) {
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = config.max_num_seqs;
  scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  scheduler.max_model_len = config.max_model_len;
  scheduler.num_blocks = config.num_gpu_blocks_override;
  scheduler.block_size = config.block_size;
  scheduler.enable_prefix_caching = config.enable_prefix_caching;
  return scheduler;
}

EngineConfig Checked(const ModelConfig& model, EngineConfig config) {
  if (config.max_model_len == 0) config.max_model_len = model.max_position_embeddings;
  CheckMaxModelLen(model, config.max_model_len);
  Check(config.num_gpu_blocks_override >= 0, "num_gpu_blocks_override is ",
        config.num_gpu_blocks_override, ", expected 1 or more, or 0 for what memory allows");
  Check(config.gpu_memory_utilization > 0 && config.gpu_memory_utilization <= 1,
        "gpu_memory_utilization is ", config.gpu_memory_utilization,
        ", expected more than 0 and at most 1");
  SchedulerConfig scheduler = SchedulerConfigOf(config);
  scheduler.num_blocks = std::max(1, scheduler.num_blocks);  // they are counted later
  Scheduler::CheckConfig(scheduler);
  // Lesson 12's table counts tokens as they come.
  if (config.earlier.slot_table) config.async_scheduling = false;
  return config;
}

// tag::blocks[]
// How many blocks there is memory for, when all else has been taken.
int BlocksByMemory(const ModelConfig& model, const EngineConfig& config) {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const size_t used = total - free;
  const size_t usable = static_cast<size_t>(config.gpu_memory_utilization * total);
  size_t bytes = usable > used ? usable - used : 0;
  if (IsSimulator()) bytes = std::min(bytes, kSimulatorPoolBytes);
  const size_t block_bytes = PagedKvCache::BytesPerBlock(model, config.block_size);
  // All that can run, at full length, and as much again for what may be asked for once more.
  const size_t longest = (config.max_model_len + config.block_size - 1) / config.block_size;
  const size_t enough = size_t{2} * config.max_num_seqs * longest;
  // Attention counts rows of K in an int.
  const size_t countable =
      std::numeric_limits<int>::max() / (size_t{1} * config.block_size * model.num_key_value_heads);
  const size_t blocks = std::min({bytes / block_bytes, enough, countable});
  Check(blocks >= 1, "no memory is left for the KV cache: a block of ", config.block_size,
        " tokens takes ", HumanBytes(block_bytes), ", and ", HumanBytes(bytes), " are left (of ",
        HumanBytes(total), ", ", HumanBytes(used), " are taken and ", HumanBytes(usable),
        " may be); lower --block-size, --max-num-batched-tokens or --max-num-seqs, or raise "
        "--gpu-memory-utilization");
  return static_cast<int>(blocks);
}
// end::blocks[]

// The stage with another Linear for its products. `linear` must outlive it.
LayerStage WithLinear(const LayerStage& stage, const Linear& linear) {
  return [stage, &linear](const PassContext& pass, int layer) {
    stage({pass.config, pass.weights, pass.limits, pass.batch, pass.rope_table, pass.activations,
           linear, pass.stream},
          layer);
  };
}

// The pool, and the attention over it.
std::unique_ptr<PagedKvCache> MakeCache(const ModelConfig& model, const PassLimits& limits,
                                        const EngineConfig& config) {
  const int blocks = config.num_gpu_blocks_override;
  if (config.earlier.attention) {
    using Layers = GatheredKvCache::Layers;
    return std::make_unique<GatheredKvCache>(
        model, limits, blocks, config.block_size,
        config.earlier.paged_too ? Layers::kEven : Layers::kAll);
  }
  return std::make_unique<PagedKvCache>(model, limits, blocks, config.block_size);
}

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

Engine::Engine(const ModelConfig& model, const Weights& weights, const EngineConfig& config)
    : model_(model),
      weights_(weights),
      config_(Checked(model, config)),
      own_tiles_(stream_.get(), GemmBackend::kTiled),
      unknown_tokens_(config_.max_model_len, 0),
      row_in_slot_(config_.max_num_seqs, -1),
      host_late_tokens_(config_.max_num_seqs),
      device_late_tokens_(config_.max_num_seqs) {
  const PassLimits limits = LimitsOf(config_);
  const int rows = limits.max_logit_rows;
  sampler_ = std::make_unique<Sampler>(
      SamplerLimits{config_.max_num_seqs, rows, model.vocab_size, config_.max_model_len},
      stream_.get());
  // On the simulator a row of cuBLAS's product has the same bits in any batch anyway.
  const bool own_gemm = config_.batch_invariant && !IsSimulator();
  pass_ = std::make_unique<ForwardPass>(model, weights, limits, stream_.get(), ChooseStages(),
                                        own_gemm ? GemmBackend::kTiled : GemmBackend::kCublas);
  device_ints_ = DeviceBuffer<int>(size_t{1} * rows * (2 + kMaxLogprobs));
  device_floats_ = DeviceBuffer<float>(size_t{1} * rows * (1 + kMaxLogprobs));
  host_ints_ = PinnedBuffer<int>(device_ints_.size());
  host_floats_ = PinnedBuffer<float>(device_floats_.size());
  if (config_.num_gpu_blocks_override == 0) {
    config_.num_gpu_blocks_override = BlocksByMemory(model, config_);
  }
  cache_ = MakeCache(model, limits, config_);
  scheduler_ = config_.earlier.slot_table
                   ? std::make_unique<SlotScheduler>(SchedulerConfigOf(config_))
                   : std::make_unique<Scheduler>(SchedulerConfigOf(config_));

  slots_.assign(config_.max_num_seqs, nullptr);
  outputs_.reserve(config_.max_num_seqs);
  for (StepRecord* record : {&record_, &steps_[0].record, &steps_[1].record}) {
    record->sequences.reserve(config_.max_num_seqs);
    for (std::vector<int>* list :
         {&record->admitted, &record->cached_tokens, &record->preempted, &record->finished}) {
      list->reserve(config_.max_num_seqs);
    }
  }
  for (StepState& step : steps_) step.rows.reserve(config_.max_num_seqs);
  for (std::vector<int>* list : {&batch_.logit_rows, &head_rows_}) {
    list->reserve(config_.max_num_seqs);
  }
  late_tokens_.reserve(config_.max_num_seqs);
  batch_.token_ids.reserve(limits.max_tokens);
  batch_.positions.reserve(limits.max_tokens);
  batch_.sequence_offsets.reserve(config_.max_num_seqs + 1);
  tables_.reserve(config_.max_num_seqs);
}

Engine::~Engine() = default;

// tag::stages[]
// The cache itself comes last, for it takes what memory is left: the stage asks for it when it
// runs.
Stages Engine::ChooseStages() const {
  Stages stages = PlainStages();
  stages.attend = [this](const PassContext& pass, int layer) { cache_->Attend(pass, layer); };
  stages.attend_workspace = PagedKvCache::WorkspaceBytes;
  if (config_.earlier.attention) {
    stages.attend_workspace = [this](const ModelConfig& model, const PassLimits& limits) {
      return GatheredKvCache::WorkspaceBytes(model, limits, config_.block_size);
    };
  }
  if (config_.earlier.matmul) {
    stages.attention_output = WithLinear(stages.attention_output, own_tiles_);
  }
  return stages;
}
// end::stages[]

size_t Engine::pool_bytes() const {
  return num_blocks() * PagedKvCache::BytesPerBlock(model_, config_.block_size);
}

// --- requests come and go

void Engine::Validate(const EngineRequest& request) const {
  const auto check_ids = [&](const char* name, const std::vector<int>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      Check(ids[i] >= 0 && ids[i] < model_.vocab_size, name, ": token ", ids[i], " at position ", i,
            " is not in the vocabulary of ", model_.vocab_size);
    }
  };
  check_ids("prompt", request.prompt_token_ids);
  check_ids("stop_token_ids", request.stop_token_ids);
  Check(request.prompt_logprobs >= -1 && request.prompt_logprobs <= kMaxLogprobs,
        "prompt_logprobs is ", request.prompt_logprobs, ", expected 0 to ", kMaxLogprobs,
        ", or -1 for none");
  request.sampling.Validate(model_.vocab_size);
}

int Engine::Add(const EngineRequest& request) {
  Validate(request);
  const int number = scheduler_->Add(request.prompt_token_ids, request.max_tokens,
                                     /*use_cached_prefix=*/request.prompt_logprobs < 0);
  num_added_ = number + 1;
  Request& added = requests_[number];
  added.request = request;
  added.generated.reserve(scheduler_->length_limit(number) - request.prompt_token_ids.size());
  if (added.lacks_prompt_logprobs()) ++num_prompt_logprobs_;
  return number;
}

void Engine::Abort(int number) {
  Check(number >= 0 && number < num_added_, "engine: there is no request ", number);
  const auto found = requests_.find(number);
  if (found == requests_.end()) return;  // it has finished
  Forget(&found->second, number);
}

// --- a step

// tag::step[]
// tag::three_words[]
const std::vector<EngineOutput>& Engine::Step() {
  outputs_.clear();
  // Prompt logprobs are made of what a pass leaves behind, before the next one overwrites it.
  if (config_.async_scheduling && num_prompt_logprobs_ == 0 && scheduler_->has_work()) {
    StepAhead();
  } else if (under_way_ != nullptr) {
    Postprocess(std::exchange(under_way_, nullptr));
  } else {
    StepState* step = &steps_[0];
    Schedule(step);
    Run(step);
    ChooseTokens(*step);
    Postprocess(step);
  }
  return outputs_;
}
// end::three_words[]

void Engine::Schedule(StepState* step) {
  StepRecord& record = step->record;
  record.schedule_begin = Now();
  const StepPlan& plan = scheduler_->Next();
  record.step = stats_.steps++;
  record.sequences = plan.sequences;
  record.admitted = plan.admitted;
  record.cached_tokens = plan.cached_tokens;
  record.preempted = plan.preempted;
  record.finished.clear();
  stats_.preemptions += static_cast<int64_t>(plan.preempted.size());
  for (const int tokens : plan.cached_tokens) stats_.cached_tokens += tokens;
  const BlockPool& pool = scheduler_->pool();
  stats_.peak_used_blocks = std::max(stats_.peak_used_blocks, pool.num_blocks() - pool.num_free());
  TakeSlots(record);
}

// All of it is queued; nothing is waited for.
void Engine::Run(StepState* step) {
  step->record.run_begin = Now();
  BuildBatch(step);
  if (!step->record.sequences.empty()) {
    step->pass = passes_++;
    const StepEvents& events = events_[step->pass % 3];
    if (config_.trace) events.begin.Record(stream_.get());
    cache_->Begin(batch_, tables_, stream_.get());
    pass_->Run(batch_, [this](int* token_ids) { FillIn(token_ids); });
    if (config_.trace) events.pass_end.Record(stream_.get());
  }
  step->record.run_end = Now();
}

void Engine::ChooseTokens(const StepState& step) {
  if (step.record.sequences.empty()) return;
  if (!step.rows.empty()) sampler_->Sample(pass_->logits(), step.rows);
  if (config_.trace) events_[step.pass % 3].end.Record(stream_.get());
}

void Engine::Postprocess(StepState* step) {
  std::swap(record_, step->record);
  record_.wait_begin = Now();
  if (!step->rows.empty()) sampler_->Wait();
  if (config_.trace) events_[step->pass % 3].end.Synchronize();
  record_.postprocess_begin = Now();
  if (config_.trace) PlaceDeviceTimes(step->pass);
  int token = 0, row = 0;  // in the batch, and of its logits
  for (const ScheduledSequence& part : record_.sequences) {
    const int first_token = std::exchange(token, token + part.num_tokens);
    const int row_or_none = part.samples ? row++ : -1;
    const auto found = requests_.find(part.request);
    if (found == requests_.end()) continue;  // it ended while this step was under way
    Request* request = &found->second;
    EngineOutput output;
    output.request = part.request;
    if (request->request.prompt_logprobs >= 0) {
      TakePromptLogprobs(request, part, first_token, &output);
    }
    if (part.samples) TakeToken(request, row_or_none, &output);
    if (part.samples || !output.prompt_logprobs.empty()) outputs_.push_back(std::move(output));
  }
  stats_.computed_tokens += token;
  record_.num_waiting = scheduler_->num_waiting();
  record_.num_running = scheduler_->num_running();
  record_.num_free_blocks = scheduler_->pool().num_free();
  record_.end = Now();
}
// end::step[]

// Who was put off has left its slot; who was admitted has one. The sampler has to know.
void Engine::TakeSlots(const StepRecord& step) {
  for (const int number : step.preempted) {
    Request& request = requests_.at(number);
    slots_[request.slot] = nullptr;
    request.slot = -1;
  }
  for (const ScheduledSequence& part : step.sequences) {
    if (slots_[part.slot] != nullptr) continue;
    Request& request = requests_.at(part.request);
    slots_[part.slot] = &request;
    request.slot = part.slot;
    if (!request.seen) stats_.prompt_tokens += request.request.prompt_token_ids.size();
    request.seen = true;
    sampler_->SetValidRequest(part.slot, request.request.sampling, request.request.prompt_token_ids,
                              request.generated);
  }
}

// tag::batch[]
// One flat batch of all parts: lessons 09 and 12. Where each sequence's keys lie: lesson 13. Of
// those that have come to their end, the next token: lesson 11.
void Engine::BuildBatch(StepState* step) {
  batch_.token_ids.clear();
  batch_.positions.clear();
  batch_.sequence_offsets.assign(1, 0);
  batch_.logit_rows.clear();
  tables_.clear();
  late_tokens_.clear();
  step->rows.clear();
  for (const ScheduledSequence& part : step->record.sequences) {
    const int end = part.first_position + part.num_tokens;
    const std::vector<int>& tokens = scheduler_->tokens_in_slot(part.slot);
    const int num_known = static_cast<int>(tokens.size());
    const bool late = end > num_known;  // of a step that is planned ahead
    if (late) NoteLateToken(part, num_known);
    AppendToBatch(late ? unknown_tokens_ : tokens, part.first_position, end, part.samples, &batch_);
    const int num_blocks = (end + config_.block_size - 1) / config_.block_size;
    tables_.push_back({scheduler_->blocks_in_slot(part.slot).data(), num_blocks});
    if (part.samples) step->rows.push_back({part.slot, /*position=*/end});
  }
  for (size_t row = 0; row < step->rows.size(); ++row) {
    row_in_slot_[step->rows[row].slot] = static_cast<int>(row);
  }
  Check(batch_.num_sequences() == static_cast<int>(step->record.sequences.size()),
        "step: ", step->record.sequences.size(), " sequences are planned, but the batch holds ",
        batch_.num_sequences(), "; AppendToBatch must lay them side by side");
}
// end::batch[]

// tag::ahead[]
// While the host reads what the last step chose, the device runs the next one's pass.
void Engine::StepAhead() {
  if (under_way_ == nullptr) {
    StepState* first = &steps_[0];
    Schedule(first);
    Run(first);
    ChooseTokens(*first);
    under_way_ = first;
  }
  StepState* next = under_way_ == &steps_[0] ? &steps_[1] : &steps_[0];
  Schedule(next);
  Run(next);  // where it needs a token of the step under way, the device has it
  Postprocess(under_way_);
  ChooseTokens(*next);
  under_way_ = next;
  if (next->record.sequences.empty() && !scheduler_->has_work()) {  // that was no step
    under_way_ = nullptr;
    --stats_.steps;
  }
}

// A token that the step under way chooses. Zero stands in its place until the device fills it in.
void Engine::NoteLateToken(const ScheduledSequence& part, int num_known) {
  Check(under_way_ != nullptr && part.num_tokens == 1 && part.first_position == num_known,
        "step: request ", part.request, " is planned from token ", part.first_position, " to ",
        part.first_position + part.num_tokens, ", and ", num_known, " are known");
  late_tokens_.push_back({batch_.num_tokens(), row_in_slot_[part.slot]});
}

// Where the pass reads its token ids, from where the sampler left what it chose.
void Engine::FillIn(int* token_ids) {
  if (late_tokens_.empty()) return;
  late_tokens_copied_.Synchronize();  // the copy before this one has been made
  std::copy(late_tokens_.begin(), late_tokens_.end(), host_late_tokens_.data());
  CUDA_CHECK(cudaMemcpyAsync(device_late_tokens_.data(), host_late_tokens_.data(),
                             late_tokens_.size() * sizeof(LateToken), cudaMemcpyHostToDevice,
                             stream_.get()));
  late_tokens_copied_.Record(stream_.get());
  FillInLateTokens(device_late_tokens_.data(), static_cast<int>(late_tokens_.size()),
                   sampler_->token_ids(), token_ids, stream_.get());
}
// end::ahead[]

// tag::token[]
// tag::take_token[]
void Engine::TakeToken(Request* request, int row, EngineOutput* output) {
  const EngineRequest& asked = request->request;
  const int token = sampler_->token_id(row);
  if (token < 0) {
    output->error =
        "no token can be chosen; its logits are minus infinity or not numbers, or all that are "
        "numbers are banned";
    return Finish(request, output, FinishReason::kStop);
  }
  if ((!asked.ignore_eos && Contains(model_.eos_token_ids, token)) ||
      Contains(asked.stop_token_ids, token)) {
    return Finish(request, output, FinishReason::kStop);
  }
  output->token_id = token;
  if (asked.sampling.logprobs >= 0) output->logprobs = sampler_->Logprobs(row);
  ++stats_.generated_tokens;
  request->generated.push_back(token);
  scheduler_->Append(output->request, token);
  const size_t length = asked.prompt_token_ids.size() + request->generated.size();
  if (static_cast<int>(length) == scheduler_->length_limit(output->request)) {
    Finish(request, output, FinishReason::kLength);
  }
}
// end::take_token[]

void Engine::Finish(Request* request, EngineOutput* output, FinishReason reason) {
  output->finished = true;
  output->finish_reason = reason;
  record_.finished.push_back(output->request);
  ++stats_.finished;
  Forget(request, output->request);
}

void Engine::Forget(const Request* request, int number) {
  if (request->slot >= 0) slots_[request->slot] = nullptr;
  if (request->lacks_prompt_logprobs()) --num_prompt_logprobs_;
  scheduler_->Finish(number);
  requests_.erase(number);
}
// end::token[]

// tag::prompt_logprobs[]
// Logits of every token of a long prompt would fill the device: they are made a portion of rows at
// a time, from the hidden states that the pass has left, and only their logprobs are kept.
void Engine::TakePromptLogprobs(Request* request, const ScheduledSequence& part, int first_row,
                                EngineOutput* output) {
  const std::vector<int>& prompt = request->request.prompt_token_ids;
  const int num_top = request->request.prompt_logprobs;
  const int max_rows = pass_->limits().max_logit_rows;
  // The token at position p says how probable that at p + 1 was. What was reported before the
  // request was put off is not reported again.
  int begin = std::max(part.first_position, request->prompt_logprobs_done);
  const int end =
      std::min(part.first_position + part.num_tokens, static_cast<int>(prompt.size()) - 1);
  for (; begin < end; begin += static_cast<int>(head_rows_.size())) {
    const int rows = std::min(max_rows, end - begin);
    head_rows_.clear();
    for (int i = 0; i < rows; ++i) {
      head_rows_.push_back(first_row + begin + i - part.first_position);
      host_ints_[i] = prompt[begin + i + 1];
      host_ints_[rows + i] = num_top;
    }
    pass_->RunHead(head_rows_);
    const cudaStream_t stream = stream_.get();
    CUDA_CHECK(cudaMemcpyAsync(device_ints_.data(), host_ints_.data(), 2 * rows * sizeof(int),
                               cudaMemcpyHostToDevice, stream));
    int* top_ids = device_ints_.data() + 2 * rows;       // (rows, num_top)
    float* top_logprobs = device_floats_.data() + rows;  // (rows, num_top)
    TopLogprobs(pass_->logits(), device_ints_.data(), device_ints_.data() + rows,
                device_floats_.data(), top_ids, top_logprobs, num_top, rows, model_.vocab_size,
                stream);
    CUDA_CHECK(cudaMemcpyAsync(host_ints_.data(), top_ids, rows * num_top * sizeof(int),
                               cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaMemcpyAsync(host_floats_.data(), device_floats_.data(),
                               rows * (1 + num_top) * sizeof(float), cudaMemcpyDeviceToHost,
                               stream));
    stream_.Synchronize();
    for (int i = 0; i < rows; ++i) {
      TokenLogprobs logprobs = {host_floats_[i], {}};
      for (int j = i * num_top; j < (i + 1) * num_top && host_ints_[j] >= 0; ++j) {
        logprobs.top.emplace_back(host_ints_[j], host_floats_[rows + j]);
      }
      output->prompt_logprobs.push_back(std::move(logprobs));
    }
  }
  const bool lacked = request->lacks_prompt_logprobs();
  request->prompt_logprobs_done = std::max(request->prompt_logprobs_done, end);
  if (lacked && !request->lacks_prompt_logprobs()) --num_prompt_logprobs_;
}
// end::prompt_logprobs[]

// --- times

double Engine::Now() const {
  if (!config_.trace) return 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

// An event tells only how much later it was than another. So each pass is placed by its distance
// from the one before; and since the two clocks drift apart, it is moved, where it must be, to lie
// between the moment when the host had begun to queue it and that when the host had seen its end.
void Engine::PlaceDeviceTimes(int64_t pass_number) {
  record_.device_begin = record_.device_pass_end = record_.device_end = record_.run_begin;
  if (record_.sequences.empty()) return;
  const StepEvents& events = events_[pass_number % 3];
  const StepEvents& before = events_[(pass_number + 2) % 3];
  const double pass = events.pass_end.MillisecondsSince(events.begin) / 1e3;
  const double all = events.end.MillisecondsSince(events.begin) / 1e3;
  double begin = record_.run_begin;
  if (pass_number > 0) {
    begin = device_begin_before_ + events.begin.MillisecondsSince(before.begin) / 1e3;
  }
  begin = std::max(std::min(begin, record_.postprocess_begin - all), record_.run_begin);
  device_begin_before_ = begin;
  record_.device_begin = begin;
  record_.device_pass_end = begin + pass;
  record_.device_end = begin + all;
}

}  // namespace tinyvllm
