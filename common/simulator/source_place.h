// From the address of an instruction to the line of source that it comes from, for reports.
#pragma once

#include <string>

namespace tinyvllm::simulator {

// "FILE:LINE" of the code at `place`, an address within an instruction (so: a return address less
// one). Where that is a header of the simulator, the line that its function was inlined into. Where
// the program has no line numbers, "in FUNCTION" or "at address 0x...".
std::string SourcePlace(const void* place);

// The same for a call of the runtime: empty where `place` belongs to the simulator, to common/cuda
// or to a library, or has no line.
std::string ProgramPlace(const void* place);

// Whether `place` lies in the program itself, rather than in a library that it has loaded.
bool InProgram(const void* place);

}  // namespace tinyvllm::simulator
