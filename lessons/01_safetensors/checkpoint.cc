#include "lessons/01_safetensors/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.h"
#include "common/base/quote.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr int kMaxIndexDepth = 8;  // real ones need 2

// The tree of values, with what the parser would let pass refused: equal keys, deep nesting.
Json ParseIndex(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) {
    throw Error(path, ": has a zero byte, expected JSON");
  }
  std::vector<std::set<std::string>> keys(kMaxIndexDepth + 1);
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth >= kMaxIndexDepth) {
      throw Error(path, ": nests deeper than ", kMaxIndexDepth, " levels");
    }
    // A key's depth is that of its object plus one.
    if (event == Json::parse_event_t::object_start) keys[depth + 1].clear();
    if (event == Json::parse_event_t::key &&
        !keys[depth].insert(parsed.get<std::string>()).second) {
      throw Error(path, ": has the key ", Quote(parsed.get<std::string>()),
                  " twice, expected every key once");
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw Error(path, ": is not valid JSON, at its byte ", error.byte);
  }
}

// The shard of each tensor.
std::map<std::string, std::string> ReadWeightMap(const std::string& index_path) {
  const Json index = ParseIndex(ReadTextFile(index_path, kMaxIndexBytes), index_path);
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw Error(index_path, ": has no \"weight_map\", expected an object from tensor to shard");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string()) {
      throw Error(index_path, ": the shard of tensor ", Quote(tensor), " is ", shard.type_name(),
                  ", expected a file name");
    }
    shard_of[tensor] = shard.get<std::string>();
  }
  return shard_of;
}

// A downloaded index must not make us open files elsewhere on this machine.
void CheckStaysInFolder(const std::string& shard, const std::string& index_path) {
  const fs::path relative(shard);
  bool leaves = shard.empty() || relative.is_absolute() || shard.find('\0') != std::string::npos;
  for (const fs::path& part : relative) leaves |= part == "..";
  if (leaves) {
    throw Error(index_path, ": names the shard ", Quote(shard),
                ", expected a file inside the model's folder");
  }
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  const fs::path single = fs::path(path) / "model.safetensors";
  const fs::path index = fs::path(path) / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
  } else if (!fs::is_directory(path, ignored)) {
    throw Error(path, ": is neither a model's folder nor a safetensors file");
  } else if (fs::exists(single, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single.string()));
  } else if (fs::exists(index, ignored)) {
    OpenShards(path, index.string());
    return;
  } else {
    throw Error(path,
                ": holds no weights, expected model.safetensors or "
                "model.safetensors.index.json with its shards");
  }
  for (const TensorView& view : files_[0]->tensors()) tensors_[view.name] = &view;
}

void Checkpoint::OpenShards(const std::string& folder, const std::string& index_path) {
  const std::map<std::string, std::string> shard_of = ReadWeightMap(index_path);
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, shard] : shard_of) {
    if (opened.count(shard) > 0) continue;
    CheckStaysInFolder(shard, index_path);
    const fs::path shard_path = fs::path(folder) / shard;
    std::error_code ignored;
    if (!fs::exists(shard_path, ignored)) {
      throw Error(shard_path.string(), ": is missing; ", index_path, " needs it for tensor ",
                  Quote(tensor), "; download the whole model");
    }
    files_.push_back(std::make_unique<SafetensorsFile>(shard_path.string()));
    opened[shard] = files_.back().get();
  }
  for (const auto& [tensor, shard] : shard_of) {
    const TensorView* view = opened[shard]->Find(tensor);
    if (view == nullptr) {
      throw Error(opened[shard]->path(), ": has no tensor ", Quote(tensor), ", but ", index_path,
                  " says it is there");
    }
    tensors_[tensor] = view;
  }
  for (const auto& [shard, file] : opened) {
    for (const TensorView& view : file->tensors()) {
      const auto expected = shard_of.find(view.name);
      if (expected != shard_of.end() && expected->second != shard) {
        throw Error(file->path(), ": has tensor ", Quote(view.name), ", but ", index_path,
                    " says it is in ", Quote(expected->second));
      }
    }
  }
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

const TensorView& Checkpoint::Get(std::string_view name) const {
  const TensorView* view = Find(name);
  if (view == nullptr) {
    throw Error(path_, ": has no tensor ", Quote(name), " among its ", tensors_.size());
  }
  return *view;
}

const TensorView& Checkpoint::Get(std::string_view name,
                                  const std::vector<size_t>& expected_shape) const {
  const TensorView& view = Get(name);
  if (view.shape != expected_shape) {
    throw Error(path_, ": tensor ", Quote(name), " has shape ", ShapeText(view.shape),
                ", expected ", ShapeText(expected_shape), " by config.json");
  }
  return view;
}

}  // namespace tinyvllm
