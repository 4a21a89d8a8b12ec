#include "final/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/error.h"
#include "common/base/text_table.h"

namespace tinyvllm {
namespace {

constexpr int kHost = 1, kDevice = 2, kSlots = 3;  // groups of rows

std::string Microseconds(double seconds) { return Fixed(seconds * 1e6, 1); }

}  // namespace

TraceWriter::TraceWriter(const std::string& path) : path_(path), file_(path) {
  Check(file_.is_open(), "--trace ", path, ": cannot be written (", std::strerror(errno),
        "); expected a file in a folder that exists");
  file_ << "[\n";
  int order = 0;
  for (const auto& [group, name] :
       {std::pair(kHost, "host"), {kDevice, "device"}, {kSlots, "slots"}}) {
    Event(StrCat(R"({"ph":"M","name":"process_name","pid":)", group, R"(,"args":{"name":")", name,
                 R"("}})"));
    Event(StrCat(R"({"ph":"M","name":"process_sort_index","pid":)", group,
                 R"(,"args":{"sort_index":)", order++, "}}"));
  }
  NameRow(kHost, 0, "engine");
  NameRow(kDevice, 0, "stream");
}

void TraceWriter::Add(const Engine& engine) {
  const StepRecord& step = engine.last_step();
  int tokens = 0, prefill = 0;
  for (const ScheduledSequence& sequence : step.sequences) {
    tokens += sequence.num_tokens;
    if (sequence.num_tokens > 1) ++prefill;
  }
  const std::string arguments = StrCat(
      R"({"step":)", step.step, R"(,"sequences":)", step.sequences.size(), R"(,"prefill_chunks":)",
      prefill, R"(,"tokens":)", tokens, R"(,"waiting":)", step.num_waiting, R"(,"free_blocks":)",
      step.num_free_blocks, R"(,"preempted":)", step.preempted.size(), "}");
  Span(kHost, 0, "schedule", step.schedule_begin, step.run_begin, arguments);
  Span(kHost, 0, "run", step.run_begin, step.run_end, arguments);
  Span(kHost, 0, "wait", step.wait_begin, step.postprocess_begin, arguments);
  Span(kHost, 0, "postprocess", step.postprocess_begin, step.end, arguments);
  if (step.sequences.empty()) return;
  Span(kDevice, 0, "forward pass", step.device_begin, step.device_pass_end, arguments);
  Span(kDevice, 0, "sample", step.device_pass_end, step.device_end, arguments);
  const double begin = std::max(step.schedule_begin, slots_end_);  // steps may overlap
  slots_end_ = step.end;
  for (const ScheduledSequence& sequence : step.sequences) {
    for (; named_slots_ <= sequence.slot; ++named_slots_) {
      NameRow(kSlots, named_slots_, StrCat("slot ", named_slots_));
    }
    Span(kSlots, sequence.slot, names_.at(sequence.request), begin, step.end,
         StrCat(R"({"first_position":)", sequence.first_position, R"(,"tokens":)",
                sequence.num_tokens, "}"));
  }
}

void TraceWriter::Close() {
  file_ << "\n]\n";
  file_.close();
  CheckWritten();
}

void TraceWriter::Event(const std::string& json) {
  file_ << (first_ ? "" : ",\n") << json;
  first_ = false;
  CheckWritten();
}

void TraceWriter::NameRow(int group, int row, const std::string& name) {
  Event(StrCat(R"({"ph":"M","name":"thread_name","pid":)", group, R"(,"tid":)", row,
               R"(,"args":{"name":")", name, R"("}})"));
}

void TraceWriter::Span(int group, int row, const std::string& name, double begin, double end,
                       const std::string& arguments) {
  Event(StrCat(R"({"ph":"X","name":")", name, R"(","pid":)", group, R"(,"tid":)", row, R"(,"ts":)",
               Microseconds(begin), R"(,"dur":)", Microseconds(end - begin), R"(,"args":)",
               arguments, "}"));
}

void TraceWriter::CheckWritten() {
  Check(file_.good(), "--trace ", path_, ": writing failed (", std::strerror(errno), ")");
}

}  // namespace tinyvllm
