// Keys of numbers: integers in the same order.
#pragma once

#include "cuda/common.cuh"

namespace mojo {

constexpr uint32_t kAll = 0xffffffffu;  // the key of NaN, the greatest, and all lanes of a warp

// Key maps numbers to integers in the same order; both zeros are equal.
__device__ __forceinline__ uint32_t Key(float v) {
  if (v != v) return kAll;
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits ^ ((bits & 0x80000000u) != 0 ? kAll : 0x80000000u);
}

// Unkey returns the number; a NaN may have other bits.
__device__ __forceinline__ float Unkey(uint32_t key) {
  return __uint_as_float(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : kAll));
}

}  // namespace mojo
