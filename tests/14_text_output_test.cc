// Checks of lesson 14's text output: stop strings are cut exactly, whatever the tokens.
#include "lessons/14_engine/text_output.h"

#include <gtest/gtest.h>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/testing/random.h"

namespace tinyvllm {
namespace {

class TextOutputTest : public testing::Test {
 protected:
  // A token for each byte: the worst case for whatever spans tokens.
  std::vector<int> ByteTokens(const std::string& text) {
    std::vector<int> ids;
    for (const char c : text) ids.push_back(*tokenizer_.TokenId(std::string(1, c)));
    return ids;
  }

  std::string Run(const std::vector<int>& ids, const std::vector<std::string>& stop,
                  bool* stopped = nullptr) {
    TextOutput output(tokenizer_, stop);
    std::string text;
    for (const int id : ids) {
      text += output.Push(id);
      for (const std::string& s : stop) EXPECT_EQ(text.find(s), std::string::npos);
    }
    text += output.Flush();
    EXPECT_EQ(text, output.text());
    if (stopped != nullptr) *stopped = output.stopped();
    return text;
  }

  const Tokenizer tokenizer_ = Tokenizer::FromFile(DataPath("models/pocket/tokenizer.json"));
  Random random_{14};
};

TEST_F(TextOutputTest, WithoutStopStringsIsDecode) {
  const std::string text = "Grüße, 世界 👩‍👩‍👧 done";
  EXPECT_EQ(Run(tokenizer_.Encode(text), {}), text);
  EXPECT_EQ(Run(ByteTokens(text), {}), text);
}

TEST_F(TextOutputTest, CutsWhereTheStopStringBegins) {
  for (const auto& ids : {tokenizer_.Encode("one two three"), ByteTokens("one two three")}) {
    bool stopped = false;
    EXPECT_EQ(Run(ids, {"two"}, &stopped), "one ");
    EXPECT_TRUE(stopped);
    EXPECT_EQ(Run(ids, {"ne tw"}), "o");
    EXPECT_EQ(Run(ids, {"one two three"}), "");
    EXPECT_EQ(Run(ids, {"e"}), "on");
    EXPECT_EQ(Run(ids, {"threes", "twos"}, &stopped), "one two three");
    EXPECT_FALSE(stopped);
  }
}

TEST_F(TextOutputTest, ShowsNoPartOfAStopStringAndHoldsNothingElse) {
  TextOutput output(tokenizer_, {"abc"});
  const std::vector<int> ids = ByteTokens("xababab");
  const std::vector<std::string> shown = {"x", "", "", "ab", "", "ab", ""};
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(output.Push(ids[i]), shown[i]) << i;
  EXPECT_EQ(output.Flush(), "ab") << "the text ends in what never became a stop string";
}

TEST_F(TextOutputTest, TheFirstToBeCompleteCounts) {
  for (const auto& ids : {tokenizer_.Encode("say abcd now"), ByteTokens("say abcd now")}) {
    EXPECT_EQ(Run(ids, {"abcd", "b"}), "say a") << "b is complete before abcd";
    EXPECT_EQ(Run(ids, {"c", "abc"}), "say ") << "both end at c: the longer one";
  }
}

TEST_F(TextOutputTest, HoldsACharacterThatAStopStringMayBeginWith) {
  const std::string text = "ok 世界";
  EXPECT_EQ(Run(ByteTokens(text), {"界"}), "ok 世");
  EXPECT_EQ(Run(ByteTokens(text), {"世!"}), text);
}

TEST_F(TextOutputTest, HalfACharacterAtTheEndIsReplaced) {
  const std::vector<int> ids = ByteTokens("a\xe4\xb8");
  EXPECT_EQ(Run(ids, {}), "a\xEF\xBF\xBD");
  EXPECT_EQ(Run(ids, {"zz"}), "a\xEF\xBF\xBD");
}

TEST_F(TextOutputTest, NothingComesAfterAStopString) {
  TextOutput output(tokenizer_, {"b"});
  EXPECT_EQ(output.Push(ByteTokens("a")[0]), "a");
  EXPECT_EQ(output.Push(ByteTokens("b")[0]), "");
  EXPECT_EQ(output.Push(ByteTokens("c")[0]), "");
  EXPECT_EQ(output.Flush(), "");
}

TEST_F(TextOutputTest, SpecialAndUnknownTokensHaveNoText) {
  const int eot = *tokenizer_.SpecialTokenId("<|eot_id|>");
  EXPECT_EQ(Run({ByteTokens("a")[0], eot, 1 << 20, ByteTokens("b")[0]}, {}), "ab");
}

TEST_F(TextOutputTest, RefusesAnEmptyStopString) {
  EXPECT_THROW(TextOutput(tokenizer_, {"a", ""}), Error);
}

// Against the definition, with few letters so that there are many near misses.
TEST_F(TextOutputTest, RandomTextsAgreeWithTheDefinition) {
  const auto letters = [&](int longest) {
    std::string text;
    for (int n = random_.Integer(1, longest); n > 0; --n) text += "abc"[random_.Integer(0, 2)];
    return text;
  };
  int cut = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = letters(40);
    std::vector<std::string> stop;
    for (int n = random_.Integer(1, 3); n > 0; --n) stop.push_back(letters(5));
    size_t expected = text.size();
    for (size_t end = 1; end <= text.size() && expected == text.size(); ++end) {
      for (const std::string& s : stop) {
        if (end >= s.size() && text.compare(end - s.size(), s.size(), s) == 0) {
          expected = std::min(expected, end - s.size());
        }
      }
    }
    const auto ids = round % 2 == 0 ? ByteTokens(text) : tokenizer_.Encode(text);
    ASSERT_EQ(Run(ids, stop), text.substr(0, expected)) << text << " stop " << stop[0];
    cut += expected < text.size();
  }
  EXPECT_GT(cut, 500);
}

}  // namespace
}  // namespace tinyvllm
