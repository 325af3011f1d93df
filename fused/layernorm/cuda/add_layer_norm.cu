// AddLayerNorm on CUDA.
//
// The sum of a row stays in registers between its mean, the squares and the scaling: memory is read once. A row is done
// by a warp, a block, or, if it is too wide or not aligned to 16 bytes, by a block that reads it three times.
//
// Bytes moved: 4 times rows * width elements (3 if the sum has no reader), and scale and biases once. The floor is
// those bytes over the memory bandwidth.
#include <type_traits>

#include "cuda/norm_packs.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel. T is the type of x, residual, x_bias and sum, Y of the others.
struct Params {
  const void* x;
  const void* residual;
  const void* x_bias;  // null without a bias
  const void* scale;
  const void* bias;
  void* y;
  void* sum;  // null: not written
  int64_t rows;
  int width;
  float per_element;  // 1 / width
  float epsilon;
};

// LayerRows handles a row with the threads of threadIdx.x: a warp of four with kWarps, else the block.
//
// Registers: 64. Shared memory: 64 bytes without kWarps.
template <class T, class Y, bool kWarps>
__global__ void __launch_bounds__(kWarps ? 32 * kWarpRows : kRowThreads) LayerRows(const Params p) {
  constexpr int kCount = kPackSize<T>;
  alignas(16) __shared__ float sums[kRowThreads / 32];
  const int threads = blockDim.x;
  const int packs = p.width / kCount;
  const int64_t row = kWarps ? int64_t{blockIdx.x} * kWarpRows + threadIdx.y : int64_t{blockIdx.x};
  WaitForPrevious();
  if (kWarps && row >= p.rows) return;  // whole warps
  const int64_t offset = row * p.width;
  const T* x = static_cast<const T*>(p.x) + offset;
  const T* residual = static_cast<const T*>(p.residual) + offset;
  const T* x_bias = static_cast<const T*>(p.x_bias);
  Pack<T, kCount> v[kRowPacks], r[kRowPacks];
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    v[i] = at < packs ? LoadPack<kCount>(x + at * kCount) : Pack<T, kCount>{};
    r[i] = at < packs ? LoadPack<kCount>(residual + at * kCount) : Pack<T, kCount>{};
  }
  LetNextStart();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    if (x_bias != nullptr) {
      const Pack<T, kCount> b = LoadPack<kCount>(x_bias + at * kCount);
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) v[i].Put(j, Plus(v[i].At(j), b.At(j)));
    }
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) v[i].Put(j, Plus(v[i].At(j), r[i].At(j)));
    if (p.sum != nullptr) StorePack(static_cast<T*>(p.sum) + offset + at * kCount, v[i]);
    if constexpr (!std::is_same_v<T, Y>) {
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) {
        const float2 two = ToFloats(v[i].At(j));
        v[i].Put(j, FromFloats<T>(Round<Y>(two.x), Round<Y>(two.y)));
      }
    }
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 two = ToFloats(v[i].At(j));
      total += two.x + two.y;
    }
  }
  total = SumOver<kWarps>(total, sums);
  float mean = total * p.per_element;
  if (__builtin_expect(!isfinite(total), 0)) {
    // The sum may overflow float32 even if the mean does not.
    float part = 0;
#pragma unroll
    for (int i = 0; i < kRowPacks; ++i) {
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) {
        const float2 two = ToFloats(v[i].At(j));
        part = fmaf(two.x, p.per_element, fmaf(two.y, p.per_element, part));
      }
    }
    mean = SumOver<kWarps>(part, sums);
  }
  float squares = 0, scaled = 0;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    if (i * threads + static_cast<int>(threadIdx.x) >= packs) continue;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 two = ToFloats(v[i].At(j));
      squares = fmaf(two.x - mean, two.x - mean, fmaf(two.y - mean, two.y - mean, squares));
    }
  }
  squares = SumOver<kWarps>(squares, sums);
  float variance = squares * p.per_element;
  if (__builtin_expect(!isfinite(squares), 0)) {
#pragma unroll
    for (int i = 0; i < kRowPacks; ++i) {
      if (i * threads + static_cast<int>(threadIdx.x) >= packs) continue;
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) {
        const float2 two = ToFloats(v[i].At(j));
        scaled = fmaf((two.x - mean) * (two.x - mean), p.per_element, scaled);
        scaled = fmaf((two.y - mean) * (two.y - mean), p.per_element, scaled);
      }
    }
    variance = SumOver<kWarps>(scaled, sums);
  }
  const float inv = rsqrtf(variance + p.epsilon);
  Y* y = static_cast<Y*>(p.y) + offset;
#pragma unroll
  for (int i = 0; i < kRowPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    const Pack<Y, kCount> scale = LoadPack<kCount>(static_cast<const Y*>(p.scale) + at * kCount);
    const Pack<Y, kCount> bias = LoadPack<kCount>(static_cast<const Y*>(p.bias) + at * kCount);
    Pack<Y, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float2 two = ToFloats(v[i].At(j)), s = ToFloats(scale.At(j)), b = ToFloats(bias.At(j));
      out.Put(j, FromFloats<Y>(fmaf((two.x - mean) * inv, s.x, b.x), fmaf((two.y - mean) * inv, s.y, b.y)));
    }
    StorePack(y + at * kCount, out);
  }
}

// LayerAnyRow handles rows of any width and alignment, a row for each block, element by element. It recomputes the sum
// at each read: y and sum may alias x and residual, whose last read is before the write.
//
// Registers: 32. Shared memory: 64 bytes.
template <class T, class Y>
__global__ void __launch_bounds__(kRowThreads) LayerAnyRow(const Params p) {
  alignas(16) __shared__ float sums[kRowThreads / 32];
  const int64_t offset = int64_t{blockIdx.x} * p.width;
  const T* x = static_cast<const T*>(p.x) + offset;
  const T* residual = static_cast<const T*>(p.residual) + offset;
  const T* x_bias = static_cast<const T*>(p.x_bias);
  WaitForPrevious();
  LetNextStart();
  const auto at = [&](int i) {
    float v = ToFloat(x[i]);
    if (x_bias != nullptr) v = Round<T>(v + ToFloat(x_bias[i]));
    return Round<T>(v + ToFloat(residual[i]));
  };
  const auto over = [&](auto value) {
    float part = 0;
    for (int i = threadIdx.x; i < p.width; i += blockDim.x) part += value(Round<Y>(at(i)));
    return SumOver<false>(part, sums);
  };
  float mean = over([](float v) { return v; }) * p.per_element;
  if (!isfinite(mean)) mean = over([&](float v) { return v * p.per_element; });
  float variance = over([&](float v) { return (v - mean) * (v - mean); }) * p.per_element;
  if (!isfinite(variance)) variance = over([&](float v) { return (v - mean) * (v - mean) * p.per_element; });
  const float inv = rsqrtf(variance + p.epsilon);
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float v = at(i);
    if (p.sum != nullptr) static_cast<T*>(p.sum)[offset + i] = FromFloat<T>(v);
    const float n = (Round<Y>(v) - mean) * inv;
    static_cast<Y*>(p.y)[offset + i] =
        FromFloat<Y>(fmaf(n, ToFloat(static_cast<const Y*>(p.scale)[i]), ToFloat(static_cast<const Y*>(p.bias)[i])));
  }
}

template <class T, class Y>
cudaError_t RunTypes(const MojoAddLayerNormArgs& args, const Params& p, cudaStream_t stream) {
  const bool aligned = AllAligned(16, args.x, args.residual, args.x_bias, args.scale, args.bias, args.y, args.sum);
  return LaunchRows(LayerRows<T, Y, true>, LayerRows<T, Y, false>, LayerAnyRow<T, Y>, p, kPackSize<T>, aligned, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaAddLayerNorm(const MojoAddLayerNormArgs* args, cudaStream_t stream) {
  if (args->rows == 0 || args->width == 0) return cudaSuccess;
  if (args->width > INT32_MAX / 2 || args->rows > INT32_MAX) return cudaErrorInvalidValue;
  const mojo::Params p = {args->x,
                          args->residual,
                          args->x_bias,
                          args->scale,
                          args->bias,
                          args->y,
                          args->sum,
                          static_cast<int64_t>(args->rows),
                          static_cast<int>(args->width),
                          1.0f / static_cast<float>(args->width),
                          args->epsilon};
  if (args->x_type != args->y_type && args->x_type != kMojoFloat32) return cudaErrorInvalidValue;
  return mojo::OfType(args->y_type, [&](auto y) {
    using Y = decltype(y);
    return args->x_type == kMojoFloat32 ? mojo::RunTypes<float, Y>(*args, p, stream)
                                        : mojo::RunTypes<Y, Y>(*args, p, stream);
  });
}
