// Runs a lesson's checks on its starter and passes when they fail as checks do: at least one named
// GoogleTest case, exit status 1, no crash. With --guided, the first that fails must also be one
// that says where to start (common/testing/guide.h), and the last that is shown.
//
//   starter_fails PATH_OF_THE_CHECKS [--guided]
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "common/base/error.h"
#include "common/base/run_main.h"

namespace tinyvllm {
namespace {

// What the first check that fails prints; empty if none does.
std::string FirstFailure(const std::string& output) {
  const size_t end = output.find("[  FAILED  ]");
  return end == std::string::npos ? "" : output.substr(0, end);
}

// What a guided failure must have, and `failure` has not, or empty.
std::string MissingPart(const std::string& failure) {
  for (const char* part :
       {"\nexpected      ", "\ngot           ", "\nlikely cause  ", "\nread          docs/"}) {
    if (failure.find(part) == std::string::npos) return part + 1;
  }
  return "";
}

int Run(int argc, char** argv) {
  const bool guided = argc == 3 && std::string(argv[2]) == "--guided";
  Check(argc == 2 || guided, "usage: starter_fails PATH_OF_THE_CHECKS [--guided]");
  // Without this, the checks would take the shard and report variables meant for this program.
  const std::string command = std::string("env -u XML_OUTPUT_FILE -u TEST_SHARD_STATUS_FILE ") +
                              argv[1] + " --gtest_brief=1 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Check(pipe != nullptr, command, ": cannot be started");
  std::string output;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) output.append(chunk, n);
  const int status = pclose(pipe);
  const std::string failure = FirstFailure(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && !failure.empty()) {
    const std::string missing = guided ? MissingPart(failure) : "";
    std::printf("The checks reject the starter, as they must:\n%s", output.c_str());
    if (!missing.empty()) {
      std::printf("\nexpected the first failure to guide, but it has no line \"%s\"\n",
                  missing.c_str());
      return 1;
    }
    const bool goes_on = output.find("[  FAILED  ]") != output.rfind("[  FAILED  ]");
    if (guided && goes_on) std::printf("\nexpected nothing to be shown after the first failure\n");
    return guided && goes_on ? 1 : 0;
  }
  std::printf("%s", output.c_str());
  std::printf("\nexpected the checks to fail on the starter with status 1, but %s\n",
              WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "they all passed" : "they crashed");
  return 1;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
