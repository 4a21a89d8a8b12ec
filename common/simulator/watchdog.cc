#include "common/simulator/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>

#include "common/simulator/block.h"
#include "common/simulator/crash.h"
#include "common/simulator/settings.h"
#include "cuda_simulator/fiber.h"

#ifndef sigev_notify_thread_id  // older C libraries have the field alone
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace tinyvllm::simulator {
namespace {

// Debuggers let it pass without a word.
constexpr int kSignal = SIGVTALRM;

enum class State : unsigned char { kNone, kStopped, kArmed };

__thread State state TINYVLLM_SIM_TLS;
__thread timer_t timer TINYVLLM_SIM_TLS;

void SetTimer(long nanoseconds) {
  itimerspec spec = {};
  spec.it_value.tv_nsec = spec.it_interval.tv_nsec = nanoseconds;
  timer_settime(timer, 0, &spec, nullptr);
}

// Runs on the stack of the fiber that it interrupts. BlockRunner::Tick may switch to another fiber
// and come back here when it is this one's turn again: returning then restores all its registers.
void OnTick(int, siginfo_t*, void* interrupted) {
  BlockRunner* runner = BlockRunner::GetIfExists();
  if (runner == nullptr || !runner->inside_kernel()) {
    SetTimer(0);
    state = State::kStopped;
    return;
  }
  const int error_number = errno;
  runner->Tick(InterruptedAt(interrupted));
  errno = error_number;
}

// An OS thread's timer ends with it.
struct TimerOwner {
  ~TimerOwner() {
    if (state != State::kNone) timer_delete(timer);
    state = State::kNone;
  }
};

bool MakeTimer() {
  static const bool ready = [] {
    // A child process has no timers of its own to begin with.
    pthread_atfork(nullptr, nullptr, [] { state = State::kNone; });
    struct sigaction action = {};
    action.sa_sigaction = &OnTick;
    // Without SA_NODEFER the signal would stay blocked in the fiber that OnTick switches to.
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
    return GetSettings().watchdog_seconds > 0 && sigaction(kSignal, &action, nullptr) == 0;
  }();
  if (!ready) return false;
  static thread_local TimerOwner owner;
  static_cast<void>(owner);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event.sigev_notify_thread_id = gettid();
  return timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
}

}  // namespace

void ArmWatchdog() {
  if (__builtin_expect(state == State::kArmed, 1)) return;
  if (state == State::kNone && !MakeTimer()) return;
  state = State::kArmed;
  SetTimer(1000000000 / kTicksPerSecond);
}

}  // namespace tinyvllm::simulator
