// A model's folder in Hugging Face's layout: its weights in one file, model.safetensors, or in
// several (shards) that model.safetensors.index.json lists.
//
//   const Checkpoint checkpoint("models/pocket");
//   const TensorView& norm = checkpoint.Get("model.norm.weight", {config.hidden_size});
//
// The index is held against the shards before anything is handed out: a shard that is missing or
// lies outside the folder, a tensor that is not in the shard the index names, or is in another one
// as well, throws an Error that names it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/01_safetensors/safetensors.h"

namespace tinyvllm {

class Checkpoint {
 public:
  // `path` is a folder, or one safetensors file.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  // Every tensor by its name. The views live as long as the checkpoint.
  const std::map<std::string, const TensorView*, std::less<>>& tensors() const { return tensors_; }

  // nullptr when there is no such tensor.
  const TensorView* Find(std::string_view name) const;

  // Throws Error, naming the tensor, when it is missing or, in the second form, when its shape is
  // not the one that the model's configuration leads to.
  const TensorView& Get(std::string_view name) const;
  const TensorView& Get(std::string_view name, const std::vector<size_t>& expected_shape) const;

 private:
  void OpenShards(const std::string& folder, const std::string& index_path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const TensorView*, std::less<>> tensors_;
};

}  // namespace tinyvllm
