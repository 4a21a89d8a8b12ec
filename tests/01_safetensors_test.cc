// Checks of lesson 01: element types, header, file, checkpoint, arena, upload.
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/data_path.h"
#include "common/base/error.h"
#include "common/base/model_presets.h"
#include "common/base/quote.h"
#include "common/cuda/bf16.h"
#include "common/cuda/buffer.h"
#include "common/testing/guide.h"
#include "common/testing/random.h"
#include "lessons/01_safetensors/arena.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/dtype.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/01_safetensors/safetensors.h"
#include "lessons/01_safetensors/upload.h"

namespace tinyvllm {
namespace {

namespace fs = std::filesystem;

// The message of the Error that `call` throws; a failure when it throws none.
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_LT(std::strlen(error.what()), 1000u);
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

testing::AssertionResult Contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << "\n  should say: " << part;
}

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(Contains(text, part))

std::string LittleEndian(uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  for (size_t i = 0; i < sizeof(value); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string FileBytes(const std::string& header, const std::string& data) {
  return LittleEndian(header.size()) + header + data;
}

// What SafetensorsFile does, on bytes in memory whose end AddressSanitizer watches.
std::vector<TensorView> Views(std::string_view file) {
  const size_t length = HeaderLength(file, "m");
  const Header header = ParseHeader(file.substr(8, length), "m");
  return MakeViews(header.tensors, file.substr(8 + length), "m");
}

// The Error for a file of this header and so many bytes of data.
std::string Refusal(const std::string& header, size_t data_bytes) {
  const std::string file = FileBytes(header, std::string(data_bytes, 'x'));
  return ErrorOf([&] { Views(file); });
}

// A fresh folder of this test's own.
std::string TempFolder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder = fs::path(testing::TempDir()) / test->test_suite_name() / test->name();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

std::string WriteFile(const std::string& folder, const std::string& name,
                      const std::string& content) {
  const fs::path path = fs::path(folder) / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

// --- First steps: MakeViews, the exercise, on a file whose data one can read: "ABCDEFGHxyz12".

constexpr std::string_view kReadable = "ABCDEFGHxyz12";
const std::vector<HeaderEntry> kSound = {{"a", DType::kBF16, {2, 2}, 0, 8},
                                         {"empty", DType::kF32, {0, 4}, 8, 8},
                                         {"b", DType::kU8, {3}, 8, 11},
                                         {"c", DType::kU8, {2}, 11, 13}};

std::vector<std::string> Lines(const std::vector<HeaderEntry>& entries) {
  std::vector<std::string> lines;
  for (const HeaderEntry& entry : entries) {
    lines.push_back(StrCat(entry.name, ": ", DTypeName(entry.dtype), " ", ShapeText(entry.shape),
                           ", bytes ", entry.begin, " to ", entry.end));
  }
  return lines;
}

TEST(ViewsFirstSteps, OfASoundFile) {
  // What comes when the view of each entry has these bytes.
  const auto Seen = [](const std::function<std::string_view(const HeaderEntry& entry)>& bytes) {
    std::vector<std::string> views;
    for (const HeaderEntry& entry : kSound) {
      views.push_back(StrCat(entry.name, ": ", DTypeName(entry.dtype), " ", ShapeText(entry.shape),
                             ", the bytes '", bytes(entry), "'"));
    }
    return views;
  };
  const auto Cut = [](size_t begin, size_t size) {
    return kReadable.substr(std::min(begin, kReadable.size()), size);
  };
  EXPECT_TRUE(
      Guide("docs/01_safetensors.md#the-format")
          .Input("data", std::string(kReadable))
          .Input("entries", Lines(kSound))
          .Start(
              "write MakeViews in lessons/01_safetensors/exercise/safetensors.cc: begin with the "
              "bytes of each view, which are those of `data` from `begin` up to, but not with, "
              "`end`",
              Seen([&](const HeaderEntry&) { return Cut(0, 0); }))
          .Mistake("the second argument of substr is how many bytes there are, not where they end",
                   Seen([&](const HeaderEntry& e) { return Cut(e.begin, e.end); }))
          .Mistake("the offsets were counted from the beginning of the file; they count from the "
                   "end of the header, where `data` begins",
                   Seen([&](const HeaderEntry& e) { return Cut(e.begin + 8, e.end - e.begin); }))
          .Mistake("as many bytes were taken as there are elements; an element has DTypeBytes",
                   Seen([&](const HeaderEntry& e) {
                     return Cut(e.begin, (e.end - e.begin) / DTypeBytes(e.dtype));
                   }))
          .Mistake("every view begins at byte 0 of the data; a tensor begins at its `begin`",
                   Seen([&](const HeaderEntry& e) { return Cut(0, e.end - e.begin); }))
          .Mistake("every view goes on to the end of the data; a tensor ends at its `end`",
                   Seen([&](const HeaderEntry& e) { return Cut(e.begin, kReadable.size()); }))
          .Mistake("every view is one byte too long: byte `end` belongs to the next tensor",
                   Seen([&](const HeaderEntry& e) { return Cut(e.begin, e.end - e.begin + 1); }))
          .Mistake("every view is all of the data",
                   Seen([&](const HeaderEntry&) { return kReadable; }))
          .WhenRefused(
              "a sound file was refused. An empty tensor begins and ends at the same byte, "
              "and 0 x 4 elements have 0 bytes; that is no fault")
          .Compare(
              [&] {
                std::vector<std::string> views;
                for (const TensorView& view : MakeViews(kSound, kReadable, "model")) {
                  views.push_back(StrCat(view.name, ": ", DTypeName(view.dtype), " ",
                                         ShapeText(view.shape), ", the bytes '", view.bytes, "'"));
                }
                return views;
              },
              Seen([&](const HeaderEntry& e) { return Cut(e.begin, e.end - e.begin); })));
}

// A claim that must be refused, and what is to be looked at. `data` stays as it is.
testing::AssertionResult CheckRefused(const std::vector<HeaderEntry>& entries, const char* cause) {
  return Guide("docs/01_safetensors.md#what-can-be-wrong")
      .Input("data", StrCat(kReadable, ", ", kReadable.size(), " bytes"))
      .Input("entries", Lines(entries))
      .Mistake(cause, "accepted")
      .Mistake(
          "something threw that is no Error, such as substr where `begin` lies behind the end: "
          "compare first, and throw Error with the tensor's name",
          "another exception")
      .Compare(
          [&]() -> Values {
            try {
              MakeViews(entries, kReadable, "model");
            } catch (const Error&) {
              return "refused";
            } catch (const std::exception&) {
              return "another exception";
            }
            return "accepted";
          },
          "refused");
}

TEST(ViewsFirstSteps, RefuseWhatIsNotSound) {
  constexpr DType kByte = DType::kU8;
  ASSERT_TRUE(
      CheckRefused({{"a", kByte, {14}, 0, 14}}, "tensor a ends behind the end of the data"));
  ASSERT_TRUE(
      CheckRefused({{"a", kByte, {6}, 0, 6}, {"b", kByte, {6}, 7, 13}},
                   "between a and b lies byte 6, which no tensor has: each begins where the "
                   "one before it ended"));
  ASSERT_TRUE(CheckRefused({{"a", kByte, {8}, 0, 8}, {"b", kByte, {6}, 7, 13}},
                           "byte 7 belongs to a and to b: each begins where the one before it "
                           "ended"));
  ASSERT_TRUE(CheckRefused({{"a", kByte, {12}, 1, 13}},
                           "byte 0 belongs to no tensor: the first begins at 0"));
  ASSERT_TRUE(CheckRefused({{"a", kByte, {12}, 0, 12}},
                           "the last byte belongs to no tensor: the last one ends with the data"));
  ASSERT_TRUE(
      CheckRefused({{"a", kByte, {3}, 0, 13}}, "a has 13 bytes, but its shape and dtype need 3"));
  ASSERT_TRUE(CheckRefused({{"a", DType::kBF16, {13}, 0, 13}},
                           "a has 13 bytes, but 13 elements of 2 bytes need 26"));
  ASSERT_TRUE(CheckRefused({{"a", kByte, {13}, 0, 13}, {"b", kByte, {0}, 13, 5}},
                           "b ends before it begins"));
  const size_t half = size_t{1} << 32;
  ASSERT_TRUE(CheckRefused({{"a", kByte, {half, half}, 0, 0}, {"b", kByte, {13}, 0, 13}},
                           "2^32 times 2^32 bytes are not 0, though a product of 64 bits says so: "
                           "__builtin_mul_overflow tells"));
}

// --- dtype.h

TEST(DType, NamesAndSizesAreTheFormats) {
  const std::vector<std::pair<std::string, size_t>> expected = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [name, bytes] : expected) {
    const std::optional<DType> dtype = DTypeFromName(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(DTypeBytes(*dtype), bytes) << name;
  }
  EXPECT_FALSE(DTypeFromName("bf16").has_value());
  EXPECT_FALSE(DTypeFromName("").has_value());
}

// The value of F16 bits by the definition of the format.
double ValueOfF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                       : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(DType, EveryF16IsExactInF32) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double expected = ValueOfF16(static_cast<uint16_t>(bits));
    const float actual = F32FromF16(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
    }
  }
}

// Rounding by its definition: of the two neighbours the nearer, or the even one.
uint16_t NearestBF16(float value) {
  if (std::isnan(value)) return 0x7fff;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint16_t below = static_cast<uint16_t>(bits >> 16);  // towards zero
  if (std::isinf(value)) return below;
  const uint16_t above = below + 1;
  const double magnitude = std::abs(static_cast<double>(value));
  const double low = std::abs(static_cast<double>(F32FromBF16(below)));
  // The step from the largest finite value is to 2^128, where infinity stands.
  const double high = (above & 0x7fff) == 0x7f80
                          ? std::ldexp(1, 128)
                          : std::abs(static_cast<double>(F32FromBF16(above)));
  if (magnitude - low != high - magnitude)
    return magnitude - low < high - magnitude ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(DType, BF16RoundsToNearestEvenAsCudaDoes) {
  std::vector<uint32_t> patterns = {0x7f7fffff, 0x7f800000, 0x7f800001, 0xffc00000, 0x00000001};
  for (uint32_t upper = 0; upper < 65536; upper += 7) {
    for (const uint32_t lower : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      patterns.push_back(upper << 16 | lower);
    }
  }
  Random random(1);
  for (int i = 0; i < 200000; ++i) patterns.push_back(static_cast<uint32_t>(random.Bits()));
  for (const uint32_t bits : patterns) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    const uint16_t actual = BF16FromF32(value);
    ASSERT_EQ(actual, NearestBF16(value)) << std::hex << bits;
    const bf16 cuda = __float2bfloat16_rn(value);
    ASSERT_EQ(0, std::memcmp(&actual, &cuda, sizeof(actual))) << std::hex << bits;
  }
}

TEST(DType, ConvertsRowsAtAnyAlignment) {
  const std::vector<float> values = {1, -2.5f, 3.140625f, 1e30f, -0.0f, 65504, 6e-8f};
  std::string f32(1, 'x');
  std::string f16(1, 'x');
  for (const float value : values) {
    f32.append(reinterpret_cast<const char*>(&value), 4);
    const __half half = __float2half(value);
    f16.append(reinterpret_cast<const char*>(&half), 2);
  }
  std::vector<uint16_t> from_f32(values.size()), from_f16(values.size()), copied(values.size());
  ConvertToBF16(DType::kF32, f32.data() + 1, values.size(), from_f32.data());
  ConvertToBF16(DType::kF16, f16.data() + 1, values.size(), from_f16.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(from_f32[i], NearestBF16(values[i]));
    EXPECT_EQ(from_f16[i], NearestBF16(__half2float(__float2half(values[i]))));
  }
  std::string bf16_bytes(1, 'x');
  bf16_bytes.append(reinterpret_cast<const char*>(from_f32.data()), 2 * values.size());
  ConvertToBF16(DType::kBF16, bf16_bytes.data() + 1, values.size(), copied.data());
  EXPECT_EQ(copied, from_f32);
  EXPECT_CONTAINS(ErrorOf([&] { ConvertToBF16(DType::kI16, f16.data(), 1, copied.data()); }),
                  "I16");
}

// --- The header's length

TEST(HeaderLength, IsHeldAgainstTheFile) {
  EXPECT_EQ(HeaderLength(FileBytes("{}", ""), "m"), 2u);
  EXPECT_CONTAINS(ErrorOf([] { HeaderLength("", "m"); }), "m: holds 0 bytes, expected at least 8");
  EXPECT_CONTAINS(ErrorOf([] { HeaderLength("1234567", "m"); }), "holds 7 bytes");
  EXPECT_CONTAINS(ErrorOf([] { HeaderLength(LittleEndian(3) + "{}", "m"); }),
                  "claims 3 bytes but only 2 follow");
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_CONTAINS(ErrorOf([&] { HeaderLength(LittleEndian(length) + "{}", "m"); }),
                    StrCat("claims ", length, " bytes, expected at most 100000000"));
  }
  EXPECT_CONTAINS(ErrorOf([&] { HeaderLength(LittleEndian(100'000'000) + "{}", "m"); }), "only 2");
}

// --- The header's JSON and the claims in it: every rule with a file that breaks it

constexpr char kGoodTensor[] = R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})";

std::string WithTensor(const std::string& tensor) { return R"({"w":)" + tensor + "}"; }

TEST(Header, IsReadWhole) {
  const Header header = ParseHeader(
      R"({"__metadata__":{"format":"pt"},"b":{"data_offsets":[2,10],"shape":[2,2],"dtype":"BF16"},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   )",
      "m");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");  // in the order of their bytes
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].dtype, DType::kBF16);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<size_t>{2, 2}));
  EXPECT_EQ(header.tensors[1].begin, 2u);
  EXPECT_EQ(header.tensors[1].end, 10u);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Header, MustBeginWithABrace) {
  EXPECT_CONTAINS(Refusal("", 0), "begins with nothing, expected '{'");
  EXPECT_CONTAINS(Refusal(" {}", 0), "begins with \" \", expected '{'");
  EXPECT_CONTAINS(Refusal("[]", 0), "expected '{'");
  EXPECT_CONTAINS(Refusal("\xef\xbb\xbf{}", 0), "expected '{'");
}

TEST(Header, MustBeJson) {
  EXPECT_CONTAINS(Refusal("{", 0), "not valid JSON, at its byte 2");
  EXPECT_CONTAINS(Refusal("{}x", 0), "not valid JSON, at its byte 3");
  EXPECT_CONTAINS(Refusal(std::string("{}\0{", 4), 0), "zero byte at 2");
  EXPECT_CONTAINS(Refusal("{\"\xff\":{}}", 0), "not valid JSON");                    // not UTF-8
  EXPECT_CONTAINS(Refusal("{\"\xc0\xaf\":{}}", 0), "not valid JSON");                // overlong
  EXPECT_CONTAINS(Refusal("{\"" + std::string(1000000, 'a'), 0), "not valid JSON");  // no end
}

TEST(Header, MustNotNestDeep) {
  for (const size_t depth : {127, 100000}) {
    const std::string lists = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_CONTAINS(Refusal(R"({"w":{"x":)" + lists + "}}", 0), "tensor \"w\" nests");
    EXPECT_CONTAINS(Refusal(R"({"w":{"x":)" + std::string(depth, '['), 0), "tensor \"w\" nests");
  }
}

TEST(Header, HasEveryKeyOnce) {
  const std::string tensor = kGoodTensor;
  EXPECT_CONTAINS(
      Refusal(R"({"w":)" + tensor + R"(,"v":)" + tensor + R"(,"w":)" + tensor + "}", 16),
      "tensor \"w\" is in the header twice");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"dtype":"F32","dtype":"U8"})"), 16),
                  "tensor \"w\" has the field \"dtype\" twice");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"shape":[2,2],"shape":[4]})"), 16), "\"shape\" twice");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"data_offsets":[0,1],"data_offsets":[0,1]})"), 16),
                  "\"data_offsets\" twice");
  EXPECT_CONTAINS(Refusal(R"({"__metadata__":{},"__metadata__":{}})", 0),
                  "__metadata__ is there twice");
  EXPECT_CONTAINS(Refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "the key \"k\" twice");
}

TEST(Header, KnowsTheDType) {
  for (const std::string dtype : {R"("F33")", R"("bf16")", R"("")", "7", "null", "[]", "{}"}) {
    const std::string error =
        Refusal(WithTensor(R"({"dtype":)" + dtype + R"(,"shape":[0],"data_offsets":[0,0]})"), 0);
    EXPECT_CONTAINS(error, "tensor \"w\" has dtype ");
    EXPECT_CONTAINS(error, "expected one of BOOL, U8");
  }
}

TEST(Header, ShapeIsAListOfNonNegativeIntegers) {
  for (const std::string shape : {"[-1]", "[2.0]", "[1e1]", "[true]", "[null]", R"(["2"])", "[[2]]",
                                  "[{}]", "2", "{}", "null", "[18446744073709551616]", "[-0]"}) {
    const std::string error =
        Refusal(WithTensor(R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,2]})"), 2);
    EXPECT_CONTAINS(error, "tensor \"w\" has ");
    EXPECT_CONTAINS(error, "in its shape, expected a list of non-negative integers");
  }
}

TEST(Header, OffsetsAreTwoNonNegativeIntegers) {
  for (const std::string offsets : {"[]", "[0]", "[0,2,2]", "[-1,2]", "[0,2.0]", R"(["0","2"])",
                                    "[0,[2]]", "2", "{}", "null", "[0,18446744073709551616]"}) {
    const std::string error =
        Refusal(WithTensor(R"({"dtype":"U8","shape":[2],"data_offsets":)" + offsets + "}"), 2);
    EXPECT_CONTAINS(error, "tensor \"w\" has ");
    EXPECT_CONTAINS(error, "in data_offsets, expected two non-negative integers");
  }
}

TEST(Header, TensorIsACompleteObject) {
  for (const std::string tensor : {"1", "null", R"("F32")", "[]", "true"}) {
    EXPECT_CONTAINS(Refusal(WithTensor(tensor), 0), "tensor \"w\" is ");
  }
  EXPECT_CONTAINS(Refusal(WithTensor("{}"), 0), "tensor \"w\" has no \"dtype\"");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"dtype":"U8","data_offsets":[0,0]})"), 0), "no \"shape\"");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"dtype":"U8","shape":[0]})"), 0), "no \"data_offsets\"");
}

TEST(Header, MetadataIsText) {
  for (const std::string value : {R"({"k":1})", R"({"k":null})", R"({"k":{}})", R"({"k":["v"]})",
                                  R"(["k"])", R"("k")", "1"}) {
    EXPECT_CONTAINS(Refusal(R"({"__metadata__":)" + value + "}", 0), "__metadata__ holds ");
  }
}

TEST(Header, MessagesStayOnOneLine) {
  const std::string error = Refusal(R"({"a\nb\u0007)" + std::string(5000, 'c') + R"(":1})", 0);
  EXPECT_CONTAINS(error, R"("a\x0ab\x07ccc)");
  EXPECT_LT(error.size(), 400u);
}

TEST(Header, FormatHeaderIsReadBack) {
  const std::vector<TensorSpec> specs = {
      {"x", DType::kU8, {3}}, {"y \"é\"", DType::kF32, {2, 5}}, {"z", DType::kBF16, {}}};
  const std::string header = FormatHeader(specs, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0u);
  const std::string file = header + std::string(3 + 40 + 2, 'x');
  const std::vector<TensorView> views = Views(file);
  ASSERT_EQ(views.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(views[i].name, specs[i].name);
    EXPECT_EQ(views[i].dtype, specs[i].dtype);
    EXPECT_EQ(views[i].shape, specs[i].shape);
    EXPECT_EQ(views[i].bytes.size(), TensorBytes(specs[i]));
  }
  EXPECT_CONTAINS(ErrorOf([] {
                    TensorBytes({"big", DType::kF32, {size_t{1} << 40, 1 << 30}});
                  }),
                  "\"big\"");
}

// --- The layout: claims against the file

// A header of U8 tensors named a, b, c, ... with these offsets.
std::string WithOffsets(const std::vector<std::pair<size_t, size_t>>& offsets) {
  std::string header = "{";
  char name = 'a';
  for (const auto& [begin, end] : offsets) {
    header += StrCat(name == 'a' ? "" : ",", "\"", name, R"(":{"dtype":"U8","shape":[)",
                     end - begin, R"(],"data_offsets":[)", begin, ",", end, "]}");
    ++name;
  }
  return header + "}";
}

TEST(Layout, ViewsShowTheBytes) {
  const std::string file = FileBytes(R"({"b":{"dtype":"U8","shape":[2,2],"data_offsets":[3,7]},)"
                                     R"("a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)"
                                     R"("s":{"dtype":"F32","shape":[],"data_offsets":[7,11]}})",
                                     "ABCdefgSSSS");
  const std::vector<TensorView> views = Views(file);
  ASSERT_EQ(views.size(), 3u);
  EXPECT_EQ(views[0].bytes, "ABC");
  EXPECT_EQ(views[1].bytes, "defg");
  EXPECT_EQ(views[1].shape, (std::vector<size_t>{2, 2}));
  EXPECT_EQ(views[2].bytes, "SSSS");
  EXPECT_EQ(views[2].element_count(), 1u);
}

TEST(Layout, EmptyTensorsAreFine) {
  const std::string file =
      FileBytes(R"({"a":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"("c":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[2,2]}})",
                "xy");
  const std::vector<TensorView> views = Views(file);
  ASSERT_EQ(views.size(), 3u);
  EXPECT_EQ(views[0].bytes.size(), 0u);
  EXPECT_EQ(views[0].shape, (std::vector<size_t>{0, 4}));
  EXPECT_EQ(views[1].bytes, "xy");
  EXPECT_TRUE(Views(FileBytes("{}", "")).empty());
}

TEST(Layout, RefusesHolesAndOverlaps) {
  EXPECT_CONTAINS(Refusal(WithOffsets({{4, 8}}), 8), "tensor \"a\" begins at byte 4 after a hole");
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, 4}, {6, 8}}), 8),
                  "tensor \"b\" begins at byte 6 after a hole, expected 4");
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, 4}, {2, 8}}), 8),
                  "tensor \"b\" begins at byte 2 inside the tensor before it, expected 4");
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, 4}, {0, 4}}), 4),
                  "tensor \"b\" begins at byte 0 inside");
}

TEST(Layout, CoversTheWholeFile) {
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, 4}}), 5),
                  "end at byte 4 of the data but the file holds 5");
  EXPECT_CONTAINS(Refusal("{}", 1), "end at byte 0 of the data but the file holds 1");
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, 4}, {4, 9}}), 8),
                  "tensor \"b\" ends at byte 9 but the file holds only 8");
  EXPECT_CONTAINS(Refusal(WithOffsets({{0, ~size_t{0}}}), 8), "ends at byte 18446744073709551615");
}

TEST(Layout, SizeIsShapeTimesElement) {
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,16]})"), 16),
                  "tensor \"w\" has 16 bytes, expected 24 for F32 (2, 3)");
  EXPECT_CONTAINS(Refusal(WithTensor(R"({"dtype":"U8","shape":[1],"data_offsets":[8,0]})"), 8),
                  "tensor \"w\" begins at byte 8");
  EXPECT_CONTAINS(Refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                          R"("w":{"dtype":"U8","shape":[1],"data_offsets":[4,0]}})",
                          4),
                  "tensor \"w\" ends at byte 0 before it begins");
}

TEST(Layout, RefusesProductsThatOverflow) {
  for (const std::string shape : {"[4294967296,4294967296]", "[9223372036854775808,2,0]",
                                  "[4611686018427387904]", "[4611686018427387905]"}) {
    const std::string header =
        WithTensor(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]})");
    EXPECT_CONTAINS(Refusal(header, 0), "more bytes than 64 bits can count");
  }
}

TEST(Layout, LongShapesStayReadable) {
  std::string shape = "[1";
  for (int i = 0; i < 10000; ++i) shape += ",1";
  const std::string header =
      WithTensor(R"({"dtype":"U8","shape":)" + shape + R"(],"data_offsets":[0,2]})");
  EXPECT_CONTAINS(Refusal(header, 2), "1, ...)");
}

// --- Against the reference implementation

std::string DataFile(const std::string& name) {
  return DataPath("tests/data/01_safetensors/" + name);
}

TEST(Reference, AgreesOnWhatIsAFile) {
  // What the reference lets pass and the specification does not.
  const std::set<std::string> stricter = {"tensor a list", "leading space", "name twice"};
  const auto verdicts = nlohmann::json::parse(ReadTextFile(DataFile("verdicts.json")));
  ASSERT_GT(verdicts.size(), 90u);
  for (const auto& verdict : verdicts) {
    const std::string name = verdict["name"];
    const std::string file =
        FileBytes(verdict["header"], std::string(verdict["data_bytes"].get<size_t>(), '\0'));
    bool accepted = true;
    try {
      Views(file);
    } catch (const Error&) {
      accepted = false;
    }
    EXPECT_EQ(accepted, verdict["accepted"].get<bool>() && stricter.count(name) == 0) << name;
  }
}

TEST(Reference, ReadsWhatItWrote) {
  const SafetensorsFile file(DataFile("reference.safetensors"));
  EXPECT_EQ(file.metadata().at("format"), "np");
  EXPECT_EQ(file.tensors().size(), 14u);
  const TensorView* f16 = file.Find("float16");
  ASSERT_NE(f16, nullptr);
  ASSERT_EQ(f16->bytes.size(), 12u);
  EXPECT_EQ(f16->shape, (std::vector<size_t>{2, 3}));
  for (int i = 0; i < 6; ++i) {
    uint16_t bits;
    std::memcpy(&bits, f16->bytes.data() + 2 * i, 2);
    EXPECT_EQ(F32FromF16(bits), i);
    int64_t integer;
    std::memcpy(&integer, file.Find("int64")->bytes.data() + 8 * i, 8);
    EXPECT_EQ(integer, i);
    EXPECT_EQ(file.Find("bool")->bytes[i], i % 2);
  }
  EXPECT_EQ(file.Find("scalar")->shape, std::vector<size_t>());
  EXPECT_EQ(file.Find("empty")->shape, (std::vector<size_t>{0, 4}));
  EXPECT_EQ(file.Find("no such tensor"), nullptr);
}

// --- Damage of every kind

// Checks that accepted views are what a reader may rely on.
void ExpectSound(const std::vector<TensorView>& views, std::string_view file) {
  const char* end = nullptr;
  for (const TensorView& view : views) {
    ASSERT_GE(view.bytes.data(), file.data());
    ASSERT_LE(view.bytes.data() + view.bytes.size(), file.data() + file.size());
    ASSERT_TRUE(end == nullptr || view.bytes.data() == end) << "a hole before " << view.name;
    end = view.bytes.data() + view.bytes.size();
    size_t size = DTypeBytes(view.dtype);
    for (const size_t extent : view.shape) size *= extent;
    ASSERT_EQ(size, view.bytes.size());
  }
  ASSERT_TRUE(end == nullptr || end == file.data() + file.size());
}

TEST(Fuzz, DamagedFilesGiveAnErrorOrSoundViews) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
      R"("c":{"dtype":"U8","shape":[0,9],"data_offsets":[22,22]}})";
  const std::string good = FileBytes(header, std::string(22, 'x'));
  const std::string alphabet = R"({}[]",:0123456789-.eE\ntrufals)";
  Random random(42);
  int accepted = 0;
  for (int variant = 0; variant < 6000; ++variant) {
    std::string bytes = good;
    const int edits = random.Integer(1, 3);
    for (int edit = 0; edit < edits && !bytes.empty(); ++edit) {
      const size_t at = random.Bits() % bytes.size();
      switch (random.Integer(0, 5)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.Integer(0, 7));
          break;
        case 1:
          bytes[at] = static_cast<char>(random.Bits());
          break;
        case 2:
          bytes[at] = alphabet[random.Bits() % alphabet.size()];
          break;
        case 3:
          bytes.resize(at);
          break;
        case 4:
          bytes.erase(at, random.Bits() % 8);
          break;
        default:
          bytes.insert(at, bytes.substr(random.Bits() % bytes.size(), random.Bits() % 20));
      }
    }
    // Half of them with the length mended, so that the damage reaches the JSON.
    if (variant % 2 == 0 && bytes.size() > 8 + 22)
      bytes.replace(0, 8, LittleEndian(bytes.size() - 30));
    const std::vector<char> exact(bytes.begin(), bytes.end());  // no spare capacity behind the end
    const std::string_view file(exact.data(), exact.size());
    try {
      ExpectSound(Views(file), file);
      ++accepted;
    } catch (const Error& error) {
      ASSERT_LT(std::strlen(error.what()), 1000u);
    }
    if (HasFatalFailure()) FAIL() << "variant " << variant;
  }
  EXPECT_GT(accepted, 50);    // the damage was small enough to pass now and then
  EXPECT_LT(accepted, 4000);  // and large enough to be seen
}

TEST(Fuzz, EveryTruncationIsRefused) {
  const std::string good = FileBytes(WithTensor(kGoodTensor), std::string(16, 'x'));
  const std::string folder = TempFolder();
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string path = WriteFile(folder, "t.safetensors", good.substr(0, size));
    EXPECT_CONTAINS(ErrorOf([&] { SafetensorsFile file(path); }), path + ": ");
  }
  const SafetensorsFile file(WriteFile(folder, "t.safetensors", good));
  EXPECT_EQ(file.Find("w")->bytes.size(), 16u);
  EXPECT_EQ(file.data_offset(), good.size() - 16);
}

// --- checkpoint.h

// A file of one U8 tensor a name, each holding its own name.
std::string FileOf(const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  std::string data;
  for (const std::string& name : names) {
    specs.push_back({name, DType::kU8, {name.size()}});
    data += name;
  }
  return FormatHeader(specs) + data;
}

// A folder of two shards: first.safetensors with a and b, second.safetensors with c.
std::string ShardedFolder(
    const std::string& weight_map =
        R"({"a":"first.safetensors","b":"first.safetensors","c":"second.safetensors"})") {
  const std::string folder = TempFolder();
  WriteFile(folder, "first.safetensors", FileOf({"a", "b"}));
  WriteFile(folder, "second.safetensors", FileOf({"c"}));
  WriteFile(folder, "model.safetensors.index.json",
            R"({"metadata":{"total_size":3},"weight_map":)" + weight_map + "}");
  return folder;
}

TEST(Checkpoint, ReadsASingleFile) {
  const std::string folder = TempFolder();
  const std::string path = WriteFile(folder, "model.safetensors", FileOf({"one", "two"}));
  for (const std::string& given : {folder, path}) {
    const Checkpoint checkpoint(given);
    EXPECT_EQ(checkpoint.tensors().size(), 2u);
    EXPECT_EQ(checkpoint.Get("two").bytes, "two");
    EXPECT_EQ(checkpoint.Get("two", {3}).bytes, "two");
    EXPECT_EQ(checkpoint.Find("three"), nullptr);
    EXPECT_CONTAINS(ErrorOf([&] { checkpoint.Get("three"); }), "has no tensor \"three\"");
    EXPECT_CONTAINS(ErrorOf([&] {
                      checkpoint.Get("two", {4, 1});
                    }),
                    "tensor \"two\" has shape (3), expected (4, 1)");
  }
}

TEST(Checkpoint, ReadsShards) {
  const Checkpoint checkpoint(ShardedFolder());
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  for (const std::string name : {"a", "b", "c"}) EXPECT_EQ(checkpoint.Get(name).bytes, name);
}

TEST(Checkpoint, NamesWhatIsNotThere) {
  const std::string missing = testing::TempDir() + "no_such_model";
  EXPECT_CONTAINS(ErrorOf([&] { Checkpoint checkpoint(missing); }), missing + ": is neither");
  const std::string empty = TempFolder();
  EXPECT_CONTAINS(ErrorOf([&] { Checkpoint checkpoint(empty); }),
                  empty + ": holds no weights, expected model.safetensors");
}

TEST(Checkpoint, NamesTheMissingShard) {
  const std::string folder = ShardedFolder();
  fs::remove(folder + "/second.safetensors");
  const std::string error = ErrorOf([&] { Checkpoint checkpoint(folder); });
  EXPECT_CONTAINS(error, folder + "/second.safetensors: is missing");
  EXPECT_CONTAINS(error, "tensor \"c\"");
}

TEST(Checkpoint, NamesTheTensorThatIsNotInItsShard) {
  const std::string folder = ShardedFolder(
      R"({"a":"first.safetensors","d":"first.safetensors","c":"second.safetensors"})");
  const std::string error = ErrorOf([&] { Checkpoint checkpoint(folder); });
  EXPECT_CONTAINS(error, "first.safetensors: has no tensor \"d\"");
}

TEST(Checkpoint, NamesTheTensorThatIsElsewhere) {
  const std::string folder = ShardedFolder(
      R"({"a":"first.safetensors","b":"second.safetensors","c":"second.safetensors"})");
  EXPECT_CONTAINS(ErrorOf([&] { Checkpoint checkpoint(folder); }),
                  "second.safetensors: has no tensor \"b\"");
  WriteFile(folder, "second.safetensors", FileOf({"b", "c"}));
  const std::string error = ErrorOf([&] { Checkpoint checkpoint(folder); });
  EXPECT_CONTAINS(error, "first.safetensors: has tensor \"b\"");
  EXPECT_CONTAINS(error, "says it is in \"second.safetensors\"");
}

TEST(Checkpoint, NeverLeavesItsFolder) {
  for (const std::string shard : {"../x.safetensors", "/etc/passwd", "sub/../../x", "..", ""}) {
    const std::string folder = ShardedFolder(R"({"a":")" + shard + R"("})");
    EXPECT_CONTAINS(ErrorOf([&] { Checkpoint checkpoint(folder); }),
                    "names the shard " + Quote(shard) + ", expected a file inside");
  }
  const std::string folder = ShardedFolder(R"({"a":"sub/part.safetensors"})");
  WriteFile(folder, "sub/part.safetensors", FileOf({"a"}));
  EXPECT_EQ(Checkpoint(folder).Get("a").bytes, "a");
}

TEST(Checkpoint, RefusesABadIndex) {
  const auto refusal = [](const std::string& index) {
    const std::string folder = TempFolder();
    WriteFile(folder, "first.safetensors", FileOf({"a"}));
    WriteFile(folder, "model.safetensors.index.json", index);
    return ErrorOf([&] { Checkpoint checkpoint(folder); });
  };
  EXPECT_CONTAINS(refusal(""), "index.json: is not valid JSON");
  EXPECT_CONTAINS(refusal("{\"weight_map\":{\"\xff\":\"x\"}}"), "index.json: is not valid JSON");
  EXPECT_CONTAINS(refusal(std::string("{}\0", 3)), "zero byte");
  EXPECT_CONTAINS(refusal("[]"), "no \"weight_map\"");
  EXPECT_CONTAINS(refusal("{}"), "no \"weight_map\"");
  EXPECT_CONTAINS(refusal(R"({"weight_map":[]})"), "no \"weight_map\"");
  EXPECT_CONTAINS(refusal(R"({"weight_map":{"a":1}})"), "the shard of tensor \"a\" is number");
  EXPECT_CONTAINS(refusal(R"({"weight_map":{"a":"first.safetensors","a":"second.safetensors"}})"),
                  "has the key \"a\" twice");
  EXPECT_CONTAINS(refusal(R"({"weight_map":{},"weight_map":{}})"),
                  "has the key \"weight_map\" twice");
  EXPECT_CONTAINS(refusal(R"({"x":)" + std::string(100000, '[')), "nests deeper");
  // Equal keys in different objects are no mistake.
  EXPECT_CONTAINS(refusal(R"({"m":{"a":{"a":1}},"n":{"a":2},"weight_map":{"a":"gone"}})"),
                  "gone: is missing");
}

// --- arena.h

TEST(ArenaPlan, AlignsSlotsAndKeepsGroupsTogether) {
  ArenaPlan plan;
  EXPECT_EQ(plan.total_bytes(), 0u);
  EXPECT_EQ(plan.Add("a", 1), 0u);
  EXPECT_EQ(plan.Add("b", 256), 256u);
  EXPECT_EQ(plan.AddGroup({{"q", 96}, {"k", 30}, {"v", 30}}), (std::vector<size_t>{512, 608, 638}));
  EXPECT_EQ(plan.Add("empty", 0), 768u);
  EXPECT_EQ(plan.Add("c", 10), 768u);
  EXPECT_EQ(plan.total_bytes(), 1024u);
  ASSERT_EQ(plan.slots().size(), 7u);
  EXPECT_EQ(plan.slots()[3].name, "k");
  EXPECT_EQ(plan.slots()[3].offset, 608u);
  EXPECT_EQ(plan.slots()[3].bytes, 30u);
}

TEST(ArenaPlan, RefusesToOverflow) {
  ArenaPlan plan;
  plan.Add("a", 1000);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 1024, SIZE_MAX - 1279}) {
    EXPECT_CONTAINS(ErrorOf([&] { plan.Add("huge", bytes); }), "arena: huge");
  }
  EXPECT_EQ(plan.Add("b", 1), 1024u);
}

// --- upload.h

struct UploadCase {
  DType dtype;
  StoreAs store_as;
  MemoryKind memory;
};

std::string PrintToString(const UploadCase& c) {
  return StrCat(DTypeName(c.dtype), c.store_as == StoreAs::kBF16 ? " to BF16" : " as it is",
                c.memory == MemoryKind::kDevice ? ", device" : ", host");
}

// The bytes that must arrive.
std::string Expected(const TensorView& tensor, StoreAs store_as) {
  if (store_as == StoreAs::kAsIs) return std::string(tensor.bytes);
  std::vector<uint16_t> converted(tensor.element_count());
  ConvertToBF16(tensor.dtype, tensor.bytes.data(), converted.size(), converted.data());
  return std::string(reinterpret_cast<const char*>(converted.data()), 2 * converted.size());
}

// A file whose data begins at an odd byte, with tensors smaller and larger than a chunk.
std::string UploadFile(DType dtype) {
  const std::vector<size_t> counts = {1, 0, 3, 1'300'007, 4096, 1 << 20, 17};
  std::vector<TensorSpec> specs;
  size_t data_bytes = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    specs.push_back({StrCat("t", i), dtype, {counts[i]}});
    data_bytes += TensorBytes(specs.back());
  }
  std::string header = FormatHeader(specs).substr(8);
  if (header.size() % 2 == 0) header += ' ';
  std::string data;
  Random random(7);
  while (data.size() < data_bytes) data += LittleEndian(random.Bits());
  data.resize(data_bytes);
  return FileBytes(header, data);
}

TEST(Upload, EveryVersionBringsEveryByte) {
  const std::vector<UploadCase> cases = {
      {DType::kBF16, StoreAs::kBF16, MemoryKind::kDevice},
      {DType::kF16, StoreAs::kBF16, MemoryKind::kDevice},
      {DType::kF32, StoreAs::kBF16, MemoryKind::kDevice},
      {DType::kF32, StoreAs::kBF16, MemoryKind::kHost},
      {DType::kF32, StoreAs::kAsIs, MemoryKind::kDevice},
      {DType::kI16, StoreAs::kAsIs, MemoryKind::kHost},
  };
  const std::string folder = TempFolder();
  for (const UploadCase& c : cases) {
    const SafetensorsFile file(WriteFile(folder, "u.safetensors", UploadFile(c.dtype)));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(file.tensors()[0].bytes.data()) % 2, 1u);
    ArenaPlan plan;
    std::vector<size_t> offsets;
    for (const TensorView& tensor : file.tensors()) {
      offsets.push_back(plan.Add(tensor.name, StoredBytes(tensor, c.store_as)));
    }
    for (const UploadVersion& version : kUploadVersions) {
      SCOPED_TRACE(StrCat("version ", version.number, ", ", PrintToString(c)));
      DeviceBuffer<char> device(plan.total_bytes());
      PinnedBuffer<char> pinned(plan.total_bytes());
      device.Fill(0xff);
      std::memset(pinned.data(), 0xff, pinned.bytes());
      const bool on_device = c.memory == MemoryKind::kDevice;
      std::vector<UploadItem> items;
      for (size_t i = 0; i < file.tensors().size(); ++i) {
        items.push_back({&file.tensors()[i],
                         (on_device ? device.data() : pinned.data()) + offsets[i], c.store_as,
                         c.memory});
      }
      version.upload(items, nullptr);
      const std::vector<char> arrived =
          on_device ? device.ToHost()
                    : std::vector<char>(pinned.data(), pinned.data() + pinned.size());
      std::string expected(plan.total_bytes(), '\xff');  // the gaps stay as they were
      for (size_t i = 0; i < items.size(); ++i) {
        const std::string bytes = Expected(file.tensors()[i], c.store_as);
        ASSERT_EQ(bytes.size(), plan.slots()[i].bytes);
        expected.replace(offsets[i], bytes.size(), bytes);
      }
      ASSERT_GT(plan.total_bytes(), size_t{4} << 20);
      EXPECT_EQ(0, std::memcmp(arrived.data(), expected.data(), expected.size()));
    }
  }
}

TEST(Upload, RefusesByNameBeforeItCopiesAnything) {
  const SafetensorsFile file(WriteFile(
      TempFolder(), "u.safetensors",
      FormatHeader({{"good", DType::kBF16, {2}}, {"bad", DType::kI16, {2}}}) + "12345678"));
  DeviceBuffer<char> device(512);
  for (const UploadVersion& version : kUploadVersions) {
    device.Fill(0xff);
    const std::string error = ErrorOf([&] {
      version.upload(
          {{&file.tensors()[0], device.data()}, {&file.tensors()[1], device.data() + 256}},
          nullptr);
    });
    EXPECT_CONTAINS(error, "tensor \"bad\" is I16, expected BF16, or F16 or F32");
    EXPECT_EQ(device.ToHost(), std::vector<char>(512, '\xff'));
  }
}

TEST(Upload, OfNothingIsFine) {
  for (const UploadVersion& version : kUploadVersions) version.upload({}, nullptr);
  Upload({});
}

// --- llama_tensors.h

size_t Parameters(const std::vector<TensorSpec>& specs) {
  size_t total = 0;
  for (const TensorSpec& spec : specs) total += TensorBytes(spec) / DTypeBytes(spec.dtype);
  return total;
}

TEST(LlamaTensors, GivesTheKnownModels) {
  const auto tensors = [](const std::string& preset) {
    return LlamaTensors(LlamaShapeFromConfig(ModelPreset(preset), preset), DType::kBF16);
  };
  EXPECT_EQ(tensors("llama3.2-1b").size(), 146u);
  EXPECT_EQ(Parameters(tensors("llama3.2-1b")), 1'235'814'400u);
  EXPECT_EQ(tensors("llama3.2-3b").size(), 254u);
  EXPECT_EQ(Parameters(tensors("llama3.2-3b")), 3'212'749'824u);
  EXPECT_EQ(tensors("llama3.1-8b").size(), 291u);  // untied: lm_head.weight
  EXPECT_EQ(Parameters(tensors("llama3.1-8b")), 8'030'261'248u);
  EXPECT_CONTAINS(ErrorOf([&] { tensors("llama9"); }), "expected one of llama3.2-1b");
}

TEST(LlamaTensors, NamesTheBadField) {
  EXPECT_CONTAINS(ErrorOf([] { LlamaShapeFromConfig("{", "c.json"); }),
                  "c.json: is not valid JSON");
  EXPECT_CONTAINS(ErrorOf([] { LlamaShapeFromConfig(R"({"hidden_size":-1})", "c.json"); }),
                  "c.json: hidden_size is -1, expected a positive integer");
  EXPECT_CONTAINS(ErrorOf([] { LlamaShapeFromConfig(R"({"hidden_size":8})", "c.json"); }),
                  "intermediate_size is missing");
}

}  // namespace
}  // namespace tinyvllm
