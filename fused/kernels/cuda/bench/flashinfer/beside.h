// Times a peer's decode step next to ours, in one piece and over blocks as the peer's, and compares their results. A
// program is for model number STEP_MODEL, since peers are compiled for a width and a group of heads. `make
// flashinfer-benches` builds them.
#pragma once

#include "cuda/bench/attention_step.h"
#include "cuda/bench/paged_step.h"

// Pages lists the pages of the buffer [batch, heads, keys, width] in order; the heads of a page are keys rows apart.
inline std::vector<int32_t> Pages(const StepModel& m, size_t batch, size_t keys, size_t page) {
  std::vector<int32_t> pages;
  for (size_t b = 0; b < batch; ++b) {
    for (size_t i = 0; i < keys / page; ++i) pages.push_back(static_cast<int32_t>(b * m.key_heads * keys / page + i));
  }
  return pages;
}

// Compare runs all rows. A Peer is made of a step and its keys, and runs in a stream: peer(stream, y).
template <class Peer>
void Compare(const char* name) {
  const cudaDeviceProp device = DeviceProperties();
  const cudaStream_t stream = Begin();
  const double bandwidth = ReadBandwidth(stream);
  const StepModel& m = kStepModels[STEP_MODEL];
  for (const size_t batch : {1, 8, 64}) {
    for (const size_t keys : {512, 4096, 32768}) {
      const Step step(m, batch, keys, keys);
      const double floor = step.Bytes() / bandwidth * 1e6;
      const size_t count = batch * m.heads * m.width;
      const OnDevice<__nv_bfloat16> y{std::vector<__nv_bfloat16>(count)};
      Peer peer(m, step.args, device, keys);
      const double ours = Microseconds(stream, floor, [&](cudaStream_t at) { step.Run(at); });
      PagedStep blocks(m.heads, m.key_heads, m.width, batch, keys - 1, 1, Peer::kPage);
      blocks.args.window = m.window, blocks.args.softcap = m.softcap, blocks.args.sink = step.args.sink;
      const double paged = Microseconds(stream, floor, [&](cudaStream_t at) { blocks.Run(at); });
      const double theirs = Microseconds(stream, floor, [&](cudaStream_t at) { peer(at, y.data); });
      printf(
          "%-13s batch %2zu keys %5zu  ours %8.2f us, paged %8.2f us, %s %8.2f us; over it %.2f and %.2f; results "
          "differ by %.1e\n",
          m.name, batch, keys, ours, paged, name, theirs, ours / theirs, paged / theirs,
          Difference(step.args.y, y.data, count));
      fflush(stdout);
    }
  }
}
