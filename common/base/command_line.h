// Command lines, on CLI11 (a library kept by others): flags in the GNU form, --help, and one clear
// line for everything that is wrong.
//
//   CommandLine command_line("What the program does.");
//   int max_tokens = 256;
//   command_line.app().add_option("--max-tokens", max_tokens, "tokens to generate")
//       ->check(AtLeast(1))->capture_default_str();
//   if (!command_line.Parse(argc, argv)) return 0;  // --help was asked for and printed
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

#include "common/base/error.h"

namespace tinyvllm {

// The check of a whole number. CLI11's own names the largest double as the upper end.
inline CLI::Validator AtLeast(int low) {
  const auto check = [low](const std::string& text) -> std::string {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    // CLI11 would take 010 for 8.
    const bool decimal = stop == end && error == std::errc() && std::to_string(value) == text;
    if (decimal && value >= low) return "";
    return StrCat("is '", text, "', expected a whole number from ", low, " to ",
                  std::numeric_limits<int>::max());
  };
  return CLI::Validator(check, StrCat(">=", low));
}

// The check of a path: an empty one comes from an unset variable of a script.
inline CLI::Validator NotEmpty() {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "is empty, expected a path" : "";
  };
  return CLI::Validator(check, "");
}

class CommandLine {
 public:
  explicit CommandLine(const std::string& description) : app_(description) {}

  CLI::App& app() { return app_; }

  // False when --help was given; its text is then on standard output. Throws Error for an unknown
  // flag or a bad value.
  bool Parse(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
      return true;
    } catch (const CLI::CallForHelp&) {
      std::cout << app_.help();
      return false;
    } catch (const CLI::ParseError& error) {
      throw Error(error.what(), "; --help lists the flags");
    }
  }

 private:
  CLI::App app_;
};

}  // namespace tinyvllm
