// A run as Chrome trace events: a file that chrome://tracing and ui.perfetto.dev show as a
// timeline.
//
//   TraceWriter trace("trace.json");
//   trace.Name(engine.Add(request), "request 0");
//   while (engine.has_work()) { engine.Step(); trace.Add(engine); }
//   trace.Close();
//
// Three groups of rows: the host (schedule, run, wait, postprocess of each step), the device (the
// forward pass and the sampling, from events on its stream), and the slots, with the requests that
// run in them. Times are microseconds since the engine began. The format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <fstream>
#include <string>
#include <unordered_map>

#include "lessons/14_engine/engine.h"

namespace tinyvllm {

class TraceWriter {
 public:
  // Throws Error when the file cannot be written; so do the others.
  explicit TraceWriter(const std::string& path);

  // What the engine's request of this number is called.
  void Name(int number, const std::string& name) { names_[number] = name; }
  // The engine's last step. PRECONDITION: its configuration has trace on.
  void Add(const Engine& engine);
  // Ends the file. Without it, as after a crash, the viewers still read what is there.
  void Close();

 private:
  void Event(const std::string& json);
  void NameRow(int group, int row, const std::string& name);
  void Span(int group, int row, const std::string& name, double begin, double end,
            const std::string& arguments);
  void CheckWritten();

  const std::string path_;
  std::ofstream file_;
  bool first_ = true;
  std::unordered_map<int, std::string> names_;  // of the engine's requests
  int named_slots_ = 0;
  double slots_end_ = 0;  // seconds: of the last step's spans
};

}  // namespace tinyvllm
