// Where a file of the repository lies, whoever starts the program: bazel run, bazel test, or a
// binary copied elsewhere together with its data.
#pragma once

#include <string>

namespace tinyvllm {

// DataPath("models/pocket") is the path of that file or folder. Looks, in this order, below
// $TINYVLLM_DATA_DIR, in Bazel's runfiles, in the workspace that `bazel run` was called in, and in
// the working directory, the executable's folder and every folder above these two.
// Throws Error with the places tried.
std::string DataPath(const std::string& relative);

}  // namespace tinyvllm
