#include "final/options.h"

#include <charconv>
#include <cstdint>
#include <limits>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

void AddPromptFlags(CLI::App* app, Options* options) {
  app->add_option("--model", options->model,
                  "folder of a Hugging Face checkpoint (default: models/pocket)")
      ->check(NotEmpty());
  app->add_option(
         "--prompt", options->prompts,
         "a prompt, put through the Llama 3 chat format where the tokenizer has its special "
         "tokens; repeatable")
      ->expected(1)
      ->allow_extra_args(false)  // or "[a,b]" would be two prompts
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--prompts", options->prompts_file,
                  "JSON lines (-: of standard input), each with prompt, messages or "
                  "prompt_token_ids, and any of the "
                  "sampling flags below as a field (max_tokens, temperature, stop, ...)")
      ->check(NotEmpty());
  app->add_flag("--raw", options->raw, "take prompts as they are, special tokens included");
}

void AddSamplingFlags(CLI::App* app, Options* options) {
  EngineRequest& request = options->request;
  SamplingParams& sampling = request.sampling;
  app->add_option("--max-tokens", request.max_tokens, "longest answer, in tokens")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  app->add_option("--top-k", sampling.top_k, "draw from the K likeliest tokens; 0: from all")
      ->check(AtLeast(-1))
      ->capture_default_str();
  app->add_option("--top-p", sampling.top_p,
                  "draw from the fewest tokens that are this likely together")
      ->capture_default_str();
  app->add_option("--min-p", sampling.min_p,
                  "draw from tokens at least this likely, relative to the likeliest")
      ->capture_default_str();
  app->add_option("--repetition-penalty", sampling.repetition_penalty,
                  "above 1: tokens of prompt and answer become less likely")
      ->capture_default_str();
  app->add_option("--presence-penalty", sampling.presence_penalty,
                  "subtracted once from tokens that the answer has")
      ->capture_default_str();
  app->add_option("--frequency-penalty", sampling.frequency_penalty,
                  "subtracted for each time that the answer has the token")
      ->capture_default_str();
  app->add_option("--seed", sampling.seed, "of the random draws, for each request alike")
      ->check(Seed())
      ->capture_default_str();
  app->add_option("--stop", options->stop, "end the answer before this text; repeatable")
      ->check([](const std::string& text) { return text.empty() ? "is empty" : ""; })
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_flag("--ignore-eos", request.ignore_eos, "go on after an end-of-text token");
  app->add_option("--logprobs", sampling.logprobs,
                  "with --json: log-probability of each token, and of the K likeliest")
      ->check(AtLeast(0));
  app->add_option("--prompt-logprobs", request.prompt_logprobs,
                  "with --json: the same for each token of the prompt")
      ->check(AtLeast(0));
}

}  // namespace

CLI::Validator Seed() {
  const auto check = [](const std::string& text) -> std::string {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (stop == end && error == std::errc() && std::to_string(value) == text) return "";
    return StrCat("is '", text, "', expected a whole number from 0 to 2^64 - 1");
  };
  return CLI::Validator(check, "");
}

void AddEngineFlags(CLI::App* app, EngineConfig* config) {
  app->add_option("--max-num-seqs", config->max_num_seqs, "requests that run at a time")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--max-num-batched-tokens", config->max_num_batched_tokens,
                  "tokens of one step: longer prompts go in chunks")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--max-model-len", config->max_model_len,
                  "longest sequence, prompt and answer together (default: the model's)")
      ->check(AtLeast(1));
  app->add_option("--block-size", config->block_size, "tokens of a KV cache block")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--num-gpu-blocks-override", config->num_gpu_blocks_override,
                  "blocks of the KV cache (default: what the memory holds)")
      ->check(AtLeast(1));
  app->add_option("--gpu-memory-utilization", config->gpu_memory_utilization,
                  "share of the device's memory to use, weights included")
      ->capture_default_str();
  app->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching",
                config->enable_prefix_caching,
                "reuse the KV cache of equal beginnings (default: on)");
  app->add_flag("--batch-invariant", config->batch_invariant,
                "the same tokens whatever else runs, bit for bit; slower on a GPU");
  app->add_flag("--async-scheduling", config->async_scheduling,
                "queue each step before the tokens of the one before are read: the device waits "
                "less");
  app->add_flag("--enforce-eager",
                "launch every kernel from the host, without CUDA graphs: so it is in any case");
}

bool ParseOptions(int argc, char** argv, Options* options) {
  CommandLine command_line(
      "Answers prompts with a Llama-family model. Without prompts: a demonstration with four.");
  CLI::App& app = command_line.app();
  AddPromptFlags(&app, options);
  AddSamplingFlags(&app, options);
  AddEngineFlags(&app, &options->engine);
  app.add_flag("--json", options->json, "one JSON object a request on standard output");
  app.add_flag("--plan", options->plan,
               "print what memory the engine takes, beside a plain plan, and end; without --model: "
               "for Llama 3.2 1B");
  app.add_option("--trace", options->trace,
                 "write each step as Chrome trace events (chrome://tracing, ui.perfetto.dev)")
      ->check(NotEmpty());
  if (!command_line.Parse(argc, argv)) return false;
  try {  // what depends on the vocabulary is not on the command line
    options->request.sampling.Validate(std::numeric_limits<int>::max());
  } catch (const Error& error) {
    throw Error("command line: ", error.what(), "; --help lists the flags");
  }
  options->max_num_seqs_given = app.count("--max-num-seqs") > 0;
  options->max_num_batched_tokens_given = app.count("--max-num-batched-tokens") > 0;
  options->max_model_len_given = app.count("--max-model-len") > 0;
  return true;
}

}  // namespace tinyvllm
