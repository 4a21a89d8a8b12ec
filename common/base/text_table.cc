#include "common/base/text_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

bool IsNumber(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-eE %x") == std::string::npos &&
         cell.find_first_of("0123456789") != std::string::npos;
}

}  // namespace

size_t DisplayWidth(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char byte = text[i];
    if (byte == 0x1b) {  // a colour code runs to its final letter
      while (i + 1 < text.size() && text[i] != 'm') ++i;
    } else if ((byte & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::AddRow(std::vector<std::string> cells) {
  Check(cells.size() == rows_[0].size(), "table row: ", cells.size(), " cells, expected ",
        rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> width(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], DisplayWidth(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty() && !IsNumber(rows_[r][c])) right[c] = false;
    }
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string padding(width[c] - DisplayWidth(rows_[r][c]), ' ');
      line += (c > 0 ? "  " : "") + (right[c] ? padding + rows_[r][c] : rows_[r][c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (r == 0) {
      for (size_t c = 0; c < columns; ++c) {
        text += std::string(c > 0 ? 2 : 0, ' ');
        for (size_t i = 0; i < width[c]; ++i) text += "─";
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace tinyvllm
