// JSON that came from outside: parsed with bounded nesting, compared without wrap-around, and shown
// in one-line messages.
//
//   const Json config = ParseJson(text);
//   Check(IsIntIn(config["size"], 1, 100), "size is ", ShowJson(config["size"]));
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tinyvllm {

// Of a key that an object has twice. JSON leaves open what it means; most programs take the last.
enum class RepeatedKeys { kLastCounts, kRefused };

// Throws Error with the place for what is not JSON, and for lists and objects that nest deeper than
// 32 levels: printing or copying a value takes stack for each.
nlohmann::json ParseJson(std::string_view text, RepeatedKeys repeated = RepeatedKeys::kLastCounts);

// A value, or the start of a long one, as one line of ASCII.
std::string ShowJson(const nlohmann::json& value);

// True for a whole number from `low` to `high`. Comparing a value itself with an int takes
// 18446744073709551615 for -1.
bool IsIntIn(const nlohmann::json& value, int64_t low, int64_t high);

}  // namespace tinyvllm
