#include "lessons/14_engine/text_output.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

struct Match {
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
};

// The stop string that is complete first.
Match FirstMatch(std::string_view text, const std::vector<std::string>& stop) {
  Match first;
  for (const std::string& candidate : stop) {
    const size_t begin = text.find(candidate);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + candidate.size();
    if (end < first.end || (end == first.end && begin < first.begin)) first = {begin, end};
  }
  return first;
}

// How many bytes at the end of `text` may be the beginning of a stop string.
size_t PossibleBeginning(std::string_view text, const std::vector<std::string>& stop) {
  size_t longest = 0;
  for (const std::string& candidate : stop) {
    for (size_t n = std::min(candidate.size() - 1, text.size()); n > longest; --n) {
      if (text.substr(text.size() - n) == std::string_view(candidate).substr(0, n)) longest = n;
    }
  }
  return longest;
}

}  // namespace

TextOutput::TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stop)
    : tokenizer_(tokenizer),
      stop_(std::move(stop)),
      decoder_(tokenizer, /*skip_special_tokens=*/true) {
  for (const std::string& text : stop_) {
    Check(!text.empty(), "stop: holds an empty text; expected at least one character");
  }
}

std::string TextOutput::Push(int token_id) {
  if (stopped_ || !tokenizer_.Contains(token_id)) return "";
  return Show(decoder_.Push(token_id), /*at_end=*/false);
}

std::string TextOutput::Flush() {
  if (stopped_) return "";
  return Show(decoder_.Flush(), /*at_end=*/true);
}

// tag::show[]
std::string TextOutput::Show(const std::string& more, bool at_end) {
  held_ += more;
  const Match match = FirstMatch(held_, stop_);
  stopped_ = match.end != std::string::npos;
  const size_t held_back = at_end ? 0 : PossibleBeginning(held_, stop_);
  const size_t shown = stopped_ ? match.begin : held_.size() - held_back;
  const std::string result = held_.substr(0, shown);
  held_.erase(0, shown);
  text_ += result;
  return result;
}
// end::show[]

}  // namespace tinyvllm
