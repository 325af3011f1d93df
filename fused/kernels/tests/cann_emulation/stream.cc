// A stream is a queue that a thread works off late: when a caller waits for it, or else after a delay. Code that uses
// the result of a task without waiting finds it undone.
#include "stream.h"

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace cann_emulation {
namespace {

using Clock = std::chrono::steady_clock;

struct Streams {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<aclrtStream, std::shared_ptr<Stream>> open;
  std::shared_ptr<Stream> fallback;  // the default stream
  std::mutex execution;
};

Streams& streams() {
  static Streams& s = *new Streams;
  return s;
}

Clock::duration Delay() {
  static const int ms = getenv("CANN_EMULATION_DELAY_MS") ? atoi(getenv("CANN_EMULATION_DELAY_MS")) : 20;
  return std::chrono::milliseconds(ms);
}

// Lets the tasks up to a point run at once, and the tasks of other streams that they wait for.
void Hurry(const Point& point) {
  Stream& s = *point.stream;
  if (s.hurried >= point.done) return;
  s.hurried = point.done;
  uint64_t nth = s.done;
  for (Task& task : s.queue) {
    if (nth++ >= point.done) break;
    if (task.after.stream) Hurry(task.after);
  }
}

void Work(std::shared_ptr<Stream> s) {
  Streams& all = streams();
  std::unique_lock<std::mutex> lock(all.mutex);
  for (;;) {
    if (s->queue.empty()) {
      if (s->closed) return;
      all.changed.wait(lock);
      continue;
    }
    Task& next = s->queue.front();
    if (s->done >= s->hurried && Clock::now() < next.due) {
      all.changed.wait_until(lock, next.due);
      continue;
    }
    if (next.after.stream && next.after.stream->done < next.after.done) {
      all.changed.wait(lock);
      continue;
    }
    if (next.work && !s->failed.code) {
      std::function<void()> work = std::move(next.work);
      lock.unlock();
      Failure failed{0, ""};
      try {
        Execution running;
        work();
      } catch (const Failure& f) {
        failed = f;
      }
      work = nullptr;
      lock.lock();
      if (failed.code) s->failed = failed;
    }
    s->queue.pop_front();
    ++s->done;
    all.changed.notify_all();
  }
}

uint64_t Asked(const Stream& s) {
  std::lock_guard<std::mutex> lock(streams().mutex);
  return s.asked;
}

// Waits until a stream has reached a point.
void Reach(const Point& point) {
  std::unique_lock<std::mutex> lock(streams().mutex);
  Hurry(point);
  streams().changed.notify_all();
  streams().changed.wait(lock, [&] { return point.stream->done >= point.done; });
}

}  // namespace

Execution::Execution() { streams().execution.lock(); }
Execution::~Execution() { streams().execution.unlock(); }

std::shared_ptr<Stream> NewStream() {
  auto s = std::make_shared<Stream>();
  std::thread(Work, s).detach();
  std::lock_guard<std::mutex> lock(streams().mutex);
  streams().open[s.get()] = s;
  return s;
}

void CloseStream(aclrtStream handle) {
  std::shared_ptr<Stream> s = Find(handle);
  Reach(Point{s, Asked(*s)});
  std::lock_guard<std::mutex> lock(streams().mutex);
  s->closed = true;
  streams().open.erase(handle);
  streams().changed.notify_all();
}

std::shared_ptr<Stream> Find(aclrtStream handle) {
  Streams& all = streams();
  std::unique_lock<std::mutex> lock(all.mutex);
  if (!handle) {
    if (!all.fallback) {
      lock.unlock();
      auto s = NewStream();
      lock.lock();
      if (!all.fallback) all.fallback = s;
    }
    return all.fallback;
  }
  auto found = all.open.find(handle);
  if (found == all.open.end()) {
    throw Failure{ACL_ERROR_RT_STREAM_CONTEXT, Text("%p is no stream, or one that was destroyed", handle)};
  }
  return found->second;
}

Point Ask(const std::shared_ptr<Stream>& s, Task task) {
  std::lock_guard<std::mutex> lock(streams().mutex);
  task.due = Clock::now() + Delay();
  s->queue.push_back(std::move(task));
  Point point{s, ++s->asked};
  streams().changed.notify_all();
  return point;
}

int WaitFor(const Point& point) {
  Reach(point);
  std::lock_guard<std::mutex> lock(streams().mutex);
  Failure& failed = point.stream->failed;
  if (failed.code && !failed.text.empty()) Refuse(failed);  // the text once, the code from now on
  failed.text.clear();
  return failed.code;
}

int SynchronizeAll() {
  std::vector<Point> points;
  {
    std::lock_guard<std::mutex> lock(streams().mutex);
    for (auto& s : streams().open) points.push_back(Point{s.second, s.second->asked});
  }
  int code = ACL_SUCCESS;
  for (const Point& point : points) {
    if (int c = WaitFor(point)) code = c;
  }
  return code;
}

int Launch(aclrtStream stream, std::function<void()> work) {
  try {
    Task task;
    task.work = std::move(work);
    Ask(Find(stream), std::move(task));
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

int Synchronize(aclrtStream stream) {
  try {
    std::shared_ptr<Stream> s = Find(stream);
    return WaitFor(Point{s, Asked(*s)});
  } catch (const Failure& f) {
    return Refuse(f);
  }
}

}  // namespace cann_emulation
