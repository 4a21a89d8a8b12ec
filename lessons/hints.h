// The hints of a lesson's page, and how they look in a terminal.
//
// On the page they are folded blocks, numbered from 1 on:
//
//   <details><summary>Hint 1</summary>
//
//   Which number does a thread need that it cannot find out alone?
//
//   </details>
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tinyvllm {

// The hints in `page`, the text of a page, as Markdown. `path` is for messages. Throws Error where
// a hint is not closed, is empty, or has not the number that is next.
std::vector<std::string> ReadHints(const std::string& page, const std::string& path);

// Paragraphs of Markdown in lines of at most `width` columns: stars of emphasis go, links become
// their text, and what is `code` stays as it is.
std::string ForTerminal(const std::string& markdown, size_t width);

}  // namespace tinyvllm
