#include "common/simulator/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "common/simulator/access.h"

// Set by --config=race.
#ifndef TINYVLLM_SIM_RACE_DEFAULT
#define TINYVLLM_SIM_RACE_DEFAULT 0
#endif

namespace tinyvllm::simulator {
namespace {

// Each OS thread keeps up to 1,024 stacks of two mappings each, and Linux allows a process 65,530.
constexpr int kMaxThreads = 24;
constexpr int kDefaultMaxThreads = 16;

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

void ReadOrder(Settings* settings) {
  const char* name = "TINYVLLM_SIM_ORDER";
  const char* value = Get(name);
  settings->order = ThreadOrder::kNatural;
  settings->seed = 0;
  if (value == nullptr || std::strcmp(value, "natural") == 0) return;
  if (std::strcmp(value, "reverse") == 0) {
    settings->order = ThreadOrder::kReverse;
    return;
  }
  const char* rest = "";
  if (std::strncmp(value, "shuffle:", 8) != 0 || !ReadNumber(value + 8, &settings->seed, &rest) ||
      *rest != '\0') {
    Refuse(name, value, "natural, reverse or shuffle:SEED");
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
  settings.lazy_streams = ReadFlag("TINYVLLM_SIM_LAZY_STREAMS");
  settings.memory_bytes = ReadMemory();
  settings.watch_races = ReadFlag("TINYVLLM_SIM_RACE", TINYVLLM_SIM_RACE_DEFAULT);
  if (settings.watch_races && !TINYVLLM_SIM_RACE_DEFAULT && SourcePlace == nullptr) {
    Refuse("TINYVLLM_SIM_RACE", "1",
           "0, as no kernel of this program calls the hooks; --config=race builds them so");
  }
  settings.statistics = ReadFlag("TINYVLLM_SIM_STATS");
  return settings;
}

}  // namespace

const Settings& GetSettings() {
  static const Settings settings = ReadSettings();
  return settings;
}

}  // namespace tinyvllm::simulator
