// NormQuantize on CUDA.
//
// The norm of a row stays in registers between the mean of its squares, its greatest magnitude and the rounding: memory
// is read once. A warp or a block handles a row. Rows that are too wide or not aligned to 16 bytes are read three times
// by a block.
//
// Bytes moved: x, residual, sum and y once, and scale once. The floor is those bytes over the memory bandwidth.
#include <cuda_fp8.h>

#include <type_traits>

#include "cuda/norm_packs.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel. T is the type of x, residual and sum, S that of scale.
struct Params {
  const void* x;
  const void* residual;  // null: none
  const void* scale;
  uint8_t* y;
  float* y_scale;
  void* sum;  // null: not written
  int64_t rows;
  int width;
  float per_element;  // 1 / width
  float epsilon;
  float least_scale;
  bool scale_after_cast;
  bool float8;
};

// GreatestOver returns the greatest magnitude of a row from the bits of the greatest one of each thread. The bits of a
// NaN exceed all others.
template <bool kWarps>
__device__ __forceinline__ float GreatestOver(unsigned bits, float* shared) {
  bits = __reduce_max_sync(0xffffffffu, bits);
  if constexpr (!kWarps) {
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = __uint_as_float(bits);
    __syncthreads();
    for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) bits = max(bits, __float_as_uint(shared[i]));
  }
  return __uint_as_float(bits);
}

__device__ __forceinline__ unsigned Magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// ScaleOfRow returns the scale of a row from its greatest magnitude. A NaN stays.
__device__ __forceinline__ float ScaleOfRow(const Params& p, float most) {
  const float step = __fdiv_rn(most, p.float8 ? 448.0f : 127.0f);
  return step < p.least_scale ? p.least_scale : step;
}

// Narrow rounds two numbers to 8 bits each, the first one in the low byte. They need no bounds, because no quotient
// exceeds 127 or 448 by more than float32 rounds. The Y of a NaN is not specified.
__device__ __forceinline__ unsigned Narrow(float a, float b, bool float8) {
  if (float8) return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  return (__float2int_rn(a) & 0xff) | (__float2int_rn(b) & 0xff) << 8;
}

// Normed returns two numbers of the norm.
template <class T, class S>
__device__ __forceinline__ float2 Normed(float2 v, Two<S> scale, float inv, bool after_cast) {
  if constexpr (std::is_same_v<T, S> && sizeof(T) < 4) {
    if (after_cast) return ToFloats(Times(FromFloats<T>(v.x * inv, v.y * inv), scale));
  }
  const float2 wide = ToFloats(scale);
  return make_float2(v.x * inv * wide.x, v.y * inv * wide.y);
}

// QuantizeRows handles a row with the threads of threadIdx.x: a warp of four with kWarps, else the block.
//
// Registers: 64. Shared memory: 64 bytes without kWarps.
template <class T, class S, bool kWarps>
__global__ void __launch_bounds__(kWarps ? 32 * kWarpRows : kRowThreads) QuantizeRows(const Params p) {
  constexpr int kCount = kPackSize<T>;
  alignas(16) __shared__ float shared[kRowThreads / 32];
  const int threads = blockDim.x;
  const int packs = p.width / kCount;
  const int64_t row = kWarps ? int64_t{blockIdx.x} * kWarpRows + threadIdx.y : int64_t{blockIdx.x};
  WaitForPrevious();
  if (kWarps && row >= p.rows) return;  // whole warps
  const int64_t offset = row * p.width;
  const T* x = static_cast<const T*>(p.x) + offset;
  const T* residual = static_cast<const T*>(p.residual) + offset;
  Pack<T, kCount> v[kRowPacks];
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    v[i] = at < packs ? LoadPack<kCount>(x + at * kCount) : Pack<T, kCount>{};
  }
  if (p.residual != nullptr) {
    Pack<T, kCount> r[kRowPacks];
#pragma unroll
    for (int i = 0; i < kRowPacks; ++i) {
      const int at = i * threads + static_cast<int>(threadIdx.x);
      r[i] = at < packs ? LoadPack<kCount>(residual + at * kCount) : Pack<T, kCount>{};
    }
#pragma unroll
    for (int i = 0; i < kRowPacks; ++i) {
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) v[i].Put(j, Plus(v[i].At(j), r[i].At(j)));
    }
  }
  LetNextStart();
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (p.sum != nullptr && at < packs) StorePack(static_cast<T*>(p.sum) + offset + at * kCount, v[i]);
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 two = ToFloats(v[i].At(j));
      squares = fmaf(two.x, two.x, fmaf(two.y, two.y, squares));
    }
  }
  squares = SumOver<kWarps>(squares, shared);
  float mean = squares * p.per_element;
  if (__builtin_expect(!isfinite(squares), 0)) {
    float part = 0;
#pragma unroll
    for (int i = 0; i < kRowPacks; ++i) part = MeanParts(v[i], p.per_element, part);
    mean = SumOver<kWarps>(part, shared);
  }
  const float inv = rsqrtf(mean + p.epsilon);
  float n[kRowPacks][kCount];
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    ScaleOf<S, kCount> scale;
    scale.Load(static_cast<const S*>(p.scale) + at * kCount);
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 two = Normed<T, S>(ToFloats(v[i].At(j)), scale.At(j), inv, p.scale_after_cast);
      n[i][2 * j] = two.x;
      n[i][2 * j + 1] = two.y;
      most = max(most, max(Magnitude(two.x), Magnitude(two.y)));
    }
  }
  const float scale = ScaleOfRow(p, GreatestOver<kWarps>(most, shared));
  if (threadIdx.x == 0) p.y_scale[row] = scale;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    unsigned words[kCount / 4];
#pragma unroll
    for (int j = 0; j < kCount; j += 4) {
      words[j / 4] = Narrow(__fdiv_rn(n[i][j], scale), __fdiv_rn(n[i][j + 1], scale), p.float8) |
                     Narrow(__fdiv_rn(n[i][j + 2], scale), __fdiv_rn(n[i][j + 3], scale), p.float8) << 16;
    }
    uint8_t* y = p.y + offset + at * kCount;
    if constexpr (kCount == 8) {
      *reinterpret_cast<uint2*>(y) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<unsigned*>(y) = words[0];
    }
  }
}

// QuantizeAnyRow handles a row of any width and alignment with a block, element by element. sum may be x or residual,
// which are read for the last time before it is written.
//
// Registers: 32. Shared memory: 64 bytes.
template <class T, class S>
__global__ void __launch_bounds__(kRowThreads) QuantizeAnyRow(const Params p) {
  alignas(16) __shared__ float shared[kRowThreads / 32];
  const int64_t offset = int64_t{blockIdx.x} * p.width;
  const T* x = static_cast<const T*>(p.x) + offset;
  const T* residual = static_cast<const T*>(p.residual) + offset;
  const S* of_scale = static_cast<const S*>(p.scale);
  WaitForPrevious();
  LetNextStart();
  const auto at = [&](int i) {
    const float v = ToFloat(x[i]);
    return p.residual == nullptr ? v : Round<T>(v + ToFloat(residual[i]));
  };
  float squares = 0;
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) squares = fmaf(at(i), at(i), squares);
  squares = SumOver<false>(squares, shared);
  float mean = squares * p.per_element;
  if (!isfinite(squares)) {
    float part = 0;
    for (int i = threadIdx.x; i < p.width; i += blockDim.x) part = fmaf(at(i) * at(i), p.per_element, part);
    mean = SumOver<false>(part, shared);
  }
  const float inv = rsqrtf(mean + p.epsilon);
  const auto normed = [&](float v, int i) {
    const float n = p.scale_after_cast ? Round<T>(v * inv) : v * inv, s = n * ToFloat(of_scale[i]);
    return p.scale_after_cast ? Round<T>(s) : s;
  };
  unsigned most = 0;
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) most = max(most, Magnitude(normed(at(i), i)));
  const float scale = ScaleOfRow(p, GreatestOver<false>(most, shared));
  if (threadIdx.x == 0) p.y_scale[blockIdx.x] = scale;
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float v = at(i);
    if (p.sum != nullptr) static_cast<T*>(p.sum)[offset + i] = FromFloat<T>(v);
    p.y[offset + i] = static_cast<uint8_t>(Narrow(__fdiv_rn(normed(v, i), scale), 0, p.float8));
  }
}

template <class T, class S>
cudaError_t RunTypes(const MojoNormQuantizeArgs& args, const Params& p, cudaStream_t stream) {
  const bool aligned = Aligned(args.y, 8) && AllAligned(16, args.x, args.residual, args.scale, args.sum);
  return LaunchRows(QuantizeRows<T, S, true>, QuantizeRows<T, S, false>, QuantizeAnyRow<T, S>, p, kPackSize<T>, aligned,
                    stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaNormQuantize(const MojoNormQuantizeArgs* args, cudaStream_t stream) {
  if (args->rows == 0) return cudaSuccess;
  if (args->width > INT32_MAX / 2 || args->rows > INT32_MAX) return cudaErrorInvalidValue;
  if (args->scale_type != args->x_type && args->scale_type != kMojoFloat32) return cudaErrorInvalidValue;
  const bool narrow = args->x_type != kMojoFloat32;
  if (narrow && args->scale_after_cast && args->scale_type == kMojoFloat32) return cudaErrorInvalidValue;
  const mojo::Params p = {args->x,
                          args->residual,
                          args->scale,
                          static_cast<uint8_t*>(args->y),
                          args->y_scale,
                          args->sum,
                          static_cast<int64_t>(args->rows),
                          static_cast<int>(args->width),
                          1.0f / static_cast<float>(args->width),
                          args->epsilon,
                          args->least_scale,
                          args->scale_after_cast,
                          args->float8};
  return mojo::OfType(args->x_type, [&](auto x) {
    using X = decltype(x);
    return args->scale_type == kMojoFloat32 ? mojo::RunTypes<X, float>(*args, p, stream)
                                            : mojo::RunTypes<X, X>(*args, p, stream);
  });
}
