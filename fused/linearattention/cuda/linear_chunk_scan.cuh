// ScanChunks: the state of LinearAttention from chunk to chunk, and Y. linear_chunks.cu says more.
#ifndef MOJO_KERNELS_CUDA_LINEAR_CHUNK_SCAN_CUH_
#define MOJO_KERNELS_CUDA_LINEAR_CHUNK_SCAN_CUH_

#include <type_traits>

#include "linearattention/cuda/linear_chunks.cuh"

namespace mojo {
namespace {

// Transposed is an 8 x 8 matrix of 16-bit numbers, as sums lie, transposed over the warp.
__device__ __forceinline__ uint32_t Transposed(uint32_t v) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// KeepOrder keeps the compiler from moving loads, or the rounding of a tile, up to where registers are not free yet.
__device__ __forceinline__ void KeepOrder() { asm volatile("" ::: "memory"); }
__device__ __forceinline__ void KeepOrder(float (&tile)[4]) {
  asm volatile("" : "+f"(tile[0]), "+f"(tile[1]), "+f"(tile[2]), "+f"(tile[3]));
}

// Range is the power of two that brings the greatest number of a warp's state to about 1: float16 has few exponents.
template <int kTiles>
__device__ __forceinline__ float Range(const float (&state)[kTiles][4]) {
  float most = 0;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(state[n][i]));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  const int exponent = min(max(__float_as_int(most) >> 23, 2), 252);
  return __int_as_float((254 - exponent) << 23);
}

// ScanChunks takes 64 columns of values of a head through all chunks: each warp has 16 columns, and all rows of them.
//
// Registers: 255. Shared memory: two stages of Q, K, W (with beta), 64 columns of U or V, P and factors.
template <class T, int kKeys, bool kDelta>
__global__ void __launch_bounds__(kThreads, 1) ScanChunks(const Chunks c) {
  extern __shared__ __align__(128) char shared[];
  constexpr int kTileBytes = kChunk * kKeys * 2, kSmallBytes = kChunk * kBlock * 2;
  constexpr int kKAt = kTileBytes, kUAt = 2 * kTileBytes, kPAt = kUAt + kSmallBytes, kWAt = kPAt + kSmallBytes;
  constexpr int kUnitsAt = kWAt + (kDelta ? kTileBytes : 0), kStage = kUnitsAt + 2 * kChunk * 4;
  constexpr bool kScaled = std::is_same<T, Half>::value;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int tiles = static_cast<int>(DivideUp(c.value, kBlock));
  const int64_t at = blockIdx.x / tiles;
  const int block = blockIdx.x % tiles * kBlock, column = block + 16 * warp;  // of values
  const uint32_t base = SharedAddress(shared);

  const auto fetch = [&](int index) {
    asm volatile("" : "+r"(index));  // else the addresses of all copies stay in registers
    const Position place(c, at, index);
    const uint32_t to = base + index % 2 * kStage;
    const T* qs = static_cast<const T*>(c.q) + (place.row * c.q_heads + place.query) * c.key;
    const T* ks = static_cast<const T*>(c.k) + (place.row * c.k_heads + place.key_head) * c.key;
    if constexpr (kDelta) {
      const T* ws = static_cast<const T*>(c.w) + place.chunk * kChunk * c.key;
      const T* us = static_cast<const T*>(c.u) + place.chunk * kChunk * c.value + block;
      FetchRows<kKeys>(to + kWAt, ws, c.key, kChunk, c.key);
      FetchRows<kBlock>(to + kUAt, us, c.value, kChunk, c.value - block);
    } else {
      const T* vs = static_cast<const T*>(c.v) + (place.row * c.heads + place.head) * c.value + block;
      FetchRows<kBlock>(to + kUAt, vs, int64_t{c.heads} * c.value, place.tokens, c.value - block);
    }
    FetchRows<kKeys>(to, qs, int64_t{c.q_heads} * c.key, place.tokens, c.key);
    FetchRows<kKeys>(to + kKAt, ks, int64_t{c.k_heads} * c.key, place.tokens, c.key);
    FetchRows<kChunk>(to + kPAt, static_cast<const T*>(c.p) + place.chunk * kChunk * kChunk, kChunk, kChunk, kChunk);
    if (threadIdx.x < 32) {
      const float* units = (lane < 16 ? c.q_unit : c.k_unit) + place.chunk * kChunk + lane % 16 * 4;
      Copy(to + kUnitsAt + lane * 16, units, true);
    }
    EndGroup();
  };

  WaitForPrevious();
  fetch(0);
  // The sums are of S^T: 16 columns of values, and a tile for eight keys.
  float state[kKeys / 8][4];
  const int64_t states = at * c.key * c.value;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 8 * n + 2 * t + i % 2, value = column + g + i / 2 * 8;
      const bool is = c.past != nullptr && key < c.key && value < c.value;
      state[n][i] = is ? c.past[states + int64_t{key} * c.value + value] : 0.0f;
    }
  }
  for (int index = 0; index < c.count; ++index) {
    const Position place(c, at, index);
    const float last = c.last[place.chunk];
    WaitForGroups<0>();
    __syncthreads();
    if (index + 1 < c.count) fetch(index + 1);
    const int stage = index % 2 * kStage;
    const uint32_t q_at = base + stage, k_at = q_at + kKAt, u_at = q_at + kUAt, p_at = q_at + kPAt, w_at = q_at + kWAt;
    const float* const q_units = reinterpret_cast<const float*>(shared + stage + kUnitsAt);
    const float* const k_units = q_units + kChunk;

    float y[8][4] = {}, had[kDelta ? 8 : 1][4] = {};  // S^T Q^T, S^T W^T
    const float range = kScaled ? Range(state) : 1, back = 1 / range;
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t left[4];
      KeepOrder(state[2 * s]), KeepOrder(state[2 * s + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&tile)[4] = state[2 * s + i / 2];
        left[i] = Packed<T>(tile[i % 2 * 2] * range, tile[i % 2 * 2 + 1] * range);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t right[4];
        if constexpr (kDelta) {
          LoadMatrices(right, Straight<kKeys>(w_at, 16 * n, 16 * s, lane));
          Multiply<T>(had[2 * n], left, right[0], right[1]);
          Multiply<T>(had[2 * n + 1], left, right[2], right[3]);
        }
        LoadMatrices(right, Straight<kKeys>(q_at, 16 * n, 16 * s, lane));
        Multiply<T>(y[2 * n], left, right[0], right[1]);
        Multiply<T>(y[2 * n + 1], left, right[2], right[3]);
      }
    }
    KeepOrder();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 units = *reinterpret_cast<const float2*>(q_units + 8 * n + 2 * t);
      y[n][0] *= units.x * back, y[n][1] *= units.y * back, y[n][2] *= units.x * back, y[n][3] *= units.y * back;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= last;
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 tokens
      KeepOrder();
      uint32_t u[4], scaled[4];
      LoadTransposed(u, u_at + Piece<kBlock>(16 * s + lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Two<T> two;
        memcpy(&two, &u[i], 4);
        float2 numbers = ToFloats(two);
        if constexpr (kDelta) {
          const float (&tile)[4] = had[2 * s + i / 2];
          numbers.x -= tile[i % 2 * 2] * back, numbers.y -= tile[i % 2 * 2 + 1] * back;
          u[i] = Packed<T>(numbers.x, numbers.y);
        }
        const float2 units = *reinterpret_cast<const float2*>(k_units + 16 * s + i / 2 * 8 + 2 * t);
        scaled[i] = Packed<T>(numbers.x * units.x, numbers.y * units.y);
      }
#pragma unroll
      for (int n = s; n < 4; ++n) {
        uint32_t right[4];
        LoadMatrices(right, Straight<kChunk>(p_at, 16 * n, 16 * s, lane));
        Multiply<T>(y[2 * n], u, right[0], right[1]);
        Multiply<T>(y[2 * n + 1], u, right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t right[4];
        LoadTransposed(right, Turned<kKeys>(k_at, 16 * n, 16 * s, lane));
        Multiply<T>(state[2 * n], scaled, right[0], right[1]);
        Multiply<T>(state[2 * n + 1], scaled, right[2], right[3]);
      }
    }
    KeepOrder();
    T* to = static_cast<T*>(c.y) + ((place.row + g) * c.heads + place.head) * c.value + column + 2 * t;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t low = Transposed(Packed<T>(y[n][0], y[n][1])), high = Transposed(Packed<T>(y[n][2], y[n][3]));
      const bool is = 8 * n + g < place.tokens;
      if (is && column < c.value) *reinterpret_cast<uint32_t*>(to) = low;
      if (is && column + 8 < c.value) *reinterpret_cast<uint32_t*>(to + 8) = high;
      to += int64_t{8} * c.heads * c.value;
    }
  }
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 8 * n + 2 * t + i % 2, value = column + g + i / 2 * 8;
      if (key < c.key && value < c.value) c.present[states + int64_t{key} * c.value + value] = state[n][i];
    }
  }
}

}  // namespace
}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_LINEAR_CHUNK_SCAN_CUH_
