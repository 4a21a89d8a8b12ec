// cu2cpp: what it rewrites, what it leaves alone, and that every line stays where it was. That the
// results compile and run is checked by simulator_launch_test.cu.
#include "common/simulator/translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tinyvllm::simulator {
namespace {

std::string Translate(const std::string& source) {
  const std::string result = TranslateCuda(source, "dir/file.cu");
  const std::string head = "#line 1 \"dir/file.cu\"\n";
  EXPECT_EQ(result.substr(0, head.size()), head);
  const std::string body = result.substr(head.size());
  EXPECT_EQ(std::count(body.begin(), body.end(), '\n'),
            std::count(source.begin(), source.end(), '\n'))
      << body;
  return body;
}

// The launch of `callee` up to its configuration.
std::string Launch(const std::string& callee, const std::string& name = "") {
  return "::tinyvllm::simulator::Launch(\"" + (name.empty() ? callee : name) +
         "\", __FILE__, __LINE__, [=](auto&... a_) { " + callee +
         "(a_...); }, [=](auto t_) -> decltype(::tinyvllm::simulator::KernelAddress(" + callee +
         ", t_)) { return ::tinyvllm::simulator::KernelAddress(" + callee + ", t_); }, ";
}

std::string Dynamic(const std::string& type, const std::string& name) {
  return type + "* const " + name + " = reinterpret_cast<" + type +
         "*>(::tinyvllm::simulator::tinyvllm_simulator_dynamic_shared);";
}

TEST(Translator, LeavesOtherCodeAlone) {
  for (const char* source : {
           "",
           "int main() { return 1 << 3 >> 1; }\n",
           "// K<<<1, 1>>>(x); __shared__ int a;\n",
           "/* K<<<1, 1>>>(x);\n __shared__ int a; */ int x;\n",
           "const char* s = \"K<<<1, 1>>>(x); \\\" __shared__ int a;\";\n",
           "const char* s = R\"x(K<<<1, 1>>>(\")x\";\nchar c = '\"'; char d = '\\'';\n",
           "std::vector<std::vector<std::vector<int>>> x; long y = 1'000'000;\n",
           "#include <K<<<1>>>\n#error don't K<<<1>>>(x)\n",
           "// one line \\\n K<<<1, 1>>>(x);\n",
           "#ifndef __shared__\n#define __shared__\n#endif\n",
       }) {
    EXPECT_EQ(Translate(source), source);
  }
}

TEST(Translator, Launches) {
  const struct {
    const char *source, *callee, *rest;
  } kCases[] = {
      {"K<<<1, 2>>>(x);", "K", "1, 2)(x);"},
      {"K <<< 1, 2 >>> (x);", "K", " 1, 2 ) (x);"},
      {"ns::K<float, 4><<<g, b, 0, s>>>(x, y);", "ns::K<float,4>", "g, b, 0, s)(x, y);"},
      {"::K<<<1, 1>>>();", "::K", "1, 1)();"},
      {"A<B<C<int>>>::template K<2><<<1, 1>>>();", "A<B<C<int>>>::template K<2>", "1, 1)();"},
      {"K<A<B<int>>><<<1, 1>>>();", "K<A<B<int>>>", "1, 1)();"},
      {"K<(a > b)><<<1, 1>>>();", "K<(a>b)>", "1, 1)();"},
      {"this->k_<<<1, 1>>>();", "this->k_", "1, 1)();"},
      {"table[i].k<<<1, 1>>>();", "table[i].k", "1, 1)();"},
      {"Get(3)<<<1, 1>>>();", "Get(3)", "1, 1)();"},
      {"(a ? b : c)<<<1, 1>>>();", "(a?b:c)", "1, 1)();"},
      {"K<<<f(1, {2}), dim3(a[3], b < c)>>>(x);", "K", "f(1, {2}), dim3(a[3], b < c))(x);"},
  };
  for (const auto& c : kCases) EXPECT_EQ(Translate(c.source), Launch(c.callee) + c.rest);
}

TEST(Translator, LaunchesAfterOtherWords) {
  EXPECT_EQ(Translate("if (a) K<<<1, 1>>>();"), "if (a) " + Launch("K") + "1, 1)();");
  EXPECT_EQ(Translate("if (a) (k)<<<1, 1>>>();"), "if (a) " + Launch("(k)") + "1, 1)();");
  EXPECT_EQ(Translate("return K<<<1, 1>>>();"), "return " + Launch("K") + "1, 1)();");
  EXPECT_EQ(Translate("return ::K<<<1, 1>>>();"), "return " + Launch("::K") + "1, 1)();");
  EXPECT_EQ(Translate("else K<<<1, 1>>>();"), "else " + Launch("K") + "1, 1)();");
  EXPECT_EQ(Translate("a = b; K<<<1, 1>>>(); c();"), "a = b; " + Launch("K") + "1, 1)(); c();");
  EXPECT_EQ(Translate("CHECK(K<<<1, 1>>>(x));"), "CHECK(" + Launch("K") + "1, 1)(x));");
  EXPECT_EQ(Translate("#define RUN(K) K<<<1, 1>>>(x)\n"),
            "#define RUN(K) " + Launch("K") + "1, 1)(x)\n");
}

TEST(Translator, KeepsLines) {
  EXPECT_EQ(Translate("K<int,  // first\n  2>\n<<<\n1,\n2>>>(x,\n y);\n"),
            Launch("K<int,2>") + "\n\n\n1,\n2)(x,\n y);\n");
  EXPECT_EQ(Translate("#define RUN(K) \\\n  K<1, \\\n 2><<<1, \\\n 1>>>()\nint x;\n"),
            "#define RUN(K) \\\n  " + Launch("K<1,2>") + "\\\n1, \\\n 1)()\nint x;\n");
  EXPECT_EQ(Translate("void f() {\nextern __shared__\n float\n x[];\n}\n"),
            "void f() {\nfloat* const x = reinterpret_cast<float*>(::tinyvllm::simulator::"
            "tinyvllm_simulator_dynamic_shared)\n\n;\n}\n");
}

TEST(Translator, StaticSharedMemory) {
  const auto in_kernel = [](const std::string& text) { return "void k() { " + text + " }"; };
  const struct {
    const char *source, *expected;
  } kCases[] = {
      {"__shared__ float x;", "__shared__ float x; TINYVLLM_SIM_SHARED(x)"},
      {"__shared__ float x[4][N + 1], y;",
       "__shared__ float x[4][N + 1], y; TINYVLLM_SIM_SHARED(x) TINYVLLM_SIM_SHARED(y)"},
      {"__shared__ typename T<int, 3>::U x[f(1, 2)];",
       "__shared__ typename T<int, 3>::U x[f(1, 2)]; TINYVLLM_SIM_SHARED(x)"},
      {"static __shared__ int x;", "       __shared__ int x; TINYVLLM_SIM_SHARED(x)"},
      {"__shared__ alignas(16) int x[4];",
       "__shared__ __align__(16) int x[4]; TINYVLLM_SIM_SHARED(x)"},
      {"alignas(16) __shared__ int x[4];",
       "alignas(16) __shared__ int x[4]; TINYVLLM_SIM_SHARED(x)"},
      {"__shared__ struct { int a, b; } x;",
       "__shared__ struct { int a, b; } x; TINYVLLM_SIM_SHARED(x)"},
  };
  for (const auto& c : kCases) EXPECT_EQ(Translate(in_kernel(c.source)), in_kernel(c.expected));
}

TEST(Translator, DynamicSharedMemory) {
  EXPECT_EQ(Translate("void k() { extern __shared__ float x[]; }"),
            "void k() { " + Dynamic("float", "x") + " }");
  EXPECT_EQ(Translate("void k() { extern __shared__ __align__(16) unsigned char x[]; }"),
            "void k() { " + Dynamic("unsigned char", "x") + " }");
  EXPECT_EQ(Translate("void k() { extern alignas(16) __shared__ volatile int x[]; }"),
            "void k() { " + Dynamic("volatile int", "x") + " }");
  // In a namespace the name stands for the array itself.
  const std::string alias =
      "extern __thread float x[] __asm__(\"tinyvllm_simulator_dynamic_shared\") TINYVLLM_SIM_TLS;";
  EXPECT_EQ(Translate("extern __shared__ float x[];"), alias);
  EXPECT_EQ(Translate("namespace a::b { namespace { extern __shared__ float x[]; } }"),
            "namespace a::b { namespace { " + alias + " } }");
}

TEST(Translator, RegistersSharedVariablesOutsideFunctionsAtTheStart) {
  const std::string translated = Translate("namespace a { __shared__ float x[4], y; }");
  EXPECT_EQ(translated.find("namespace a { __shared__ float x[4], y; extern \"C\" int "), 0);
  for (const char* part :
       {"return (void*)&x; }, sizeof(x), \"x\");", "return (void*)&y; }, sizeof(y), \"y\");"}) {
    EXPECT_NE(translated.find(part), std::string::npos) << part << "\nin: " << translated;
  }
}

TEST(Translator, SaysWhereItCannotGoOn) {
  const struct {
    const char *source, *message;
  } kCases[] = {
      {"\n\nK<<<1, 1>>>;", "dir/file.cu:3: error: this <<< has no matching >>> followed by"},
      {"\nK<<<1, 1;", "dir/file.cu:2: error: this <<< has no matching >>>"},
      {"void k() {\n__shared__ int x", "dir/file.cu:2: error: this __shared__ declaration"},
      {"void k() { extern __shared__ int x; }", "dir/file.cu:1: error: extern __shared__ needs"},
      {"void k() { extern __shared__ int x[], y[]; }", "dir/file.cu:1: error: declare one extern"},
      {"= <<<1, 1>>>(x);", "dir/file.cu:1: error: no kernel before <<<"},
  };
  for (const auto& c : kCases) {
    try {
      TranslateCuda(c.source, "dir/file.cu");
      ADD_FAILURE() << "no error for " << c.source;
    } catch (const TranslationError& error) {
      EXPECT_EQ(std::string(error.what()).rfind(c.message, 0), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace tinyvllm::simulator
