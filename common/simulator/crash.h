// Says which kernel, block and thread ran when something outside the simulator stops the program: a
// signal (a wild pointer, a stack that is full, a division by zero), a failed assert, a sanitizer's
// report.
#pragma once

namespace tinyvllm::simulator {

// Once for the program. Leaves signals alone where the program or a sanitizer handles them.
void InstallCrashReports();

// Once for each OS thread that runs blocks: a full stack can only be reported on another one.
void PrepareOsThread();

}  // namespace tinyvllm::simulator
