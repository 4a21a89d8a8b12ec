// cu2cpp IN.cu OUT.cc: translates one CUDA source for the simulator. See translator.h.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "common/simulator/translator.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: cu2cpp IN.cu OUT.cc\n";
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  std::stringstream source;
  source << in.rdbuf();
  if (!in) {
    std::cerr << argv[1] << ": error: cannot read the file\n";
    return 1;
  }
  try {
    const std::string translated = tinyvllm::simulator::TranslateCuda(source.str(), argv[1]);
    std::ofstream out(argv[2], std::ios::binary);
    out << translated;
    out.close();
    if (!out) {
      std::cerr << argv[2] << ": error: cannot write the file\n";
      return 1;
    }
  } catch (const tinyvllm::simulator::TranslationError& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
