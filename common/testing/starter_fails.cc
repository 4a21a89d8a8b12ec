// Runs a lesson's checks on its starter and passes when they fail as checks do: at least one named
// GoogleTest case, exit status 1, no crash.
//
//   starter_fails PATH_OF_THE_CHECKS
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "common/base/error.h"
#include "common/base/run_main.h"

namespace tinyvllm {
namespace {

int Run(int argc, char** argv) {
  Check(argc == 2, "usage: starter_fails PATH_OF_THE_CHECKS");
  // Without this, the checks would take the shard and report variables meant for this program.
  const std::string command = std::string("env -u XML_OUTPUT_FILE -u TEST_SHARD_STATUS_FILE ") +
                              argv[1] + " --gtest_brief=1 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Check(pipe != nullptr, command, ": cannot be started");
  std::string output;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) output.append(chunk, n);
  const int status = pclose(pipe);
  const bool failed_a_check = output.find("[  FAILED  ]") != std::string::npos;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && failed_a_check) {
    std::printf("The checks reject the starter, as they must:\n%s", output.c_str());
    return 0;
  }
  std::printf("%s", output.c_str());
  std::printf("\nexpected the checks to fail on the starter with status 1, but %s\n",
              WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "they all passed" : "they crashed");
  return 1;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
