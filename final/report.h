// What standard output shows: text as it comes, or one JSON object a request.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "final/answer.h"
#include "final/request.h"

namespace tinyvllm {

// The line, without its end.
std::string ToJson(const Request& request, const Answer& answer);

// Prints answers in the order of their requests, though they run together and finish in any order:
// the text of the first unfinished request as it comes, what others have by now when their turn
// comes. As JSON, each object when those before it are printed.
class AnswerPrinter {
 public:
  // `requests` must outlive this object.
  AnswerPrinter(const std::vector<Request>& requests, bool json, std::ostream* out);

  void Text(size_t index, const std::string& text);
  void Finished(const Answer& answer);

  bool failed() const { return failed_; }

 private:
  void BeginAnswer();

  const std::vector<Request>& requests_;
  const bool json_;
  std::ostream& out_;
  size_t next_ = 0;                   // the request whose text goes out as it comes
  std::vector<std::string> waiting_;  // text of later ones
  std::vector<bool> finished_;
  bool failed_ = false;
};

}  // namespace tinyvllm
