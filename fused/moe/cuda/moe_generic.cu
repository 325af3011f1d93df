// MoE of any widths and layouts, and any mix of float32, float16 and bfloat16.
//
// Two launches, each number computed separately in float32. Matrices of [rows, depth] are read by warps along a row,
// matrices of [depth, rows] by adjacent threads; every choice reads its expert again. For correctness: float32 and
// mixed types, and shapes that the other kernels do not take.
#include "moe/cuda/moe.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 256;
constexpr size_t kMostBlocks = size_t{1} << 30;  // of a launch, about

// Row returns the product of one row of an expert's matrix with a vector, to all lanes of the warp that shares it, or
// to a single thread if kInOut.
template <class V, bool kInOut, class Vector>
__device__ __forceinline__ float Row(const V* matrix, size_t rows, size_t depth, size_t row, const Vector& vector) {
  float sum = 0;
  if constexpr (kInOut) {
    for (size_t k = 0; k < depth; ++k) sum += ToFloat(matrix[k * rows + row]) * vector(k);
    return sum;
  } else {
    for (size_t k = threadIdx.x % 32; k < depth; k += 32) sum += ToFloat(matrix[row * depth + k]) * vector(k);
    return WarpSum(sum);
  }
}

// kInOut blocks compute 256 numbers, others one for each warp.
constexpr int Width(bool in_out) { return in_out ? kThreads : kThreads / 32; }

// GateUp: a block computes some activations of one choice, from begin on.
template <class V, bool kInOut>
__global__ __launch_bounds__(kThreads) void GateUp(const __grid_constant__ MojoMoEArgs a, float* activated,
                                                   size_t blocks, size_t begin) {
  WaitForPrevious();
  LetNextStart();
  const size_t choice = begin + blockIdx.x / blocks;
  const int expert = ChosenExpert(a, choice);
  const size_t i =
      blockIdx.x % blocks * (kInOut ? kThreads : kThreads / 32) + (kInOut ? threadIdx.x : threadIdx.x / 32);
  if (expert < 0 || i >= a.inner) return;
  const size_t packed = Packed(a), token = choice / a.top_k;
  const V* matrix = static_cast<const V*>(a.gate_up) + expert * packed * a.hidden;
  const auto x = [&](size_t k) { return Number(a.x, token * a.hidden + k, a.x_type); };
  float gate = Row<V, kInOut>(matrix, packed, a.hidden, GateRow(a, i), x), up = 0;
  if (a.packing != Packing::kNone) up = Row<V, kInOut>(matrix, packed, a.hidden, UpRow(a, i), x);
  if (a.gate_up_bias != nullptr) {
    gate += Number(a.gate_up_bias, expert * packed + GateRow(a, i), a.expert_type);
    if (a.packing != Packing::kNone) up += Number(a.gate_up_bias, expert * packed + UpRow(a, i), a.expert_type);
  }
  if (kInOut || threadIdx.x % 32 == 0) activated[choice * a.inner + i] = Activated(a, gate, up);
}

// Down: a block computes some outputs of one token, from begin on.
template <class V, bool kInOut>
__global__ __launch_bounds__(kThreads) void Down(const __grid_constant__ MojoMoEArgs a, const float* activated,
                                                 size_t blocks, size_t begin) {
  WaitForPrevious();
  LetNextStart();
  const size_t token = begin + blockIdx.x / blocks;
  const size_t h =
      blockIdx.x % blocks * (kInOut ? kThreads : kThreads / 32) + (kInOut ? threadIdx.x : threadIdx.x / 32);
  if (h >= a.hidden) return;
  float sum = 0;
  for (size_t j = 0; j < a.top_k; ++j) {
    const size_t choice = token * a.top_k + j;
    const int expert = ChosenExpert(a, choice);
    if (expert < 0) continue;
    const V* matrix = static_cast<const V*>(a.down) + expert * a.hidden * a.inner;
    float v = Row<V, kInOut>(matrix, a.hidden, a.inner, h, [&](size_t k) { return activated[choice * a.inner + k]; });
    if (a.down_bias != nullptr) v += Number(a.down_bias, expert * a.hidden + h, a.expert_type);
    sum += Number(a.weights, choice, a.weights_type) * v;
  }
  if (!kInOut && threadIdx.x % 32 != 0) return;
  const size_t at = token * a.hidden + h;
  if (a.x_type == kMojoFloat32) {
    static_cast<float*>(a.y)[at] = sum;
  } else if (a.x_type == kMojoFloat16) {
    static_cast<Half*>(a.y)[at] = FromFloat<Half>(sum);
  } else {
    static_cast<BFloat*>(a.y)[at] = FromFloat<BFloat>(sum);
  }
}

template <class V>
cudaError_t Run(const MojoMoEArgs& a, cudaStream_t stream) {
  float* activated = static_cast<float*>(a.scratch);
  const auto launch = [&](auto kernel, size_t items, size_t blocks) -> cudaError_t {
    if (blocks == 0) return cudaSuccess;
    const size_t most = DivideUp(kMostBlocks, blocks);  // items of a launch
    for (size_t begin = 0; begin < items; begin += most) {
      const size_t count = items - begin < most ? items - begin : most;
      if (cudaError_t e =
              Launch(kernel, static_cast<unsigned>(count * blocks), kThreads, 0, stream, a, activated, blocks, begin))
        return e;
    }
    return cudaSuccess;
  };
  const size_t choices = a.experts == 0 ? 0 : a.tokens * a.top_k;
  const cudaError_t e = launch(a.gate_up_in_out ? GateUp<V, true> : GateUp<V, false>, choices,
                               DivideUp(a.inner, Width(a.gate_up_in_out)));
  if (e != cudaSuccess) return e;
  return launch(a.down_in_out ? Down<V, true> : Down<V, false>, a.tokens, DivideUp(a.hidden, Width(a.down_in_out)));
}

}  // namespace

size_t GenericMoEScratch(const MojoMoEArgs& a) { return a.tokens * a.top_k * a.inner * sizeof(float); }

cudaError_t GenericMoE(const MojoMoEArgs& a, cudaStream_t stream) {
  return OfType(a.expert_type, [&](auto t) { return Run<decltype(t)>(a, stream); });
}

}  // namespace mojo
