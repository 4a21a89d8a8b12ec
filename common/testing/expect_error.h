// Checks of what is refused, and how.
//
//   EXPECT_ERROR(Tokenizer::FromFile("nowhere"), "nowhere", "cannot be opened");
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"

namespace tinyvllm {

// The message of the Error that `call` throws; a failure when it throws none.
template <typename Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace tinyvllm

// `call` throws an Error of one line, and each of the texts that follow is in it.
#define EXPECT_ERROR(call, ...)                                                              \
  do {                                                                                       \
    const std::string message = ::tinyvllm::ErrorOf([&] { call; });                          \
    for (const char* part : {__VA_ARGS__}) {                                                 \
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message; \
    }                                                                                        \
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;                             \
  } while (false)
