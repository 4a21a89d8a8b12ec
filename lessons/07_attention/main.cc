#include "common/base/run_main.h"
int main(int argc, char** argv) {
  return tinyvllm::RunMain(argc, argv, [](int, char**) { return 0; });
}
