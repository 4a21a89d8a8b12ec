#include "common/simulator/translator.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace tinyvllm::simulator {
namespace {

// --- Tokens. Space, comments and the names in #include lines are left out; a string is one token.

enum class Kind { kIdentifier, kNumber, kString, kPunctuation };

struct Token {
  Kind kind;
  size_t begin;
  size_t end;
};

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) Next();
    return std::move(tokens_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool StartsWith(std::string_view text) const {
    return source_.compare(at_, text.size(), text) == 0;
  }
  static bool IsIdentifier(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || (c & 0x80);
  }
  void Add(Kind kind, size_t begin) { tokens_.push_back({kind, begin, at_}); }

  void Next() {
    const char c = Peek();
    if (std::isspace(static_cast<unsigned char>(c)) || c == '\\') {
      ++at_;
    } else if (StartsWith("//")) {
      SkipLine();
    } else if (StartsWith("/*")) {
      const size_t end = source_.find("*/", at_ + 2);
      at_ = end == std::string::npos ? source_.size() : end + 2;
    } else if (c == '#' && IsInclude()) {
      SkipLine();
    } else if (c == '"' || c == '\'') {
      Quoted(at_);
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '.' && std::isdigit(static_cast<unsigned char>(Peek(1))))) {
      Number();
    } else if (IsIdentifier(c)) {
      Word();
    } else {
      Punctuation();
    }
  }

  // To the end of the line; a backslash at the end joins the next one.
  void SkipLine() {
    while (at_ < source_.size() && source_[at_] != '\n') at_ += source_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, source_.size());
  }

  bool IsInclude() const {
    size_t i = at_ + 1;
    while (i < source_.size() && (source_[i] == ' ' || source_[i] == '\t')) ++i;
    return source_.compare(i, 7, "include") == 0 || source_.compare(i, 5, "error") == 0 ||
           source_.compare(i, 7, "warning") == 0;
  }

  void Quoted(size_t begin) {
    const char quote = source_[at_++];
    while (at_ < source_.size() && source_[at_] != quote && source_[at_] != '\n') {
      at_ += source_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + 1, source_.size());
    Add(Kind::kString, begin);
  }

  // 1'000.5e-3f
  void Number() {
    const size_t begin = at_;
    while (IsIdentifier(Peek()) || Peek() == '.' || (Peek() == '\'' && IsIdentifier(Peek(1))) ||
           ((Peek() == '+' || Peek() == '-') &&
            std::string_view("eEpP").find(source_[at_ - 1]) != std::string_view::npos)) {
      ++at_;
    }
    Add(Kind::kNumber, begin);
  }

  // An identifier, or the prefix of a string.
  void Word() {
    const size_t begin = at_;
    while (IsIdentifier(Peek())) ++at_;
    const std::string_view word(&source_[begin], at_ - begin);
    if (Peek() == '"' &&
        (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R")) {
      RawString(begin);
    } else if ((Peek() == '"' || Peek() == '\'') &&
               (word == "L" || word == "u" || word == "U" || word == "u8")) {
      Quoted(begin);
    } else {
      Add(Kind::kIdentifier, begin);
    }
  }

  // R"delimiter(anything)delimiter"
  void RawString(size_t begin) {
    const size_t open = source_.find('(', at_);
    if (open == std::string::npos) {
      at_ = source_.size();
    } else {
      const std::string close = ")" + source_.substr(at_ + 1, open - at_ - 1) + "\"";
      const size_t end = source_.find(close, open);
      at_ = end == std::string::npos ? source_.size() : end + close.size();
    }
    Add(Kind::kString, begin);
  }

  // Only what the search below must see as one: `<` and `>` stay single characters.
  void Punctuation() {
    const size_t begin = at_;
    if (StartsWith("<<<") || StartsWith(">>>")) {
      at_ += 3;
    } else if (StartsWith("::") || StartsWith("->")) {
      at_ += 2;
    } else {
      ++at_;
    }
    Add(Kind::kPunctuation, begin);
  }

  const std::string& source_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

// --- The translation.

class Translator {
 public:
  Translator(const std::string& source, const std::string& path)
      : source_(source), path_(path), tokens_(Lexer(source).Run()) {}

  std::string Run() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      TrackScope(i);
      if (Is(i, "<<<")) {
        Launch(i);
      } else if (Is(i, "__shared__") && !IsMacroName(i)) {
        Shared(i);
      }
    }
    return Apply();
  }

 private:
  struct Edit {
    size_t begin, end;  // of the source
    std::string text;
  };

  std::string_view Text(size_t i) const {
    return std::string_view(source_).substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin);
  }
  bool Is(size_t i, std::string_view text) const {
    return i < tokens_.size() && tokens_[i].kind != Kind::kString && Text(i) == text;
  }
  bool IsIdentifier(size_t i) const {
    return i < tokens_.size() && tokens_[i].kind == Kind::kIdentifier;
  }
  bool IsOpening(size_t i) const { return Is(i, "(") || Is(i, "[") || Is(i, "{"); }
  bool IsClosing(size_t i) const { return Is(i, ")") || Is(i, "]") || Is(i, "}"); }

  [[noreturn]] void Fail(size_t token, const std::string& problem) const {
    const size_t end = tokens_[token].begin;
    const auto line = 1 + std::count(source_.begin(), source_.begin() + end, '\n');
    throw TranslationError(path_ + ":" + std::to_string(line) + ": error: " + problem);
  }

  // --- Scopes: what a brace opens, a namespace or anything else.

  void TrackScope(size_t i) {
    if (Is(i, "{")) {
      // namespace a::b {   namespace {   extern "C" {
      size_t first = i;
      while (first > 0 && (IsIdentifier(first - 1) || Is(first - 1, "::")) &&
             !Is(first - 1, "namespace")) {
        --first;
      }
      const bool is_namespace = first > 0 && Is(first - 1, "namespace");
      const bool is_linkage = i >= 2 && tokens_[i - 1].kind == Kind::kString && Is(i - 2, "extern");
      scopes_.push_back(is_namespace || is_linkage);
    } else if (Is(i, "}") && !scopes_.empty()) {
      scopes_.pop_back();
    }
  }
  bool InFunction() const {
    return std::find(scopes_.begin(), scopes_.end(), false) != scopes_.end();
  }

  // #define __shared__, #ifdef __shared__
  bool IsMacroName(size_t i) const {
    return i > 0 && (Is(i - 1, "define") || Is(i - 1, "ifdef") || Is(i - 1, "ifndef") ||
                     Is(i - 1, "undef") || Is(i - 1, "defined"));
  }

  // --- Launches.

  void Launch(size_t open) {
    const size_t close = FindLaunchEnd(open);
    const size_t first = FindCallee(open);
    std::string callee;
    for (size_t i = first; i < open; ++i) {
      // Two words side by side need a space between them, as in `template Run`.
      if (!callee.empty() && (IsIdentifier(i) || tokens_[i].kind == Kind::kNumber) &&
          IsIdentifier(i - 1)) {
        callee += ' ';
      }
      callee += Text(i);
    }
    const size_t begin = tokens_[first].begin;
    const size_t end = tokens_[open].end;
    const auto lines = std::count(source_.begin() + begin, source_.begin() + end, '\n');
    // Inside a macro's definition a line ends with a backslash.
    const bool continued = source_.find("\\\n", begin) < end;
    std::string text =
        "::tinyvllm::simulator::Launch(\"" + Escaped(callee) +
        "\", __FILE__, __LINE__, [=](auto&... a_) { " + callee +
        "(a_...); }, [=](auto t_) -> decltype(::tinyvllm::simulator::KernelAddress(" + callee +
        ", t_)) { return ::tinyvllm::simulator::KernelAddress(" + callee + ", t_); }, ";
    for (long i = 0; i < lines; ++i) text += continued ? "\\\n" : "\n";
    edits_.push_back({begin, end, text});
    edits_.push_back({tokens_[close].begin, tokens_[close].end, ")"});
  }

  static std::string Escaped(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return escaped;
  }

  // The `>>>` that closes a launch: outside of all brackets, and an argument list follows.
  size_t FindLaunchEnd(size_t open) const {
    int depth = 0;
    for (size_t i = open + 1; i < tokens_.size(); ++i) {
      if (IsOpening(i)) ++depth;
      if (IsClosing(i) && --depth < 0) break;
      if (depth == 0 && Is(i, ">>>") && Is(i + 1, "(")) return i;
      if (depth == 0 && Is(i, ";")) break;
    }
    Fail(open, "this <<< has no matching >>> followed by an argument list");
  }

  // The first token of the expression that names the kernel, reading backwards from `<<<`:
  // Scale, ns::Scale<float, 4>, Tile<T>::template Run<8>, (fast ? &A : &B), table[i].launch, ...
  size_t FindCallee(size_t open) const {
    size_t first = open;
    for (;;) {
      first = SkipSuffixes(first, open);
      if (first == 0 || !IsIdentifier(first - 1)) {
        if (first == open) Fail(open, "no kernel before <<<");
        return first;  // an expression in parentheses
      }
      --first;
      if (first > 0 && Is(first - 1, "template")) --first;
      if (first == 0) return first;
      if (Is(first - 1, ".") || Is(first - 1, "->")) {
        --first;
      } else if (Is(first - 1, "::")) {
        --first;
        const bool qualified =
            first > 0 && (Is(first - 1, ">") || Is(first - 1, ">>>") ||
                          (IsIdentifier(first - 1) && !IsStatementWord(first - 1)));
        if (!qualified) return first;  // ::Scale
      } else {
        return first;
      }
    }
  }

  // Template arguments, calls and subscripts that end at `end`.
  size_t SkipSuffixes(size_t end, size_t open) const {
    while (end > 0) {
      if (Is(end - 1, ">") || Is(end - 1, ">>>")) {
        end = MatchAngleBackwards(end - 1, open);
      } else if (Is(end - 1, ")") || Is(end - 1, "]")) {
        const size_t begin = MatchBackwards(end - 1, open);
        // if (big) Scale<<<...>>>: the parentheses of the statement belong to no callee.
        if (begin > 0 && IsStatementWord(begin - 1)) return end;
        end = begin;
      } else {
        break;
      }
    }
    return end;
  }

  bool IsStatementWord(size_t i) const {
    for (const char* word :
         {"return", "else", "do", "if", "while", "for", "switch", "case", "throw"}) {
      if (Is(i, word)) return true;
    }
    return false;
  }

  size_t MatchBackwards(size_t close, size_t open) const {
    int depth = 0;
    for (size_t i = close + 1; i-- > 0;) {
      if (IsClosing(i)) ++depth;
      if (IsOpening(i) && --depth == 0) return i;
    }
    Fail(open, "unbalanced brackets before <<<");
  }

  // The `<` of the template arguments that end at `close`. `<` and `>` in parentheses are
  // comparisons.
  size_t MatchAngleBackwards(size_t close, size_t open) const {
    int depth = 0;
    for (size_t i = close + 1; i-- > 0;) {
      if (IsClosing(i)) {
        i = MatchBackwards(i, open);
      } else if (Is(i, ">>>")) {
        depth += 3;
      } else if (Is(i, ">")) {
        ++depth;
      } else if (Is(i, "<") && --depth == 0) {
        return i;
      } else if (Is(i, ";") || Is(i, "{")) {
        break;
      }
    }
    Fail(open, "unbalanced template arguments before <<<");
  }

  // --- Shared memory.

  void Shared(size_t word) {
    const size_t first = DeclarationBegin(word);
    size_t semicolon = word;
    for (int depth = 0; !(depth == 0 && Is(semicolon, ";")); ++semicolon) {
      if (semicolon + 1 >= tokens_.size() || (depth == 0 && IsClosing(semicolon))) {
        Fail(word, "this __shared__ declaration does not end with a semicolon");
      }
      if (IsOpening(semicolon)) ++depth;
      if (IsClosing(semicolon)) --depth;
    }
    bool is_extern = false;
    for (size_t i = first; i < semicolon; ++i) is_extern |= Is(i, "extern");
    if (is_extern) {
      ExternShared(first, word, semicolon);
    } else {
      StaticShared(first, word, semicolon);
    }
  }

  size_t DeclarationBegin(size_t word) const {
    size_t first = word;
    while (first > 0 && !Is(first - 1, ";") && !Is(first - 1, "{") && !Is(first - 1, "}") &&
           !Is(first - 1, ":") && !(Is(first - 1, ")") && !IsAlignment(first - 1))) {
      if (Is(first - 1, ")")) {
        first = MatchBackwards(first - 1, word);
      } else {
        --first;
      }
    }
    return first;
  }

  // Whether this parenthesis closes alignas(...), __align__(...) or __attribute__((...)).
  bool IsAlignment(size_t close) const {
    const size_t open = MatchBackwards(close, close);
    return open > 0 &&
           (Is(open - 1, "alignas") || Is(open - 1, "__align__") || Is(open - 1, "__attribute__"));
  }

  // alignas must come first in a declaration; written after __shared__, it becomes the attribute,
  // which may stand anywhere.
  void MoveAlignas(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      if (Is(i, "alignas")) edits_.push_back({tokens_[i].begin, tokens_[i].end, "__align__"});
    }
  }

  void StaticShared(size_t first, size_t word, size_t semicolon) {
    MoveAlignas(word, semicolon);
    for (size_t i = first; i < semicolon; ++i) {
      // The macro __shared__ says static itself.
      if (Is(i, "static")) edits_.push_back({tokens_[i].begin, tokens_[i].end, "      "});
    }
    std::string registrations;
    for (const std::string& name : DeclaredNames(word + 1, semicolon)) {
      registrations +=
          InFunction() ? " TINYVLLM_SIM_SHARED(" + name + ")" : NamespaceRegistration(name);
    }
    edits_.push_back({tokens_[semicolon].end, tokens_[semicolon].end, registrations});
  }

  // No thread comes past a declaration outside functions: the program tells at its start where the
  // variable of an OS thread lies (watch.h).
  static std::string NamespaceRegistration(const std::string& name) {
    return " extern \"C\" int tinyvllm_simulator_namespace_shared(void* (*)(), unsigned long,"
           " const char*); [[maybe_unused]] static const int tinyvllm_shared_" +
           name + " = tinyvllm_simulator_namespace_shared([]() -> void* { return (void*)&" + name +
           "; }, sizeof(" + name + "), \"" + name + "\");";
  }

  // The names that a declaration declares: the last identifier of each declarator, with subscripts,
  // template arguments, attributes and initialisers left out.
  std::vector<std::string> DeclaredNames(size_t begin, size_t semicolon) const {
    std::vector<std::string> names;
    std::string name;
    bool in_initialiser = false;
    int angles = 0;
    for (size_t i = begin; i <= semicolon; ++i) {
      if (angles == 0 && (Is(i, ",") || i == semicolon)) {
        if (name.empty()) Fail(begin - 1, "this __shared__ declaration names no variable");
        names.push_back(name);
        in_initialiser = false;
      } else if (IsOpening(i)) {
        i = MatchForwards(i);
      } else if (Is(i, "<")) {
        ++angles;
      } else if (Is(i, ">")) {
        --angles;
      } else if (Is(i, ">>>")) {
        angles -= 3;
      } else if (Is(i, "=")) {
        in_initialiser = true;
      } else if (IsIdentifier(i) && angles == 0 && !in_initialiser) {
        name = Text(i);
      }
    }
    return names;
  }

  size_t MatchForwards(size_t open) const {
    int depth = 0;
    for (size_t i = open; i < tokens_.size(); ++i) {
      if (IsOpening(i)) ++depth;
      if (IsClosing(i) && --depth == 0) return i;
    }
    Fail(open, "unbalanced brackets");
  }

  // In a function a pointer; elsewhere a second name of the array itself, as a namespace has no
  // moment at which a pointer could be set.
  void ExternShared(size_t first, size_t word, size_t semicolon) {
    for (size_t i = word; i < semicolon; ++i) {
      if (Is(i, ",")) Fail(word, "declare one extern __shared__ array a statement");
    }
    size_t bracket = semicolon;
    while (bracket > word && !Is(bracket, "[")) --bracket;
    if (bracket == word || !IsIdentifier(bracket - 1) || bracket + 2 != semicolon) {
      Fail(word, "extern __shared__ needs an array without a length, such as float scratch[]");
    }
    if (InFunction()) {
      DynamicSharedPointer(first, bracket, semicolon);
      return;
    }
    MoveAlignas(first, semicolon);
    edits_.push_back({tokens_[word].begin, tokens_[word].end, "__thread"});
    edits_.push_back({tokens_[semicolon].begin, tokens_[semicolon].begin,
                      " __asm__(\"tinyvllm_simulator_dynamic_shared\") TINYVLLM_SIM_TLS"});
  }

  // extern __shared__ __align__(16) T name[];  becomes
  // T* name = reinterpret_cast<T*>(...);
  void DynamicSharedPointer(size_t first, size_t bracket, size_t semicolon) {
    std::string type;
    for (size_t i = first; i + 1 < bracket; ++i) {
      if (Is(i, "extern") || Is(i, "__shared__")) continue;
      if (Is(i, "alignas") || Is(i, "__align__") || Is(i, "__attribute__")) {
        i = MatchForwards(i + 1);
        continue;
      }
      if (!type.empty()) type += ' ';
      type += Text(i);
    }
    const std::string name(Text(bracket - 1));
    const size_t begin = tokens_[first].begin;
    const size_t end = tokens_[semicolon].begin;
    std::string text = type + "* const " + name + " = reinterpret_cast<" + type +
                       "*>(::tinyvllm::simulator::tinyvllm_simulator_dynamic_shared)";
    const bool continued = source_.find("\\\n", begin) < end;
    const auto lines = std::count(source_.begin() + begin, source_.begin() + end, '\n');
    for (long i = 0; i < lines; ++i) text += continued ? "\\\n" : "\n";
    edits_.push_back({begin, end, text});
  }

  // --- Putting it together.

  std::string Apply() {
    std::stable_sort(edits_.begin(), edits_.end(),
                     [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
    std::string result = "#line 1 \"" + Escaped(path_) + "\"\n";
    size_t at = 0;
    for (const Edit& edit : edits_) {
      result.append(source_, at, edit.begin - at);
      result += edit.text;
      at = edit.end;
    }
    result.append(source_, at, std::string::npos);
    return result;
  }

  const std::string& source_;
  const std::string& path_;
  const std::vector<Token> tokens_;
  std::vector<bool> scopes_;  // of the open braces: whether each is a namespace's
  std::vector<Edit> edits_;
};

}  // namespace

std::string TranslateCuda(const std::string& source, const std::string& path) {
  return Translator(source, path).Run();
}

}  // namespace tinyvllm::simulator
