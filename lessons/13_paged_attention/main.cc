// The demo: see docs/13_paged_attention.md.
#include <iostream>

#include "common/base/command_line.h"
#include "common/base/run_main.h"
#include "common/cuda/device.h"

namespace tinyvllm {
namespace {

int Demo(int argc, char** argv) {
  CommandLine command_line("Paged attention: a KV cache in blocks that lie anywhere.");
  if (!command_line.Parse(argc, argv)) return 0;
  std::cout << "13 paged attention, on " << ToString(DescribeDevice()) << "\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Demo); }
