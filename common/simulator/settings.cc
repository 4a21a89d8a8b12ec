#include "common/simulator/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

// Set by --config=race.
#ifndef TINYVLLM_SIM_RACE_DEFAULT
#define TINYVLLM_SIM_RACE_DEFAULT 0
#endif

// Set by --config=check.
#ifndef TINYVLLM_SIM_CHECK_DEFAULT
#define TINYVLLM_SIM_CHECK_DEFAULT 0
#endif

// Linked only where kernels call the hooks, of which it is one: access_hooks.cc.
extern "C" __attribute__((weak)) void __tsan_init();

namespace tinyvllm::simulator {
namespace {

// Each OS thread keeps up to 1,024 stacks of two mappings each, and Linux allows a process 65,530.
constexpr int kMaxThreads = 24;
constexpr int kDefaultMaxThreads = 16;
// No block that makes sense takes so long, and bazel's time limit for a test is not reached.
constexpr double kDefaultWatchdogSeconds = 20;

[[noreturn]] void Refuse(const char* name, const char* value, const char* expected) {
  std::fprintf(stderr, "CUDA simulator: environment variable %s is \"%s\"; expected %s\n", name,
               value, expected);
  std::_Exit(2);
}

// The variable's value, or null where it is unset or empty.
const char* Get(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool ReadNumber(const char* text, uint64_t* number, const char** rest) {
  if (*text < '0' || *text > '9') return false;
  char* end;
  *number = std::strtoull(text, &end, 10);
  *rest = end;
  return true;
}

bool ReadFlag(const char* name, bool unset = false) {
  const char* value = Get(name);
  if (value == nullptr) return unset;
  if (std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") != 0) Refuse(name, value, "0 or 1");
  return true;
}

// What watches kernels needs kernels that call the hooks.
bool ReadWatcher(const char* name, bool unset) {
  const bool on = ReadFlag(name, unset);
  if (on && !unset && __tsan_init == nullptr) {
    Refuse(name, "1",
           "0, as no kernel of this program calls the hooks; --config=check builds them so");
  }
  return on;
}

int ReadThreads() {
  const char* name = "TINYVLLM_SIM_THREADS";
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const char* value = Get(name);
  if (value == nullptr) return std::min(cores, kDefaultMaxThreads);
  uint64_t number;
  const char* rest;
  if (!ReadNumber(value, &number, &rest) || *rest != '\0' || number < 1 || number > kMaxThreads) {
    Refuse(name, value, "a number from 1 to 24");
  }
  return static_cast<int>(number);
}

// TINYVLLM_SIM_ORDER=each: bazel's number of the run, from 1, chooses the order, and a line says
// which, as a log that shows a failure must.
std::string OrderOfRun() {
  const char* run_text = Get("TEST_RUN_NUMBER");
  uint64_t run = 1;
  const char* rest = "";
  if (run_text != nullptr && (!ReadNumber(run_text, &run, &rest) || *rest != '\0' || run < 1)) {
    Refuse("TEST_RUN_NUMBER", run_text, "the number of the run, from 1");
  }
  const std::string order = run == 1   ? "natural"
                            : run == 2 ? "reverse"
                                       : "shuffle:" + std::to_string(run - 2);
  const char* target = Get("TEST_TARGET");
  std::fprintf(stderr,
               "CUDA simulator: the order of this run is %s; to repeat it: bazel test %s "
               "--test_env=TINYVLLM_SIM_ORDER=%s\n",
               order.c_str(), target == nullptr ? "TARGET" : target, order.c_str());
  return order;
}

void ReadOrder(Settings* settings) {
  const char* name = "TINYVLLM_SIM_ORDER";
  const char* value = Get(name);
  std::string order = value != nullptr ? value : TINYVLLM_SIM_CHECK_DEFAULT ? "reverse" : "natural";
  if (order == "each") order = OrderOfRun();
  settings->order = ThreadOrder::kNatural;
  settings->seed = 0;
  if (order == "natural") return;
  if (order == "reverse") {
    settings->order = ThreadOrder::kReverse;
    return;
  }
  const char* rest = "";
  if (order.compare(0, 8, "shuffle:") != 0 ||
      !ReadNumber(order.c_str() + 8, &settings->seed, &rest) || *rest != '\0') {
    Refuse(name, value, "natural, reverse, shuffle:SEED or each");
  }
  settings->order = ThreadOrder::kShuffle;
}

int ReadWarpSize() {
  const char* name = "TINYVLLM_SIM_WARP_SIZE";
  const char* value = Get(name);
  if (value == nullptr || std::strcmp(value, "32") == 0) return 32;
  if (std::strcmp(value, "64") != 0) Refuse(name, value, "32 or 64");
  return 64;
}

Poison ReadPoison() {
  const char* name = "TINYVLLM_SIM_POISON";
  const char* value = Get(name);
  if (value == nullptr || std::strcmp(value, "auto") == 0) return Poison::kAuto;
  if (std::strcmp(value, "on") == 0) return Poison::kOn;
  if (std::strcmp(value, "off") != 0) Refuse(name, value, "auto, on or off");
  return Poison::kOff;
}

double ReadWatchdog() {
  const char* name = "TINYVLLM_SIM_WATCHDOG";
  const char* value = Get(name);
  if (value == nullptr) return kDefaultWatchdogSeconds;
  char* end;
  const double seconds = std::strtod(value, &end);
  if (end == value || *end != '\0' || !(seconds >= 0 && seconds <= 1e6)) {
    Refuse(name, value, "a number of seconds, or 0 for no limit");
  }
  return seconds;
}

size_t ReadMemory() {
  const char* name = "TINYVLLM_SIM_MEMORY";
  const char* value = Get(name);
  if (value == nullptr) {
    return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2;
  }
  uint64_t number;
  const char* rest;
  if (ReadNumber(value, &number, &rest)) {
    const std::string suffix = rest;
    const int shift = suffix.empty()  ? 0
                      : suffix == "K" ? 10
                      : suffix == "M" ? 20
                      : suffix == "G" ? 30
                                      : -1;
    if (shift >= 0 && number > 0 && number <= SIZE_MAX >> shift) return number << shift;
  }
  Refuse(name, value, "a number of bytes, such as 8G");
}

Settings ReadSettings() {
  Settings settings;
  settings.threads = ReadThreads();
  ReadOrder(&settings);
  settings.warp_size = ReadWarpSize();
  settings.poison = ReadPoison();
  settings.early_exit = ReadFlag("TINYVLLM_SIM_EARLY_EXIT");
  settings.lazy_streams = ReadFlag("TINYVLLM_SIM_LAZY_STREAMS", TINYVLLM_SIM_CHECK_DEFAULT);
  settings.watchdog_seconds = ReadWatchdog();
  settings.memory_bytes = ReadMemory();
  settings.watch_races =
      ReadWatcher("TINYVLLM_SIM_RACE", TINYVLLM_SIM_RACE_DEFAULT || TINYVLLM_SIM_CHECK_DEFAULT);
  settings.watch_memory = ReadWatcher("TINYVLLM_SIM_MEMCHECK", TINYVLLM_SIM_CHECK_DEFAULT);
  settings.statistics = ReadFlag("TINYVLLM_SIM_STATS");
  settings.leaks = ReadFlag("TINYVLLM_SIM_LEAKS", TINYVLLM_SIM_CHECK_DEFAULT);
  settings.note_calls = settings.watch_memory || settings.leaks || settings.lazy_streams;
  return settings;
}

}  // namespace

const Settings& GetSettings() {
  static const Settings settings = ReadSettings();
  return settings;
}

}  // namespace tinyvllm::simulator
