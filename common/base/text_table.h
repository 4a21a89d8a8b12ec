// Small aligned tables for the terminal. Widths count characters as a terminal shows them (UTF-8,
// without colour codes); numbers align right, text left.
//
//   TextTable table({"version", "GB/s"});
//   table.AddRow({"tree", "812"});
//   std::cout << table.ToString();
#pragma once

#include <string>
#include <vector>

namespace tinyvllm {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);

  // Throws Error unless there is one cell a column.
  void AddRow(std::vector<std::string> cells);

  // Header, a rule, rows; two spaces between columns, each line ended.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

// Columns that `text` takes in a terminal.
size_t DisplayWidth(const std::string& text);

// A number with a fixed count of decimals: Fixed(3.14159, 2) is "3.14".
std::string Fixed(double value, int decimals);

}  // namespace tinyvllm
