// The engine: requests come and go, and every step computes for all that run.
//
//   Engine engine(config, weights, EngineConfig());
//   EngineRequest request;
//   request.prompt_token_ids = prompt;
//   const int number = engine.Add(request);
//   while (engine.has_work()) {
//     for (const EngineOutput& output : engine.Step()) {
//       // output.request, output.token_id, output.finished, ...
//     }
//   }
//
// A step is three words: schedule (lesson 14's Scheduler), run (lesson 09's pass over lesson 13's
// pages, lesson 11's sampler), postprocess. The host waits for the device once a step, for the ids
// that were chosen; with async_scheduling, where it can, only when the device has its next pass to
// run meanwhile. All memory is taken in the constructor; a step takes none.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/cuda/buffer.h"
#include "common/cuda/stream.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/09_forward_pass/generator.h"
#include "lessons/11_sampling/sampler.h"
#include "lessons/14_engine/late_tokens.h"
#include "lessons/14_engine/scheduler.h"

namespace tinyvllm {

class PagedKvCache;
struct BlockSpan;

// Where the engine is to run the code of an earlier lesson, though a later one has something faster
// in its place. The answers are the same. final asks for it where that code is the learner's
// (--//:exercise); a check holds it against the engine as it is.
struct EarlierLessons {
  bool matmul = false;      // 06: the output projections by its tiles, other products as ever
  bool attention = false;   // 07, 10: keys and values as in GatheredKvCache, in all layers;
  bool paged_too = false;   //     or in those of even number, and the others as ever
  bool slot_table = false;  // 12: it hands out the slots
};

// Names and meaning are vLLM's.
struct EngineConfig {
  int max_num_seqs = 256;               // requests that run at a time
  int max_num_batched_tokens = 2048;    // tokens of a step
  int max_model_len = 0;                // prompt and answer together; 0: the model's own
  int block_size = 16;                  // tokens of a KV block
  int num_gpu_blocks_override = 0;      // KV blocks; 0: what memory allows
  double gpu_memory_utilization = 0.9;  // of the device's memory, all told
  bool enable_prefix_caching = true;
  // A request's tokens are bit for bit the same alone and in company, in chunks, put off or found
  // in the cache. Costs speed on a GPU; the simulator computes like this in any case.
  bool batch_invariant = false;
  // Plan and queue each step before the tokens of the one before are read, so that the device need
  // not wait for the host. A request that ends by a token keeps its slot and its blocks for a step
  // longer. The tokens are the same, as far as company does not matter. Not while a request whose
  // prompt logprobs are still to come waits or runs.
  bool async_scheduling = false;
  bool trace = false;      // measure the times of each step
  EarlierLessons earlier;  // not vLLM's
};

struct EngineRequest {
  std::vector<int> prompt_token_ids;
  SamplingParams sampling;  // its logprobs are those of each generated token
  int max_tokens = 256;
  bool ignore_eos = false;          // the model's end tokens are tokens like any other
  std::vector<int> stop_token_ids;  // these end it, whatever ignore_eos says
  // Logprobs of the prompt's own tokens, and this many of the most probable; -1: none. The prompt
  // is then computed as a whole, whatever lies in the prefix cache.
  int prompt_logprobs = -1;
};

// News of one request in one step.
struct EngineOutput {
  int request = -1;                  // what Add returned
  int token_id = -1;                 // -1: none. A token that ends the request is not reported.
  TokenLogprobs logprobs = {0, {}};  // of token_id, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's tokens 1, 2, ... as they come
  bool finished = false;
  FinishReason finish_reason = FinishReason::kLength;  // if finished
  std::string error;  // not empty: no token could be chosen; finished is true
};

// What a step did: for timelines, traces and checks.
struct StepRecord {
  int64_t step = 0;  // counts from 0
  std::vector<ScheduledSequence> sequences;
  std::vector<int> admitted;       // requests, and
  std::vector<int> cached_tokens;  // what was found of each in the prefix cache
  std::vector<int> preempted;
  std::vector<int> finished;
  // After the step. With async_scheduling the next one has been planned by then: of these numbers
  // it is part, and `sequences` may hold a request that had ended, but was not known to have.
  int num_waiting = 0;
  int num_running = 0;
  int num_free_blocks = 0;
  // Seconds since the engine began; 0 without EngineConfig::trace. The device's are of events, on
  // the same clock.
  double schedule_begin = 0, run_begin = 0, run_end = 0;
  double wait_begin = 0, postprocess_begin = 0, end = 0;
  double device_begin = 0, device_pass_end = 0, device_end = 0;
};

struct EngineStats {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;     // of the requests that were admitted, each once
  int64_t cached_tokens = 0;     // found in the prefix cache, and so not computed
  int64_t computed_tokens = 0;   // that went through the model
  int64_t generated_tokens = 0;  // reported
  int64_t preemptions = 0;
  int64_t finished = 0;
  int peak_used_blocks = 0;
};

class Engine {
 public:
  // `weights` must outlive the engine. Throws Error for a configuration that makes no sense, naming
  // the field, and when the memory does not suffice.
  Engine(const ModelConfig& model, const Weights& weights, const EngineConfig& config);
  ~Engine();

  // Returns the request's number, which counts from 0. Throws Error, and the engine goes on as
  // before, for an empty prompt, ids that are not in the vocabulary, bad parameters, and a prompt
  // that can never fit the pool or max_model_len. One that fits and outgrows them ends with
  // FinishReason::kLength.
  int Add(const EngineRequest& request);

  // One step for all that run. The outputs are valid until the next call; in order of the plan.
  // With async_scheduling, those of the step that has ended: another is under way.
  const std::vector<EngineOutput>& Step();

  // The request gives back what it has, and there is no more news of it. Nothing happens where it
  // has finished. Throws Error for a number that Add never returned.
  void Abort(int request);

  bool has_work() const { return scheduler_->has_work() || under_way_ != nullptr; }

  const StepRecord& last_step() const { return record_; }
  const EngineStats& stats() const { return stats_; }
  const EngineConfig& config() const { return config_; }  // with the zeros resolved
  const ModelConfig& model() const { return model_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  // The KV blocks of a request that runs; empty for one that waits.
  const std::vector<int>& blocks(int request) const { return scheduler_->blocks(request); }
  int num_blocks() const { return config_.num_gpu_blocks_override; }

  // Bytes on the device.
  size_t weight_bytes() const { return weights_.bytes(); }
  size_t activation_bytes() const { return pass_->activation_bytes(); }
  size_t sampler_bytes() const { return sampler_->device_bytes(); }
  size_t pool_bytes() const;

 private:
  struct Request {
    EngineRequest request;
    std::vector<int> generated;    // room is taken for all that may come
    int slot = -1;                 // -1: it waits
    bool seen = false;             // it was admitted before
    int prompt_logprobs_done = 0;  // of prompt tokens 1, 2, ..., those that were reported

    bool lacks_prompt_logprobs() const {
      return request.prompt_logprobs >= 0 &&
             prompt_logprobs_done + 1 < static_cast<int>(request.prompt_token_ids.size());
    }
  };

  void Validate(const EngineRequest& request) const;
  Stages ChooseStages() const;

  // A step, from its planning to its end.
  struct StepState {
    StepRecord record;
    std::vector<SampleRow> rows;  // of its logits
    int64_t pass = 0;             // of all that have run
  };

  void StepAhead();
  void Schedule(StepState* step);
  void Run(StepState* step);
  void ChooseTokens(const StepState& step);
  void Postprocess(StepState* step);

  void TakeSlots(const StepRecord& step);
  void BuildBatch(StepState* step);
  void NoteLateToken(const ScheduledSequence& part, int num_known);
  void FillIn(int* token_ids);
  void TakeToken(Request* request, int row, EngineOutput* output);
  void TakePromptLogprobs(Request* request, const ScheduledSequence& part, int first_row,
                          EngineOutput* output);
  void Finish(Request* request, EngineOutput* output, FinishReason reason);
  void Forget(const Request* request, int number);
  double Now() const;
  void PlaceDeviceTimes(int64_t pass_number);

  const ModelConfig model_;
  const Weights& weights_;
  EngineConfig config_;
  Stream stream_;
  const Linear own_tiles_;  // of EarlierLessons
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<ForwardPass> pass_;
  std::unique_ptr<PagedKvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;

  int num_added_ = 0;
  std::unordered_map<int, Request> requests_;  // those that have not finished
  std::vector<Request*> slots_;                // (max_num_seqs): who runs there; null: nobody
  std::vector<EngineOutput> outputs_;
  StepRecord record_;  // of the step that has ended last
  EngineStats stats_;
  StepState steps_[2];
  StepState* under_way_ = nullptr;  // with async_scheduling: the step that has begun and not ended
  int num_prompt_logprobs_ = 0;     // of requests_, those that lack some

  // Of the step that is being queued. Their memory is used again.
  Batch batch_;
  std::vector<BlockSpan> tables_;  // of the batch's sequences

  // Tokens of the step under way that the next one needs.
  const std::vector<int> unknown_tokens_;  // (max_model_len): zeros, until the device fills them in
  std::vector<int> row_in_slot_;           // (max_num_seqs): where the step under way chooses
  std::vector<LateToken> late_tokens_;
  PinnedBuffer<LateToken> host_late_tokens_;
  DeviceBuffer<LateToken> device_late_tokens_;
  Event late_tokens_copied_;

  // For prompt logprobs: a portion of rows at a time.
  std::vector<int> head_rows_;
  DeviceBuffer<int> device_ints_;      // target ids, numbers of top, top ids
  DeviceBuffer<float> device_floats_;  // logprobs, top logprobs
  PinnedBuffer<int> host_ints_;
  PinnedBuffer<float> host_floats_;

  // For the trace.
  struct StepEvents {
    Event begin, pass_end, end;
  };
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StepEvents events_[3];            // of a pass, of the one before, and of the one under way
  int64_t passes_ = 0;              // so far
  double device_begin_before_ = 0;  // of the pass before
};

}  // namespace tinyvllm
