#include "lessons/hints.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text_table.h"

namespace tinyvllm {
namespace {

constexpr char kOpening[] = "<details><summary>Hint ";
constexpr char kOpened[] = "</summary>";
constexpr char kClosing[] = "</details>";

bool IsSpace(unsigned char c) { return std::isspace(c) != 0; }
// Bytes of a character beyond ASCII count as letters.
bool IsWord(unsigned char c) { return std::isalnum(c) != 0 || c >= 0x80; }

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

// Whether the stars of text[begin, end) mark emphasis: they touch a word on one side. Those of
// 2 * 3 and 2*3 do not.
bool MarksEmphasis(const std::string& text, size_t begin, size_t end) {
  const char before = begin > 0 ? text[begin - 1] : ' ';
  const char after = end < text.size() ? text[end] : ' ';
  const bool apart = IsSpace(before) && IsSpace(after);
  return !apart && !(IsWord(before) && IsWord(after));
}

// A paragraph without the marks of Markdown, but for the backticks around code.
std::string PlainText(const std::string& text) {
  std::string plain;
  bool code = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t link = text.find("](", i);
    const size_t link_end = text.find(')', i);
    if (text[i] == '`') code = !code;
    if (!code && text[i] == '*') {
      const size_t end = std::min(text.find_first_not_of('*', i), text.size());
      if (!MarksEmphasis(text, i, end)) plain += text.substr(i, end - i);
      i = end - 1;
    } else if (!code && text[i] == '[' && link < link_end && link_end != std::string::npos) {
      plain += text.substr(i + 1, link - i - 1);
      i = link_end;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string Wrapped(const std::string& paragraph, size_t width) {
  std::istringstream words(paragraph);
  std::string text;
  size_t column = 0;
  for (std::string word; words >> word;) {
    const size_t word_width = DisplayWidth(word);
    const bool fits = column + 1 + word_width <= width;
    if (column > 0) text += fits ? " " : "\n";
    column = (column > 0 && fits ? column + 1 : 0) + word_width;
    text += word;
  }
  return text;
}

}  // namespace

std::vector<std::string> ReadHints(const std::string& page, const std::string& path) {
  std::vector<std::string> hints;
  for (size_t at = 0; (at = page.find(kOpening, at)) != std::string::npos;) {
    const std::string expected = StrCat(kOpening, hints.size() + 1, kOpened);
    Check(page.compare(at, expected.size(), expected) == 0, path, ": expected \"", expected,
          "\" as its next hint, but found \"", page.substr(at, expected.size()), "\"");
    const size_t begin = at + expected.size();
    const size_t end = page.find(kClosing, begin);
    Check(end != std::string::npos && page.find(kOpening, begin) >= end, path, ": hint ",
          hints.size() + 1, " is not closed by ", kClosing);
    hints.push_back(Trimmed(page.substr(begin, end - begin)));
    Check(!hints.back().empty(), path, ": hint ", hints.size(), " is empty");
    at = end;
  }
  return hints;
}

std::string ForTerminal(const std::string& markdown, size_t width) {
  std::istringstream lines(Trimmed(markdown) + "\n\n");
  std::string out;
  std::string paragraph;
  for (std::string line; std::getline(lines, line);) {
    if (!Trimmed(line).empty()) {
      paragraph += line + "\n";
    } else if (!paragraph.empty()) {
      out += (out.empty() ? "" : "\n") + Wrapped(PlainText(paragraph), width) + "\n";
      paragraph.clear();
    }
  }
  return out;
}

}  // namespace tinyvllm
