// What a translated launch and a translated `__shared__` declaration call. Part of the simulator's
// cuda_runtime.h.
//
//   Scale<<<grid, block>>>(x, n);
//
// becomes, by cu2cpp,
//
//   ::tinyvllm::simulator::Launch("Scale", __FILE__, __LINE__,
//       [=](auto&... a_) { Scale(a_...); }, <a second lambda that finds the kernel's address>,
//       grid, block)(x, n);
//
// so that the argument list stays as it was written and the kernel may be a template whose
// parameters are deduced, an overload, or a function pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../cuda_runtime_api.h"
#include "../device_launch_parameters.h"
#include "../vector_types.h"

namespace tinyvllm::simulator {

struct KernelLaunch {
  const char* name;     // as the launch spells it
  const char* file;     // of the launch
  int line;             // of the launch
  const void* address;  // of the kernel, or null where overload resolution alone knows it
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  void (*call)(void* invocation);  // runs the kernel for the current thread
  void* invocation;
  size_t invocation_bytes;
};

// False, with the error that CUDA would give and one line on standard error, where the launch
// breaks a limit of the device or an earlier kernel has failed.
bool CheckLaunch(const KernelLaunch& launch);

// Whether work given to `stream` runs at once (else it waits for a synchronisation).
bool RunsNow(cudaStream_t stream);
void Enqueue(cudaStream_t stream, std::function<void()> work);

// Runs every thread of every block.
void RunKernel(const KernelLaunch& launch);

// A kernel and a copy of its arguments, as CUDA takes them at the launch. Every thread of the grid
// calls the kernel with the same arguments.
template <typename Call, typename... Arguments>
struct Invocation {
  Call call;
  std::tuple<Arguments...> arguments;

  static void Run(void* self) {
    auto* invocation = static_cast<Invocation*>(self);
    std::apply(invocation->call, invocation->arguments);
  }
};

// Stands for "a pointer to this kernel" in the second lambda of a launch; where `Kernel` is an
// overload set or a template to be deduced, the call does not compile and the address is unknown.
struct AddressTag {};
template <typename... Parameters>
const void* KernelAddress(void (*kernel)(Parameters...), AddressTag) {
  return reinterpret_cast<const void*>(kernel);
}

template <typename Call, typename Address>
class Launcher {
 public:
  Launcher(const KernelLaunch& launch, Call call, Address address, cudaStream_t stream)
      : launch_(launch), call_(call), stream_(stream) {
    if constexpr (std::is_invocable_v<Address, AddressTag>) {
      launch_.address = address(AddressTag());
    }
  }

  template <typename... Arguments>
  void operator()(Arguments&&... arguments) {
    using Invoked = Invocation<Call, std::decay_t<Arguments>...>;
    if (!CheckLaunch(launch_)) return;
    Invoked invocation{call_, {std::forward<Arguments>(arguments)...}};
    launch_.call = &Invoked::Run;
    launch_.invocation_bytes = sizeof(Invoked);
    if (RunsNow(stream_)) {
      launch_.invocation = &invocation;
      RunKernel(launch_);
    } else {
      Enqueue(stream_, [launch = launch_, invocation]() mutable {
        launch.invocation = &invocation;
        RunKernel(launch);
      });
    }
  }

 private:
  KernelLaunch launch_;
  Call call_;
  cudaStream_t stream_;
};

template <typename Call, typename Address>
Launcher<Call, Address> Launch(const char* name, const char* file, int line, Call call,
                               Address address, dim3 grid, dim3 block, size_t shared_bytes = 0,
                               cudaStream_t stream = nullptr) {
  return {{name, file, line, nullptr, grid, block, shared_bytes, nullptr, nullptr, 0},
          call,
          address,
          stream};
}

// The dynamic shared memory of the block that this OS thread runs.
constexpr size_t kMaxDynamicSharedBytes = 232448;  // 227 KiB
extern "C" __thread unsigned char
    tinyvllm_simulator_dynamic_shared[kMaxDynamicSharedBytes] TINYVLLM_SIM_TLS;

// The number of the block that this OS thread runs, new for each block: a `__shared__` variable
// whose own number differs is fresh.
extern __thread uint64_t block_serial TINYVLLM_SIM_TLS;

// For the first thread of a block that comes here, shared memory is fresh: filled with poison, and
// its bytes counted. `serial` is the variable's own number.
void RegisterShared(uint64_t* serial, void* variable, size_t bytes, const char* name,
                    const char* file, int line);

}  // namespace tinyvllm::simulator

// Follows each translated `__shared__` declaration.
#if defined(__SANITIZE_THREAD__)
// The hooks must not see the serial: every thread reads it, one writes it.
#define TINYVLLM_SIM_IS_FRESH(serial) true
#define TINYVLLM_SIM_SERIAL_GAP 248
#else
#define TINYVLLM_SIM_SERIAL_GAP 0
#define TINYVLLM_SIM_IS_FRESH(serial) \
  __builtin_expect((serial) != ::tinyvllm::simulator::block_serial, 0)
#endif
#define TINYVLLM_SIM_SHARED(variable)                                                         \
  {                                                                                           \
    static thread_local uint64_t tinyvllm_serial_ = 0;                                        \
    if (TINYVLLM_SIM_IS_FRESH(tinyvllm_serial_)) {                                            \
      ::tinyvllm::simulator::RegisterShared(&tinyvllm_serial_, (void*)&(variable),            \
                                            sizeof(variable), #variable, __FILE__, __LINE__); \
    }                                                                                         \
  }

namespace tinyvllm::simulator {

template <typename... Parameters, typename Launcher, size_t... kIndex>
void LaunchWithPointers(Launcher launcher, void** arguments, std::index_sequence<kIndex...>) {
  launcher(*static_cast<std::decay_t<Parameters>*>(arguments[kIndex])...);
}

}  // namespace tinyvllm::simulator

// CUDA's other way to launch. The kernel must come as a pointer of its own type.
template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  auto launcher = tinyvllm::simulator::Launch(
      "(given to cudaLaunchKernel)", file, line, [kernel](auto&... a) { kernel(a...); },
      [kernel](auto tag) { return tinyvllm::simulator::KernelAddress(kernel, tag); }, grid, block,
      shared_bytes, stream);
  tinyvllm::simulator::LaunchWithPointers<Parameters...>(launcher, arguments,
                                                         std::index_sequence_for<Parameters...>());
  return cudaPeekAtLastError();
}
