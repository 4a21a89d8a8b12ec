#include "lessons/02_tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "common/base/error.h"
#include "lessons/02_tokenizer/utf8.h"

namespace tinyvllm {
namespace {

// An honest expression needs a handful of steps a word; these bound a hostile one.
constexpr size_t kMaxExpressionBytes = 16384;
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

using CompileContext =
    std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

std::string Pcre2Message(int code) {
  char message[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
  return message;
}

// Letters and numbers that Unicode 15 and 16 added, as ranges for a class. The reference knows
// them; the PCRE2 of Debian 12 stops at Unicode 14, and one that knows them too loses nothing.
constexpr std::string_view kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C})"
    R"(\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kNewNumbers =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

// tokenizer.json's expressions are written for Oniguruma. In PCRE2 three sets differ from its own:
// \p{L} and \p{N} are those of an older Unicode, and \s has U+180E, which left White_Space in
// Unicode 6.3. So say each in full.
std::string ToPcre2(std::string_view expression) {
  struct Set {
    std::string_view name;
    std::string in_class;
  };
  const Set sets[] = {{"\\p{L}", StrCat("\\p{L}", kNewLetters)},
                      {"\\p{N}", StrCat("\\p{N}", kNewNumbers)},
                      {"\\s", "\\p{White_Space}"},
                      {"\\S", "\\P{White_Space}"}};
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < expression.size();) {
    const auto starts_here = [&](const Set& set) {
      return expression.substr(i, set.name.size()) == set.name;
    };
    const Set* set = std::find_if(std::begin(sets), std::end(sets), starts_here);
    if (set != std::end(sets)) {
      result += in_class ? set->in_class : "[" + set->in_class + "]";
      i += set->name.size();
      continue;
    }
    if (expression[i] == '[') in_class = true;
    if (expression[i] == ']') in_class = false;
    const size_t length = expression[i] == '\\' ? 2 : 1;
    result += expression.substr(i, length);
    i += length;
  }
  return result;
}

pcre2_code* Compile(std::string_view expression) {
  Check(expression.size() <= kMaxExpressionBytes, "pre_tokenizer: the expression has ",
        expression.size(), " bytes, expected at most ", kMaxExpressionBytes);
  const std::string pattern = ToPcre2(expression);
  const CompileContext context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &error_offset, context.get());
  Check(code != nullptr, "pre_tokenizer: the expression does not compile: ", Pcre2Message(error));
  // Where PCRE2 has no just-in-time compiler for this machine, pcre2_match interprets.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

// The next match at or after `start`, as the ovector of `data`; false when there is none.
bool FindMatch(const pcre2_code* code, std::string_view text, size_t start, pcre2_match_data* data,
               pcre2_match_context* limits) {
  const auto match = [&](uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       PCRE2_NO_UTF_CHECK | options, data, limits);
  };
  int result = match(0);
  // Compiled code keeps its backtracking on a small fixed stack; the interpreter's is on the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  Check(result >= 0, "pre_tokenizer: the expression gave up at byte ", start, " of ", text.size(),
        ": ", Pcre2Message(result));
  return true;
}

}  // namespace

PreTokenizer::PreTokenizer(std::string_view expression)
    : expression_(expression), code_(Compile(expression), [](const void* code) {
        pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(code)));
      }) {}

// tag::split[]
std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  CheckUtf8(text);  // PCRE2 relies on it
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const MatchContext limits(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  Check(data != nullptr && limits != nullptr, "pre_tokenizer: out of memory");
  pcre2_set_match_limit(limits.get(), kMatchLimit);
  pcre2_set_heap_limit(limits.get(), kHeapLimitKib);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());

  std::vector<std::string_view> words;
  const auto add_word = [&](size_t begin, size_t end) {
    if (begin < end) words.push_back(text.substr(begin, end - begin));
  };
  size_t done = 0;   // all before it is in `words`
  size_t start = 0;  // where to look for the next match
  while (start < text.size() && FindMatch(code, text, start, data.get(), limits.get())) {
    const size_t begin = bounds[0], end = bounds[1];
    add_word(done, begin);
    add_word(begin, end);
    done = end;
    start = end;
    // An empty match cuts the text where it stands; step over a character, or it is found again.
    if (begin == end && end < text.size()) start += DecodeUtf8(text, end).length;
  }
  add_word(done, text.size());
  return words;
}
// end::split[]

}  // namespace tinyvllm
