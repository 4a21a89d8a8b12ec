// In which order threads and blocks run now: as TINYVLLM_SIM_ORDER says, or in another, inside
// InAnotherOrder.
#pragma once

#include "common/simulator/settings.h"

namespace tinyvllm::simulator {

ThreadOrder OrderNow();

}  // namespace tinyvllm::simulator
