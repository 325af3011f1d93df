// LinearAttention on CUDA.
//
// Bytes moved by a decode step: past and present once, which are nearly all of it; the floor is those bytes over the
// memory bandwidth. The columns of a state depend on no other column, so a block takes kColumns of them through all
// tokens with its part of the state in registers. A token waits for one barrier, since
//   S^T q = D^T q + u (k . q)   with D the decayed state, S = D + k u^T
// lets D^T k and D^T q be added up together (fused_recurrent of flash-linear-attention takes two sums, one after the
// other), and the next token's numbers are fetched meanwhile.
#include "cuda/common.cuh"

namespace mojo {
namespace {

constexpr int kWarps = 4;    // of a block
constexpr int kColumns = 8;  // of a warp: 32 bytes of each row, the least that the memory moves

// Params are the arguments of a kernel.
struct Params {
  const void* q;
  const void* k;
  const void* v;
  const float* past;
  const float* decay;
  const float* beta;
  void* y;
  float* present;
  float* states;  // of LongKeys: present, or scratch memory
  int64_t batch;
  int tokens, key, value, q_heads, k_heads, heads, y_heads, beta_heads, channels;
  int tiles, short_tiles;  // of a head's columns
  float scale, epsilon;
  bool l2_norm;
  bool vectors;  // 16 bytes of a state at a time
};

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

// Factor is e^x to little more than half a unit in the last place, as on the CPU: a factor is applied once for each
// token, so the error of expf would add up. It is 0 if e^x is subnormal; a NaN stays.
__device__ __forceinline__ float Factor(float x) {
  const float v = fmaxf(fminf(x, 89.69f), -87.33f);
  const float n = rintf(v * 0x1.715476p0f);
  // log 2 in two parts; the product with the first part is exact.
  const float r = fmaf(n, 0x1.bd0106p-13f, fmaf(n, -0x1.63p-1f, v));
  float q = 1.0f / 5040;
  q = fmaf(q, r, 1.0f / 720);
  q = fmaf(q, r, 1.0f / 120);
  q = fmaf(q, r, 1.0f / 24);
  q = fmaf(q, r, 1.0f / 6);
  q = fmaf(q, r, 0.5f);
  const float power = fmaf(r * r, q, r) + 1.0f;
  if (!(x >= -87.33f)) return x < 0 ? 0.0f : x;
  const int up = n > 0;  // 2^128 overflows float
  return power * (1 + up) * __int_as_float((static_cast<int>(n) - up + 127) << 23);
}

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

constexpr int kThreads = 128;                          // of a block of ShortKeys
constexpr int kShortColumns = 32;                      // of such a block: a line of memory of each row
constexpr int kGroups = kThreads * 4 / kShortColumns;  // of threads, each with every kGroups-th row of all columns

// Fetched is the part of a token that a thread fetches for its block: kEach numbers of q and k, and of decay if each
// row has one.
template <class T, int kEach, bool kByChannel>
struct Fetched {
  float q[kEach], k[kEach], decay[kByChannel ? kEach : 1];
  float v[4], beta = 1;

  __device__ __forceinline__ void Read(const Params& p, int64_t row, int query, int head, int column) {
    const T* qs = static_cast<const T*>(p.q) + (row * p.q_heads + query) * p.key;
    const T* ks = static_cast<const T*>(p.k) + (row * p.k_heads + head * int64_t{p.k_heads} / p.heads) * p.key;
    const T* vs = static_cast<const T*>(p.v) + (row * p.heads + head) * p.value;
    const float* decays = p.decay + (row * p.heads + head) * p.channels;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int r = threadIdx.x + kThreads * i;
      const bool there = r < p.key;
      q[i] = there ? ToFloat(qs[r]) : 0.0f;
      k[i] = there ? ToFloat(ks[r]) : 0.0f;
      if (kByChannel) decay[i] = there ? decays[r] : 0.0f;
    }
    if (!kByChannel) decay[0] = p.decay != nullptr ? decays[0] : 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] = column + c < p.value ? ToFloat(vs[column + c]) : 0.0f;
    if (p.beta != nullptr) beta = p.beta[row * p.beta_heads + (p.beta_heads == 1 ? 0 : head)];
  }
};

// Shared is the data of a token that the threads of a block share.
template <int kKeys>
struct Shared {
  float q[kKeys], k[kKeys], factor[kKeys];
  float sums[kThreads / 32][4];                                 // of each warp: q . q, k . k, k . q
  alignas(16) float products[kThreads / 32][2][kShortColumns];  // of each warp: D^T k and D^T q
};

// ShortKeys takes kShortColumns columns of a state of up to kGroups * kRows rows through all tokens.
//
// Registers: 128. Shared memory: two Shared, at most 8.5 KB.
template <class T, int kRows, bool kByChannel>
__global__ void __launch_bounds__(kThreads, kRows <= 8 ? 4 : 3) ShortKeys(const Params p) {
  constexpr int kKeys = kGroups * kRows, kEach = (kKeys + kThreads - 1) / kThreads, kWarpCount = kThreads / 32;
  __shared__ Shared<kEach * kThreads> shared[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = threadIdx.x / 8;
  const int tile = blockIdx.x % p.short_tiles, at = blockIdx.x / p.short_tiles;
  const int head = at % p.heads, each = p.y_heads / p.heads, query = head * each * p.q_heads / p.y_heads;
  const int column = tile * kShortColumns + lane % 8 * 4;
  const int64_t batch = at / p.heads, first = batch * p.tokens;
  const int64_t place = ((batch * p.heads + head) * p.key + group) * p.value + column;
  const auto load = [&](const float* from, int i, float (&to)[4]) {
    const bool there = from != nullptr && group + kGroups * i < p.key;
    from += place + int64_t{kGroups} * i * p.value;
    if (p.vectors) {
      const float4 v = there && column < p.value ? *reinterpret_cast<const float4*>(from) : make_float4(0, 0, 0, 0);
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) to[c] = there && column + c < p.value ? from[c] : 0.0f;
    }
  };
  // stage writes the fetched numbers of a token for the block, and its warp's sums.
  const auto stage = [&](const Fetched<T, kEach, kByChannel>& token, Shared<kEach * kThreads>* to) {
    float qq = 0, kk = 0, kq = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      to->q[threadIdx.x + kThreads * i] = token.q[i];
      to->k[threadIdx.x + kThreads * i] = token.k[i];
      if (kByChannel) to->factor[threadIdx.x + kThreads * i] = Factor(token.decay[i]);
      qq = fmaf(token.q[i], token.q[i], qq);
      kk = fmaf(token.k[i], token.k[i], kk);
      kq = fmaf(token.k[i], token.q[i], kq);
    }
    if (p.l2_norm) qq = WarpSum(qq), kk = WarpSum(kk);
    kq = WarpSum(kq);
    if (lane == 0) *reinterpret_cast<float4*>(to->sums[warp]) = make_float4(qq, kk, kq, 0);
  };

  WaitForPrevious();
  float state[kRows][4];
#pragma unroll
  for (int i = 0; i < kRows; ++i) load(p.past, i, state[i]);
  Fetched<T, kEach, kByChannel> now, next;
  if (p.tokens > 0) {
    now.Read(p, first, query, head, column);
    stage(now, &shared[0]);
  }
  __syncthreads();
  for (int t = 0; t < p.tokens; ++t) {
    Shared<kEach * kThreads>& s = shared[t % 2];
    if (t + 1 < p.tokens) next.Read(p, first + t + 1, query, head, column);
    float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarpCount; ++w) {
      const float4 more = *reinterpret_cast<const float4*>(s.sums[w]);
      sums.x += more.x, sums.y += more.y, sums.z += more.z;
    }
    const float q_unit = p.l2_norm ? 1 / sqrtf(sums.x + p.epsilon) : 1.0f;
    const float k_unit = p.l2_norm ? 1 / sqrtf(sums.y + p.epsilon) : 1.0f;
    const float factor = Factor(now.decay[0]);
    float k[kRows], products[8] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = group + kGroups * i;
      const float q = s.q[r] * q_unit;
      k[i] = s.k[r] * k_unit;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        state[i][c] *= kByChannel ? s.factor[r] : factor;
        products[c] = fmaf(state[i][c], k[i], products[c]);
        products[4 + c] = fmaf(state[i][c], q, products[4 + c]);
      }
    }
    // Over the four groups of a warp: a lane keeps the products of one kind, then two columns of them.
    const bool upper = lane & 16, odd = lane & 8;
    float two[2];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float sent = upper ? products[c] : products[4 + c], kept = upper ? products[4 + c] : products[c];
      products[c] = kept + __shfl_xor_sync(0xffffffffu, sent, 16);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float sent = odd ? products[c] : products[2 + c], kept = odd ? products[2 + c] : products[c];
      two[c] = kept + __shfl_xor_sync(0xffffffffu, sent, 8);
    }
    *reinterpret_cast<float2*>(&s.products[warp][upper][lane % 8 * 4 + (odd ? 2 : 0)]) = make_float2(two[0], two[1]);
    if (t + 1 < p.tokens) stage(next, &shared[(t + 1) % 2]);
    __syncthreads();
    const auto product = [&](int kind) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < kWarpCount; ++w) {
        const float4 more = *reinterpret_cast<const float4*>(&s.products[w][kind][lane % 8 * 4]);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
      }
      return sum;
    };
    float u[4];
    if (p.beta != nullptr) {
      const float4 had = product(0);
      u[0] = now.beta * (now.v[0] - had.x), u[1] = now.beta * (now.v[1] - had.y);
      u[2] = now.beta * (now.v[2] - had.z), u[3] = now.beta * (now.v[3] - had.w);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) u[c] = now.v[c];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state[i][c] = fmaf(k[i], u[c], state[i][c]);
    }
    if (group == 0) {
      const float4 seen = product(1);
      const float kq = sums.z * q_unit * k_unit;
      const float y[4] = {fmaf(kq, u[0], seen.x), fmaf(kq, u[1], seen.y), fmaf(kq, u[2], seen.z),
                          fmaf(kq, u[3], seen.w)};
      T* to = static_cast<T*>(p.y) + ((first + t) * p.y_heads + head * each) * p.value + column;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < p.value) to[c] = FromFloat<T>(y[c] * p.scale);
      }
    }
    // More queries of the same state: a block sums them one after the other.
    for (int e = 1; e < each; ++e) {
      const T* qs =
          static_cast<const T*>(p.q) + ((first + t) * p.q_heads + (head * each + e) * p.q_heads / p.y_heads) * p.key;
      float squares = 0, seen[4] = {};
      for (int r = lane; p.l2_norm && r < p.key; r += 32) squares = fmaf(ToFloat(qs[r]), ToFloat(qs[r]), squares);
      const float unit = p.l2_norm ? 1 / sqrtf(WarpSum(squares) + p.epsilon) : 1.0f;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int r = group + kGroups * i;
        const float q = r < p.key ? ToFloat(qs[r]) * unit : 0.0f;
#pragma unroll
        for (int c = 0; c < 4; ++c) seen[c] = fmaf(state[i][c], q, seen[c]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        seen[c] += __shfl_xor_sync(0xffffffffu, seen[c], 16);
        seen[c] += __shfl_xor_sync(0xffffffffu, seen[c], 8);
      }
      __syncthreads();
      if (lane < 8) {
        *reinterpret_cast<float4*>(&s.products[warp][1][lane * 4]) = make_float4(seen[0], seen[1], seen[2], seen[3]);
      }
      __syncthreads();
      if (group != 0) continue;
      const float4 all = product(1);
      const float y[4] = {all.x, all.y, all.z, all.w};
      T* to = static_cast<T*>(p.y) + ((first + t) * p.y_heads + head * each + e) * p.value + column;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < p.value) to[c] = FromFloat<T>(y[c] * p.scale);
      }
    }
    now = next;
  }
  if (p.present == nullptr || column >= p.value) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (group + kGroups * i >= p.key) continue;
    float* to = p.present + place + int64_t{kGroups} * i * p.value;
    if (p.vectors) {
      *reinterpret_cast<float4*>(to) = make_float4(state[i][0], state[i][1], state[i][2], state[i][3]);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < p.value) to[c] = state[i][c];
      }
    }
  }
}

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

constexpr int kMostKeys = 256;  // of ShortKeys

template <class T, int kRows>
cudaError_t RunShort(const Params& p, cudaStream_t stream) {
  const size_t blocks = static_cast<size_t>(p.batch) * p.heads * p.short_tiles;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(blocks)), block(kThreads);
  if (p.decay != nullptr && p.channels > 1) return Launch(ShortKeys<T, kRows, true>, grid, block, 0, stream, p);
  return Launch(ShortKeys<T, kRows, false>, grid, block, 0, stream, p);
}

template <class T>
cudaError_t RunType(const Params& p, cudaStream_t stream) {
  if (p.key <= kGroups * 4) return RunShort<T, 4>(p, stream);
  if (p.key <= kGroups * 8) return RunShort<T, 8>(p, stream);
  if (p.key <= kMostKeys) return RunShort<T, kMostKeys / kGroups>(p, stream);
  const size_t blocks = DivideUp(static_cast<size_t>(p.batch) * p.heads * p.tiles, kWarps);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return Launch(LongKeys<T>, dim3(static_cast<unsigned>(blocks)), dim3(32 * kWarps), 0, stream, p);
}

}  // namespace
}  // namespace mojo

size_t MojoLinearAttentionScratch(const MojoLinearAttentionArgs* args) {
  if (args->present != nullptr || args->key <= mojo::kMostKeys) return 0;
  return args->batch * args->heads * args->key * args->value * sizeof(float);
}

cudaError_t MojoCudaLinearAttention(const MojoLinearAttentionArgs* args, cudaStream_t stream) {
  if (args->batch == 0 || args->value == 0 || (args->tokens == 0 && args->present == nullptr)) return cudaSuccess;
  const size_t sizes[] = {args->batch * args->tokens, args->key, args->value, args->y_heads};
  for (const size_t size : sizes) {
    if (size > INT32_MAX) return cudaErrorInvalidValue;
  }
  float* states = args->present != nullptr ? args->present : static_cast<float*>(args->scratch);
  const mojo::Params p = {
      args->q,
      args->k,
      args->v,
      args->past,
      args->decay,
      args->beta,
      args->y,
      args->present,
      states,
      static_cast<int64_t>(args->batch),
      static_cast<int>(args->tokens),
      static_cast<int>(args->key),
      static_cast<int>(args->value),
      static_cast<int>(args->q_heads),
      static_cast<int>(args->k_heads),
      static_cast<int>(args->heads),
      static_cast<int>(args->y_heads),
      static_cast<int>(args->beta_heads),
      static_cast<int>(args->channels),
      static_cast<int>(mojo::DivideUp(args->value, mojo::kColumns)),
      static_cast<int>(mojo::DivideUp(args->value, mojo::kShortColumns)),
      args->scale,
      args->epsilon,
      args->l2_norm,
      args->value % mojo::kColumns == 0 && mojo::Aligned(args->past, 16) && mojo::Aligned(states, 16)};
  switch (args->type) {
    case kMojoFloat32: return mojo::RunType<float>(p, stream);
    case kMojoFloat16: return mojo::RunType<mojo::Half>(p, stream);
    case kMojoBFloat16: return mojo::RunType<mojo::BFloat>(p, stream);
  }
  return cudaErrorInvalidValue;
}
