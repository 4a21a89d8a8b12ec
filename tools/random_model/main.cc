// bazel run //tools:random_model -- --config llama3.2-1b --seed 0 --out DIR
#include <iostream>

#include "common/base/run_main.h"
#include "tools/random_model/random_model.h"

int main(int argc, char** argv) {
  return tinyvllm::RunMain(argc, argv, [](int argc, char** argv) {
    const auto options = tinyvllm::ParseRandomModelOptions(argc, argv);
    if (!options) return 0;
    tinyvllm::WriteRandomModel(*options);
    std::cout << options->out << "\n";
    return 0;
  });
}
