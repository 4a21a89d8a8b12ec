#include "common/simulator/race_report.h"

#include <string>

#include "common/simulator/block.h"
#include "common/simulator/source_place.h"

namespace tinyvllm::simulator {
namespace {

const char* What(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return "read";
    case AccessKind::kWrite:
      return "wrote";
    case AccessKind::kAtomicRead:
      return "read by an atomic";
    case AccessKind::kAtomicWrite:
      return "changed by an atomic";
  }
  return "";
}

const char* Title(const Race& race) {
  if (IsAtomic(race.earlier.kind) != IsAtomic(race.later.kind)) {
    return "an atomic access and a plain one of the same memory";
  }
  if (!IsWrite(race.later.kind)) return "read after write";
  return IsWrite(race.earlier.kind) ? "write after write" : "write after read";
}

std::string Missing(const Race& race) {
  if (race.earlier.block != race.later.block) {
    return "missing between them: nothing orders two blocks of one launch";
  }
  if (race.same_warp) {
    return "missing between them: __syncwarp (both threads are in one warp) or __syncthreads";
  }
  return "missing between them: __syncthreads";
}

const char* Advice(const Race& race, bool same_place) {
  if (race.earlier.block != race.later.block) {
    return "give each block memory of its own; or use atomics throughout; or split the kernel in "
           "two launches; or write, __threadfence(), then announce it by an atomic that the "
           "reading "
           "block checks first";
  }
  if (IsAtomic(race.earlier.kind) != IsAtomic(race.later.kind)) {
    return "an atomic is safe against other atomics only: wait between the two accesses, or make "
           "both atomic";
  }
  if (IsWrite(race.earlier.kind) && IsWrite(race.later.kind)) {
    return same_place ? "two threads write one element: check the index, let one thread write, or "
                        "use an atomic"
                      : "wait between the two writes, or let one thread do both";
  }
  return "let all threads wait between the write and the read; in a loop also between the read and "
         "the next round's write. A shuffle or a vote is no such wait";
}

}  // namespace

std::string DescribeRace(const Race& race, const BlockRunner& runner) {
  const std::string earlier = SourcePlace(race.earlier.place);
  const std::string later = SourcePlace(race.later.place);
  const auto who = [&](const Race::Side& side) {
    std::string name = "thread " + runner.ThreadName(side.thread);
    if (race.earlier.block != race.later.block)
      name += " of block " + runner.NameOfBlock(side.block);
    return name;
  };
  std::string report = std::string("race: ") + Title(race);
  report += "\n    " + later + ": " + who(race.later) + " " + What(race.later.kind) + " " +
            std::to_string(race.bytes) + (race.bytes == 1 ? " byte of " : " bytes of ") +
            race.memory;
  report += "\n    " + earlier + ": " + who(race.earlier) + " " + What(race.earlier.kind) +
            " there before" + (earlier == later ? " (the same line)" : "");
  report += "\n  " + Missing(race);
  report += std::string("\n  advice: ") + Advice(race, earlier == later);
  return report + "\n  more: docs/simulator.md#races";
}

}  // namespace tinyvllm::simulator
