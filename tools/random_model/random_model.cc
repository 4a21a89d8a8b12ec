#include "tools/random_model/random_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "tools/random_model/config.h"
#include "tools/random_model/tokenizer.h"
#include "tools/random_model/weights.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Written into config.json, so that a later run knows that it may overwrite the folder.
constexpr char kMark[] = "random_model";

std::string Joined(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  Check(out.good(), path.string(), ": cannot be written");
}

// Makes the folder, or takes one that is empty or was written by this program, and removes the
// weights of that earlier run.
void PrepareFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw Error("--out: ", folder.string(), " is not a folder and cannot be made one",
                error ? ": " + error.message() : "");
  }
  if (fs::is_empty(folder)) return;
  const fs::path config = folder / "config.json";
  const Json present = fs::exists(config) ? Json::parse(ReadTextFile(config.string()), nullptr,
                                                        /*allow_exceptions=*/false)
                                          : Json();
  if (!present.is_object() || present.value("_name_or_path", Json()) != kMark) {
    throw Error("--out: ", folder.string(),
                " holds files that are not a random model's; name a new or empty folder");
  }
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name.rfind("model", 0) == 0 && name.find(".safetensors") != std::string::npos) {
      fs::remove(file.path());
    }
  }
}

// Consecutive tensors, each shard about as large as the others and none empty.
std::vector<std::vector<TensorSpec>> SplitIntoShards(const std::vector<TensorSpec>& tensors,
                                                     size_t count) {
  size_t remaining = 0;
  for (const TensorSpec& tensor : tensors) remaining += TensorBytes(tensor);
  std::vector<std::vector<TensorSpec>> shards(count);
  size_t next = 0;
  for (size_t shard = 0; shard < count; ++shard) {
    const size_t target = remaining / (count - shard);
    size_t bytes = 0;
    while (next < tensors.size()) {
      const bool last_shard = shard + 1 == count;
      const bool rest_needs_it = tensors.size() - next <= count - shard - 1;
      if (!shards[shard].empty() && !last_shard && (bytes >= target || rest_needs_it)) break;
      bytes += TensorBytes(tensors[next]);
      shards[shard].push_back(tensors[next++]);
    }
    remaining -= bytes;
  }
  return shards;
}

std::string ShardName(size_t shard, size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return name;
}

void WriteWeights(const fs::path& folder, const std::vector<TensorSpec>& tensors,
                  const RandomModelOptions& options, double initializer_range) {
  size_t total = 0;
  for (const TensorSpec& tensor : tensors) total += TensorBytes(tensor);
  Progress progress("writing weights", static_cast<int64_t>(total), Progress::Unit::kBytes);
  const WeightOptions weights = {options.seed, initializer_range, options.header_only};
  if (options.shards == 1) {
    WriteRandomSafetensors((folder / "model.safetensors").string(), tensors, weights, &progress);
    return;
  }
  const size_t count = static_cast<size_t>(options.shards);
  Json weight_map = Json::object();
  const auto shards = SplitIntoShards(tensors, count);
  for (size_t shard = 0; shard < count; ++shard) {
    const std::string name = ShardName(shard, count);
    WriteRandomSafetensors((folder / name).string(), shards[shard], weights, &progress);
    for (const TensorSpec& tensor : shards[shard]) weight_map[tensor.name] = name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  WriteText(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

const char* TorchName(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

std::optional<RandomModelOptions> ParseRandomModelOptions(int argc, char** argv) {
  CommandLine command_line(
      "Writes a Llama checkpoint in Hugging Face's layout with random weights and a working "
      "tokenizer.");
  RandomModelOptions options;
  std::string dtype = "BF16";
  CLI::App& app = command_line.app();
  app.add_option("--config", options.preset, "shape: " + Joined(RandomModelPresets()))
      ->capture_default_str();
  app.add_option("--out", options.out, "folder to write")->required();
  app.add_option("--seed", options.seed, "of the weights; the tokenizer depends on its size alone")
      ->capture_default_str();
  app.add_option("--dtype", dtype, "BF16, F16 or F32")->capture_default_str();
  app.add_option("--shards", options.shards, "files to spread the weights over")
      ->capture_default_str();
  app.add_flag("--header-only", options.header_only, "weights of zero that take no disk");
  std::map<std::string, std::string> values;
  for (const std::string& field : OverridableFields()) {
    std::string flag = "--" + field;
    std::replace(flag.begin(), flag.end(), '_', '-');
    app.add_option(flag, values[field], "field " + field + " of config.json")->group("Overrides");
  }
  if (!command_line.Parse(argc, argv)) return std::nullopt;
  for (const auto& [field, value] : values) {
    if (!value.empty()) options.overrides[field] = value;
  }
  const std::optional<DType> parsed = DTypeFromName(dtype);
  if (!parsed || !ConvertsToBF16(*parsed)) {
    throw Error("--dtype: found ", Quote(dtype), ", expected BF16, F16 or F32");
  }
  options.dtype = *parsed;
  return options;
}

void WriteRandomModel(const RandomModelOptions& options) {
  const std::vector<std::string> presets = RandomModelPresets();
  if (std::find(presets.begin(), presets.end(), options.preset) == presets.end()) {
    throw Error("--config: found ", Quote(options.preset), ", expected one of ", Joined(presets));
  }
  Json config = MakeConfig(options.preset, options.overrides);
  config["torch_dtype"] = TorchName(options.dtype);
  config["_name_or_path"] = kMark;
  const WeightConfig weight_config = WeightConfigOf(config);
  const std::vector<TensorSpec> tensors = LlamaTensors(weight_config.shape, options.dtype);
  if (options.shards < 1 || static_cast<size_t>(options.shards) > tensors.size()) {
    throw Error("--shards: found ", options.shards, ", expected 1 to ", tensors.size(),
                ", the number of tensors");
  }
  const size_t vocab_size = weight_config.shape.vocab_size;

  const fs::path folder(options.out);
  PrepareFolder(folder);
  WriteText(folder / "config.json", config.dump(2) + "\n");
  Json generation = Json::object();
  for (const char* field : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    generation[field] = config[field];
  }
  WriteText(folder / "generation_config.json", generation.dump(2) + "\n");
  WriteText(folder / "tokenizer.json", MakeTokenizerJson(vocab_size));
  WriteText(
      folder / "tokenizer_config.json",
      MakeTokenizerConfigJson(vocab_size, config.value("max_position_embeddings", size_t{2048})));
  WriteWeights(folder, tensors, options, weight_config.initializer_range);
}

}  // namespace tinyvllm
