// Shared parts of the kernels that normalize packs: their parts of a mean, and the scale.
#pragma once

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

}  // namespace mojo
