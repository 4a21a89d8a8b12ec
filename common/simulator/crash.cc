#include "common/simulator/crash.h"

#include <signal.h>
#include <ucontext.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "common/simulator/block.h"
#include "common/simulator/call_place.h"
#include "common/simulator/host_guard.h"
#include "common/simulator/source_place.h"

namespace tinyvllm::simulator {
#if !TINYVLLM_SIM_ASAN
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr size_t kSignalStackBytes = 256 * 1024;  // a report needs some

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

// Whether the processor refused the address itself: it is no multiple of 16 where an access of 16
// bytes needs one, or no pointer at all. It does not tell the address then.
bool IsRefusedAddress(const siginfo_t& info) {
#if defined(__x86_64__)
  return info.si_signo == SIGSEGV && info.si_code == SI_KERNEL;
#else
  return info.si_signo == SIGBUS && info.si_code == BUS_ADRALN;
#endif
}

std::string Problem(const BlockRunner& runner, int signal, const void* address, bool refused,
                    const std::string& line) {
  char text[32];
  std::snprintf(text, sizeof(text), "%p", address);
  if (signal == SIGFPE) {
    return "integer division by zero at " + line +
           "\n  advice: a GPU does not stop here, and goes on with any value: check the divisor" +
           "\n  more: docs/simulator.md#illegal-address";
  }
  if (refused) {
    return "illegal address at " + line +
           ": it is no multiple of 16, as a load or store of 16 bytes needs, or no address at all"
           "\n  advice: look at the index: do steps of 16 bytes begin at multiples of 16? "
           "--config=check says by how much they do not"
           "\n  more: docs/simulator.md#misaligned-access";
  }
  if (runner.IsStackOverflow(address)) {
    return "stack overflow at " + line +
           ": the thread's local variables and calls need more than the " +
           std::to_string(StackBytes() / 1024) + " KiB that the simulator gives a thread" +
           "\n  advice: a recursion without end? A large local array belongs in shared or device "
           "memory" +
           "\n  more: docs/simulator.md#stack-overflow";
  }
  return "illegal address at " + line + ": access to " + text + ", where there is no memory" +
         "\n  advice: look at the index and at the pointer; --config=check finds an index that is "
         "wrong by less, too" +
         "\n  more: docs/simulator.md#illegal-address";
}

// Whether the access that failed was a write; where the processor does not say, that it was not.
bool IsWrite(const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
  static_cast<void>(context);
  return false;
#endif
}

void OnSignal(int signal, siginfo_t* info, void* context) {
  BlockRunner* runner = BlockRunner::GetIfExists();
  const bool in_kernel = runner != nullptr && runner->inside_kernel();
  if (signal == SIGSEGV &&
      OnFault(info->si_addr, IsWrite(context), InterruptedAt(context), in_kernel)) {
    return;
  }
  if (in_kernel) {
    const void* place = InterruptedAt(context);
    const cudaError_t error = signal == SIGFPE ? cudaErrorLaunchFailure : cudaErrorIllegalAddress;
    const void* address = info->si_addr;
    const bool refused = IsRefusedAddress(*info);
    if (InProgram(place) && !runner->failed()) {
      const CallPlace calls = CallPlace::Now();
      runner->FailInSignal(error, place, [=](const void* at) {
        // A hook, for instance, is not the kernel's own code; its caller is.
        std::string line = ProgramPlace(at);
        if (line.empty()) line = calls.ToString();
        return Problem(*runner, signal, address, refused, line.empty() ? SourcePlace(at) : line);
      });
    }
    // The program is lost, so printing from a signal handler can do no further harm.
    runner->Fail(error, Problem(*runner, signal, address, refused, SourcePlace(place)));
    std::fprintf(stderr, "CUDA simulator: %s\n", runner->report().c_str());
  }
  // Returning repeats the fault, now with the system's own handling.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
}

}  // namespace

#endif

bool InstallCrashReports() {
#if TINYVLLM_SIM_ASAN
  return false;
#else
  static const bool installed = [] {
    bool all = true;
    for (int signal : kSignals) {
      struct sigaction before = {};
      sigaction(signal, nullptr, &before);
      if (before.sa_handler != SIG_DFL) {
        all = false;
        continue;
      }
      struct sigaction action = {};
      action.sa_sigaction = &OnSignal;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // OnSignal may not return
      sigaction(signal, &action, nullptr);
    }
    return all;
  }();
  return installed;
#endif
}

void PrepareOsThread() {
#if !TINYVLLM_SIM_ASAN
  static thread_local SignalStack stack;
  static_cast<void>(stack);
#endif
}

const void* InterruptedAt(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
#error "where does this processor keep the address of the next instruction?"
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
