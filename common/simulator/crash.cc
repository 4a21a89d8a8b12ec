#include "common/simulator/crash.h"

#include <signal.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "common/simulator/block.h"

namespace tinyvllm::simulator {
#if !TINYVLLM_SIM_ASAN
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr size_t kSignalStackBytes = 64 * 1024;

// The alternate stack of an OS thread.
struct SignalStack {
  SignalStack() : memory(new char[kSignalStackBytes]) {
    stack_t stack = {};
    stack.ss_sp = memory.get();
    stack.ss_size = kSignalStackBytes;
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    stack_t off = {};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
  }
  std::unique_ptr<char[]> memory;
};

// The program is lost, so printing from a signal handler can do no further harm.
void OnSignal(int signal, siginfo_t* info, void*) {
  const BlockRunner* runner = BlockRunner::GetIfExists();
  if (runner != nullptr && runner->inside_kernel()) {
    const std::string where = runner->Where();
    if (signal == SIGFPE) {
      std::fprintf(stderr, "CUDA simulator: error in %s:\n  integer division by zero\n",
                   where.c_str());
    } else if (runner->IsStackOverflow(info->si_addr)) {
      std::fprintf(
          stderr,
          "CUDA simulator: error in %s:\n  stack overflow: the thread's local variables and "
          "calls need more than the %zu KiB that the simulator gives a thread\n",
          where.c_str(), StackBytes() / 1024);
    } else {
      std::fprintf(
          stderr,
          "CUDA simulator: error in %s:\n  access to address %p, where there is no memory; "
          "--config=asan shows the line\n",
          where.c_str(), info->si_addr);
    }
  }
  // Returning repeats the fault, now with the system's own handling.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
}

}  // namespace

#endif

void InstallCrashReports() {
#if !TINYVLLM_SIM_ASAN
  static const bool installed = [] {
    for (int signal : kSignals) {
      struct sigaction before = {};
      sigaction(signal, nullptr, &before);
      if (before.sa_handler != SIG_DFL) continue;
      struct sigaction action = {};
      action.sa_sigaction = &OnSignal;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(signal, &action, nullptr);
    }
    return true;
  }();
  static_cast<void>(installed);
#endif
}

void PrepareOsThread() {
#if !TINYVLLM_SIM_ASAN
  static thread_local SignalStack stack;
  static_cast<void>(stack);
#endif
}

}  // namespace tinyvllm::simulator

// glibc's assert calls this function; the program's own definition comes before the library's.
// Inside a kernel a failed assert is an error of the device, as on a GPU.
extern "C" void __assert_fail(const char* expression, const char* file, unsigned int line,
                              const char* function) noexcept {
  using tinyvllm::simulator::BlockRunner;
  BlockRunner* runner = BlockRunner::GetIfExists();
  if (runner != nullptr && runner->inside_kernel()) {
    runner->Fail(cudaErrorAssert, "assertion failed at " + std::string(file) + ":" +
                                      std::to_string(line) + " in " + function + ": " + expression);
    runner->Leave();
  }
  std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, expression);
  std::abort();
}

#if TINYVLLM_SIM_ASAN
// Hooks that the sanitizers call before they print.
static void PrintWhere(const char* what) {
  const auto* runner = tinyvllm::simulator::BlockRunner::GetIfExists();
  if (runner == nullptr || !runner->inside_kernel()) return;
  std::fprintf(stderr, "CUDA simulator: the %s report is about %s\n", what,
               runner->Where().c_str());
}
extern "C" void __asan_on_error() { PrintWhere("AddressSanitizer"); }
extern "C" void __ubsan_on_report() { PrintWhere("UndefinedBehaviorSanitizer"); }
#endif
