// Times MoE and TopKRouter: a CUDA graph of L2 flushes, each followed by the call, minus the time of only the flushes.
// `make cuda-programs` builds it. Arguments choose shapes by name and tokens by number, as in qwen3-30b 1 8; without
// any it runs all.
#include <algorithm>

#include "cuda/bench/experts_step.h"

namespace {

struct Shape {
  const char* name;
  size_t experts, top_k, hidden, inner;
  mojo::Packing packing;
  bool in_out, clamped;
};

const Shape kShapes[] = {{"qwen3-30b", 128, 8, 2048, 768, mojo::Packing::kHalves, false, false},
                         {"dsv3-tp8", 256, 8, 7168, 256, mojo::Packing::kHalves, false, false},
                         {"gptoss-20b", 32, 4, 2880, 2880, mojo::Packing::kInterleaved, false, true},
                         {"gptoss-20b-in_out", 32, 4, 2880, 2880, mojo::Packing::kInterleaved, true, true},
                         {"mixtral", 8, 2, 4096, 14336, mojo::Packing::kHalves, false, false}};
const size_t kTokens[] = {1, 8, 64, 512, 4096};

void TimeMoE(const Shape& s, const std::vector<size_t>& tokens, cudaStream_t stream) {
  MojoMoEArgs a = {};
  const size_t most = *std::max_element(tokens.begin(), tokens.end());
  void* const x = Fill(most * s.hidden, 1, 1);
  void* const gate_up = Fill(s.experts * 2 * s.inner * s.hidden, 1 / sqrtf(static_cast<float>(s.hidden)), 2);
  void* const down = Fill(s.experts * s.inner * s.hidden, 1 / sqrtf(static_cast<float>(s.inner)), 3);
  void* const biases[] = {Fill(s.experts * 2 * s.inner, 0.1f, 4), Fill(s.experts * s.hidden, 0.1f, 5)};
  void* const y = Allocate(most * s.hidden * 2);
  a.x = x;
  a.gate_up = gate_up;
  a.down = down;
  a.y = y;
  if (s.clamped) {
    a.gate_up_bias = biases[0];
    a.down_bias = biases[1];
    a.gate.alpha = 1.702f;
    a.gate.limit = 7;
    a.gate.up_offset = 1;
  } else {
    a.gate.alpha = 1;
  }
  a.top_k = s.top_k;
  a.experts = s.experts;
  a.hidden = s.hidden;
  a.inner = s.inner;
  a.x_type = a.expert_type = kMojoBFloat16;
  a.weights_type = kMojoFloat32;
  a.packing = s.packing;
  a.gate_up_in_out = a.down_in_out = s.in_out;
  for (const size_t t : tokens) {
    const Choices choices(t, s.top_k, s.experts);
    a.ids = choices.ids.device;
    a.weights = choices.weights.device();
    a.tokens = t;
    a.scratch = Allocate(MojoMoEScratch(&a));
    const double bytes = static_cast<double>(choices.hit) * 3 * s.hidden * s.inner * 2 + 4.0 * t * s.hidden;
    const double operations = 6.0 * t * s.top_k * s.hidden * s.inner;
    const double floor = std::max(bytes / kBytesPerSecond, operations / kOperationsPerSecond) * 1e6;
    const double us = Microseconds(stream, floor, [&](cudaStream_t at) { Check(MojoCudaMoE(&a, at), "MojoCudaMoE"); });
    printf("%-18s T %4zu hit %3zu  %9.1f us  floor %8.1f (%3.0f%%)  %6.0f GB/s  %6.1f TFlop/s\n", s.name, t,
           choices.hit, us, floor, 100 * floor / us, bytes / us / 1e3, operations / us / 1e6);
    fflush(stdout);
    Check(cudaFree(a.scratch), "free");
  }
  for (void* p : {x, gate_up, down, y, biases[0], biases[1]}) Check(cudaFree(p), "free");
}

void TimeRouter(size_t experts, bool groups, size_t rows, cudaStream_t stream) {
  MojoTopKRouterArgs a = {};
  a.logits = Fill(rows * experts, 2, 6);
  a.bias = groups ? Fill(experts, 0.1f, 7) : nullptr;
  a.top_k = 8;
  a.weights = static_cast<float*>(Allocate(rows * a.top_k * 4));
  a.ids = static_cast<int64_t*>(Allocate(rows * a.top_k * 8));
  a.rows = rows;
  a.experts = experts;
  a.logits_type = a.bias_type = kMojoBFloat16;
  a.score = groups ? mojo::Score::kSigmoid : mojo::Score::kSoftmax;
  a.groups = groups ? 8 : 1;
  a.group_top_k = groups ? 4 : 1;
  a.top2_sum = groups;
  a.renormalize = 1;
  a.scale = 1;
  const double us =
      Microseconds(stream, 3, [&](cudaStream_t at) { Check(MojoCudaTopKRouter(&a, at), "MojoCudaTopKRouter"); });
  printf("router E %3zu%s T %4zu  %7.2f us\n", experts, groups ? ", groups" : "        ", rows, us);
  fflush(stdout);
  for (void* p : {const_cast<void*>(a.logits), const_cast<void*>(a.bias), static_cast<void*>(a.weights),
                  static_cast<void*>(a.ids)})
    Check(cudaFree(p), "free");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<size_t> tokens;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] >= '0' && argv[i][0] <= '9') {
      tokens.push_back(strtoul(argv[i], nullptr, 10));
    } else {
      names.push_back(argv[i]);
    }
  }
  if (tokens.empty()) tokens.assign(std::begin(kTokens), std::end(kTokens));
  const auto chosen = [&](const char* name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  printf("%s; floors are an H200's\n", DeviceProperties().name);
  const cudaStream_t stream = Begin();
  for (const Shape& s : kShapes) {
    if (chosen(s.name)) TimeMoE(s, tokens, stream);
  }
  if (!chosen("router")) return 0;
  for (const size_t experts : {128, 256}) {
    for (const size_t t : {1, 8, 64, 512, 4096}) TimeRouter(experts, false, t, stream);
  }
  for (const size_t t : {1, 8, 64, 512, 4096}) TimeRouter(256, true, t, stream);
  return 0;
}
