// Counts what every lesson's code does in final, in a step of prompts and in a step that decodes:
// how often its kernels are launched, on the simulator, and how often its functions are called.
//
// This holds the promise that a learner's code runs in the whole engine, and docs/final.md quotes
// the tables. Built with --//:exercise, it checks the learner's own files.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "cuda_simulator/statistics.h"
#include "final/learner.h"
#include "final/request.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/safetensors.h"
#include "lessons/02_tokenizer/bpe.h"
#include "lessons/06_matmul/matmul.h"
#include "lessons/12_continuous_batching/slots.h"
#include "lessons/14_engine/engine.h"

// --- calls of host code: the linker gives us those that cross files (--wrap in tests/BUILD)

namespace {
std::map<std::string, int> calls;  // since the last Count
}  // namespace

#define REAL(symbol) asm("__real_" symbol)
#define WRAP(symbol) asm("__wrap_" symbol)

#define OPEN \
  "_ZN8tinyvllm15SafetensorsFileC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
void RealOpen(tinyvllm::SafetensorsFile* file, const std::string& path) REAL(OPEN);
void CountOpen(tinyvllm::SafetensorsFile* file, const std::string& path) WRAP(OPEN);
void CountOpen(tinyvllm::SafetensorsFile* file, const std::string& path) {
  ++calls["SafetensorsFile"];
  RealOpen(file, path);
}

#define ENCODE                                                           \
  "_ZNK8tinyvllm3Bpe10EncodeWordESt17basic_string_viewIcSt11char_traits" \
  "IcEEPSt6vectorIiSaIiEE"
void RealEncode(const tinyvllm::Bpe* bpe, std::string_view word, std::vector<int>* ids)
    REAL(ENCODE);
void CountEncode(const tinyvllm::Bpe* bpe, std::string_view word, std::vector<int>* ids)
    WRAP(ENCODE);
void CountEncode(const tinyvllm::Bpe* bpe, std::string_view word, std::vector<int>* ids) {
  ++calls["EncodeWord"];
  RealEncode(bpe, word, ids);
}

#define APPEND "_ZN8tinyvllm13AppendToBatchERKSt6vectorIiSaIiEEiibPNS_5BatchE"
using Append = void(const std::vector<int>&, int, int, bool, tinyvllm::Batch*);
Append RealAppend REAL(APPEND);
Append CountAppend WRAP(APPEND);
void CountAppend(const std::vector<int>& sequence, int first_position, int end, bool wants_logits,
                 tinyvllm::Batch* batch) {
  ++calls["AppendToBatch"];
  RealAppend(sequence, first_position, end, wants_logits, batch);
}

#define NEXT_STEP "_ZN8tinyvllm9SlotTable8NextStepEv"
tinyvllm::Step RealNextStep(tinyvllm::SlotTable* table) REAL(NEXT_STEP);
tinyvllm::Step CountNextStep(tinyvllm::SlotTable* table) WRAP(NEXT_STEP);
tinyvllm::Step CountNextStep(tinyvllm::SlotTable* table) {
  ++calls["NextStep"];
  return RealNextStep(table);
}

using Gemm = decltype(cublasGemmEx);
Gemm RealGemm REAL("cublasGemmEx");
Gemm CountGemm WRAP("cublasGemmEx");
cublasStatus_t CountGemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                         int m, int n, int k, const void* alpha, const void* a,
                         cudaDataType_t a_type, int lda, const void* b, cudaDataType_t b_type,
                         int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                         cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  ++calls["cublasGemmEx"];
  return RealGemm(handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
                  c_type, ldc, compute, algorithm);
}

namespace tinyvllm {
namespace {

constexpr int kSequences = 2;  // in every step
constexpr int kLayers = 6;     // of the bundled model

// What happened, by lesson: launches from its .cu file, calls of its functions.
using Counts = std::map<std::string, int>;

// What the learner's files do has a name of its own: "07_attention/exercise".
std::string LessonOf(const std::string& file) {
  const size_t begin = file.find('/') + 1;
  const std::string lesson = file.substr(begin, file.find('/', begin) - begin);
  return file.find("/exercise/") == std::string::npos ? lesson : lesson + "/exercise";
}

template <typename Work>
Counts Count(const Work& work) {
  calls.clear();
  Counts counts;
  for (const simulator::KernelStatistics& kernel : simulator::CountKernels(work)) {
    counts[LessonOf(kernel.file)] += static_cast<int>(kernel.launches);
  }
  counts["01_safetensors"] += calls["SafetensorsFile"];
  counts["02_tokenizer"] += calls["EncodeWord"];
  counts["06_matmul, cuBLAS"] += calls["cublasGemmEx"];
  counts["12_continuous_batching"] += calls["AppendToBatch"];
  counts["12_continuous_batching, slots"] += calls["NextStep"];
  return counts;
}

// final's way from a folder and two prompts to a step of prompts and one that decodes.
struct FinalRun {
  explicit FinalRun(const EarlierLessons& earlier) {
    const std::string folder = DataPath("models/pocket");
    const ModelConfig config = ModelConfig::FromFolder(folder);
    EngineConfig engine_config;
    engine_config.max_num_seqs = kSequences;
    engine_config.max_model_len = 256;
    engine_config.num_gpu_blocks_override = 32;
    engine_config.earlier = earlier;
    Options options;
    options.prompts = {"What is 2+2?", "Name a color."};
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Weights> weights;
    start = Count([&] {
      const Tokenizer tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json");
      weights = std::make_unique<Weights>(Checkpoint(folder), config);
      engine = std::make_unique<Engine>(config, *weights, engine_config);
      for (const Request& request : ReadRequests(options, tokenizer)) engine->Add(request.engine);
    });
    prefill = Count([&] { engine->Step(); });
    EXPECT_EQ(engine->last_step().sequences.size(), size_t{kSequences});
    EXPECT_GT(engine->last_step().sequences[0].num_tokens, 1);
    decode = Count([&] { engine->Step(); });
    EXPECT_EQ(engine->last_step().sequences.size(), size_t{kSequences});
    EXPECT_EQ(engine->last_step().sequences[0].num_tokens, 1);
  }

  Counts start, prefill, decode;
};

struct Row {
  const char* lesson;
  const char* what;
  int prefill;  // launches or calls in a step of prompts,
  int decode;   // and in one that decodes
};

// tag::usual[]
// Of a step with 6 layers and 2 sequences, all of whose tokens are chosen greedily.
const std::vector<Row> kUsual = {
    {"03_embedding", "the tokens' rows; the rows whose logits are wanted", 2, 2},
    {"04_rmsnorm", "before attention, before the feed forward; at the end", 13, 13},
    {"05_rope", "queries and keys, each layer", 6, 6},
    {"06_matmul, cuBLAS", "qkv, output, gate and up, down, each layer; logits", 25, 25},
    {"06_matmul", "own tiles", 0, 0},
    {"07_attention", "", 0, 0},
    {"08_feed_forward", "SwiGLU, two residual additions, each layer", 18, 18},
    {"10_kv_cache", "", 0, 0},
    {"11_sampling", "argmax in two kernels", 2, 2},
    {"12_continuous_batching", "a sequence into the batch", 2, 2},
    {"12_continuous_batching, slots", "", 0, 0},
    {"13_paged_attention", "store, attention, each layer", 12, 12},
};
// end::usual[]

// tag::earlier[]
// Where a learner has swapped in 06, 07 or 10, and 12.
const std::vector<Row> kEarlier = {
    {"03_embedding", "as above; blocks of K and V, each layer and sequence", 26, 26},
    {"06_matmul, cuBLAS", "qkv, gate and up, down, each layer; logits", 19, 19},
    {"06_matmul", "own tiles: output, each layer", 6, 6},
    {"07_attention", "each layer and sequence", 12, 12},
    {"10_kv_cache", "store, each layer", 6, 6},
    {"12_continuous_batching, slots", "who has which slot", 1, 1},
    {"13_paged_attention", "", 0, 0},
};
// end::earlier[]

// The learner's version of a lesson may do it in other launches than ours.
void ExpectRows(const std::vector<Row>& rows, const FinalRun& run) {
  const std::vector<std::string> learners = LearnersLessons();
  for (const Row& row : rows) {
    const std::string lesson = std::string(row.lesson).substr(0, std::string(row.lesson).find(','));
    if (std::find(learners.begin(), learners.end(), lesson) != learners.end()) continue;
    const auto count = [&](const Counts& counts) {
      const auto found = counts.find(row.lesson);
      return found == counts.end() ? 0 : found->second;
    };
    EXPECT_EQ(count(run.prefill), row.prefill) << row.lesson << " in a step of prompts";
    EXPECT_EQ(count(run.decode), row.decode) << row.lesson << " in a step that decodes";
  }
}

TEST(FinalLaunches, Usual) {
  const FinalRun run{EarlierLessons()};
  ExpectRows(kUsual, run);
  EXPECT_EQ(run.start.at("01_safetensors"), 1) << "one file";
  EXPECT_GE(run.start.at("02_tokenizer"), 8) << "words of two prompts";
}

TEST(FinalLaunches, EarlierLessons) {
  EarlierLessons earlier;
  earlier.matmul = earlier.attention = earlier.slot_table = true;
  const FinalRun run(earlier);
  ExpectRows(kEarlier, run);
  std::vector<Row> others = kUsual;  // nothing changes for them
  for (const Row& row : kEarlier) {
    const auto same = [&](const Row& other) { return std::string(other.lesson) == row.lesson; };
    others.erase(std::remove_if(others.begin(), others.end(), same), others.end());
  }
  EXPECT_EQ(others.size(), 5u);
  ExpectRows(others, run);
}

TEST(FinalLaunches, PagedAttentionBesidesLesson07s) {
  EarlierLessons earlier;
  earlier.attention = earlier.paged_too = true;
  const FinalRun run(earlier);
  ExpectRows({{"07_attention", "three layers", 6, 6},
              {"10_kv_cache", "three layers", 3, 3},
              {"13_paged_attention", "three layers", 6, 6}},
             run);
}

// With --//:exercise: whatever final was told to take from the learner, it runs.
TEST(FinalLaunches, AllOfTheLearnersLessonsRun) {
  const FinalRun run(StagesOf(LearnersLessons()));
  for (const std::string& lesson : LearnersLessons()) {
    if (lesson == "00_first_kernel") continue;                           // no part of an engine
    if (lesson == "09_forward_pass" || lesson == "14_engine") continue;  // every step is theirs
    if (lesson == "01_safetensors" || lesson == "02_tokenizer") {
      EXPECT_GT(run.start.at(lesson), 0) << lesson;
      continue;
    }
    std::vector<std::string> parts = {lesson + "/exercise"};
    if (lesson == "06_matmul") parts.push_back("06_matmul, cuBLAS");
    if (lesson == "12_continuous_batching") parts = {lesson, lesson + ", slots"};
    for (const std::string& part : parts) {
      EXPECT_GT(run.prefill.count(part) ? run.prefill.at(part) : 0, 0) << part;
      EXPECT_GT(run.decode.count(part) ? run.decode.at(part) : 0, 0) << part;
    }
  }
}

}  // namespace
}  // namespace tinyvllm
