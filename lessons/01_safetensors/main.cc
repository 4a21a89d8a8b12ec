// bazel run //lessons/01_safetensors                the bundled model
// bazel run //lessons/01_safetensors -- PATH        any checkpoint: a folder or a .safetensors file
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>

#include "common/base/command_line.h"
#include "common/base/data_path.h"
#include "common/base/model_presets.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "common/base/run_main.h"
#include "common/base/text_table.h"
#include "common/cuda/benchmark.h"
#include "common/cuda/buffer.h"
#include "common/cuda/device.h"
#include "common/cuda/stream.h"
#include "lessons/01_safetensors/arena.h"
#include "lessons/01_safetensors/checkpoint.h"
#include "lessons/01_safetensors/llama_tensors.h"
#include "lessons/01_safetensors/upload.h"

namespace tinyvllm {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// "2,471,645,608": sizes are read more easily in threes.
std::string Grouped(size_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, ",");
  return digits;
}

// --- What the file begins with

void PrintHexLine(std::string_view file, size_t offset, size_t count, const std::string& meaning) {
  static constexpr char kHex[] = "0123456789abcdef";
  const std::string_view bytes = file.substr(offset, count);
  std::string hex, text;
  for (size_t i = 0; i < 16; ++i) {
    if (i < bytes.size()) {
      const unsigned char byte = static_cast<unsigned char>(bytes[i]);
      hex += kHex[byte >> 4];
      hex += kHex[byte & 15];
      text += byte >= 0x20 && byte < 0x7f ? bytes[i] : '.';
    } else {
      hex += "  ";
      text += ' ';
    }
    hex += i == 7 ? "  " : " ";
  }
  const std::string position = std::to_string(offset);
  std::cout << std::string(9 - std::min<size_t>(9, position.size()), ' ') << position << "  " << hex
            << " " << text << (meaning.empty() ? "" : "  " + meaning) << "\n";
}

void PrintFirstBytes(const SafetensorsFile& file) {
  const std::filesystem::path path(file.path());
  std::cout << "The first bytes of " << (path.parent_path().filename() / path.filename()).string()
            << " (" << Grouped(file.bytes().size()) << " bytes):\n\n";
  PrintHexLine(file.bytes(), 0, 8,
               StrCat("length of the header, little-endian: ", file.header_length()));
  const size_t header_lines = std::min<size_t>(3, (file.header_length() + 15) / 16);
  for (size_t line = 0; line < header_lines; ++line) {
    const size_t offset = sizeof(uint64_t) + 16 * line;
    PrintHexLine(file.bytes(), offset, std::min<size_t>(16, file.data_offset() - offset),
                 line == 0 ? "the header: JSON" : "");
  }
  std::cout << "      ...\n";
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.bytes.empty()) continue;
    PrintHexLine(file.bytes(), file.data_offset(), std::min<size_t>(16, tensor.bytes.size()),
                 "the data: " + tensor.name);
    break;
  }
  std::cout << "\n";
}

// --- What is in it

void PrintTensors(const Checkpoint& checkpoint, bool all) {
  std::vector<std::vector<std::string>> rows;
  size_t parameters = 0, bytes = 0;
  for (const auto& file : checkpoint.files()) {
    for (const TensorView& tensor : file->tensors()) {
      rows.push_back({tensor.name, DTypeName(tensor.dtype), ShapeText(tensor.shape),
                      Grouped(tensor.bytes.size()),
                      Grouped(tensor.bytes.data() - file->bytes().data())});
      parameters += tensor.element_count();
      bytes += tensor.bytes.size();
    }
  }
  constexpr size_t kHead = 12, kTail = 3;
  const bool shorten = !all && rows.size() > kHead + kTail + 1;
  TextTable table({"tensor", "dtype", "shape", "bytes", "at byte"});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (shorten && i == kHead) {
      table.AddRow(
          {StrCat("... ", rows.size() - kHead - kTail, " more (-- --all)"), "", "", "", ""});
    }
    if (!shorten || i < kHead || i + kTail >= rows.size()) table.AddRow(rows[i]);
  }
  std::cout << table.ToString() << "\n"
            << rows.size() << " tensors in " << checkpoint.files().size()
            << (checkpoint.files().size() == 1 ? " file, " : " files, ") << Grouped(parameters)
            << " parameters, " << Grouped(bytes) << " bytes.\n\n";
}

// A name becomes a view, a view becomes numbers.
void PrintOneView(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    constexpr size_t kShown = 6;
    if (!ConvertsToBF16(tensor->dtype) || tensor->element_count() < kShown) continue;
    uint16_t values[kShown];
    ConvertToBF16(tensor->dtype, tensor->bytes.data(), kShown, values);
    std::cout << "checkpoint.Get(" << Quote(name) << ") begins with";
    for (const uint16_t value : values) std::cout << " " << F32FromBF16(value);
    std::cout << "\n\n";
    return;
  }
}

// --- A model that is not here

void PrintLlamaHeader() {
  const std::string preset = "llama3.2-1b";
  const LlamaShape shape = LlamaShapeFromConfig(ModelPreset(preset), preset);
  const std::string file = FormatHeader(LlamaTensors(shape, DType::kBF16));
  const size_t length = file.size() - sizeof(uint64_t);
  const Header header = ParseHeader(std::string_view(file).substr(sizeof(uint64_t)), preset);

  std::cout << "The header of a model of Llama 3.2 1B's shape, made from its config.json alone, "
               "holds\n"
            << header.tensors.size() << " tensors (2 + 9 x " << shape.num_hidden_layers
            << " layers) in " << Grouped(length) << " bytes of JSON:\n\n";
  struct Kind {
    size_t count = 0;
    const HeaderEntry* first = nullptr;
  };
  std::vector<std::string> order;
  std::map<std::string, Kind> kinds;  // layer numbers replaced by N
  for (const HeaderEntry& entry : header.tensors) {
    std::string kind = entry.name;
    const size_t number = kind.find_first_of("0123456789");
    if (number != std::string::npos) {
      kind.replace(number, kind.find('.', number) - number, "N");
    }
    if (kinds[kind].count++ == 0) {
      kinds[kind].first = &entry;
      order.push_back(kind);
    }
  }
  TextTable table({"tensor", "shape", "bytes", "times"});
  for (const std::string& kind : order) {
    const HeaderEntry& first = *kinds[kind].first;
    table.AddRow({kind, ShapeText(first.shape), Grouped(first.end - first.begin),
                  std::to_string(kinds[kind].count)});
  }
  const size_t bytes = header.tensors.back().end;
  std::cout << table.ToString() << "\n"
            << Grouped(bytes / DTypeBytes(DType::kBF16)) << " parameters, " << Grouped(bytes)
            << " bytes of data.\n\n";
}

// --- To the device

struct Plan {
  ArenaPlan arena;
  std::vector<const TensorView*> tensors;  // in the order of arena.slots()
};

StoreAs StorageOf(const TensorView& tensor) {
  return ConvertsToBF16(tensor.dtype) ? StoreAs::kBF16 : StoreAs::kAsIs;
}

// Query, key and value projections side by side, gate and up too, everything else alone. (Lesson
// 09 plans the real engine's weights, by its configuration and in model order.)
Plan PlanArena(const Checkpoint& checkpoint) {
  static const std::vector<std::vector<std::string>> kGroups = {
      {"q_proj.weight", "k_proj.weight", "v_proj.weight"}, {"gate_proj.weight", "up_proj.weight"}};
  Plan plan;
  std::map<const TensorView*, bool> placed;
  const auto place = [&](const std::vector<const TensorView*>& group) {
    std::vector<std::pair<std::string, size_t>> members;
    for (const TensorView* tensor : group) {
      members.push_back({tensor->name, StoredBytes(*tensor, StorageOf(*tensor))});
      plan.tensors.push_back(tensor);
      placed[tensor] = true;
    }
    plan.arena.AddGroup(members);
  };
  const auto find_group = [&](const std::string& name) {
    for (const std::vector<std::string>& endings : kGroups) {
      const size_t stem = name.size() - std::min(name.size(), endings[0].size());
      if (name.substr(stem) != endings[0]) continue;
      std::vector<const TensorView*> group;
      for (const std::string& ending : endings) {
        const TensorView* member = checkpoint.Find(name.substr(0, stem) + ending);
        if (member != nullptr) group.push_back(member);
      }
      return group;
    }
    return std::vector<const TensorView*>();
  };
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::vector<const TensorView*> group = find_group(name);
    if (!group.empty()) place(group);
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!placed[tensor]) place({tensor});
  }
  return plan;
}

std::vector<UploadItem> ItemsInto(const Plan& plan, char* arena, MemoryKind memory) {
  std::vector<UploadItem> items;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    items.push_back({plan.tensors[i], arena + plan.arena.slots()[i].offset,
                     StorageOf(*plan.tensors[i]), memory});
  }
  return items;
}

// The fastest of three: what the file cache and the driver can do once they are warm.
template <typename Work>
double BestMilliseconds(Work work) {
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    const Clock::time_point start = Clock::now();
    work();
    const double milliseconds = Milliseconds(start);
    if (run == 0 || milliseconds < best) best = milliseconds;
  }
  return best;
}

// Pinned memory to the device, nothing else: the link's own speed, in bytes a millisecond.
double LinkSpeed() {
  constexpr size_t kBytes = size_t{256} << 20;
  PinnedBuffer<char> host(kBytes);
  DeviceBuffer<char> device(kBytes);
  return kBytes / BestMilliseconds([&] {
           CUDA_CHECK(cudaMemcpy(device.data(), host.data(), kBytes, cudaMemcpyHostToDevice));
         });
}

void UploadAndTime(const Checkpoint& checkpoint) {
  const DeviceReport report = DescribeDevice();
  std::cout << "Device: " << ToString(report) << "\n";
  const Plan plan = PlanArena(checkpoint);
  size_t stored = 0;
  for (const ArenaPlan::Slot& slot : plan.arena.slots()) stored += slot.bytes;
  const size_t total = plan.arena.total_bytes();
  std::cout << "The planned arena: " << plan.arena.slots().size()
            << " tensors in one allocation of " << Grouped(total) << " bytes, "
            << Grouped(total - stored) << " of them padding.\n\n";
  if (2 * total > report.free_memory) {
    std::cout << "Too large to upload here (" << HumanBytes(report.free_memory) << " free).\n";
    return;
  }
  DeviceBuffer<char> arena(total);
  PinnedBuffer<char> expected(total);
  std::memset(expected.data(), 0, total);
  const std::vector<UploadItem> to_host = ItemsInto(plan, expected.data(), MemoryKind::kHost);
  const double cache_speed = stored / BestMilliseconds([&] { UploadStaged(to_host, nullptr); });
  const double link_speed = report.simulated ? 0 : LinkSpeed();

  std::vector<std::string> columns = {"version", "idea", "arrived", "ms"};
  if (!report.simulated) columns.insert(columns.end(), {"GB/s", "of the limit"});
  TextTable table(columns);
  for (const UploadVersion& version : kUploadVersions) {
    arena.Fill(0);
    const std::vector<UploadItem> items = ItemsInto(plan, arena.data(), MemoryKind::kDevice);
    const double ms = BestMilliseconds([&] { version.upload(items, nullptr); });
    const std::vector<char> arrived = arena.ToHost();
    Check(std::memcmp(arrived.data(), expected.data(), total) == 0, "upload version ",
          version.number, " brought other bytes than the file's");
    std::vector<std::string> row = {StrCat(version.number, " ", version.name), version.idea,
                                    "every byte", Fixed(ms, 1)};
    if (!report.simulated) {
      row.push_back(Fixed(GigabytesPerSecond(stored, ms), 1));
      row.push_back(Fixed(100 * stored / ms / std::min(cache_speed, link_speed), 0) + " %");
    }
    table.AddRow(row);
  }
  std::cout << table.ToString() << "\n";
  if (report.simulated) {
    std::cout << "These are times of a CPU that copies memory to memory: on the simulator there is "
                 "no link to\noverlap with. A GPU shows the difference.\n";
  } else {
    std::cout << "The limit is the slower of the file cache (" << Fixed(cache_speed * 1e-6, 1)
              << " GB/s) and the link (" << Fixed(link_speed * 1e-6, 1) << " GB/s).\n";
  }
}

int Run(int argc, char** argv) {
  CommandLine command_line(
      "Lesson 01: what is in a safetensors file, and how it gets to the device.");
  std::string path;
  bool all = false;
  command_line.app().add_option("path", path, "a model's folder or a .safetensors file");
  command_line.app().add_flag("--all", all, "print every tensor");
  if (!command_line.Parse(argc, argv)) return 0;

  const bool bundled = path.empty();
  if (bundled) path = DataPath("models/pocket");
  const Clock::time_point start = Clock::now();
  const Checkpoint checkpoint(path);
  const double open_ms = Milliseconds(start);
  PrintFirstBytes(*checkpoint.files()[0]);
  PrintTensors(checkpoint, all);
  std::cout << "Opened and checked in " << Fixed(open_ms, 2)
            << " ms: the data is mapped, and no byte of it has been read yet.\n";
  PrintOneView(checkpoint);
  if (bundled) PrintLlamaHeader();
  UploadAndTime(checkpoint);
  std::cout << "\nThe page: docs/01_safetensors.md. Your turn: write MakeViews in\n"
               "lessons/01_safetensors/exercise/safetensors.cc, and check it with\n"
               "  bazel test --//:exercise=01_safetensors //tests:01_safetensors_test\n"
               "Next: bazel run //lessons/02_tokenizer\n";
  return 0;
}

}  // namespace
}  // namespace tinyvllm

int main(int argc, char** argv) { return tinyvllm::RunMain(argc, argv, tinyvllm::Run); }
