// Measures the least time that reading memory takes: the floor of bench_attention.py, which compiles this file for the
// machine it runs on.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace {

typedef float Line __attribute__((vector_size(64)));

// Read adds up whole cache lines, with loads of the machine's full width.
float Read(const char* from, size_t bytes) {
  Line sums[4] = {};
  for (size_t i = 0; i + sizeof(sums) <= bytes; i += sizeof(sums)) {
    for (int n = 0; n < 4; ++n) {
      Line line;
      memcpy(&line, from + i + static_cast<size_t>(n) * sizeof(line), sizeof(line));
      sums[n] += line;
    }
  }
  const Line sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum[0] + sum[8];
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

// ReadSeconds reads buffers one after the other, so many times, and returns the time of the last round. Each thread
// reads its part of each buffer; starting threads is not included.
extern "C" double ReadSeconds(const char* const* buffers, size_t count, size_t bytes, size_t threads, size_t times) {
  std::atomic<size_t> here{0};
  static std::atomic<int> kept;  // keeps the compiler from removing the reads
  double start = 0;
  const auto read = [&](size_t thread) {
    for (size_t turn = 0; turn < times; ++turn) {
      here.fetch_add(1);
      while (here.load() < (turn + 1) * threads) {
      }
      if (thread == 0) start = Now();
      float sum = 0;
      const size_t part = bytes / threads;
      for (size_t i = 0; i < count; ++i) sum += Read(buffers[i] + thread * part, part);
      kept.store(sum > 0, std::memory_order_relaxed);
    }
    here.fetch_add(1);
    while (here.load() < (times + 1) * threads) {
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(read, i);
  read(0);
  const double end = Now();
  for (std::thread& t : others) t.join();
  return end - start;
}
