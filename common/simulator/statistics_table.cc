// The table of the statistics.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda_simulator/statistics.h"

namespace tinyvllm::simulator {
namespace {

// 1234567 as "1,234,567".
std::string Thousands(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

// How many times the fewest possible.
std::string Times(uint64_t actual, uint64_t fewest) {
  if (fewest == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f x",
                static_cast<double>(actual) / static_cast<double>(fewest));
  return text;
}

std::string Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : std::to_string((200 * part / whole + 1) / 2) + " %";
}

// The kernel's name; with its file, where another file has a kernel of that name.
std::string Name(const KernelStatistics& kernel, const std::vector<KernelStatistics>& kernels) {
  for (const KernelStatistics& other : kernels) {
    if (other.kernel == kernel.kernel && other.file != kernel.file) {
      return kernel.kernel + " (" + kernel.file.substr(kernel.file.rfind('/') + 1) + ")";
    }
  }
  return kernel.kernel;
}

std::vector<std::string> Row(const KernelStatistics& k, const std::string& name) {
  std::vector<std::string> row = {name, Thousands(k.launches), Thousands(k.threads),
                                  Thousands(k.barriers), Thousands(k.exchanges)};
  if (k.possible_lanes == 0 && k.atomics == 0) {
    row.resize(13, "-");  // no accesses, or none that were counted
    return row;
  }
  for (const std::string& cell : {Bytes(k.bytes_read), Bytes(k.bytes_written), Thousands(k.sectors),
                                  Times(k.sectors, k.fewest_sectors), Thousands(k.shared_passes),
                                  Times(k.shared_passes, k.fewest_shared_passes),
                                  Percent(k.lanes, k.possible_lanes), Thousands(k.atomics)}) {
    row.push_back(cell);
  }
  return row;
}

}  // namespace

std::string StatisticsTable(const std::vector<KernelStatistics>& kernels) {
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "launches", "threads", "barriers", "exchanges", "read", "written", "sectors",
       "of fewest", "shared passes", "of fewest", "lanes", "atomics"}};
  for (const KernelStatistics& kernel : kernels) {
    rows.push_back(Row(kernel, Name(kernel, kernels)));
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      table += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    table += '\n';
  }
  return table;
}

}  // namespace tinyvllm::simulator
