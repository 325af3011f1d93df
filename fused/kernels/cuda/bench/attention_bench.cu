// Times steps of decoding by Attention, with the cache in place and its length on the device: a CUDA graph of flushes
// of L2, each followed by the call; less the flushes alone. `make cuda-programs` builds it. Arguments choose models by
// name.
#include <string>

#include "cuda/bench/timing.h"

namespace {

struct Model {
  const char* name;
  size_t heads, key_heads, width, window;
  float softcap;
  bool sinks;
};

const Model kModels[] = {{"llama-8b", 32, 8, 128, 0, 0, false},
                         {"qwen3-30b", 32, 4, 128, 0, 0, false},
                         {"gpt-oss", 64, 8, 64, 128, 0, true},
                         {"gpt-oss-full", 64, 8, 64, 0, 0, true},
                         {"gemma2", 8, 4, 256, 0, 50, false}};

// ReadBandwidth is how many bytes a second are read from memory.
double ReadBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{4} << 30;
  const float4* const p = static_cast<const float4*>(Allocate(kBytes));
  const double us = Microseconds(stream, 3000, [&](cudaStream_t at) {
    Read<<<1056, 512, 0, at>>>(p, kBytes / 16, flush_out);
    Check(cudaGetLastError(), "read");
  });
  Check(cudaFree(const_cast<float4*>(p)), "free");
  return kBytes / us * 1e6;
}

// Time times a step with so many keys, the new one counted, in a buffer with room for room.
void Time(const Model& m, size_t batch, size_t keys, size_t room, double bandwidth, cudaStream_t stream) {
  const size_t rows = batch * m.key_heads;
  MojoAttentionArgs a = {};
  void* const q = Fill(batch * m.heads * m.width, 1, 1);
  void* const k = Fill(rows * m.width, 1, 2);
  void* const v = Fill(rows * m.width, 1, 3);
  void* const past_key = Fill(rows * room * m.width, 1, 4);
  void* const past_value = Fill(rows * room * m.width, 1, 5);
  void* const y = Allocate(batch * m.heads * m.width * 2);
  Ids length(1);
  Numbers sink(kMojoFloat32, m.heads);
  Random random(6);
  sink.Fill(&random, 1);
  sink.ToDevice();
  length.host[0] = static_cast<int64_t>(keys - 1);
  length.ToDevice();
  a.q = q;
  a.k = k;
  a.v = v;
  a.q_steps = a.y_steps = {m.heads * m.width, m.width, m.heads * m.width};
  a.k_steps = a.v_steps = {m.key_heads * m.width, m.width, m.key_heads * m.width};
  a.past_key = a.present_key = past_key;
  a.past_value = a.present_value = past_value;
  a.past_length = length.device;
  a.one_length = 1;
  a.sink = m.sinks ? static_cast<const float*>(sink.device()) : nullptr;
  a.y = y;
  a.batch = batch;
  a.heads = m.heads;
  a.key_heads = m.key_heads;
  a.queries = a.added = 1;
  a.past = a.room = room;
  a.width = a.value_width = m.width;
  a.scale = 1 / sqrtf(static_cast<float>(m.width));
  a.causal = 1;
  a.window = m.window;
  a.softcap = m.softcap;
  a.type = kMojoBFloat16;
  a.scratch = Allocate(MojoAttentionScratch(&a));
  const size_t seen = m.window > 0 ? std::min(m.window, keys) : keys;
  const double bytes = static_cast<double>(rows) * seen * m.width * 4, floor = bytes / bandwidth * 1e6;
  const double us =
      Microseconds(stream, floor, [&](cudaStream_t at) { Check(MojoCudaAttention(&a, at), "MojoCudaAttention"); });
  printf("%-13s batch %2zu keys %5zu of %5zu  %9.2f us  %6.0f GB/s  %3.0f %% of what is read\n", m.name, batch, keys,
         room, us, bytes / us / 1e3, 100 * floor / us);
  fflush(stdout);
  for (void* p : {q, k, v, past_key, past_value, y, a.scratch}) Check(cudaFree(p), "free");
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp device;
  cudaStream_t stream;
  Check(cudaGetDeviceProperties(&device, 0), "device");
  InitFlush();
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Check(cudaDeviceSynchronize(), "fill");
  const double bandwidth = ReadBandwidth(stream);
  printf("%s, bfloat16; memory is read at %.0f GB/s\n", device.name, bandwidth / 1e9);
  for (const Model& m : kModels) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; ++i) chosen = chosen || strcmp(argv[i], m.name) == 0;
    if (!chosen) continue;
    for (const size_t batch : {1, 8, 64}) {
      for (const size_t keys : {512, 4096, 32768}) Time(m, batch, keys, keys, bandwidth, stream);
    }
    Time(m, 1, 512, 32768, bandwidth, stream);
    Time(m, 8, 512, 32768, bandwidth, stream);
  }
  return 0;
}
