// From a request's tokens to the text that a reader may see: whole characters, cut exactly where a
// stop string begins.
//
//   TextOutput output(tokenizer, {"\n\n", "User:"});
//   std::cout << output.Push(token);             // what can be shown by now
//   if (output.stopped()) engine.Abort(request); // a stop string came
//   std::cout << output.Flush();                 // at the end: what was held back
//
// A stop string may begin in one token and end in another one. So text that might be the beginning
// of one is held back until it is known to be, or not to be: no part of a stop string is ever
// shown. Which one counts does not depend on where tokens end: the first to be complete, and of
// several that end at the same character, the longest.
#pragma once

#include <string>
#include <vector>

#include "lessons/02_tokenizer/tokenizer.h"

namespace tinyvllm {

class TextOutput {
 public:
  // `tokenizer` must outlive this object. Throws Error for an empty stop string.
  TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stop = {});

  // The text that `token_id` lets us show. Ids that name no piece (a vocabulary may be padded) and
  // special tokens have none. After a stop string there is nothing more.
  std::string Push(int token_id);
  // The generation has ended: what was held back, unless a stop string is complete in it.
  std::string Flush();

  bool stopped() const { return stopped_; }
  // All that Push and Flush have returned.
  const std::string& text() const { return text_; }

 private:
  std::string Show(const std::string& more, bool at_end);

  const Tokenizer& tokenizer_;
  const std::vector<std::string> stop_;
  StreamingDecoder decoder_;
  std::string held_;  // decoded, not shown: a stop string may begin in it
  std::string text_;
  bool stopped_ = false;
};

}  // namespace tinyvllm
