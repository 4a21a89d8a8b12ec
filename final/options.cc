#include "final/options.h"

#include "common/base/command_line.h"

namespace tinyvllm {

bool ParseOptions(int argc, char** argv, Options* options) {
  CommandLine command_line(
      "Answers prompts with a Llama-family model. Without prompts: a demonstration with four.");
  CLI::App& app = command_line.app();
  app.add_option("--model", options->model,
                 "folder of a Hugging Face checkpoint (default: models/pocket)")
      ->check(NotEmpty());
  app.add_option(
         "--prompt", options->prompts,
         "a prompt, put through the Llama 3 chat format where the tokenizer has its special "
         "tokens; repeatable")
      ->expected(1)
      ->allow_extra_args(false)  // or "[a,b]" would be two prompts
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--prompts", options->prompts_file,
                 "JSON lines, each with prompt, messages or prompt_token_ids, and any of "
                 "max_tokens, ignore_eos, logprobs, prompt_logprobs")
      ->check(NotEmpty());
  app.add_flag("--raw", options->raw, "take prompts as they are, special tokens included");
  app.add_option("--max-tokens", options->max_tokens, "longest answer, in tokens")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_flag("--ignore-eos", options->ignore_eos, "go on after an end-of-text token");
  app.add_option("--logprobs", options->logprobs,
                 "with --json: log-probability of each token, and of the K likeliest")
      ->check(AtLeast(0));
  app.add_option("--prompt-logprobs", options->prompt_logprobs,
                 "with --json: the same for each token of the prompt")
      ->check(AtLeast(0));
  app.add_option(
         "--max-model-len", options->max_model_len,
         "longest sequence, prompt and answer together (default: the model's, at most 4096)")
      ->check(AtLeast(1));
  app.add_flag("--json", options->json, "one JSON object a finished request on standard output");
  return command_line.Parse(argc, argv);
}

}  // namespace tinyvllm
