// CUDA C++ to C++: rewrites what g++ cannot read, and nothing else.
//
//   Scale<<<grid, block, 0, stream>>>(x, n);   a call of tinyvllm::simulator::Launch
//   __shared__ float tile[32][33];             registers the variable, for poison and limits
//   extern __shared__ float scratch[];         names the block's dynamic shared memory
//
// Every line keeps its number, so that g++'s messages, sanitizer reports and debuggers show the
// .cu.
#pragma once

#include <stdexcept>
#include <string>

namespace tinyvllm::simulator {

// A source that cannot be translated: "FILE:LINE: error: what is wrong".
struct TranslationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The translation of `source`; `path` is the name that #line, __FILE__ and messages show.
std::string TranslateCuda(const std::string& source, const std::string& path);

}  // namespace tinyvllm::simulator
