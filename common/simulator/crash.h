// Says which kernel, block and thread ran when something outside the simulator stops it: a signal
// (a wild pointer, a stack that is full, a division by zero), a failed assert, a sanitizer's
// report.
//
// A signal in a kernel's own code becomes a sticky error of the device, as on a GPU, and the
// program goes on. In a library's code, which may hold locks, it ends the program.
#pragma once

namespace tinyvllm::simulator {

// Once for the program. Leaves signals alone where the program or a sanitizer handles them, and
// returns false where it does so with access to memory.
bool InstallCrashReports();

// Once for each OS thread that runs blocks: a full stack can only be reported on another one.
void PrepareOsThread();

// The instruction at which a signal arrived, of the handler's third argument.
const void* InterruptedAt(const void* context);

}  // namespace tinyvllm::simulator
