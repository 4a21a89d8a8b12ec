#include "common/simulator/order.h"

#include <cuda_runtime.h>

#include <atomic>

#include "cuda_simulator/order.h"

namespace tinyvllm::simulator {
namespace {

std::atomic<bool> another_order{false};

}  // namespace

ThreadOrder OrderNow() {
  const ThreadOrder order = GetSettings().order;
  if (!another_order.load(std::memory_order_relaxed)) return order;
  return order == ThreadOrder::kNatural ? ThreadOrder::kReverse : ThreadOrder::kNatural;
}

void InAnotherOrder(const std::function<void()>& work) {
  cudaDeviceSynchronize();  // what was launched before keeps its order
  struct Scope {            // also where `work` throws
    Scope() { another_order = true; }
    ~Scope() {
      cudaDeviceSynchronize();
      another_order = false;
    }
  } scope;
  work();
}

}  // namespace tinyvllm::simulator
