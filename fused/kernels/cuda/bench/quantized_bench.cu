// Times Linear and QMoE: a CUDA graph of L2 flushes, each followed by the call, minus the time of only the flushes.
// `make cuda-programs` builds it. Arguments choose tables by name: linear, experts; without any it runs all.
#include <algorithm>

#include "cuda/bench/experts_step.h"

namespace {

constexpr double kOperationsOfE4M3 = 1389e12;  // of an H200, a second

const char* RoundingName(mojo::Activations r) {
  return r == mojo::Activations::kFloat   ? "float"
         : r == mojo::Activations::kInt16 ? "int16"
         : r == mojo::Activations::kInt8  ? "int8"
                                          : "fp8";
}

struct Format {
  const char* name;
  mojo::Code code;
  MojoScales scales;
  int zero;
  bool minus;
};

const Format kFormats[] = {{"q4_0", mojo::Code::kInt4, kMojoHalfScales, 8, false},
                           {"q4_1", mojo::Code::kInt4, kMojoHalfScales, 0, true},
                           {"q4_K", mojo::Code::kInt4, kMojoTwofoldScales, 0, true},
                           {"q8_0", mojo::Code::kInt8, kMojoHalfScales, 128, false},
                           {"mxfp4", mojo::Code::kE2m1, kMojoExponentScales, 0, false},
                           {"e4m3", mojo::Code::kE4m3, kMojoPanelScales, 0, false}};

// Mask clears bits, so that no code of e4m3 is NaN.
__global__ void Mask(uint32_t* p, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    p[i] &= 0xbfbfbfbf;
}

// Weights are random weights in panels of 16 rows and blocks of 32.
struct Weights {
  MojoQuantizedWeights args = {};
  double bytes = 0;

  Weights(const Format& f, size_t n, size_t k, size_t matrices) {
    const size_t blocks = matrices * (n / 16) * (k / 32);
    const auto take = [&](size_t count, bool halves) {
      bytes += static_cast<double>(count);
      if (halves) return Fill(count / 2, 0.01f, 3);
      std::vector<unsigned char> host(count);
      Random random(count);
      for (unsigned char& v : host) v = static_cast<unsigned char>(random.Next());
      void* const p = Allocate(count);
      Check(cudaMemcpy(p, host.data(), count, cudaMemcpyHostToDevice), "copy");
      return p;
    };
    // All matrices repeat the codes of the first, which saves time.
    const bool eights = f.code == mojo::Code::kE4m3;
    const size_t code_bytes = blocks * (f.code == mojo::Code::kInt8 || eights ? 512 : 256);
    void* const codes = take(code_bytes, true);
    if (eights) Mask<<<1024, 256>>>(static_cast<uint32_t*>(codes), code_bytes / 4);
    args.codes = codes;
    const bool halves = f.scales == kMojoHalfScales, twofold = f.scales == kMojoTwofoldScales;
    if (f.scales == kMojoExponentScales) {
      void* const p = Allocate(blocks * 16);
      Check(cudaMemset(p, 118, blocks * 16), "exponents");
      bytes += static_cast<double>(blocks) * 16;
      args.scale = p;
    } else if (eights) {
      const std::vector<float> host(blocks / 4, 0.01f);
      void* const p = Allocate(blocks);
      Check(cudaMemcpy(p, host.data(), blocks, cudaMemcpyHostToDevice), "scales");
      bytes += static_cast<double>(blocks);
      args.scale = p;
    } else {
      args.scale = take(blocks * 16 * (halves ? 2 : 1), halves);
    }
    if (f.minus) args.minus = take(blocks * 16 * (halves ? 2 : 1), halves);
    if (twofold) args.super_scale = take(blocks / 8 * 32, true);
    if (twofold && f.minus) args.super_minus = take(blocks / 8 * 32, true);
    args.n = n;
    args.k = k;
    args.block = eights ? 128 : 32;
    args.code = f.code;
    args.scales = f.scales;
    args.zero = f.zero;
  }
  ~Weights() {
    for (const void* p : {args.codes, args.scale, args.minus, args.super_scale, args.super_minus}) {
      cudaFree(const_cast<void*>(p));
    }
  }
};

void TimeLinear(const Format& f, size_t n, size_t k, mojo::Activations rounding, cudaStream_t stream) {
  const Weights w(f, n, k, 1);
  const size_t most = 512;
  void* const x = Fill(most * k, 1, 1);
  void* const y = Allocate(most * n * 2);
  for (const size_t rows : {1, 8, 64, 512}) {
    MojoLinearArgs a = {};
    a.weights = w.args;
    a.x = x;
    a.y = y;
    a.rows = rows;
    a.type = kMojoBFloat16;
    a.rounding = rounding;
    const size_t scratch = MojoLinearScratch(&a);
    a.scratch = Allocate(scratch + 1);
    const double bytes = w.bytes + 2.0 * rows * (n + k), operations = 2.0 * rows * n * k;
    const double floor =
        std::max(bytes / kBytesPerSecond,
                 operations / (rounding == mojo::Activations::kFp8 ? kOperationsOfE4M3 : kOperationsPerSecond)) *
        1e6;
    const double us =
        Microseconds(stream, floor, [&](cudaStream_t at) { Check(MojoCudaLinear(&a, at), "MojoCudaLinear"); });
    printf("linear %-6s %-5s [%5zu, %5zu] T %4zu  %8.1f us  floor %7.1f (%3.0f%%)  %6.0f GB/s  %6.1f TFlop/s\n", f.name,
           RoundingName(rounding), n, k, rows, us, floor, 100 * floor / us, bytes / us / 1e3, operations / us / 1e6);
    fflush(stdout);
    Check(cudaFree(a.scratch), "free");
  }
  Check(cudaFree(x), "free");
  Check(cudaFree(y), "free");
}

struct Shape {
  const char* name;
  size_t experts, top_k, hidden, inner;
  bool clamped;  // as in gpt-oss: biases, and gates and ups by turns
};

void TimeExperts(const Shape& s, const Format& f, mojo::Activations rounding, cudaStream_t stream) {
  const Weights up(f, 2 * s.inner, s.hidden, s.experts), down(f, s.hidden, s.inner, s.experts);
  const size_t most = 4096;
  void* const x = Fill(most * s.hidden, 1, 1);
  void* const y = Allocate(most * s.hidden * 2);
  const OnDevice<float> biases(std::vector<float>(s.experts * std::max(2 * s.inner, s.hidden), 0.1f));
  for (const size_t t : {1, 8, 64, 512, 4096}) {
    const Choices choices(t, s.top_k, s.experts);
    MojoQMoEArgs a = {};
    a.moe.x = x;
    a.moe.y = y;
    a.moe.ids = choices.ids.device;
    a.moe.weights = choices.weights.device();
    a.moe.tokens = t;
    a.moe.top_k = s.top_k;
    a.moe.experts = s.experts;
    a.moe.hidden = s.hidden;
    a.moe.inner = s.inner;
    a.moe.x_type = kMojoBFloat16;
    a.moe.weights_type = a.moe.expert_type = kMojoFloat32;
    a.moe.packing = s.clamped ? mojo::Packing::kInterleaved : mojo::Packing::kHalves;
    a.moe.gate.alpha = s.clamped ? 1.702f : 1;
    if (s.clamped) {
      a.moe.gate_up_bias = a.moe.down_bias = biases.data;
      a.moe.gate.limit = 7;
      a.moe.gate.up_offset = 1;
    }
    a.gate_up = up.args;
    a.down = down.args;
    a.rounding = rounding;
    a.moe.scratch = Allocate(MojoQMoEScratch(&a));
    const double part = static_cast<double>(choices.hit) / static_cast<double>(s.experts);
    const double bytes = (up.bytes + down.bytes) * part + 4.0 * t * s.hidden;
    const double operations = 6.0 * t * s.top_k * s.hidden * s.inner;
    const double floor =
        std::max(bytes / kBytesPerSecond,
                 operations / (rounding == mojo::Activations::kFp8 ? kOperationsOfE4M3 : kOperationsPerSecond)) *
        1e6;
    const double us =
        Microseconds(stream, floor, [&](cudaStream_t at) { Check(MojoCudaQMoE(&a, at), "MojoCudaQMoE"); });
    printf("%-11s %-6s %-5s T %4zu hit %3zu  %9.1f us  floor %8.1f (%3.0f%%)  %6.0f GB/s  %6.1f TFlop/s\n", s.name,
           f.name, RoundingName(rounding), t, choices.hit, us, floor, 100 * floor / us, bytes / us / 1e3,
           operations / us / 1e6);
    fflush(stdout);
    Check(cudaFree(a.moe.scratch), "free");
  }
  Check(cudaFree(x), "free");
  Check(cudaFree(y), "free");
}

}  // namespace

int main(int argc, char** argv) {
  const auto chosen = [&](const char* name) {
    return argc < 2 ||
           std::find_if(argv + 1, argv + argc, [&](char* a) { return std::string(a) == name; }) < argv + argc;
  };
  printf("%s; floors are an H200's\n", DeviceProperties().name);
  const cudaStream_t stream = Begin();
  if (chosen("experts")) {
    const Shape gptoss = {"gptoss-20b", 32, 4, 2880, 2880, true}, qwen = {"qwen3-30b", 128, 8, 2048, 768, false};
    const Shape deepseek = {"dsv3-tp8", 256, 8, 7168, 256, false};
    TimeExperts(gptoss, kFormats[4], mojo::Activations::kFloat, stream);
    if (MojoCudaMultipliesE4M3(mojo::Packing::kHalves))
      TimeExperts(deepseek, kFormats[5], mojo::Activations::kFp8, stream);
    if (chosen("all")) {
      TimeExperts(gptoss, kFormats[4], mojo::Activations::kInt16, stream);
      TimeExperts(qwen, kFormats[2], mojo::Activations::kFloat, stream);
    }
  }
  if (chosen("linear")) {
    for (const Format& f : kFormats) {
      if (f.code == mojo::Code::kE4m3 && !MojoCudaMultipliesE4M3(mojo::Packing::kHalves)) continue;
      for (const size_t n : {4096, 14336})
        TimeLinear(f, n, 4096, f.code == mojo::Code::kE4m3 ? mojo::Activations::kFp8 : mojo::Activations::kFloat,
                   stream);
    }
    TimeLinear(kFormats[0], 4096, 4096, mojo::Activations::kInt16, stream);
    TimeLinear(kFormats[0], 14336, 4096, mojo::Activations::kInt16, stream);
  }
  return 0;
}
