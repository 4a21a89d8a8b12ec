#include "common/base/data_path.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void AddWithParents(fs::path folder, std::vector<fs::path>* roots) {
  for (; !folder.empty(); folder = folder.parent_path()) {
    roots->push_back(folder);
    if (folder == folder.parent_path()) return;
  }
}

std::vector<fs::path> Roots() {
  std::vector<fs::path> roots;
  const std::string data_dir = Environment("TINYVLLM_DATA_DIR");
  if (!data_dir.empty()) roots.push_back(data_dir);

  std::error_code ignored;
  const fs::path executable = fs::read_symlink("/proc/self/exe", ignored);
  for (const std::string& runfiles : {Environment("TEST_SRCDIR"), Environment("RUNFILES_DIR"),
                                      executable.string() + ".runfiles"}) {
    if (runfiles.empty()) continue;
    for (const char* workspace : {"tiny_vllm", "_main"}) {
      roots.push_back(fs::path(runfiles) / workspace);
    }
  }
  const std::string workspace = Environment("BUILD_WORKSPACE_DIRECTORY");
  if (!workspace.empty()) roots.push_back(workspace);
  AddWithParents(fs::current_path(ignored), &roots);
  AddWithParents(executable.parent_path(), &roots);
  return roots;
}

}  // namespace

std::string DataPath(const std::string& relative) {
  std::string tried;
  for (const fs::path& root : Roots()) {
    std::error_code ignored;
    const fs::path candidate = root / relative;
    if (fs::exists(candidate, ignored)) return candidate.string();
    tried += (tried.empty() ? "" : ", ") + root.string();
  }
  throw Error(relative, ": not found below any of: ", tried,
              "; set TINYVLLM_DATA_DIR to the repository's folder");
}

}  // namespace tinyvllm
