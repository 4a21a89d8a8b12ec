// Part of the simulator's cuda_runtime.h: what watches the kernels of this program, as
// docs/simulator.md explains.
#pragma once

namespace tinyvllm::simulator {

// Whether races are found: --config=race and --config=check.
bool FindsRaces();
// Whether accesses out of bounds, to freed and to unwritten memory are found: --config=check.
bool ChecksMemory();

}  // namespace tinyvllm::simulator
