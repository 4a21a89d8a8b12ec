// The challenge of lesson 01: what is written is read back, aligned, in one order, or not at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "lessons/01_safetensors/challenge/write_safetensors.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

class WriteSafetensorsChallenge : public testing::Test {
 protected:
  WriteSafetensorsChallenge() { fs::create_directories(folder_); }
  ~WriteSafetensorsChallenge() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  size_t NumFiles() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "write_safetensors";
};

const char kBytes[] = "0123456789abcdefghijklmnopqrstuv";

TensorView Tensor(const std::string& name, DType dtype, const std::vector<size_t>& shape) {
  size_t bytes = DTypeBytes(dtype);
  for (size_t extent : shape) bytes *= extent;
  return {name, dtype, shape, std::string_view(kBytes, bytes)};
}

std::vector<TensorView> SomeTensors() {
  return {Tensor("b", DType::kU8, {3}),
          Tensor("norm", DType::kBF16, {5}),
          Tensor("a", DType::kU8, {1, 1}),
          Tensor("scalar", DType::kF64, {}),
          Tensor("weight", DType::kF32, {2, 3}),
          Tensor("nothing", DType::kF32, {0, 4}),
          Tensor("\"quoted\"\\\n", DType::kI16, {2}),
          Tensor("größe", DType::kI64, {1})};
}

TEST_F(WriteSafetensorsChallenge, WhatIsWrittenIsReadBack) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"say \"hi\"", "\t"}};
  WriteSafetensors(Path("a"), SomeTensors(), metadata);
  const SafetensorsFile file(Path("a"));
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), SomeTensors().size());
  for (const TensorView& tensor : SomeTensors()) {
    const TensorView* found = file.Find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(found->bytes, tensor.bytes) << tensor.name;
  }
}

TEST_F(WriteSafetensorsChallenge, EveryTensorIsAligned) {
  // Names of every length, so that the header has every length, too.
  for (size_t length = 1; length < 20; ++length) {
    std::vector<TensorView> tensors = SomeTensors();
    tensors[0].name.resize(length, 'x');
    WriteSafetensors(Path("a"), tensors);
    const SafetensorsFile file(Path("a"));
    for (const TensorView& tensor : file.tensors()) {
      EXPECT_EQ((tensor.bytes.data() - file.bytes().data()) % DTypeBytes(tensor.dtype), 0u)
          << tensor.name << ", with a name of " << length << " bytes";
    }
  }
}

TEST_F(WriteSafetensorsChallenge, TheOrderIsTheFilesNotTheCallers) {
  std::vector<TensorView> tensors = SomeTensors();
  WriteSafetensors(Path("a"), tensors);
  std::vector<std::string> names;
  const SafetensorsFile file(Path("a"));
  for (const TensorView& tensor : file.tensors()) {
    if (!tensor.bytes.empty()) names.push_back(tensor.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"größe", "scalar", "weight", "\"quoted\"\\\n", "norm",
                                             "a", "b"}));
  std::reverse(tensors.begin(), tensors.end());
  WriteSafetensors(Path("b"), tensors);
  EXPECT_EQ(ReadTextFile(Path("a")), ReadTextFile(Path("b")));
}

TEST_F(WriteSafetensorsChallenge, NoTensorsAreAFileToo) {
  WriteSafetensors(Path("a"), {});
  EXPECT_TRUE(SafetensorsFile(Path("a")).tensors().empty());
}

TEST_F(WriteSafetensorsChallenge, AFailureLeavesWhatWasThere) {
  WriteSafetensors(Path("a"), SomeTensors());
  const std::string before = ReadTextFile(Path("a"));
  std::vector<TensorView> twice = SomeTensors(), metadata = twice, shorter = twice;
  twice.push_back(twice[0]);
  metadata[0].name = "__metadata__";
  shorter[0].bytes.remove_suffix(1);
  for (const std::vector<TensorView>& tensors : {twice, metadata, shorter}) {
    EXPECT_THROW(WriteSafetensors(Path("a"), tensors), Error);
    EXPECT_EQ(ReadTextFile(Path("a")), before);
    EXPECT_EQ(NumFiles(), 1u);
  }
  EXPECT_THROW(WriteSafetensors(Path("no/such/folder"), SomeTensors()), Error);
  fs::create_directories(Path("full/of"));  // a folder that is not empty cannot be replaced
  EXPECT_THROW(WriteSafetensors(Path("full"), SomeTensors()), Error);
  EXPECT_EQ(NumFiles(), 2u);
}

}  // namespace
}  // namespace tinyvllm
