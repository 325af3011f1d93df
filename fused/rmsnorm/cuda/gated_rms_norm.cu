// GatedRMSNorm on CUDA.
//
// x and the gate of a row stay in registers between the sum of squares and the scaling: memory is read once. A row is
// done by a group of lanes of a warp, by a block, or, if it is too wide or not aligned, by a block that reads it twice.
//
// Bytes moved: x, gate and y, rows * width elements each, and scale once. The floor is those bytes over the memory
// bandwidth.
#include <type_traits>

#include "cuda/activation.cuh"
#include "cuda/norm_packs.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel.
struct Params {
  const void* x;
  const void* gate;
  const void* scale;
  void* y;
  int64_t rows;
  int width;
  int groups;
  float per_element;  // 1 / width
  float epsilon;
  bool gate_first;
  bool scale_after_cast;
};

constexpr int kMostThreads = kRowThreads;
constexpr int kGroupThreads = 128;  // of a block of groups

// Silu is exact if the result is float32.
template <class G>
__device__ __forceinline__ float Silu(float gate) {
  return Activate<Activation::kSilu, sizeof(G) == 4>(gate, 1);
}

// Scaled multiplies a normalized number by scale and rounds as the op does; the gate is applied after it.
template <class G>
__device__ __forceinline__ float Scaled(float n, float scale, bool after_cast, bool gate_first) {
  if (!after_cast) return __fmul_rn(n, scale);
  const float y = __fmul_rn(Round<G>(n), scale);
  return gate_first ? y : Round<G>(y);
}

// GatedRows keeps kPacks packs of a row in each thread. blockDim.x threads share a row: with kGroups a power of two up
// to 32, and blockDim.y rows a block; else whole warps.
//
// Registers: 64 with two packs, 96 with groups, 120 with four. Shared memory: 64 bytes without kGroups.
template <class X, class G, class S, int kPacks, bool kGroups>
__global__ void __launch_bounds__(kGroups ? kGroupThreads : kMostThreads, kGroups       ? 5
                                                                          : kPacks == 2 ? 2
                                                                                        : 1) GatedRows(const Params p) {
  constexpr int kCount = kPackSize<X>;
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int threads = blockDim.x;
  const int packs = p.width / kCount;
  const int64_t row = kGroups ? int64_t{blockIdx.x} * blockDim.y + threadIdx.y : int64_t{blockIdx.x};
  const bool live = row < p.rows;
  const int64_t offset = row * p.width;
  const X* x = static_cast<const X*>(p.x) + offset;
  const G* gate = static_cast<const G*>(p.gate) + offset;
  const S* scale = static_cast<const S*>(p.scale) + row % p.groups * p.width;
  Pack<X, kCount> v[kPacks];
  Pack<G, kCount> g[kPacks];
  WaitForPrevious();
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    const bool there = live && at < packs;
    v[i] = there ? LoadPack<kCount>(x + at * kCount) : Pack<X, kCount>{};
    g[i] = there ? LoadPack<kCount>(gate + at * kCount) : Pack<G, kCount>{};
  }
  LetNextStart();
  float h[kPacks][kCount];  // the numbers to normalize
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    ToFloats(v[i], h[i]);
    float a[kCount];
    ToFloats(g[i], a);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (p.gate_first) h[i][j] = __fmul_rn(h[i][j], Silu<G>(a[j]));
      squares = fmaf(h[i][j], h[i][j], squares);
    }
  }
  squares = kGroups ? GroupSum(squares, threads) : BlockSum<kMostThreads>(squares, sums);
  float mean = squares * p.per_element;
  if (__builtin_expect(kGroups ? __any_sync(0xffffffffu, !isfinite(squares)) : !isfinite(squares), 0)) {
    // The sum may overflow float32 even if the mean does not.
    float part = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) part = fmaf(h[i][j] * h[i][j], p.per_element, part);
    }
    if (!kGroups) __syncthreads();
    part = kGroups ? GroupSum(part, threads) : BlockSum<kMostThreads>(part, sums);
    if (!isfinite(squares)) mean = part;
  }
  const float inv = rsqrtf(mean + p.epsilon);
  G* y = static_cast<G*>(p.y) + offset;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (!live || at >= packs) continue;
    ScaleOf<S, kCount> of_scale;
    of_scale.Load(scale + at * kCount);
    Pack<G, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 s = ToFloats(of_scale.At(j));
      float a = Scaled<G>(h[i][2 * j] * inv, s.x, p.scale_after_cast, p.gate_first);
      float b = Scaled<G>(h[i][2 * j + 1] * inv, s.y, p.scale_after_cast, p.gate_first);
      if (!p.gate_first) {
        const float2 two = ToFloats(g[i].At(j));
        a *= Silu<G>(two.x);
        b *= Silu<G>(two.y);
      }
      out.Put(j, FromFloats<G>(a, b));
    }
    StorePack(y + at * kCount, out);
  }
}

// GatedAnyRow handles rows of any width and alignment, one in each block, which reads it twice, element by element.
//
// Registers: 40. Shared memory: 64 bytes.
template <class X, class G, class S>
__global__ void __launch_bounds__(kMostThreads, 2) GatedAnyRow(const Params p) {
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int64_t row = blockIdx.x, offset = row * p.width;
  const X* x = static_cast<const X*>(p.x) + offset;
  const G* gate = static_cast<const G*>(p.gate) + offset;
  const S* scale = static_cast<const S*>(p.scale) + row % p.groups * p.width;
  G* y = static_cast<G*>(p.y) + offset;
  const auto value = [&](int i) {
    const float v = ToFloat(x[i]);
    return p.gate_first ? __fmul_rn(v, Silu<G>(ToFloat(gate[i]))) : v;
  };
  WaitForPrevious();
  LetNextStart();
  const float inv = rsqrtf(MeanOfSquares(p.width, p.per_element, sums, value) + p.epsilon);
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float n = Scaled<G>(value(i) * inv, ToFloat(scale[i]), p.scale_after_cast, p.gate_first);
    y[i] = FromFloat<G>(p.gate_first ? n : n * Silu<G>(ToFloat(gate[i])));
  }
}

// Run chooses the form: groups of lanes for narrow rows, two or four packs a thread for others.
template <class X, class G, class S>
cudaError_t Run(const Params& p, cudaStream_t stream) {
  constexpr int kCount = kPackSize<X>;
  const size_t least = sizeof(G) * kCount;  // of a pack of the gate
  const int packs = p.width / kCount;
  if (p.width % kCount != 0 || packs > 4 * kMostThreads || !AllAligned(16, p.x, p.scale) ||
      !AllAligned(least, p.gate, p.y)) {
    return Launch(GatedAnyRow<X, G, S>, dim3(static_cast<unsigned>(p.rows)), dim3(p.width > 2048 ? kMostThreads : 128),
                  0, stream, p);
  }
  if (packs <= 128) {
    int lanes = 1;
    while (4 * lanes < packs) lanes *= 2;
    const int rows = kGroupThreads / lanes;
    return Launch(GatedRows<X, G, S, 4, true>, dim3(static_cast<unsigned>(DivideUp(p.rows, rows))), dim3(lanes, rows),
                  0, stream, p);
  }
  const auto warps = [&](int each) { return static_cast<int>(DivideUp(packs, 32 * each) * 32); };
  const dim3 grid(static_cast<unsigned>(p.rows));
  if (packs <= 2 * kMostThreads) return Launch(GatedRows<X, G, S, 2, false>, grid, dim3(warps(2)), 0, stream, p);
  return Launch(GatedRows<X, G, S, 4, false>, grid, dim3(warps(4)), 0, stream, p);
}

// RunTypes dispatches on the types; N is the gate's.
template <class N>
cudaError_t RunTypes(const MojoGatedRMSNormArgs& args, const Params& p, cudaStream_t stream) {
  const bool wide_x = args.x_type != args.gate_type, wide_scale = args.scale_type != args.gate_type;
  if (wide_x) return wide_scale ? Run<float, N, float>(p, stream) : Run<float, N, N>(p, stream);
  return wide_scale ? Run<N, N, float>(p, stream) : Run<N, N, N>(p, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaGatedRMSNorm(const MojoGatedRMSNormArgs* args, cudaStream_t stream) {
  if (args->rows == 0 || args->width == 0) return cudaSuccess;
  const bool known = (args->x_type == args->gate_type || args->x_type == kMojoFloat32) &&
                     (args->scale_type == args->gate_type || args->scale_type == kMojoFloat32);
  if (!known || args->width > INT32_MAX / 2 || args->rows > INT32_MAX || args->groups == 0) {
    return cudaErrorInvalidValue;
  }
  const mojo::Params p = {args->x,
                          args->gate,
                          args->scale,
                          args->y,
                          static_cast<int64_t>(args->rows),
                          static_cast<int>(args->width),
                          static_cast<int>(args->groups),
                          1.0f / static_cast<float>(args->width),
                          args->epsilon,
                          args->gate_first,
                          args->scale_after_cast};
  return mojo::OfType(args->gate_type, [&](auto t) { return mojo::RunTypes<decltype(t)>(*args, p, stream); });
}
