// Kernels run once more in another order, inside one program: what hangs on the order lacks a
// barrier.
//
//   std::vector<float> once, again;
//   once = RunKernel();
//   tinyvllm::simulator::InAnotherOrder([&] { again = RunKernel(); });
#pragma once

#include <functional>

namespace tinyvllm::simulator {

// Runs `work` and waits for the device. Meanwhile the threads of a block and the blocks of a grid
// run in reverse, or in their natural order where TINYVLLM_SIM_ORDER says reverse or shuffle
// already. One call at a time, from the only thread that launches kernels.
void InAnotherOrder(const std::function<void()>& work);

}  // namespace tinyvllm::simulator
