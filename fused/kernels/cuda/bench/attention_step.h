// Decode steps of Attention, with the cache updated in place and its length on the device; shared by the programs that
// time them.
#pragma once

#include "cuda/bench/timing.h"

struct StepModel {
  const char* name;
  size_t heads, key_heads, width, window;
  float softcap;
  bool sinks;
};

const StepModel kStepModels[] = {{"llama-8b", 32, 8, 128, 0, 0, false},
                                 {"qwen3-30b", 32, 4, 128, 0, 0, false},
                                 {"gpt-oss", 64, 8, 64, 128, 0, true},
                                 {"gpt-oss-full", 64, 8, 64, 0, 0, true},
                                 {"gemma2", 8, 4, 256, 0, 50, false}};

// Step is a step with this many keys, including the new one, in a buffer with room for room keys; bfloat16.
class Step {
 public:
  Step(const StepModel& m, size_t batch, size_t keys, size_t room)
      : length_(1), sink_(kMojoFloat32, m.heads), rows_(batch * m.key_heads) {
    const auto random = [&](size_t count, uint32_t seed) { return data_[data_count_++] = Fill(count, 1, seed); };
    args.q = random(batch * m.heads * m.width, 1);
    args.k = random(rows_ * m.width, 2);
    args.v = random(rows_ * m.width, 3);
    args.past_key = args.present_key = random(rows_ * room * m.width, 4);
    args.past_value = args.present_value = random(rows_ * room * m.width, 5);
    args.y = data_[data_count_++] = Allocate(batch * m.heads * m.width * 2);
    Random seeded(6);
    sink_.Fill(&seeded, 1);
    sink_.ToDevice();
    length_.host[0] = static_cast<int64_t>(keys - 1);
    length_.ToDevice();
    args.q_steps = args.y_steps = {m.heads * m.width, m.width, m.heads * m.width};
    args.k_steps = args.v_steps = {m.key_heads * m.width, m.width, m.key_heads * m.width};
    args.past_lengths = length_.device;
    args.one_length = 1;
    args.sink = m.sinks ? static_cast<const float*>(sink_.device()) : nullptr;
    args.batch = batch;
    args.heads = m.heads;
    args.key_heads = m.key_heads;
    args.queries = args.added = 1;
    args.past = args.room = room;
    args.width = args.value_width = m.width;
    args.scale = 1 / sqrtf(static_cast<float>(m.width));
    args.causal = 1;
    args.window = m.window;
    args.softcap = m.softcap;
    args.type = kMojoBFloat16;
    args.scratch = data_[data_count_++] = Allocate(MojoAttentionScratch(&args));
    seen_ = m.window > 0 ? std::min(m.window, keys) : keys;
  }
  ~Step() {
    for (int i = 0; i < data_count_; ++i) Check(cudaFree(data_[i]), "free");
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Bytes is the size of the visible keys and values.
  double Bytes() const { return static_cast<double>(rows_) * seen_ * args.width * 4; }
  void Run(cudaStream_t stream) const { Check(MojoCudaAttention(&args, stream), "MojoCudaAttention"); }

  MojoAttentionArgs args = {};

 private:
  Ids length_;
  Numbers sink_;
  void* data_[8];
  int data_count_ = 0;
  size_t rows_, seen_;
};

// ReadBandwidth returns the bytes a second read from memory.
inline double ReadBandwidth(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{4} << 30;
  const float4* const p = static_cast<const float4*>(Allocate(kBytes));
  const double us = Microseconds(stream, 3000, [&](cudaStream_t at) {
    Read<<<1056, 512, 0, at>>>(p, kBytes / 16, flush_out);
    Check(cudaGetLastError(), "read");
  });
  Check(cudaFree(const_cast<float4*>(p)), "free");
  return kBytes / us * 1e6;
}

// BeginSteps prints the device's name and the bandwidth of its memory, which it returns.
inline double BeginSteps(cudaStream_t stream) {
  const double bandwidth = ReadBandwidth(stream);
  printf("%s, bfloat16; memory is read at %.0f GB/s\n", DeviceProperties().name, bandwidth / 1e9);
  return bandwidth;
}

// Difference is how far results are from ours, relative to their length.
inline double Difference(const void* ours, const void* theirs, size_t count) {
  std::vector<__nv_bfloat16> want(count), got(count);
  Check(cudaMemcpy(want.data(), ours, count * 2, cudaMemcpyDeviceToHost), "y");
  Check(cudaMemcpy(got.data(), theirs, count * 2, cudaMemcpyDeviceToHost), "y");
  double off = 0, all = 0;
  for (size_t i = 0; i < count; ++i) {
    const double w = __bfloat162float(want[i]), d = __bfloat162float(got[i]) - w;
    off += d * d, all += w * w;
  }
  return sqrt(off / all);
}
