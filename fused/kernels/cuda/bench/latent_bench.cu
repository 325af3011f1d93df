// Times steps of DeepSeek's latent attention: attention to latents only, and LatentAttention with its products with w
// and the new latents in the cache. A CUDA graph of L2 flushes, each followed by the call, minus the time of only the
// flushes. `make cuda-programs` builds it.
#include "cuda/bench/latent_step.h"

namespace {

constexpr size_t kNope = 128, kRotated = 64, kValues = 128;

// Whole is LatentAttention where LatentStep is its middle.
class Whole {
 public:
  Whole(size_t batch, size_t keys) : length_(1) {
    const auto random = [&](size_t count, float scale) { return data_[data_count_++] = Fill(count, scale, 5); };
    length_.host[0] = static_cast<int64_t>(keys - 1);
    length_.ToDevice();
    args_.q = random(batch * kLatentHeads * (kNope + kRotated), 1);
    args_.q_steps = {kLatentHeads * (kNope + kRotated), kNope + kRotated, kLatentHeads * (kNope + kRotated)};
    args_.c = random(batch * kLatentValues, 1);
    args_.k_pe = random(batch * kRotated, 1);
    args_.w = random(kLatentValues * kLatentHeads * (kNope + kValues), 0.044f);
    args_.past_latents = args_.present = random(batch * keys * kLatentWidth, 1);
    args_.past_lengths = length_.device;
    args_.one_length = 1;
    args_.y = data_[data_count_++] = Allocate(batch * kLatentHeads * kValues * 2);
    args_.y_steps = {kLatentHeads * kValues, kValues, kLatentHeads * kValues};
    args_.batch = batch;
    args_.heads = kLatentHeads;
    args_.queries = args_.added = 1;
    args_.past = args_.room = keys;
    args_.nope = kNope;
    args_.rotated = kRotated;
    args_.latent = kLatentValues;
    args_.value_width = kValues;
    args_.scale = 0.0722f;
    args_.causal = 1;
    args_.w_out_in = 1;
    args_.type = kMojoBFloat16;
    args_.scratch = data_[data_count_++] = Allocate(MojoLatentAttentionScratch(&args_));
  }
  ~Whole() {
    for (int i = 0; i < data_count_; ++i) Check(cudaFree(data_[i]), "free");
  }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  double Bytes() const { return 2.0 * kLatentValues * kLatentHeads * (kNope + kValues); }  // of w
  void Run(cudaStream_t stream) const { Check(MojoCudaLatentAttention(&args_, stream), "MojoCudaLatentAttention"); }

 private:
  Ids length_;
  MojoLatentAttentionArgs args_ = {};
  void* data_[8];
  int data_count_ = 0;
};

}  // namespace

int main() {
  const cudaStream_t stream = Begin();
  const double bandwidth = BeginSteps(stream);
  for (const size_t batch : {1, 8, 64}) {
    for (const size_t keys : {512, 4096, 32768}) {
      const LatentStep step(batch, keys, keys);
      const double floor = step.Bytes() / bandwidth * 1e6;
      const double us = Microseconds(stream, floor, [&](cudaStream_t at) { step.Run(at); });
      const Whole whole(batch, keys);
      const double all = Microseconds(stream, floor, [&](cudaStream_t at) { whole.Run(at); });
      printf(
          "batch %2zu keys %5zu  attention %8.2f us  %4.0f TFLOP/s  %3.0f %% of what is read  whole op %8.2f us, "
          "%5.2f more; to read w takes %.2f us\n",
          batch, keys, us, step.Operations() / us / 1e6, 100 * floor / us, all, all - us,
          whole.Bytes() / bandwidth * 1e6);
      fflush(stdout);
    }
  }
  return 0;
}
