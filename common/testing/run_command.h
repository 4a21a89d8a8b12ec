// A program run from outside, as a user would.
//
//   const Outcome outcome = RunCommand(DataPath("final/final") + " --max-tokens 0");
//   EXPECT_EQ(outcome.status, 2);
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "common/base/error.h"
#include "common/base/mapped_file.h"

namespace tinyvllm {

struct Outcome {
  int status = -1;     // what it exited with; 1000 and more: the signal that ended it
  std::string output;  // standard output
  std::string errors;  // standard error
};

// `command` as a shell reads it.
inline Outcome RunCommand(const std::string& command) {
  const std::string errors = testing::TempDir() + "errors";
  FILE* pipe = popen((command + " 2>" + errors).c_str(), "r");
  Check(pipe != nullptr, command, ": cannot be started");
  Outcome outcome;
  std::array<char, 4096> chunk;
  for (size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) {
    outcome.output.append(chunk.data(), n);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  outcome.errors = ReadTextFile(errors);
  return outcome;
}

}  // namespace tinyvllm
