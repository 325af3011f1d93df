// Times attention of prompts: the median of several runs of a stream of calls, and operations on visible keys. `make
// cuda-programs` builds it. Arguments choose shapes by name and lengths by number; without any it runs all.
#include <set>
#include <string>

#include "cuda/bench/timing.h"

namespace {

struct Shape {
  const char* name;
  size_t heads, key_heads, width, value_width, window;
  float softcap;
  bool sink;
};

const Shape kShapes[] = {
    {"llama-8b", 32, 8, 128, 128, 0, 0, false},   {"qwen3-30b", 32, 4, 128, 128, 0, 0, false},
    {"gpt-oss", 64, 8, 64, 64, 0, 0, true},       {"gpt-oss-window", 64, 8, 64, 64, 128, 0, true},
    {"gemma2-9b", 16, 8, 256, 256, 0, 50, false}, {"gemma2-9b-plain", 16, 8, 256, 256, 0, 0, false},
    {"deepseek", 16, 16, 192, 128, 0, 0, false}};
const size_t kLengths[] = {512, 4096, 16384};

void Time(const Shape& s, size_t length, cudaStream_t stream) {
  MojoAttentionArgs a = {};
  void* const data[] = {Fill(length * s.heads * s.width, 1, 1), Fill(length * s.key_heads * s.width, 1, 2),
                        Fill(length * s.key_heads * s.value_width, 1, 3),
                        Allocate(length * s.heads * s.value_width * 2), Allocate(s.heads * 4)};
  a.q = data[0], a.k = data[1], a.v = data[2], a.y = data[3];
  std::vector<float> sinks(s.heads, 0.5f);
  Check(cudaMemcpy(data[4], sinks.data(), s.heads * 4, cudaMemcpyHostToDevice), "sinks");
  if (s.sink) a.sink = static_cast<const float*>(data[4]);
  a.q_steps = {length * s.heads * s.width, s.width, s.heads * s.width};
  a.k_steps = {length * s.key_heads * s.width, s.width, s.key_heads * s.width};
  a.v_steps = {length * s.key_heads * s.value_width, s.value_width, s.key_heads * s.value_width};
  a.y_steps = {length * s.heads * s.value_width, s.value_width, s.heads * s.value_width};
  a.batch = 1, a.heads = s.heads, a.key_heads = s.key_heads, a.queries = a.added = length, a.room = length;
  a.width = s.width, a.value_width = s.value_width, a.scale = 1 / sqrtf(static_cast<float>(s.width)), a.causal = 1;
  a.window = s.window, a.softcap = s.softcap, a.type = kMojoBFloat16;
  const double wide = s.window > 0 ? std::min(s.window, length) : length, n = static_cast<double>(length);
  const double pairs = wide * (wide + 1) / 2 + (n - wide) * wide;
  const double operations = 2 * pairs * static_cast<double>((s.width + s.value_width) * s.heads);
  const int calls = static_cast<int>(std::max(3.0, std::min(50.0, 3e12 / operations)));
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int run = 0; run < 8; ++run) {
    Check(cudaEventRecord(begin, stream), "event");
    for (int i = 0; i < calls; ++i) Check(MojoCudaAttention(&a, stream), "MojoCudaAttention");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "run");
    float ms;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (run > 0) times.push_back(ms / calls);
  }
  std::sort(times.begin(), times.end());
  const double us = times[times.size() / 2] * 1e3;
  printf("%-16s %6zu %10.1f us %7.1f TFLOP/s\n", s.name, length, us, operations / us * 1e-6);
  for (void* p : data) Check(cudaFree(p), "free");
}

}  // namespace

int main(int argc, char** argv) {
  std::set<std::string> chosen(argv + 1, argv + argc);
  const auto is = [&](const std::string& name, bool any) { return !any || chosen.count(name) > 0; };
  bool names = false, numbers = false;
  for (const std::string& c : chosen) (isdigit(c[0]) ? numbers : names) = true;
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  for (const Shape& s : kShapes) {
    for (const size_t length : kLengths) {
      if (is(s.name, names) && is(std::to_string(length), numbers)) Time(s, length, stream);
    }
  }
  return 0;
}
