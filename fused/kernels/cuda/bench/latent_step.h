// Steps of DeepSeek's latent attention: 128 heads that read latents of 512 + 64 numbers in bfloat16, the length on the
// device; shared by the programs that time them.
#pragma once

#include "cuda/bench/attention_step.h"

constexpr size_t kLatentHeads = 128, kLatentWidth = 576, kLatentValues = 512;

// LatentStep attends to stored latents with queries already multiplied by w, as the peers are timed.
class LatentStep {
 public:
  LatentStep(size_t batch, size_t keys, size_t room)
      : length_(1),
        q_(Fill(batch * kLatentHeads * kLatentWidth, 1, 1)),
        latents_(Fill(batch * room * kLatentWidth, 1, 2)),
        y_(Allocate(batch * kLatentHeads * kLatentValues * 2)),
        keys_(static_cast<double>(batch * keys)) {
    length_.host[0] = static_cast<int64_t>(keys);
    length_.ToDevice();
    args.q = q_;
    args.past_key = args.present_key = latents_;
    args.y = y_;
    args.q_steps = {kLatentHeads * kLatentWidth, kLatentWidth, kLatentHeads * kLatentWidth};
    args.y_steps = {kLatentHeads * kLatentValues, kLatentValues, kLatentHeads * kLatentValues};
    args.past_lengths = length_.device;
    args.one_length = 1;
    args.batch = batch;
    args.heads = kLatentHeads;
    args.key_heads = args.queries = 1;
    args.past = args.room = room;
    args.width = kLatentWidth;
    args.value_width = kLatentValues;
    args.values_in_keys = 1;
    args.scale = 0.0417f;  // of random numbers, whose scores are then about 1
    args.causal = 1;
    args.type = kMojoBFloat16;
    scratch_ = Allocate(MojoAttentionScratch(&args));
    args.scratch = scratch_;
  }
  ~LatentStep() {
    for (void* p : {q_, latents_, y_, scratch_}) Check(cudaFree(p), "free");
  }
  LatentStep(const LatentStep&) = delete;
  LatentStep& operator=(const LatentStep&) = delete;

  double Bytes() const { return keys_ * kLatentWidth * 2; }
  double Operations() const { return keys_ * kLatentHeads * 2 * (kLatentWidth + kLatentValues); }
  void Run(cudaStream_t stream) const { Check(MojoCudaAttention(&args, stream), "MojoCudaAttention"); }

  MojoAttentionArgs args = {};

 private:
  Ids length_;
  void *q_, *latents_, *y_, *scratch_;
  double keys_;
};
