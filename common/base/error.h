// The one exception of the project, and the two ways to raise it.
//
//   Check(hidden_size % head_dim == 0, "config.json: hidden_size ", hidden_size,
//         " is not a multiple of head_dim ", head_dim);
//   throw Error("model.safetensors: ", path, " is missing; ", remedy);
//
// A message is one line: what, where, what was expected, the remedy. It reaches the user as it is
// (RunMain in common/base/run_main.h prints it), so it names the file, tensor, flag or request.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tinyvllm {

// Joins its arguments, each as operator<< prints it.
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

class Error : public std::runtime_error {
 public:
  template <typename... Parts>
  explicit Error(const Parts&... parts) : std::runtime_error(StrCat(parts...)) {}
};

// Throws Error with the joined parts unless `condition` holds. The parts are joined only on
// failure.
template <typename... Parts>
void Check(bool condition, const Parts&... parts) {
  if (!condition) throw Error(parts...);
}

}  // namespace tinyvllm
