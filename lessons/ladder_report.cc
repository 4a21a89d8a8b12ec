#include "lessons/ladder_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"

namespace tinyvllm {
namespace {

constexpr int kBarColumns = 40;

size_t OwnBytes(const RungResult& rung) { return rung.kv_cache_bytes + rung.activation_bytes; }

// The largest value of a quantity on any rung: what the longest bar stands for.
template <typename Quantity>
double Largest(const Ladder& ladder, const Quantity& quantity) {
  double largest = 0;
  for (const RungResult& rung : ladder.rungs) {
    largest = std::max(largest, static_cast<double>(quantity(rung)));
  }
  return largest;
}

double Speed(const RungResult& rung) { return rung.tokens_per_second(); }
double PerPass(const RungResult& rung) { return rung.tokens_per_pass(); }

std::string Repeat(const char* character, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += character;
  return text;
}

// A bar of `share` of the full length, in eighths of a column; whatever there is can be seen.
std::string Bar(double share) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = std::max(1, static_cast<int>(std::lround(share * kBarColumns * 8)));
  return Repeat("█", eighths / 8) + kEighths[eighths % 8];
}

size_t NameWidth(const Ladder& ladder) {
  size_t width = 0;
  for (const RungResult& rung : ladder.rungs) width = std::max(width, DisplayWidth(rung.name));
  return width;
}

std::string Padded(const std::string& text, size_t width) {
  return text + std::string(width - DisplayWidth(text), ' ');
}

std::string Memory(const RungResult& rung) {
  if (rung.kv_cache_bytes == 0) return HumanBytes(rung.activation_bytes);
  return HumanBytes(rung.kv_cache_bytes) + " + " + HumanBytes(rung.activation_bytes);
}

std::string Shared(const Ladder& ladder) {
  return StrCat("weights (", HumanBytes(ladder.weight_bytes), ") and cuBLAS's scratch memory (",
                HumanBytes(ladder.scratch_bytes), ")");
}

std::string EscapedForXml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string SvgBegin(int width, int height, const std::string& title) {
  const std::string escaped = EscapedForXml(title);
  return StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
                "\" width=\"", width, "\" height=\"", height, "\" role=\"img\" aria-label=\"",
                escaped, "\">\n<title>", escaped, "</title>\n", R"(<style>
  text { font-family: ui-sans-serif, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; fill: #24292f; }
  .title { font-size: 14px; font-weight: 600; } .name { font-weight: 600; }
  .small { font-size: 12px; fill: #57606a; }
  .speed { fill: #2f6fae; } .pass { fill: #7a4bb0; } .cache { fill: #2f8040; } .rest { fill: #d9a441; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; }
    .speed { fill: #7db4ea; } .pass { fill: #bd98ea; } .cache { fill: #76c985; } .rest { fill: #a37a24; }
  }
</style>
)");
}

std::string SvgText(const char* style, double x, int y, const std::string& words) {
  return StrCat("<text class=\"", style, "\" x=\"", Fixed(x, 1), "\" y=\"", y, "\">",
                EscapedForXml(words), "</text>\n");
}

std::string SvgBar(const char* style, double x, int y, double width) {
  return StrCat("<rect class=\"", style, "\" x=\"", Fixed(x, 1), "\" y=\"", y, "\" width=\"",
                Fixed(width, 1), "\" height=\"14\"/>\n");
}

}  // namespace

std::string LadderTable(const Ladder& ladder) {
  TextTable table({"lesson", "what it adds", "tokens", "passes", "at once", "tokens/s"});
  for (const RungResult& rung : ladder.rungs) {
    table.AddRow({rung.name, rung.idea, std::to_string(rung.num_tokens),
                  std::to_string(rung.num_passes), std::to_string(rung.most_at_once),
                  Fixed(Speed(rung), 1)});
  }
  return table.ToString();
}

std::string LadderBars(const Ladder& ladder) {
  const size_t width = NameWidth(ladder);
  const double slowest = Speed(ladder.rungs[0]), fastest = Largest(ladder, Speed);
  std::string text = "tokens/s, and times the first\n";
  for (const RungResult& rung : ladder.rungs) {
    text += StrCat("  ", Padded(rung.name, width), "  ", Bar(Speed(rung) / fastest), " ",
                   Fixed(Speed(rung), 1), ", ", Fixed(Speed(rung) / slowest, 1), " x\n");
  }
  const double fullest = Largest(ladder, PerPass);
  text += "\ntokens a pass through the model\n";
  for (const RungResult& rung : ladder.rungs) {
    text += StrCat("  ", Padded(rung.name, width), "  ", Bar(PerPass(rung) / fullest), " ",
                   Fixed(PerPass(rung), 1), "\n");
  }
  const double largest = Largest(ladder, OwnBytes);
  text += "\ndevice memory: █ KV cache, ░ activations\n";
  for (const RungResult& rung : ladder.rungs) {
    const int all = std::max<int>(1, std::lround(OwnBytes(rung) / largest * kBarColumns));
    const int cache = std::lround(rung.kv_cache_bytes / largest * kBarColumns);
    text += StrCat("  ", Padded(rung.name, width), "  ", Repeat("█", cache),
                   Repeat("░", all - cache), " ", Memory(rung), "\n");
  }
  return text + "and for each the same: " + Shared(ladder) + "\n";
}

std::string LadderNotes(const Ladder& ladder) {
  std::string text;
  for (const RungResult& rung : ladder.rungs) {
    if (rung.num_requests == ladder.num_requests) continue;
    text += StrCat(rung.name, " is slow: it answered ", rung.num_requests, " of the ",
                   ladder.num_requests, " prompts.\n");
  }
  for (const RungResult& rung : ladder.rungs) {
    if (!rung.parting) continue;
    text +=
        StrCat(rung.name, ": ANOTHER ANSWER than that of ", rung.parting->from, " to prompt ",
               rung.parting->request + 1, ", from token ", rung.parting->position + 1, " on.\n");
  }
  if (ladder.same_tokens()) {
    text += "Every prompt has the same answer on all rungs, token for token.\n";
  } else if (!ladder.simulated) {
    text +=
        "On a GPU, cuBLAS sums in another order for another batch, so two tokens that are almost\n"
        "equally likely may change places: docs/06_matmul.md. Anything else is a mistake.\n";
  }
  if (ladder.simulated) {
    text +=
        "The times are those of a CPU that plays a GPU: it works for each token. A GPU waits for "
        "the\n"
        "weights, which it reads once a pass: there, tokens a pass are what counts. The same "
        "command\n"
        "on a machine with a GPU gives the GPU's figures.\n";
  }
  return text;
}

std::string LadderSvg(const Ladder& ladder) {
  constexpr int kTop = 76, kRow = 48;
  constexpr int kSpeedX = 312, kPassX = 512, kMemoryX = 686, kBarWidth = 124;
  const int bottom = kTop + kRow * static_cast<int>(ladder.rungs.size());
  const std::string title = StrCat("Every step of the course, with ", ladder.model);
  std::string svg = SvgBegin(880, bottom + 56, title + " on " + ladder.device);
  svg += SvgText("title", 20, 28, title);
  svg += SvgText("small", kSpeedX, 58, "tokens/s") + SvgText("small", kPassX, 58, "tokens a pass");
  svg += SvgBar("cache", kMemoryX, 46, 14) + SvgText("small", kMemoryX + 19, 58, "KV cache");
  svg +=
      SvgBar("rest", kMemoryX + 86, 46, 14) + SvgText("small", kMemoryX + 105, 58, "activations");
  const double fastest = Largest(ladder, Speed), fullest = Largest(ladder, PerPass);
  const double largest = Largest(ladder, OwnBytes);
  for (size_t i = 0; i < ladder.rungs.size(); ++i) {
    const RungResult& rung = ladder.rungs[i];
    const int y = kTop + static_cast<int>(i) * kRow;
    const auto bar = [&](const char* style, double x, double share) {
      return SvgBar(style, x, y + 8, std::max(1.0, share * kBarWidth));
    };
    const auto label = [&](int x, double share, const std::string& value) {
      return SvgText("", x + share * kBarWidth + 6, y + 20, value);
    };
    const double speed = Speed(rung) / fastest, pass = PerPass(rung) / fullest;
    const double cache = rung.kv_cache_bytes / largest, all = OwnBytes(rung) / largest;
    svg += SvgText("name", 20, y + 14, rung.name) + SvgText("small", 20, y + 31, rung.idea);
    svg += bar("speed", kSpeedX, speed) + label(kSpeedX, speed, Fixed(Speed(rung), 0));
    svg += bar("pass", kPassX, pass) + label(kPassX, pass, Fixed(PerPass(rung), 1));
    svg += bar("rest", kMemoryX, all) + label(kMemoryX, all, HumanBytes(OwnBytes(rung)));
    if (cache > 0) svg += bar("cache", kMemoryX, cache);
  }
  svg += SvgText("small", 20, bottom + 20,
                 ladder.device + (ladder.simulated ? ", a CPU that plays a GPU." : "."));
  svg += SvgText("small", 20, bottom + 38,
                 StrCat("Memory is the device's, without ", Shared(ladder), "."));
  return svg + "</svg>\n";
}

std::string LadderJson(const Ladder& ladder) {
  nlohmann::ordered_json json;
  json["model"] = ladder.model;
  json["device"] = ladder.device;
  json["simulated"] = ladder.simulated;
  json["num_requests"] = ladder.num_requests;
  json["same_tokens"] = ladder.same_tokens();
  json["weight_bytes"] = ladder.weight_bytes;
  json["scratch_bytes"] = ladder.scratch_bytes;
  json["rungs"] = nlohmann::ordered_json::array();
  for (const RungResult& rung : ladder.rungs) {
    nlohmann::ordered_json row;
    row["name"] = rung.name;
    row["idea"] = rung.idea;
    row["num_requests"] = rung.num_requests;
    row["num_tokens"] = rung.num_tokens;
    row["num_passes"] = rung.num_passes;
    row["most_at_once"] = rung.most_at_once;
    row["seconds"] = rung.seconds;
    row["tokens_per_second"] = rung.tokens_per_second();
    row["kv_cache_bytes"] = rung.kv_cache_bytes;
    row["activation_bytes"] = rung.activation_bytes;
    row["same_tokens"] = !rung.parting.has_value();
    json["rungs"].push_back(row);
  }
  return json.dump() + "\n";
}

}  // namespace tinyvllm
