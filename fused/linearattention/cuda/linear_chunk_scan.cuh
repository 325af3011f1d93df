// ScanChunks: the state of LinearAttention from chunk to chunk, and Y. linear_chunks.cu says more.
#pragma once

#include <type_traits>

#include "cuda/hopper.cuh"
#include "linearattention/cuda/linear_chunks.cuh"

namespace mojo {
namespace {

// KeepOrder keeps the compiler from moving loads, or the rounding of a tile, up to where registers are not free yet.
__device__ __forceinline__ void KeepOrder() { asm volatile("" ::: "memory"); }
__device__ __forceinline__ void KeepOrder(float (&tile)[4]) {
  asm volatile("" : "+f"(tile[0]), "+f"(tile[1]), "+f"(tile[2]), "+f"(tile[3]));
}

// Range is the power of two that brings the greatest finite number of a warp's state to about 1: float16 has few
// exponents. Other numbers are in columns of their own, and the sum below is NaN, which fmaxf ignores.
template <int kTiles>
__device__ __forceinline__ float Range(const float (&state)[kTiles][4]) {
  float most = 0;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) most = fmaxf(most, fmaf(state[n][i], 0.0f, fabsf(state[n][i])));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  const int exponent = min(max(__float_as_int(most) >> 23, 2), 252);
  return __int_as_float((254 - exponent) << 23);
}

// Keep makes a left operand of two tiles of sums.
template <class T>
__device__ __forceinline__ void Keep(uint32_t (&left)[4], float (&low)[4], float (&high)[4], float range) {
  KeepOrder(low), KeepOrder(high);
  left[0] = Packed<T>(low[0] * range, low[1] * range), left[1] = Packed<T>(low[2] * range, low[3] * range);
  left[2] = Packed<T>(high[0] * range, high[1] * range), left[3] = Packed<T>(high[2] * range, high[3] * range);
}

// SkipOdd replaces updates that are not finite by 0, which times the 0 of an earlier token would be NaN, and makes Y of
// their columns NaN from these tokens on.
template <class T>
__device__ __forceinline__ void SkipOdd(uint32_t (&u)[4][4], float (&y)[8][4], int lane) {
  const int t = lane % 4;
  int first[2] = {kChunk, kChunk};
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Two<T> two;
      memcpy(&two, &u[s][i], 4);
      const float2 v = ToFloats(two);
      const int token = 16 * s + i / 2 * 8 + 2 * t;
      if (!isfinite(v.y)) u[s][i] &= 0x0000ffffu, first[i % 2] = min(first[i % 2], token + 1);
      if (!isfinite(v.x)) u[s][i] &= 0xffff0000u, first[i % 2] = min(first[i % 2], token);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    first[i] = min(first[i], __shfl_xor_sync(0xffffffffu, first[i], 1));
    first[i] = min(first[i], __shfl_xor_sync(0xffffffffu, first[i], 2));
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (8 * n + 2 * t + i % 2 >= first[i / 2]) y[n][i] = NAN;
    }
  }
}

// Scan has the products of four warps for 64 columns of values. On capability 9.0 they run beside the warps: See begins
// the products with the state, Had and Seen wait for them; Add begins the others, Added and Kept wait.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class T, int kKeys>
struct Scan {
  static constexpr int kSteps = kKeys / 16;
  uint32_t left[kSteps][4];

  // See multiplies S^T with W^T and Q^T.
  template <int kTiles>
  __device__ __forceinline__ void See(float (&state)[kKeys / 8][4], float (&had)[kTiles][4], float (&y)[8][4],
                                      uint32_t w_at, uint32_t q_at, float range, int) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) Keep<T>(left[s], state[2 * s], state[2 * s + 1], range);
    BeginMultiply();
    if constexpr (kTiles == 8) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        MultiplyKept<T, 0>(Columns<8>(), had, left[s], Descriptor(w_at + s / 4 * kSpan) + s % 4 * kDeeper, s > 0);
      }
      EndMultiply();
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      MultiplyKept<T, 0>(Columns<8>(), y, left[s], Descriptor(q_at + s / 4 * kSpan) + s % 4 * kDeeper, s > 0);
    }
    EndMultiply();
  }
  template <int kTiles>
  __device__ __forceinline__ void Had(float (&had)[kTiles][4]) {
    WaitForMultiply<1>();
    Arrived(had);
  }
  __device__ __forceinline__ void Seen(float (&y)[8][4]) {
    WaitForMultiply<0>();
    Arrived(y);
  }
  // Add adds u^T P^T to y and the product of the scaled u^T with K to the state.
  __device__ __forceinline__ void Add(float (&state)[kKeys / 8][4], float (&y)[8][4], const uint32_t (&u)[4][4],
                                      const uint32_t (&scaled)[4][4], uint32_t p_at, uint32_t k_at, int) {
    BeginMultiply();
#pragma unroll
    for (int s = 0; s < 4; ++s) MultiplyKept<T, 0>(Columns<8>(), y, u[s], Descriptor(p_at) + s * kDeeper, 1);
    EndMultiply();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      MultiplyKept<T>(Columns<kKeys / 8>(), state, scaled[s], WideTurnedDescriptor(k_at, kSpan) + s * kWideTurnedDeeper,
                      1);
    }
    EndMultiply();
  }
  __device__ __forceinline__ void Added(float (&y)[8][4]) {
    WaitForMultiply<1>();
    Arrived(y);
  }
  __device__ __forceinline__ void Kept(float (&state)[kKeys / 8][4]) {
    WaitForMultiply<0>();
    Arrived(state);
  }
};
#else
template <class T, int kKeys>
struct Scan {
  // Product makes the product of S^T and a transposed tile.
  __device__ __forceinline__ void Product(float (&state)[kKeys / 8][4], float (&sum)[8][4], uint32_t right_at,
                                          float range, int lane) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i / 4][i % 4] = 0;
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t left[4];
      Keep<T>(left, state[2 * s], state[2 * s + 1], range);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t right[4];
        LoadMatrices(right, Straight(right_at, 16 * n, 16 * s, lane));
        Multiply<T>(sum[2 * n], left, right[0], right[1]);
        Multiply<T>(sum[2 * n + 1], left, right[2], right[3]);
      }
    }
  }
  template <int kTiles>
  __device__ __forceinline__ void See(float (&state)[kKeys / 8][4], float (&had)[kTiles][4], float (&y)[8][4],
                                      uint32_t w_at, uint32_t q_at, float range, int lane) {
    if constexpr (kTiles == 8) Product(state, had, w_at, range, lane);
    Product(state, y, q_at, range, lane);
  }
  template <int kTiles>
  __device__ __forceinline__ void Had(float (&)[kTiles][4]) {}
  __device__ __forceinline__ void Seen(float (&)[8][4]) {}
  __device__ __forceinline__ void Add(float (&state)[kKeys / 8][4], float (&y)[8][4], const uint32_t (&u)[4][4],
                                      const uint32_t (&scaled)[4][4], uint32_t p_at, uint32_t k_at, int lane) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 tokens
#pragma unroll
      for (int n = s; n < 4; ++n) {
        uint32_t right[4];
        LoadMatrices(right, Straight(p_at, 16 * n, 16 * s, lane));
        Multiply<T>(y[2 * n], u[s], right[0], right[1]);
        Multiply<T>(y[2 * n + 1], u[s], right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t right[4];
        LoadTransposed(right, Turned(k_at, 16 * n, 16 * s, lane));
        Multiply<T>(state[2 * n], scaled[s], right[0], right[1]);
        Multiply<T>(state[2 * n + 1], scaled[s], right[2], right[3]);
      }
    }
  }
  __device__ __forceinline__ void Added(float (&)[8][4]) {}
  __device__ __forceinline__ void Kept(float (&)[kKeys / 8][4]) {}
};
__device__ __forceinline__ void SeeCopies() {}
#endif

// StageBytes are the bytes of a chunk in shared memory: Q, K, U or V, P, and W with beta; factors are UnitBytes
// beside.
__host__ __device__ constexpr int StageBytes(int keys, bool delta) {
  return kChunk * 2 * ((delta ? 3 : 2) * keys + kBlock + kChunk);
}
__host__ __device__ constexpr int UnitBytes(int keys, bool channels) {
  return (2 * kChunk + (channels ? keys : 0)) * 4;
}

// Fetch starts the copy of a chunk to a stage.
template <class T, int kKeys, bool kDelta, bool kChannels>
__device__ __forceinline__ void Fetch(const Chunks& c, const Position& place, int block, uint32_t to, uint32_t units) {
  constexpr int kTileBytes = kChunk * kKeys * 2;
  const T* qs = static_cast<const T*>(c.q) + (place.row * c.q_heads + place.query) * c.key;
  const T* ks = static_cast<const T*>(c.k) + (place.row * c.k_heads + place.key_head) * c.key;
  if constexpr (kChannels) {
    const int64_t scaled = place.chunk * kChunk * c.key;
    FetchRows<kKeys>(to, static_cast<const T*>(c.q_scaled) + scaled, c.key, kChunk, c.key);
    FetchRows<kKeys>(to + kTileBytes, static_cast<const T*>(c.k_scaled) + scaled, c.key, kChunk, c.key);
  } else {
    FetchRows<kKeys>(to, qs, int64_t{c.q_heads} * c.key, place.tokens, c.key);
    FetchRows<kKeys>(to + kTileBytes, ks, int64_t{c.k_heads} * c.key, place.tokens, c.key);
  }
  to += 2 * kTileBytes;
  if constexpr (kDelta) {
    const T* us = static_cast<const T*>(c.u) + place.chunk * kChunk * c.value + block;
    const T* ws = static_cast<const T*>(c.w) + place.chunk * kChunk * c.key;
    FetchRows<kBlock>(to, us, c.value, kChunk, c.value - block);
    FetchRows<kKeys>(to + 2 * kSpan, ws, c.key, kChunk, c.key);
  } else {
    const T* vs = static_cast<const T*>(c.v) + (place.row * c.heads + place.head) * c.value + block;
    FetchRows<kBlock>(to, vs, int64_t{c.heads} * c.value, place.tokens, c.value - block);
  }
  FetchRows<kChunk>(to + kSpan, static_cast<const T*>(c.p) + place.chunk * kChunk * kChunk, kChunk, kChunk, kChunk);
  const int lane = threadIdx.x % kThreads;
  if (lane < 32) {
    Copy(units + lane * 16, (lane < 16 ? c.q_unit : c.k_unit) + place.chunk * kChunk + lane % 16 * 4, true);
  } else if (kChannels && lane < 32 + kKeys / 4) {
    const int channel = (lane - 32) * 4;
    Copy(units + lane * 16, c.last + place.chunk * c.key + (channel < c.key ? channel : 0), channel < c.key);
  }
  EndGroup();
}

// ScanChunks takes 64 columns of values of a head through all chunks. Of its eight warps four load; each of the others
// has 16 columns, and all rows of them.
//
// Registers: 255. Shared memory: two or three stages.
template <class T, int kKeys, bool kDelta, bool kChannels>
__global__ void __launch_bounds__(2 * kThreads, 1) ScanChunks(const Chunks c) {
  extern __shared__ __align__(1024) char shared[];
  constexpr int kTileBytes = kChunk * kKeys * 2, kStage = StageBytes(kKeys, kDelta),
                kUnitBytes = UnitBytes(kKeys, kChannels);
  constexpr bool kScaled = std::is_same<T, Half>::value;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int tiles = static_cast<int>(DivideUp(c.value, kBlock));
  const int64_t at = blockIdx.x / tiles;
  const int block = blockIdx.x % tiles * kBlock, column = block + 16 * warp;  // of values
  const uint32_t base = SharedAddress(shared);
  const Position start(c, at, 0);

  WaitForPrevious();
  // The compiler must see that warps do not diverge, or wgmma waits after each product.
  if (__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x), 0) >= kThreads) {
    const auto fetch = [&](int index) {
      const int stage = index % c.stages;
      Fetch<T, kKeys, kDelta, kChannels>(c, start.After(c, index), block, base + stage * kStage,
                                         base + c.stages * kStage + stage * kUnitBytes);
    };
    const int ahead = c.stages - 1;
    for (int index = 0; index < min(ahead, c.count); ++index) fetch(index);
    for (int index = 0; index < c.count; ++index) {
      if (ahead == 2 && index + 1 < c.count) {
        WaitForGroups<1>();
      } else {
        WaitForGroups<0>();
      }
      SeeCopies();
      __syncthreads();  // the chunk is there, and the one before it is not needed
      if (index + ahead < c.count) fetch(index + ahead);
    }
    return;
  }
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
  const float* lasts = c.last + start.chunk;
  float next = kChannels ? 0 : lasts[0];
  T* to = static_cast<T*>(c.y) + ((start.row + g) * c.heads + start.head) * c.value + column + 2 * t;
  int stage = 0;
  for (int index = 0; index < c.count; ++index) {
    const float last = next;
    if (!kChannels && index + 1 < c.count) next = lasts[index + 1];
    __syncthreads();
    const uint32_t q_at = base + stage * kStage, k_at = q_at + kTileBytes, u_at = k_at + kTileBytes;
    const uint32_t p_at = u_at + kSpan, w_at = p_at + kSpan;
    const float* const q_units = reinterpret_cast<const float*>(shared + c.stages * kStage + stage * kUnitBytes);
    const float* const k_units = q_units + kChunk;
    stage = stage + 1 < c.stages ? stage + 1 : 0;

    float y[8][4], had[kDelta ? 8 : 1][4];  // S^T Q^T, S^T W^T
    const float range = kScaled ? Range(state) : 1, back = 1 / range;
    Scan<T, kKeys> scan;
    scan.See(state, had, y, w_at, q_at, range, lane);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= kChannels ? k_units[kChunk + 8 * n + 2 * t + i % 2] : last;
    }
    if (kDelta) scan.Had(had);
    KeepOrder();
    uint32_t u[4][4], scaled[4][4];
    Two<T> odd = FromFloats<T>(0, 0);  // NaN if an update is not finite
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 tokens
      LoadTransposed(u[s], u_at + InTile(16 * s + lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Two<T> two;
        memcpy(&two, &u[s][i], 4);
        float2 numbers = ToFloats(two);
        if constexpr (kDelta) {
          const float (&tile)[4] = had[2 * s + i / 2];
          numbers.x -= tile[i % 2 * 2] * back, numbers.y -= tile[i % 2 * 2 + 1] * back;
          u[s][i] = Packed<T>(numbers.x, numbers.y);
        }
        memcpy(&two, &u[s][i], 4);
        odd = __hfma2(two, FromFloats<T>(0, 0), odd);
        const float2 units = *reinterpret_cast<const float2*>(k_units + 16 * s + i / 2 * 8 + 2 * t);
        scaled[s][i] = Packed<T>(numbers.x * units.x, numbers.y * units.y);
      }
    }
    scan.Seen(y);
    KeepOrder();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 units = *reinterpret_cast<const float2*>(q_units + 8 * n + 2 * t);
      y[n][0] *= units.x * back, y[n][1] *= units.y * back, y[n][2] *= units.x * back, y[n][3] *= units.y * back;
    }
    if (const float2 sum = ToFloats(odd); __any_sync(0xffffffffu, !(sum.x == 0 && sum.y == 0))) {
      SkipOdd<T>(u, y, lane);
    }
    scan.Add(state, y, u, scaled, p_at, k_at, lane);
    scan.Added(y);
    KeepOrder();
    const int tokens = c.tokens - (c.first + index) * kChunk - g;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t low = Transposed(Packed<T>(y[n][0], y[n][1])), high = Transposed(Packed<T>(y[n][2], y[n][3]));
      const bool is = 8 * n < tokens;
      if (is && column < c.value) *reinterpret_cast<uint32_t*>(to) = low;
      if (is && column + 8 < c.value) *reinterpret_cast<uint32_t*>(to + 8) = high;
      to += int64_t{8} * c.heads * c.value;
    }
    scan.Kept(state);
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
