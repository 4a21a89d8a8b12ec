// Command lines, on CLI11 (a library kept by others): flags in the GNU form, --help, and one clear
// line for everything that is wrong.
//
//   CommandLine command_line("What the program does.");
//   int max_tokens = 256;
//   command_line.app().add_option("--max-tokens", max_tokens, "tokens to generate")
//       ->check(CLI::PositiveNumber)->capture_default_str();
//   if (!command_line.Parse(argc, argv)) return 0;  // --help was asked for and printed
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "common/base/error.h"

namespace tinyvllm {

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
