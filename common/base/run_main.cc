#include "common/base/run_main.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "common/base/error.h"
#include "common/base/quote.h"

namespace tinyvllm {
namespace {

constexpr int kBadInput = 2;

int Report(const char* program, const char* message) {
  std::cout.flush();
  const char* slash = std::strrchr(program, '/');
  std::fprintf(stderr, "%s: %s\n", slash == nullptr ? program : slash + 1,
               EscapeControls(message).c_str());
  return kBadInput;
}

// Why standard output has not taken all that was written; empty if it has.
std::string OutputFailure() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return "";
  // The write may have failed long ago, and errno be another call's by now: ask again.
  errno = 0;
  std::clearerr(stdout);
  const bool written = std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  return StrCat("standard output: ",
                written || errno == 0 ? "not all could be written" : std::strerror(errno));
}

}  // namespace

int RunMain(int argc, char** argv, const std::function<int(int, char**)>& body) {
  const char* program = argc > 0 ? argv[0] : "tiny-vllm";
  // `bazel run` starts a program in its runfiles; the paths on its command line are meant from
  // where the user stands.
  const char* user_folder = std::getenv("BUILD_WORKING_DIRECTORY");
  try {
    if (user_folder != nullptr && chdir(user_folder) != 0) {
      throw Error(user_folder, ": cannot be entered: ", std::strerror(errno));
    }
    const int status = body(argc, argv);
    const std::string failure = OutputFailure();
    return failure.empty() ? status : Report(program, failure.c_str());
  } catch (const std::bad_alloc&) {
    return Report(program, "out of host memory");
  } catch (const std::exception& error) {
    return Report(program, error.what());
  }
}

}  // namespace tinyvllm
