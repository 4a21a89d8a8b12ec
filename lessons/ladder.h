// The ladder: every Generator of the course, from lesson 09 on, with the same model and the same
// prompts. It shows what each idea bought, and that none of them changed an answer.
//
//   const Ladder ladder = Climb(LadderRungs(), config, weights, requests, options, std::cerr);
//   std::cout << LadderTable(ladder);  // lessons/ladder_report.h
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lessons/09_forward_pass/generator.h"
#include "lessons/09_forward_pass/weights.h"

namespace tinyvllm {

struct LadderOptions {
  int max_model_len = 256;          // of a sequence, prompt and answer together
  int num_slots = 4;                // of lesson 12; lessons 13 and 14 get the same cache, in blocks
  int block_size = 16;              // tokens
  int max_sequences = 16;           // that 13 and 14 may run at a time
  int chunk = 128;                  // tokens: a slot's in a pass of 12, all of a pass in 13 and 14
  size_t slow_requests = SIZE_MAX;  // a slow rung answers only so many of the requests
  int rounds = 1;                   // of which the fastest counts
};

struct MadeGenerator {
  std::unique_ptr<Generator> generator;
  size_t kv_cache_bytes = 0;
};

// One way of continuing prompts, as its lesson left it.
struct Rung {
  const char* idea;  // what it adds to the rung below
  bool slow;         // so slow that the simulator has no time for all requests
  std::function<MadeGenerator(const ModelConfig&, const Weights&, const LadderOptions&)> make;
};

// Those of the course. Lesson 11 has none of its own: 12 and 14 choose their tokens with it.
const std::vector<Rung>& LadderRungs();

// Where an answer is another than that of a rung below.
struct Parting {
  size_t request;
  size_t position;   // of the first token that differs
  std::string from;  // the name of that rung
};

struct RungResult {
  std::string name;
  std::string idea;
  size_t num_requests = 0;
  int64_t num_tokens = 0;  // of all answers
  int64_t num_passes = 0;  // through the model
  double seconds = 0;
  int most_at_once = 0;            // requests that had their first token and not their last
  size_t kv_cache_bytes = 0;       // as the generator says
  size_t activation_bytes = 0;     // as measured: all else that it took on the device for itself
  std::optional<Parting> parting;  // none: the same tokens

  double tokens_per_second() const { return num_tokens / seconds; }
  double tokens_per_pass() const { return static_cast<double>(num_tokens) / num_passes; }
};

struct Ladder {
  std::string model;
  std::string device;
  bool simulated = false;  // the device is a CPU that plays a GPU
  size_t num_requests = 0;
  // Bytes on the device that are the same for every rung.
  size_t weight_bytes = 0;
  size_t scratch_bytes = 0;  // that lesson 06's Linear gives cuBLAS
  std::vector<RungResult> rungs;

  bool same_tokens() const;
};

// Runs every rung over the requests. What goes on is told to `log`. Throws Error, naming the rung,
// when one fails. Answers that part are no Error: on a GPU, cuBLAS may sum in another order for
// another batch (docs/06_matmul.md).
Ladder Climb(const std::vector<Rung>& rungs, const ModelConfig& config, const Weights& weights,
             const std::vector<GenerationRequest>& requests, const LadderOptions& options,
             std::ostream& log);

}  // namespace tinyvllm
