// The products of attention of 16-bit numbers by mma.sync: a warp's 16 rows and a tile of keys, which are in shared
// memory as Piece has them. lane is threadIdx.x % 32, which the callers have.
#pragma once

#include "cuda/mma.cuh"

namespace mojo {

// AddScores adds the products of the warp's rows, the first of which is warp_row of those at q, and kKeys keys at k.
template <class T, int kWidth, int kKeys>
__device__ __forceinline__ void AddScores(float (&score)[kKeys / 8][4], int lane, uint32_t q, int warp_row,
                                          uint32_t k) {
#pragma unroll 4
  for (int d = 0; d < kWidth / 16; ++d) {
    uint32_t left[4];
    LoadMatrices(left, q + Piece<kWidth>(warp_row + lane % 16, d * 2 + lane / 16));
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) {
      uint32_t right[4];
      LoadMatrices(right, k + Piece<kWidth>(c * 16 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
      Multiply<T>(score[2 * c], left, right[0], right[1]);
      Multiply<T>(score[2 * c + 1], left, right[2], right[3]);
    }
  }
}

// AddValues adds kKeys values of kValues channels at v, times their weights, which are rounded to T.
template <class T, int kKeys, int kValues>
__device__ __forceinline__ void AddValues(float (&total)[kValues / 8][4], const float (&weight)[kKeys / 8][4], int lane,
                                          uint32_t v) {
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
    const float (&low)[4] = weight[2 * j], (&high)[4] = weight[2 * j + 1];
    const uint32_t left[4] = {Packed<T>(low[0], low[1]), Packed<T>(low[2], low[3]), Packed<T>(high[0], high[1]),
                              Packed<T>(high[2], high[3])};
#pragma unroll
    for (int c = 0; c < kValues / 16; ++c) {
      uint32_t right[4];
      LoadTransposed(right, v + Piece<kValues>(j * 16 + lane % 16, c * 2 + lane / 16));
      Multiply<T>(total[2 * c], left, right[0], right[1]);
      Multiply<T>(total[2 * c + 1], left, right[2], right[3]);
    }
  }
}

}  // namespace mojo
