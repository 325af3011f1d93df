// Times Sample in a CUDA graph behind a flush of L2, beside the copy of the logits to pinned memory that sampling on
// the host begins with. `make cuda-programs` builds it; it prints microseconds of a call.
#include <algorithm>
#include <vector>

#include "cuda/bench/timing.h"
#include "cuda/mojo_cuda.h"

namespace {

struct Options {
  const char* name;
  std::vector<float> controls;
  bool penalties;
};

void Bench(cudaStream_t stream, size_t rows, size_t v, const Options& o) {
  constexpr size_t kLength = 300;
  std::vector<float> controls;
  for (size_t r = 0; r < rows; ++r) controls.insert(controls.end(), o.controls.begin(), o.controls.end());
  const OnDevice<float> d_controls(controls);
  const OnDevice<int64_t> random(std::vector<int64_t>(rows, int64_t{1} << 52)),
      tokens(std::vector<int64_t>(rows * kLength, 7)), prompt(std::vector<int64_t>(rows, 9)),
      ids((std::vector<int64_t>(rows)));
  MojoSampleArgs a;
  a.logits = Fill(rows * v, 3, 1);
  a.controls = d_controls.data, a.random = random.data, a.ids = ids.data;
  if (o.penalties) a.tokens = tokens.data, a.prompt = prompt.data, a.length = kLength;
  a.rows = rows, a.vocabulary = v, a.logits_type = kMojoBFloat16;
  a.scratch = Allocate(MojoSampleScratch(&a));
  void* host;
  Check(cudaMallocHost(&host, rows * v * 2), "pinned memory");
  double times[2][3];
  for (int i = 0; i < 3; ++i) {
    times[0][i] = Microseconds(stream, 100, [&](cudaStream_t s) { Check(MojoCudaSample(&a, s), "sample"); });
    times[1][i] = Microseconds(stream, 100, [&](cudaStream_t s) {
      Check(cudaMemcpyAsync(host, a.logits, rows * v * 2, cudaMemcpyDeviceToHost, s), "copy");
    });
  }
  for (auto& t : times) std::sort(t, t + 3);
  printf("%2zu rows of %6zu, %-24s %8.1f us (%.1f to %.1f), copy of the logits %8.1f us\n", rows, v, o.name,
         times[0][1], times[0][0], times[0][2], times[1][1]);
  for (const void* p : {a.logits, static_cast<const void*>(a.scratch)}) cudaFree(const_cast<void*>(p));
  cudaFreeHost(host);
}

}  // namespace

int main() {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  InitFlush();
  const Options options[] = {{"greedy", {0, 0, 0, 0, 0, 0, 0}, false},
                             {"temperature", {0.8f, 0, 0, 0, 0, 0, 0}, false},
                             {"top-k 50, top-p 0.9", {0.8f, 50, 0.9f, 0, 0, 0, 0}, false},
                             {"the same, penalties", {0.8f, 50, 0.9f, 0.02f, 1.1f, 0.5f, 0.5f}, true}};
  for (const size_t v : {size_t{32064}, size_t{151936}}) {
    for (const size_t rows : {1, 8, 64}) {
      for (const Options& o : options) Bench(stream, rows, v, o);
    }
  }
  return 0;
}
