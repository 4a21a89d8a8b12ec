// The frame of every program's main: errors become one line and exit status 2.
//
//   int main(int argc, char** argv) {
//     return tinyvllm::RunMain(argc, argv, [](int argc, char** argv) { ...; return 0; });
//   }
#pragma once

#include <functional>

namespace tinyvllm {

// Returns what `body` returns. Error and every other std::exception are printed to standard error
// as "<program>: <message>", on one line, and give 2, the status for a bad command line, model or
// machine. Standard output is flushed and checked: a full disk or closed pipe is an error as well.
// Under `bazel run` the working directory becomes the one that it was called in.
int RunMain(int argc, char** argv, const std::function<int(int, char**)>& body);

}  // namespace tinyvllm
