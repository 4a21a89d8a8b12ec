#include "common/base/json.h"

#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace tinyvllm {
namespace {

using Json = nlohmann::json;

void CheckNesting(std::string_view text) {
  constexpr int kDeepest = 32;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      Check(++depth <= kDeepest, "nests deeper than ", kDeepest, " levels at byte ", i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

// The library's reason without its position (a line and a column of what may be one line of many)
// and without the text read last, which may be as long as the file.
std::string Reason(std::string_view message) {
  const size_t name_end = message.find("] ");  // "[json.exception.parse_error.101] ..."
  if (name_end != std::string_view::npos) message.remove_prefix(name_end + 2);
  const size_t reason = message.find(" - ");
  if (reason != std::string_view::npos) message.remove_prefix(reason + 3);
  return std::string(message.substr(0, message.find("; last read")));
}

Json ParseWithoutRepeatedKeys(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  return Json::parse(text, [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      Check(keys.back().insert(parsed).second, ShowJson(parsed), " is there twice");
    }
    return true;
  });
}

}  // namespace

Json ParseJson(std::string_view text, RepeatedKeys repeated) {
  CheckNesting(text);
  try {
    return repeated == RepeatedKeys::kRefused ? ParseWithoutRepeatedKeys(text) : Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw Error("is not JSON at byte ", error.byte, ": ", Reason(error.what()));
  } catch (const Json::exception& error) {  // a number too large
    throw Error("is not JSON: ", Reason(error.what()));
  }
}

std::string ShowJson(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

bool IsIntIn(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return high >= 0 && number <= static_cast<uint64_t>(high) &&
           (low <= 0 || number >= static_cast<uint64_t>(low));
  }
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

}  // namespace tinyvllm
