// Shared parts of the kernels that normalize packs: sums over a row, parts of a mean, the scale, the launch, and the
// steps of RMSNorm.
#pragma once

#include <type_traits>

#include "cuda/common.cuh"

namespace mojo {

// MeanParts adds the parts of the mean of the squares to one. Each is scaled before it is added: the sum of the squares
// may overflow float32 even if their mean does not.
template <class T, int kCount>
__device__ __forceinline__ float MeanParts(const Pack<T, kCount>& pack, float per_element, float mean) {
  float v[kCount];
  ToFloats(pack, v);
#pragma unroll
  for (int i = 0; i < kCount; ++i) mean = fmaf(v[i] * v[i], per_element, mean);
  return mean;
}

constexpr int kRowThreads = 512;  // at most, of a block that handles a row
constexpr int kWarpRows = 4;      // of a block whose warps handle a row each
constexpr int kRowPacks = 4;      // of a row in a thread

// SumOver adds v over the threads of a row: a warp with kWarps, else the block. Blocks wait first, so that shared may
// be used again.
template <bool kWarps>
__device__ __forceinline__ float SumOver(float v, float* shared) {
  if constexpr (kWarps) return WarpSum(v);
  __syncthreads();
  return BlockSum<kRowThreads>(v, shared);
}

// MeanOfSquares returns the mean of the squares of value(0) to value(width - 1) in all threads of a block of up to
// kRowThreads.
template <class Value>
__device__ __forceinline__ float MeanOfSquares(int width, float per_element, float* shared, Value value) {
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float v = value(i);
    squares = fmaf(v, v, squares);
  }
  squares = BlockSum<kRowThreads>(squares, shared);
  float mean = squares * per_element;
  if (!isfinite(squares)) {
    float part = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
      const float v = value(i);
      part = fmaf(v * v, per_element, part);
    }
    __syncthreads();
    mean = BlockSum<kRowThreads>(part, shared);
  }
  return mean;
}

// LaunchRows starts by_warp or by_block, which keep kRowPacks packs of a row in each thread, or any for rows that are
// too wide or not aligned.
template <class Params>
cudaError_t LaunchRows(void (*by_warp)(Params), void (*by_block)(Params), void (*any)(Params), const Params& p,
                       size_t pack_size, bool aligned, cudaStream_t stream) {
  const auto rows = static_cast<size_t>(p.rows), width = static_cast<size_t>(p.width), packs = width / pack_size;
  aligned = aligned && width % pack_size == 0;
  if (aligned && packs <= 32 * kRowPacks) {
    return Launch(by_warp, dim3(static_cast<unsigned>(DivideUp(rows, kWarpRows))), dim3(32, kWarpRows), 0, stream, p);
  }
  const dim3 blocks(static_cast<unsigned>(rows));
  if (aligned && packs <= size_t{kRowThreads} * kRowPacks) {
    const auto threads = static_cast<unsigned>(DivideUp(DivideUp(packs, kRowPacks), 32) * 32);
    return Launch(by_block, blocks, dim3(threads), 0, stream, p);
  }
  return Launch(any, blocks, dim3(width > 2048 ? kRowThreads : 128), 0, stream, p);
}

// ScaleOf is the scale of kCount numbers: two packs if the scale's type is wider than theirs.
template <class S, int kCount>
struct ScaleOf {
  static constexpr int kPart = kCount < kPackSize<S> ? kCount : kPackSize<S>;
  Pack<S, kPart> parts[kCount / kPart];

  __device__ __forceinline__ void Load(const S* p) {
#pragma unroll
    for (int i = 0; i < kCount / kPart; ++i) parts[i] = LoadPack<kPart>(p + i * kPart);
  }
  // At returns the numbers 2i and 2i + 1.
  __device__ __forceinline__ Two<S> At(int i) const { return parts[i / (kPart / 2)].At(i % (kPart / 2)); }
};

// AddPacks returns round_T(a + b).
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> AddPacks(const Pack<T, kCount>& a, const Pack<T, kCount>& b) {
  float u[kCount], v[kCount];
  ToFloats(a, u);
  ToFloats(b, v);
#pragma unroll
  for (int i = 0; i < kCount; ++i) u[i] += v[i];
  return PackFloats<T>(u);
}

// Squares adds the squares of a pack to two sums: chains half as long.
template <class T, int kCount>
__device__ __forceinline__ float2 Squares(const Pack<T, kCount>& pack, float2 sum) {
  float v[kCount];
  ToFloats(pack, v);
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    sum.x = fmaf(v[i], v[i], sum.x);
    sum.y = fmaf(v[i + 1], v[i + 1], sum.y);
  }
  return sum;
}

// Scaled returns the result of a pack. Numbers are rounded in pairs, which one instruction does.
template <class Y, class X, class S, int kCount>
__device__ __forceinline__ Pack<Y, kCount> Scaled(const Pack<X, kCount>& x, const ScaleOf<S, kCount>& scale, float inv,
                                                  bool after_cast) {
  Pack<Y, kCount> y;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float2 v = ToFloats(x.At(i));
    const Two<S> s = scale.At(i);
    if constexpr (std::is_same_v<S, Y>) {
      if (after_cast) {
        y.Put(i, Times(FromFloats<Y>(v.x * inv, v.y * inv), s));
        continue;
      }
    }
    const float2 wide = ToFloats(s);
    y.Put(i, FromFloats<Y>(v.x * inv * wide.x, v.y * inv * wide.y));
  }
  return y;
}

}  // namespace mojo
