// Sampling to look at: what each transformation does to the bundled model's next token, and what
// the model writes with one seed and another.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/device.h"
#include "lessons/02_tokenizer/chat.h"
#include "lessons/02_tokenizer/tokenizer.h"
#include "lessons/09_forward_pass/forward_pass.h"
#include "lessons/11_sampling/sampler.h"

namespace tinyvllm {
namespace {

constexpr int kMaxModelLen = 128;
constexpr int kMaxRows = 8;

PassLimits Limits() {
  PassLimits limits;
  limits.max_tokens = kMaxRows * kMaxModelLen;
  limits.max_sequences = kMaxRows;
  limits.max_sequence_len = kMaxModelLen;
  limits.max_logit_rows = kMaxRows;
  return limits;
}

// The bundled model, which computes everything anew for each token, and a sampler.
struct Model {
  Model()
      : folder(DataPath("models/pocket")),
        config(ModelConfig::FromFolder(folder)),
        tokenizer(Tokenizer::FromFile(folder + "/tokenizer.json")),
        weights(Checkpoint(folder), config),
        pass(config, weights, Limits(), stream.get()),
        sampler({kMaxRows, kMaxRows, config.vocab_size, kMaxModelLen}, stream.get()) {}

  std::string folder;
  ModelConfig config;
  Tokenizer tokenizer;
  Weights weights;
  Stream stream;
  ForwardPass pass;
  Sampler sampler;
};

// A probability with a bar, an eighth of a character the finest step.
std::string Bar(double probability) {
  if (probability == 0) return "   ·";
  static const char* const kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  constexpr int kWidth = 10;
  const int eighths = static_cast<int>(probability * kWidth * 8 + 0.5);
  std::string text = Fixed(probability, 2) + " ";
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

struct Column {
  std::string name;
  SamplingParams params;
  std::vector<int> generated;
};

// What the same row of logits becomes under each column's parameters.
void ShowDistributions(Model* model, const std::vector<int>& ids,
                       const std::vector<Column>& columns, int num_shown) {
  const int vocab_size = model->config.vocab_size;
  model->pass.Run(Batch::WholeSequence(ids));
  DeviceBuffer<float> probabilities(vocab_size);
  std::vector<std::vector<float>> distributions;
  for (const Column& column : columns) {
    model->sampler.SetRequest(0, column.params, ids, column.generated);
    model->sampler.Sample(model->pass.logits(), {{0, static_cast<int>(ids.size())}},
                          probabilities.data());
    model->sampler.Wait();
    distributions.push_back(probabilities.ToHost());
  }
  std::vector<int> order(vocab_size);
  for (int id = 0; id < vocab_size; ++id) order[id] = id;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return distributions[0][a] > distributions[0][b]; });

  std::vector<std::string> header = {"token"};
  for (const Column& column : columns) header.push_back(column.name);
  TextTable table(header);
  std::vector<double> others(columns.size(), 1);
  for (int i = 0; i < num_shown; ++i) {
    std::vector<std::string> cells = {Quote(model->tokenizer.Decode({order[i]}))};
    for (size_t c = 0; c < columns.size(); ++c) {
      const double probability = distributions[c][order[i]];
      others[c] -= probability;
      cells.push_back(Bar(probability));
    }
    table.AddRow(cells);
  }
  std::vector<std::string> cells = {StrCat("the other ", vocab_size - num_shown)};
  for (const double rest : others) cells.push_back(Bar(rest < 5e-7 ? 0 : rest));
  table.AddRow(cells);
  std::cout << table.ToString() << "\n";
}

// The token of a row of the last Sample, which must have one.
int ChosenToken(const Sampler& sampler, int row) {
  const int token = sampler.token_id(row);
  Check(token >= 0, "row ", row,
        ": no token was chosen; argmax left its output unwritten, or none "
        "of the logits is a number");
  return token;
}

Column With(const std::string& name, float temperature) {
  Column column;
  column.name = name;
  column.params.temperature = temperature;
  return column;
}

void ShowTransformations(Model* model, const std::vector<int>& ids) {
  std::vector<Column> columns = {With("as it is", 1), With("temperature 0.5", 0.5f),
                                 With("temperature 2", 2), With("temperature 0", 0)};
  ShowDistributions(model, ids, columns, 8);

  columns = {With("as it is", 1), With("top_k 4", 1), With("top_p 0.6", 1), With("min_p 0.2", 1)};
  columns[1].params.top_k = 4;
  columns[2].params.top_p = 0.6f;
  columns[3].params.min_p = 0.2f;
  ShowDistributions(model, ids, columns, 8);

  model->sampler.SetRequest(0, SamplingParams(), {});
  model->pass.Run(Batch::WholeSequence(ids));
  model->sampler.Sample(model->pass.logits(), {{0, static_cast<int>(ids.size())}});
  model->sampler.Wait();
  const int best = ChosenToken(model->sampler, 0);
  const std::string word = Quote(model->tokenizer.Decode({best}));
  columns = {With("as it is", 1), With("banned", 1), With("logit_bias -1.5", 1),
             With("generated twice, frequency_penalty 1", 1)};
  columns[1].params.bad_token_ids = {best};
  columns[2].params.logit_bias = {{best, -1.5f}};
  std::cout << "Now something against " << word << " alone:\n\n";
  columns[3].params.frequency_penalty = 1;
  columns[3].generated = {best, best};
  ShowDistributions(model, ids, columns, 5);
}

// Continues `ids` once for each of `params`, all in one batch.
std::vector<std::string> Continue(Model* model, const std::vector<int>& ids,
                                  const std::vector<SamplingParams>& params, int max_tokens) {
  const int num_rows = static_cast<int>(params.size());
  std::vector<std::vector<int>> sequences(num_rows, ids);
  std::vector<bool> ended(num_rows, false);
  for (int i = 0; i < num_rows; ++i) model->sampler.SetRequest(i, params[i], ids);
  const std::vector<int>& eos = model->config.eos_token_ids;
  for (int step = 0; step < max_tokens; ++step) {
    Batch batch;
    batch.sequence_offsets = {0};
    std::vector<SampleRow> rows;
    for (int i = 0; i < num_rows; ++i) {
      if (ended[i]) continue;
      for (size_t position = 0; position < sequences[i].size(); ++position) {
        batch.token_ids.push_back(sequences[i][position]);
        batch.positions.push_back(static_cast<int>(position));
      }
      batch.sequence_offsets.push_back(batch.num_tokens());
      batch.logit_rows.push_back(batch.num_tokens() - 1);
      rows.push_back({i, static_cast<int>(sequences[i].size())});
    }
    if (rows.empty()) break;
    model->pass.Run(batch);
    model->sampler.Sample(model->pass.logits(), rows);
    model->sampler.Wait();
    for (size_t row = 0; row < rows.size(); ++row) {
      const int token = ChosenToken(model->sampler, static_cast<int>(row));
      ended[rows[row].slot] = std::count(eos.begin(), eos.end(), token) > 0;
      if (!ended[rows[row].slot]) sequences[rows[row].slot].push_back(token);
    }
  }
  std::vector<std::string> texts;
  for (const std::vector<int>& sequence : sequences) {
    texts.push_back(model->tokenizer.Decode({sequence.begin() + ids.size(), sequence.end()}));
  }
  return texts;
}

void ShowContinuations(Model* model, const std::vector<int>& ids, int max_tokens) {
  // A batch in which all are greedy is argmax's; a mixed one would go the way of the filters.
  const std::string greedy = Continue(model, ids, {SamplingParams()}, max_tokens)[0];
  std::cout << "Greedy, by argmax: ..." << greedy << "\n\n";
  std::vector<SamplingParams> params(4);
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].temperature = 1;
    params[i].top_p = 0.95f;
    params[i].seed = i + 1;
  }
  const std::vector<std::string> texts = Continue(model, ids, params, max_tokens);
  std::cout << "Four sequences in one batch, at temperature 1 and top_p 0.95:\n";
  for (size_t i = 0; i < texts.size(); ++i) {
    std::cout << "\nseed " << params[i].seed << ": ..." << texts[i] << "\n";
  }
  const bool same = Continue(model, ids, {params[2]}, max_tokens)[0] == texts[2];
  std::cout << "\nSeed 3 once more, alone in its batch: "
            << (same ? "the same text" : "another text") << ".\n";
}

void ShowSpeed() {
  if (IsSimulator()) {
    std::cout
        << "\nSpeed: there is no GPU here, and the time of a CPU that plays one says nothing.\n"
           "With a GPU this prints GB/s of each argmax, and its share of what a copy reaches.\n";
    return;
  }
  Benchmark benchmark;
  constexpr int kVocabSize = 128256;
  const double limit = benchmark.CopyGigabytesPerSecond();
  std::cout << "\nSpeed of argmax over " << kVocabSize
            << " logits, from a cold cache. The limit is "
            << "a copy: " << Fixed(limit, 0) << " GB/s.\n\n";
  TextTable table({"rows", "version", "us", "GB/s", "of the limit"});
  for (const int num_rows : {1, 16, 256}) {
    DeviceBuffer<float> logits(static_cast<size_t>(num_rows) * kVocabSize);
    logits.Fill(0x3f);
    DeviceBuffer<int> token_ids(num_rows);
    DeviceBuffer<TokenKey> workspace(ArgmaxWorkspace(num_rows));
    for (const ArgmaxVersion& version : kArgmaxVersions) {
      const double ms = benchmark.MedianMilliseconds([&] {
        version.launch(logits.data(), token_ids.data(), workspace.data(), num_rows, kVocabSize,
                       benchmark.stream());
      });
      const double gigabytes = GigabytesPerSecond(static_cast<double>(logits.bytes()), ms);
      table.AddRow({std::to_string(num_rows), StrCat(version.number, " ", version.name),
                    Fixed(1000 * ms, 1), Fixed(gigabytes, 0),
                    Fixed(100 * gigabytes / limit, 0) + " %"});
    }
  }
  std::cout << table.ToString();
}

int Run(int argc, char** argv) {
  CommandLine command_line("Lesson 11: from logits to a token.");
  std::string question = "Tell me a story.", begun = "Once upon a time, there was a";
  int max_tokens = 32;
  command_line.app().add_option("--prompt", question, "what to ask")->capture_default_str();
  command_line.app().add_option("--begun", begun, "how the answer begins")->capture_default_str();
  command_line.app()
      .add_option("--tokens", max_tokens, "tokens of each continuation")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  if (!command_line.Parse(argc, argv)) return 0;

  Model model;
  std::vector<int> ids = ChatPrompt(model.tokenizer, {{"user", question}});
  const std::vector<int> more = model.tokenizer.Encode(begun);
  ids.insert(ids.end(), more.begin(), more.end());
  Check(ids.size() + max_tokens <= kMaxModelLen, "--prompt and --begun: ", ids.size(),
        " tokens leave no room for ", max_tokens, " more within ", kMaxModelLen);
  std::cout << "Lesson 11, sampling, on " << ToString(DescribeDevice()) << "\n\n"
            << "> " << question << "\n"
            << begun << " ...\n\nHow does it go on?\n\n";
  ShowTransformations(&model, ids);
  ShowContinuations(&model, ids, max_tokens);
  ShowSpeed();
  std::cout << "\nThe page: docs/11_sampling.md. Your turn: write the argmax in\n"
               "lessons/11_sampling/exercise/argmax.cu, and check it with\n"
               "  bazel test --//:exercise=11_sampling //tests:11_sampling_test\n"
               "Next: bazel run //lessons/12_continuous_batching\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
