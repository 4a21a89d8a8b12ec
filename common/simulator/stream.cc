#include "common/simulator/stream.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "common/simulator/call_place.h"
#include "common/simulator/error.h"
#include "common/simulator/host_guard.h"
#include "common/simulator/leaks.h"
#include "common/simulator/settings.h"

using Clock = std::chrono::steady_clock;

// Work has numbers that grow in the order in which the program gave it to any stream.
struct CUstream_st {
  struct Work {
    uint64_t number;
    std::function<void()> run;
  };

  uint64_t id = 0;
  unsigned flags = cudaStreamDefault;
  tinyvllm::simulator::CallPlace created_at;
  std::deque<Work> queue;
};

struct CUevent_st {
  unsigned flags = cudaEventDefault;
  tinyvllm::simulator::CallPlace created_at;
  bool recorded = false;
  bool done = false;  // the work before the record has run
  Clock::time_point time;
  // The latest record: after the work of this number in this stream.
  uint64_t stream_id = 0;
  uint64_t number = 0;
};

namespace tinyvllm::simulator {
namespace {

struct Streams {
  std::recursive_mutex mutex;
  CUstream_st legacy;  // the stream 0
  uint64_t next_id = 1;
  uint64_t next_number = 1;
  std::unordered_map<cudaStream_t, std::unique_ptr<CUstream_st>> streams;
  std::unordered_map<cudaEvent_t, std::unique_ptr<CUevent_st>> events;
};

Streams& All() {
  static Streams* streams = new Streams;  // outlives static objects that hold a stream
  return *streams;
}

using Lock = std::lock_guard<std::recursive_mutex>;

bool IsLegacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

// The stream, or null where there is no such stream.
CUstream_st* Find(cudaStream_t stream) {
  if (IsLegacy(stream)) return &All().legacy;
  const auto found = All().streams.find(stream);
  return found == All().streams.end() ? nullptr : found->second.get();
}

CUevent_st* Find(cudaEvent_t event) {
  const auto found = All().events.find(event);
  return found == All().events.end() ? nullptr : found->second.get();
}

CUstream_st* FindById(uint64_t id) {
  if (id == 0) return &All().legacy;
  for (auto& entry : All().streams) {
    if (entry.second->id == id) return entry.second.get();
  }
  return nullptr;  // destroyed, after it had run everything
}

void RunUntil(CUstream_st& stream, uint64_t number);

// Runs the oldest work of a stream, after what must come before it: stream 0 and the streams that
// synchronise with it keep the order in which the program gave them work.
void RunOldest(CUstream_st& stream) {
  const uint64_t number = stream.queue.front().number;
  if (&stream == &All().legacy) {
    for (auto& entry : All().streams) {
      if (!(entry.second->flags & cudaStreamNonBlocking)) RunUntil(*entry.second, number - 1);
    }
  } else if (!(stream.flags & cudaStreamNonBlocking)) {
    RunUntil(All().legacy, number - 1);
  }
  const std::function<void()> run = std::move(stream.queue.front().run);
  stream.queue.pop_front();
  run();
}

void RunUntil(CUstream_st& stream, uint64_t number) {
  while (!stream.queue.empty() && stream.queue.front().number <= number) RunOldest(stream);
}

uint64_t Push(CUstream_st& stream, std::function<void()> run) {
  const uint64_t number = All().next_number++;
  stream.queue.push_back({number, std::move(run)});
  return number;
}

// A query makes progress, so that a program that polls comes to an end.
cudaError_t Query(CUstream_st& stream) {
  if (stream.queue.empty()) return Report(StickyError());
  RunOldest(stream);
  return Report(cudaErrorNotReady);
}

}  // namespace

bool RunsNow(cudaStream_t) { return !GetSettings().lazy_streams; }

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  Lock lock(All().mutex);
  CUstream_st* found = Find(stream);
  if (found == nullptr) {
    Report(cudaErrorInvalidResourceHandle, "work given to a stream that does not exist");
    return;
  }
  Push(*found, std::move(work));
}

void FinishStream(cudaStream_t stream) {
  if (RunsNow(stream)) return;
  Lock lock(All().mutex);
  CUstream_st* found = Find(stream);
  if (found == nullptr) return;
  // Stream 0 waits for the streams that synchronise with it even where it has no work of its own.
  if (found == &All().legacy) Push(*found, [] {});
  RunUntil(*found, UINT64_MAX);
}

void FinishDevice() {
  if (RunsNow(nullptr)) return;
  Lock lock(All().mutex);
  for (;;) {
    CUstream_st* latest = All().legacy.queue.empty() ? nullptr : &All().legacy;
    for (auto& entry : All().streams) {
      CUstream_st* stream = entry.second.get();
      if (stream->queue.empty()) continue;
      if (latest == nullptr || stream->queue.front().number > latest->queue.front().number) {
        latest = stream;
      }
    }
    if (latest == nullptr) return;
    RunOldest(*latest);
  }
}

void CollectStreams(Leaks* leaks) {
  Lock lock(All().mutex);
  for (const auto& entry : All().streams) leaks->Add(entry.second->created_at, "stream", 0);
  for (const auto& entry : All().events) leaks->Add(entry.second->created_at, "event", 0);
}

void DestroyAllStreams() {
  Lock lock(All().mutex);
  GuardEndAll();
  All().legacy.queue.clear();
  All().streams.clear();
  All().events.clear();
}

}  // namespace tinyvllm::simulator

using namespace tinyvllm::simulator;

// --- Streams.

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (stream == nullptr || (flags & ~cudaStreamNonBlocking)) return Report(cudaErrorInvalidValue);
  Lock lock(All().mutex);
  auto created = std::make_unique<CUstream_st>();
  created->id = All().next_id++;
  created->flags = flags;
  created->created_at = CallPlace::Here();
  WatchForLeaks();
  *stream = created.get();
  All().streams[*stream] = std::move(created);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  if (IsLegacy(stream) || Find(stream) == nullptr) return Report(cudaErrorInvalidResourceHandle);
  FinishStream(stream);
  All().streams.erase(stream);
  return Report(StickyError());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  if (Find(stream) == nullptr) return Report(cudaErrorInvalidResourceHandle);
  FinishStream(stream);
  return Report(StickyError());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUstream_st* found = Find(stream);
  if (found == nullptr) return Report(cudaErrorInvalidResourceHandle);
  return Query(*found);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUstream_st* found = Find(stream);
  if (found == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (flags == nullptr) return Report(cudaErrorInvalidValue);
  *flags = found->flags;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (function == nullptr) return Report(cudaErrorInvalidValue);
  RunInOrder(stream, [=] { function(user_data); });
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  TINYVLLM_SIM_BEGIN_CALL();
  FinishDevice();
  return Report(StickyError());
}

// --- Events.

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* found = Find(event);
  if (found == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (found->recorded && !found->done) {
    // The record still to come refers to the event.
    if (CUstream_st* stream = FindById(found->stream_id)) RunUntil(*stream, found->number);
  }
  All().events.erase(event);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* found = Find(event);
  if (found == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (CUstream_st* stream = FindById(found->stream_id)) RunUntil(*stream, found->number);
  return Report(StickyError());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* found = Find(event);
  if (found == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (!found->recorded || found->done) return Report(StickyError());
  CUstream_st* stream = FindById(found->stream_id);
  return stream == nullptr ? Report(StickyError()) : Query(*stream);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* first = Find(start);
  CUevent_st* last = Find(end);
  if (milliseconds == nullptr) return Report(cudaErrorInvalidValue);
  if (first == nullptr || last == nullptr || !first->recorded || !last->recorded ||
      ((first->flags | last->flags) & cudaEventDisableTiming)) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  if (!first->done || !last->done) return Report(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(last->time - first->time).count();
  return cudaSuccess;
}
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming))) {
    return Report(cudaErrorInvalidValue);
  }
  Lock lock(All().mutex);
  auto created = std::make_unique<CUevent_st>();
  created->flags = flags;
  created->created_at = CallPlace::Here();
  WatchForLeaks();
  *event = created.get();
  All().events[*event] = std::move(created);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return cudaEventCreateWithFlags(event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* found = Find(event);
  CUstream_st* in = Find(stream);
  if (found == nullptr || in == nullptr) return Report(cudaErrorInvalidResourceHandle);
  found->recorded = true;
  if (RunsNow(stream)) {
    found->done = true;
    found->time = Clock::now();
    return cudaSuccess;
  }
  found->done = false;
  found->stream_id = in->id;
  found->number = Push(*in, [event, number = All().next_number] {
    CUevent_st* recorded = Find(event);
    if (recorded == nullptr || recorded->number != number) return;  // recorded again since
    recorded->done = true;
    recorded->time = Clock::now();
  });
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (flags != cudaEventRecordDefault) return Report(cudaErrorInvalidValue);
  return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  TINYVLLM_SIM_BEGIN_CALL();
  Lock lock(All().mutex);
  CUevent_st* found = Find(event);
  CUstream_st* in = Find(stream);
  if (found == nullptr || in == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (flags != cudaEventWaitDefault) return Report(cudaErrorInvalidValue);
  if (RunsNow(stream) || !found->recorded) return cudaSuccess;
  Push(*in, [id = found->stream_id, number = found->number] {
    if (CUstream_st* stream = FindById(id)) RunUntil(*stream, number);
  });
  return cudaSuccess;
}
