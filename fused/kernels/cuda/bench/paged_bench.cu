// Times PagedAttention beside Attention over the same keys in one piece, in bfloat16, and QPagedAttention with pools of
// int8 and float8e4m3fn, each in a CUDA graph behind a flush of L2. `make cuda-programs` builds it; it prints
// microseconds, and the ratios to PagedAttention. With any argument it times prompts only.
#include <algorithm>
#include <vector>

#include "cuda/bench/paged_step.h"
#include "cuda/mojo_cuda.h"

namespace {

constexpr size_t kHeads = 32, kKeyHeads = 8, kWidth = 128;

// Codes are n bytes from 0 to 63 on the device.
void* Codes(size_t n) {
  std::vector<uint8_t> host(n);
  for (size_t i = 0; i < n; ++i) host[i] = static_cast<uint8_t>(i * 7 % 64);
  void* const codes = Allocate(n);
  Check(cudaMemcpy(codes, host.data(), n, cudaMemcpyHostToDevice), "copy to device");
  return codes;
}

void Bench(cudaStream_t stream, size_t batch, size_t past, size_t added, size_t block) {
  const PagedStep step(kHeads, kKeyHeads, kWidth, batch, past, added, block);
  const MojoPagedAttentionArgs& p = step.args;
  const size_t length = past + added, blocks = p.blocks, tokens = p.tokens, keys = batch * length * kKeyHeads * kWidth;
  const OnDevice<int64_t> d_lengths(std::vector<int64_t>(batch, static_cast<int64_t>(past)));

  MojoQPagedAttentionArgs c[2];  // of int8 and float8e4m3fn; codes of small numbers in both
  void* const codes[] = {Codes(blocks * block * kKeyHeads * kWidth), Codes(blocks * block * kKeyHeads * kWidth)};
  const OnDevice<float> key_scales(std::vector<float>(blocks * kKeyHeads, 0.03125f)),
      value_scales(std::vector<float>(blocks * kKeyHeads, 0.03125f));
  for (int i = 0; i < 2; ++i) {
    static_cast<MojoPagedAttentionArgs&>(c[i]) = p;
    c[i].key_cache = c[i].key_cache_out = codes[0], c[i].value_cache = c[i].value_cache_out = codes[1];
    c[i].key_scale = c[i].key_scale_out = key_scales.data, c[i].value_scale = c[i].value_scale_out = value_scales.data;
    c[i].float8 = i == 1;
    c[i].scratch = Allocate(MojoQPagedAttentionScratch(&c[i]));
  }

  MojoAttentionArgs a;
  a.batch = batch, a.heads = kHeads, a.key_heads = kKeyHeads, a.queries = a.added = added;
  a.past = a.room = length, a.width = a.value_width = kWidth;
  a.past_lengths = d_lengths.data, a.on_device = true;
  a.q = p.q, a.k = p.k, a.v = p.v, a.y = p.y;
  a.q_steps = a.y_steps = mojo::StepsOf(kHeads, added, kWidth, true);
  a.k_steps = a.v_steps = mojo::StepsOf(kKeyHeads, added, kWidth, true);
  a.past_key = a.present_key = p.key_cache_out, a.past_value = a.present_value = p.value_cache_out;
  a.scale = p.scale, a.causal = true, a.type = kMojoBFloat16;
  a.scratch = Allocate(MojoAttentionScratch(&a));

  const double guess = static_cast<double>(keys) * 4 / 4e6 + tokens * length / 1e4;
  double times[4][3];
  for (int i = 0; i < 3; ++i) {
    times[0][i] = Microseconds(stream, guess, [&](cudaStream_t s) { step.Run(s); });
    times[1][i] = Microseconds(stream, guess, [&](cudaStream_t s) { Check(MojoCudaAttention(&a, s), "in one piece"); });
    for (int k = 0; k < 2; ++k) {
      times[2 + k][i] =
          Microseconds(stream, guess, [&](cudaStream_t s) { Check(MojoCudaQPagedAttention(&c[k], s), "codes"); });
    }
  }
  for (auto& t : times) std::sort(t, t + 3);
  printf(
      "%5zu sequences of %6zu + %4zu tokens, blocks of %3zu: %9.1f us, in one piece %9.1f us, ratio %.2f, %5.2f TB/s; "
      "int8 %.2f, e4m3 %.2f of its time\n",
      batch, past, added, block, times[0][1], times[1][1], times[0][1] / times[1][1],
      static_cast<double>(keys) * 4 / times[0][1] / 1e6, times[2][1] / times[0][1], times[3][1] / times[0][1]);
  for (void* m : {a.scratch, codes[0], codes[1], c[0].scratch, c[1].scratch}) {
    cudaFree(m);
  }
}

}  // namespace

int main(int arguments, char**) {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  InitFlush();
  for (const size_t block : {size_t{16}, size_t{64}, size_t{256}}) {
    for (const size_t batch : {1, 8, 64}) {
      for (const size_t past : {127, 1023, 8191}) {
        if (arguments == 1) Bench(stream, batch, past, 1, block);
      }
    }
    if (arguments == 1) Bench(stream, 8, 1023, 4, block);
  }
  for (const size_t block : {size_t{16}, size_t{256}}) {
    Bench(stream, 1, 0, 512, block);
    Bench(stream, 1, 3584, 512, block);
    Bench(stream, 1, 0, 4096, block);
    Bench(stream, 8, 1536, 512, block);
  }
  return 0;
}
