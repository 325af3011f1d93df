// LinearAttention for states of any number of rows: they stay in memory, and each warp takes some columns.
#pragma once

#include "linearattention/cuda/linear_attention.cuh"

namespace mojo {
namespace {

constexpr int kWarps = 4;    // of a block
constexpr int kColumns = 8;  // of a warp: 32 bytes of each row, the least that the memory moves

// Place is a warp's state and columns.
struct Place {
  int64_t batch;
  int head, first, lane;
  bool exists;

  __device__ __forceinline__ explicit Place(const Params& p) {
    int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
    lane = threadIdx.x % 32;
    exists = at < p.batch * p.heads * p.tiles;
    first = static_cast<int>(at % p.tiles) * kColumns;
    at /= p.tiles;
    head = static_cast<int>(at % p.heads);
    batch = at / p.heads;
  }
};

// SumAll adds up kCount numbers, a power of two up to 16, over a warp: lane l gets the sum of number l / (32 / kCount).
template <int kCount, int kStep = 16>
__device__ __forceinline__ float SumAll(float* v, int lane) {
  if constexpr (kCount == 1) {
    return GroupSum(v[0], 2 * kStep);
  } else {
    const bool upper = lane & kStep;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float sent = upper ? v[i] : v[i + kCount / 2], kept = upper ? v[i + kCount / 2] : v[i];
      v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, kStep);
    }
    return SumAll<kCount / 2, kStep / 2>(v, lane);
  }
}

// Token is the part of a token that a warp reads: in each lane, kRows numbers of q and k, and v of a column.
template <class T, int kRows>
struct Token {
  float q[kRows], k[kRows], factor[kRows];
  float v = 0, beta = 1;

  // Read loads it; rows from `from` on.
  __device__ __forceinline__ void Read(const Params& p, const Place& at, int64_t row, int query, int from) {
    const T* qs = static_cast<const T*>(p.q) + (row * p.q_heads + query) * p.key;
    const T* ks = static_cast<const T*>(p.k) + (row * p.k_heads + at.head * int64_t{p.k_heads} / p.heads) * p.key;
    const float* decay = p.decay + (row * p.heads + at.head) * p.channels;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = from + at.lane + 32 * i;
      const bool there = r < p.key;
      q[i] = there ? ToFloat(qs[r]) : 0.0f;
      k[i] = there ? ToFloat(ks[r]) : 0.0f;
      factor[i] = p.decay != nullptr && there ? decay[p.channels == 1 ? 0 : r] : 0.0f;
    }
    const int column = at.first + at.lane / 2 % kColumns;
    if (column < p.value) v = ToFloat(static_cast<const T*>(p.v)[(row * p.heads + at.head) * p.value + column]);
    if (p.beta != nullptr) beta = p.beta[row * p.beta_heads + (p.beta_heads == 1 ? 0 : at.head)];
  }

  // Lengths adds up the squares of q and k.
  __device__ __forceinline__ float2 Lengths() const {
    float2 sums = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sums.x = fmaf(q[i], q[i], sums.x);
      sums.y = fmaf(k[i], k[i], sums.y);
    }
    return sums;
  }

  // Finish normalizes q and k, whose squares add up to sums over the warp, and makes factors of logarithms.
  __device__ __forceinline__ void Finish(const Params& p, float2 sums) {
    const float q_unit = p.l2_norm ? 1 / sqrtf(sums.x + p.epsilon) : 1.0f;
    const float k_unit = p.l2_norm ? 1 / sqrtf(sums.y + p.epsilon) : 1.0f;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      q[i] *= q_unit;
      k[i] *= k_unit;
      factor[i] = Factor(factor[i]);
    }
  }
};

// Tile is a part of a state: kRows rows a lane of kColumns columns.
template <int kRows>
struct Tile {
  float at[kRows][kColumns];

  // Load reads rows from `from` on, or zeros without a state.
  __device__ __forceinline__ void Load(const Params& p, const Place& place, const float* states, int from) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = from + place.lane + 32 * i;
      const int64_t row = ((place.batch * p.heads + place.head) * p.key + r) * p.value + place.first;
      const bool there = states != nullptr && r < p.key;
      if (p.vectors) {
        const float4 zero = make_float4(0, 0, 0, 0);
        const float4 a = there ? *reinterpret_cast<const float4*>(states + row) : zero;
        const float4 b = there ? *reinterpret_cast<const float4*>(states + row + 4) : zero;
        at[i][0] = a.x, at[i][1] = a.y, at[i][2] = a.z, at[i][3] = a.w;
        at[i][4] = b.x, at[i][5] = b.y, at[i][6] = b.z, at[i][7] = b.w;
      } else {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) at[i][c] = there && place.first + c < p.value ? states[row + c] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void Store(const Params& p, const Place& place, float* states, int from) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = from + place.lane + 32 * i;
      const int64_t row = ((place.batch * p.heads + place.head) * p.key + r) * p.value + place.first;
      if (r >= p.key) continue;
      if (p.vectors) {
        *reinterpret_cast<float4*>(states + row) = make_float4(at[i][0], at[i][1], at[i][2], at[i][3]);
        *reinterpret_cast<float4*>(states + row + 4) = make_float4(at[i][4], at[i][5], at[i][6], at[i][7]);
      } else {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (place.first + c < p.value) states[row + c] = at[i][c];
        }
      }
    }
  }

  // Decay multiplies rows by their factors.
  __device__ __forceinline__ void Decay(const float (&factor)[kRows]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[i][c] *= factor[i];
    }
  }

  // AddProducts adds the products of the rows with x to sums.
  __device__ __forceinline__ void AddProducts(const float (&x)[kRows], float* sums) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] = fmaf(at[i][c], x[i], sums[c]);
    }
  }

  // Update adds k u^T; lane 2c has u of column c.
  __device__ __forceinline__ void Update(const float (&k)[kRows], float u) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float column = __shfl_sync(0xffffffffu, u, 2 * c);
#pragma unroll
      for (int i = 0; i < kRows; ++i) at[i][c] = fmaf(k[i], column, at[i][c]);
    }
  }
};

// Dot is k . q of a lane's rows.
template <int kRows>
__device__ __forceinline__ float Dot(const float (&k)[kRows], const float (&q)[kRows]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) sum = fmaf(k[i], q[i], sum);
  return sum;
}

// Results are a token's values after the reduction: lane 2c has u of column c, lane 16 + 2c its row of Y.
struct Results {
  float u, y;

  // sums is D^T k in the lower half of the warp and D^T q in the upper one, kq is k . q.
  template <class T, int kRows>
  __device__ __forceinline__ Results(const Params& p, const Token<T, kRows>& token, float sums, float kq, int lane) {
    u = p.beta != nullptr ? token.beta * (token.v - sums) : token.v;
    y = fmaf(kq, __shfl_sync(0xffffffffu, u, lane % 16), sums) * p.scale;
  }

  template <class T>
  __device__ __forceinline__ void Store(const Params& p, const Place& at, int64_t row, int head) const {
    const int column = at.first + at.lane / 2 % kColumns;
    if (at.lane < 16 || at.lane % 2 != 0 || column >= p.value) return;
    static_cast<T*>(p.y)[(row * p.y_heads + head) * p.value + column] = FromFloat<T>(y);
  }
};

// LongKeys handles states of any number of rows: for every token it loads and stores them, kRows * 32 rows at a time.
//
// Registers: 168. No shared memory.
template <class T>
__global__ void __launch_bounds__(32 * kWarps) LongKeys(const Params p) {
  constexpr int kRows = 4;
  WaitForPrevious();
  const Place at(p);
  if (!at.exists) return;
  const int each = p.y_heads / p.heads;
  Tile<kRows> state;
  for (int from = 0; from < p.key; from += 32 * kRows) {
    state.Load(p, at, p.past, from);
    state.Store(p, at, p.states, from);
  }
  for (int t = 0; t < p.tokens; ++t) {
    const int64_t row = at.batch * p.tokens + t;
    for (int e = 0; e < each; ++e) {
      const int query = (at.head * each + e) * p.q_heads / p.y_heads;
      Token<T, kRows> token;
      float2 lengths = make_float2(0, 0);
      for (int from = 0; p.l2_norm && from < p.key; from += 32 * kRows) {
        token.Read(p, at, row, query, from);
        const float2 more = token.Lengths();
        lengths.x += more.x, lengths.y += more.y;
      }
      lengths = make_float2(WarpSum(lengths.x), WarpSum(lengths.y));
      float sums[2 * kColumns] = {};
      float kq = 0;
      for (int from = 0; from < p.key; from += 32 * kRows) {
        token.Read(p, at, row, query, from);
        token.Finish(p, lengths);
        state.Load(p, at, p.states, from);
        if (e == 0 && p.decay != nullptr) {
          state.Decay(token.factor);
          state.Store(p, at, p.states, from);
        }
        if (e == 0 && p.beta != nullptr) state.AddProducts(token.k, sums);
        state.AddProducts(token.q, sums + kColumns);
        if (e == 0) kq += Dot(token.k, token.q);
      }
      const Results results(p, token, SumAll<2 * kColumns>(sums, at.lane), WarpSum(kq), at.lane);
      results.Store<T>(p, at, row, at.head * each + e);
      for (int from = 0; e == 0 && from < p.key; from += 32 * kRows) {
        token.Read(p, at, row, query, from);
        token.Finish(p, lengths);
        state.Load(p, at, p.states, from);
        state.Update(token.k, results.u);
        state.Store(p, at, p.states, from);
      }
    }
  }
}

}  // namespace
}  // namespace mojo
