// The engine's front door: reads the command line, loads the model, answers the requests.
#include <chrono>
#include <iostream>
#include <memory>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/device.h"
#include "final/logprobs.h"
#include "final/options.h"
#include "final/report.h"
#include "final/request.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/09_forward_pass/model_config.h"
#include "lessons/09_forward_pass/weights.h"
#include "lessons/10_kv_cache/kv_cache_generator.h"

namespace tinyvllm {
namespace {

constexpr const char* kBundledModel = "models/pocket";
constexpr int kDefaultMaxModelLen = 4096;

const std::vector<std::string> kDemoPrompts = {
    "What is 2+2?",
    "Name a color.",
    "What is a KV cache?",
    "Tell me a short story about a robot and a lighthouse.",
};

class Seconds {
 public:
  double operator()() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Generates one answer; text goes to standard output as it comes, unless --json asks for an object.
Answer AnswerRequest(const Request& request, int index, const Options& options,
                     const Tokenizer& tokenizer, const ModelConfig& config,
                     KvCacheGenerator* generator) {
  Answer answer;
  answer.index = index;
  if (request.prompt_logprobs >= 0) {
    const std::vector<int>& prompt = request.generation.prompt_token_ids;
    generator->Validate(request.generation);
    generator->PromptLogits(prompt, [&](int position, const float* logits) {
      if (position + 1 == static_cast<int>(prompt.size())) return;
      answer.prompt_logprobs.push_back(
          LogprobOf(logits, config.vocab_size, prompt[position + 1], request.prompt_logprobs));
    });
  }
  StreamingDecoder decoder(tokenizer, /*skip_special_tokens=*/true);
  const auto on_token = [&](const GeneratedToken& token) {
    if (request.logprobs >= 0) {
      answer.logprobs.push_back(
          LogprobOf(token.logits, config.vocab_size, token.token_id, request.logprobs));
    }
    if (!options.json && tokenizer.Contains(token.token_id)) {
      std::cout << decoder.Push(token.token_id) << std::flush;
    }
  };
  const Generation generation = generator->Generate({request.generation}, on_token)[0];
  if (!options.json) std::cout << decoder.Flush() << "\n";
  answer.token_ids = generation.token_ids;
  answer.text = DecodeKnown(tokenizer, generation.token_ids);
  answer.finish_reason = ToString(generation.finish_reason);
  return answer;
}

int Run(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, &options)) return 0;
  const bool demo = options.prompts.empty() && options.prompts_file.empty();
  if (demo) options.prompts = kDemoPrompts;

  // Cheap checks first: the folder, the configuration and the tokenizer, then the weights.
  const bool bundled = options.model.empty();
  const std::string folder = bundled ? DataPath(kBundledModel) : options.model;
  const ModelConfig config = ModelConfig::FromFolder(folder);
  const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
  const int max_model_len = options.max_model_len > 0
                                ? options.max_model_len
                                : std::min(config.max_position_embeddings, kDefaultMaxModelLen);
  std::vector<Request> requests = ReadRequests(options, tokenizer);

  const Seconds loading;
  std::cerr << ToString(DescribeDevice()) << "\n";
  const Checkpoint checkpoint(folder);
  const Weights weights(checkpoint, config);
  KvCacheGenerator generator(config, weights, max_model_len);
  std::cerr << (bundled ? kBundledModel : folder) << ": " << HumanBytes(weights.bytes())
            << " of weights, loaded in " << Fixed(loading(), 1) << " s\n";

  const Seconds generating;
  size_t tokens = 0;
  bool failed = false;
  for (size_t i = 0; i < requests.size() && std::cout; ++i) {  // nobody reads a closed output
    Request& request = requests[i];
    Answer answer;
    if (!options.json) std::cout << "\n> " << request.shown << "\n" << std::flush;
    try {
      if (!request.error.empty()) throw Error(request.error);
      answer = AnswerRequest(request, static_cast<int>(i), options, tokenizer, config, &generator);
    } catch (const Error& error) {
      request.error = request.where + ": " + EscapeControls(error.what());
      answer = Answer();
      answer.index = static_cast<int>(i);
      answer.finish_reason = "error";
      failed = true;
      if (!options.json) std::cerr << request.error << "\n";
    }
    tokens += answer.token_ids.size();
    if (options.json) std::cout << ToJson(request, answer) << std::endl;
  }
  std::cerr << "\n" << tokens << " tokens in " << Fixed(generating(), 1) << " s\n";
  if (demo && !options.json) {
    std::cout << "\nAsk something yourself:  ./bazelw run //final -- --prompt \"What is 17+25?\"\n"
              << "See how it works:        docs/README.md\n";
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
