// Kernels that never end: a spin-wait for something that cannot come, a loop whose condition never
// turns false.
//
// Each OS thread that runs blocks has a timer, which counts the processor time that it uses and
// interrupts it every 10 ms. Of a thread that has neither returned nor waited for long, the
// interruption makes way for the others of its block: it may be waiting for one of them. And a
// block that has run for longer than TINYVLLM_SIM_WATCHDOG seconds is given up, with a report that
// says where its threads are. Processor time, so that a busy machine is no reason for an alarm; of
// one block, so that a large grid is none, either.
#pragma once

namespace tinyvllm::simulator {

constexpr int kTicksPerSecond = 100;

// Called by an OS thread before it runs the blocks of a launch. The timer stops by itself when it
// finds that no block runs.
void ArmWatchdog();

}  // namespace tinyvllm::simulator
