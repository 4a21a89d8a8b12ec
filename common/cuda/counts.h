// Why one version of a kernel beats another, without a GPU: what the simulator counts, as columns
// of a demo's table. Times of a CPU that plays a GPU would say nothing in their place.
//
//   std::vector<std::string> header = CountColumns();
//   header.insert(header.begin(), "version");
//   TextTable table(header);
//   std::vector<std::string> row = CountCells([&] { RmsNorm(..., stream); });
//   row.insert(row.begin(), "1 tree");
//   table.AddRow(row);
//   std::cout << table.ToString() << kCountsLegend;
//
// On the simulator alone (IsSimulator()). The kernels must be in a library's twin ":NAME.counted".
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tinyvllm {

std::vector<std::string> CountColumns();

// The cells of a row: runs `work` and counts all kernels that it launches, together. Cells are
// empty where there is nothing to count: cuBLAS is no kernel here. Throws Error on a GPU.
std::vector<std::string> CountCells(const std::function<void()>& work);

// Lines to print below the table.
extern const char* const kCountsLegend;

}  // namespace tinyvllm
