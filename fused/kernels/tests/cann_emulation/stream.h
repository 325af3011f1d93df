// Streams and events.
#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "core.h"

namespace cann_emulation {

struct Stream;

// A point in a stream's order: reached when so many tasks are done.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t done = 0;
};

struct Task {
  std::function<void()> work;  // empty for one that only waits
  Point after;                 // of another stream
  std::chrono::steady_clock::time_point due;
};

struct Stream {
  std::deque<Task> queue;
  uint64_t asked = 0, done = 0, hurried = 0;  // tasks; those up to hurried do not wait until they are due
  bool closed = false;
  Failure failed{0, ""};  // of the first task that failed; later tasks are not run
};

// The lock of running tasks, and of other calls that reach into device memory.
class Execution {
 public:
  Execution();
  ~Execution();
};

std::shared_ptr<Stream> NewStream();
void CloseStream(aclrtStream handle);                  // runs the remaining tasks
std::shared_ptr<Stream> Find(aclrtStream handle);      // throws Failure
Point Ask(const std::shared_ptr<Stream>&, Task task);  // puts a task at the end
int WaitFor(const Point& point);                       // the code of the stream's failure, its text kept
int SynchronizeAll();

}  // namespace cann_emulation
