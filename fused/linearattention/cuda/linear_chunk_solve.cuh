// PrepareChunks: the part of LinearAttention that only needs the tokens of a chunk. linear_chunks.cu says more.
#pragma once

#include "cuda/activation.cuh"
#include "linearattention/cuda/linear_chunk_tiles.cuh"

namespace mojo {
namespace {

// Channels are the sums of the decays of each channel, in shared memory: rows of so many numbers, of which lanes read
// pairs from different banks.
template <int kKeys>
constexpr int kChannelStep = kKeys + 2;

// SumChannels writes G of each channel.
template <int kKeys>
__device__ __forceinline__ void SumChannels(const Chunks& c, const Position& place, int head, float* sums) {
  const int channel = threadIdx.x;
  if (channel >= kKeys) return;
  const float* decay = c.decay + (place.row * c.heads + head) * c.key + channel;
  float sum = 0;
#pragma unroll 8
  for (int token = 0; token < kChunk; ++token) {
    float more = token < place.tokens && channel < c.key ? decay[int64_t{token} * c.heads * c.key] : 0.0f;
    sum += more < -100 ? -100 : more;  // as below
    sums[token * kChannelStep<kKeys> + channel] = sum;
  }
}

// Scaled multiplies the pair of numbers of an operand.
template <class T>
__device__ __forceinline__ uint32_t Scaled(uint32_t pair, float2 by) {
  Two<T> two;
  memcpy(&two, &pair, 4);
  const float2 v = ToFloats(two);
  return Packed<T>(v.x * by.x, v.y * by.y);
}

// MultiplyByChannels has the products of a warp's 16 rows of keys, and of queries, with the keys up to the diagonal,
// with D_ij of each channel. Between blocks of 16 tokens both operands are scaled, by exp(G_i - R) and exp(R - G_j),
// where R is G before the rows: factors of decays, which do not overflow. Within a block each product has its own
// factor.
template <class T, int kKeys>
__device__ __forceinline__ void MultiplyByChannels(float (&kk)[8][4], float (&qk)[8][4], const char* k_tile,
                                                   const char* q_tile, const float* sums, int warp, int lane) {
  constexpr int kStep = kChannelStep<kKeys>;
  const int g = lane / 4, t = lane % 4, first = 16 * warp;
  const uint32_t k_at = SharedAddress(k_tile), q_at = SharedAddress(q_tile);
  const auto sum_of = [&](int row, int channel) {
    return *reinterpret_cast<const float2*>(sums + row * kStep + channel);
  };
  const auto factor = [](float2 later, float2 earlier) {
    return make_float2(ExpOf<false>(later.x - earlier.x), ExpOf<false>(later.y - earlier.y));
  };
  if (warp > 0) {
#pragma unroll 1
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t left_k[4], left_q[4];
      LoadMatrices(left_k, Left(k_at, first, 16 * s, lane));
      LoadMatrices(left_q, Left(q_at, first, 16 * s, lane));
      float2 base[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) base[half] = sum_of(first - 1, 16 * s + 8 * half + 2 * t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 by = factor(sum_of(first + g + i % 2 * 8, 16 * s + i / 2 * 8 + 2 * t), base[i / 2]);
        left_k[i] = Scaled<T>(left_k[i], by), left_q[i] = Scaled<T>(left_q[i], by);
      }
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        if (n >= warp) break;
        uint32_t right[4];
        LoadMatrices(right, Straight(k_at, 16 * n, 16 * s, lane));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          right[i] =
              Scaled<T>(right[i], factor(base[i % 2], sum_of(16 * n + g + i / 2 * 8, 16 * s + i % 2 * 8 + 2 * t)));
        }
        Multiply<T>(kk[2 * n], left_k, right[0], right[1]);
        Multiply<T>(kk[2 * n + 1], left_k, right[2], right[3]);
        Multiply<T>(qk[2 * n], left_q, right[0], right[1]);
        Multiply<T>(qk[2 * n + 1], left_q, right[2], right[3]);
      }
    }
  }
  // The block on the diagonal: of its four parts of 8 x 8 tokens the one above the diagonal is left out.
  float own_k[2][4] = {}, own_q[2][4] = {};  // as kk[2 * warp + n]
  const auto pair_of = [&](const char* tile, int row, int channel) {
    Two<T> two;
    memcpy(&two, tile + InTile(row, channel / 8) + channel % 8 * 2, 4);
    return ToFloats(two);
  };
#pragma unroll 2
  for (int channel = 0; channel < kKeys; channel += 2) {
    float2 sum[2], k[2], q[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + g + 8 * half;
      sum[half] = sum_of(row, channel), k[half] = pair_of(k_tile, row, channel);
      q[half] = pair_of(q_tile, row, channel);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = first + 8 * n + 2 * t + i;
        const float2 earlier = sum_of(column, channel), other = pair_of(k_tile, column, channel);
#pragma unroll
        for (int half = n; half < 2; ++half) {
          const float2 by = factor(sum[half], earlier);
          const float2 both = make_float2(by.x * other.x, by.y * other.y);
          float &of_k = own_k[n][2 * half + i], &of_q = own_q[n][2 * half + i];
          of_k = fmaf(k[half].x, both.x, fmaf(k[half].y, both.y, of_k));
          of_q = fmaf(q[half].x, both.x, fmaf(q[half].y, both.y, of_q));
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {  // registers have no index that is not known
    if (n / 2 != warp) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) kk[n][i] = own_k[n % 2][i], qk[n][i] = own_q[n % 2][i];
  }
}

// ScaleByChannels stores exp(G) q and exp(G_64 - G) k, and replaces the tile of k by exp(G) k.
template <class T, int kKeys>
__device__ __forceinline__ void ScaleByChannels(const Chunks& c, int64_t chunk, char* k_tile, const char* q_tile,
                                                const float* sums) {
  constexpr int kPieces = kKeys / 8;
  for (int i = threadIdx.x; i < kChunk * kPieces; i += kThreads) {
    const int row = i / kPieces, channel = i % kPieces * 8;
    if (channel >= c.key) continue;
    const float *own = sums + row * kChannelStep<kKeys> + channel,
                *all = sums + (kChunk - 1) * kChannelStep<kKeys> + channel;
    char* const k_from = k_tile + InTile(row, channel / 8);
    const char* const q_from = q_tile + InTile(row, channel / 8);
    uint32_t k[4], q[4], rest[4];
    memcpy(k, k_from, 16), memcpy(q, q_from, 16);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 by = make_float2(ExpOf<false>(own[2 * j]), ExpOf<false>(own[2 * j + 1]));
      const float2 to =
          make_float2(ExpOf<false>(all[2 * j] - own[2 * j]), ExpOf<false>(all[2 * j + 1] - own[2 * j + 1]));
      rest[j] = Scaled<T>(k[j], to);
      q[j] = Scaled<T>(q[j], by), k[j] = Scaled<T>(k[j], by);
    }
    const int64_t at = (chunk * kChunk + row) * c.key + channel;
    memcpy(static_cast<T*>(c.q_scaled) + at, q, 16);
    memcpy(static_cast<T*>(c.k_scaled) + at, rest, 16);
    memcpy(k_from, k, 16);
  }
}

// kResident is how many blocks of PrepareChunks are to fit in a multiprocessor: as many as have shared memory there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kResident = 3;
#else
constexpr int kResident = 4;
#endif

// PrepareChunks computes a chunk of c.each heads in each block (of one head with beta); each warp has 16 rows of all
// matrices.
//
// Registers: 158. Shared memory: K, Q and later A in its place; with beta, V and a product; factors; G of channels.
template <class T, int kKeys, bool kDelta, bool kChannels>
__global__ void __launch_bounds__(kThreads, kChannels ? 2 : kResident) PrepareChunks(const Chunks c) {
  extern __shared__ __align__(1024) char shared[];
  constexpr int kTileBytes = kChunk * kKeys * 2;
  constexpr int kRoom = kDelta && kTileBytes < kSquareBytes ? kSquareBytes : kTileBytes;
  char* const q_tile = shared + kTileBytes;
  const uint32_t k_at = SharedAddress(shared), q_at = k_at + kTileBytes, v_at = q_at + kRoom;
  const int value_tiles = kDelta ? static_cast<int>(DivideUp(c.value, kBlock)) : 0;
  float* const a = reinterpret_cast<float*>(q_tile);
  float* const between = reinterpret_cast<float*>(q_tile + kRoom + value_tiles * kSpan);
  float* const sums = between + (kDelta ? kBetweenBytes / 4 : 0);  // G
  float *const q_units = sums + kChunk, *const k_units = q_units + kChunk;
  float *const betas = k_units + kChunk, *const w_units = betas + kChunk;
  float* const by_channel = w_units + kChunk;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int each = kDelta ? 1 : c.each, groups = c.heads / each;
  const int64_t at = blockIdx.x / groups;
  const int64_t first = at / c.count * c.heads + blockIdx.x % groups * each;
  const int index = static_cast<int>(at % c.count);
  const Position place(c, first, index);

  // gates writes the sums of a head's decays, and beta.
  const auto gates = [&](int head) {
    if (kChannels) {
      SumChannels<kKeys>(c, place, head, by_channel);
    } else if (warp == 0) {
      // e^-100 is 0 in float32 after the last rounding; less would cost the sums of later tokens their precision.
      float low = 0, high = 0;
      if (c.decay != nullptr) {
        const float* decay = c.decay + place.row * c.heads + head;
        if (lane < place.tokens) low = decay[int64_t{lane} * c.heads];
        if (lane + 32 < place.tokens) high = decay[int64_t{lane + 32} * c.heads];
        low = low < -100 ? -100 : low, high = high < -100 ? -100 : high;
      }
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const float more_low = __shfl_up_sync(0xffffffffu, low, step), more = __shfl_up_sync(0xffffffffu, high, step);
        if (lane >= step) low += more_low, high += more;
      }
      sums[lane] = low;
      sums[lane + 32] = high + __shfl_sync(0xffffffffu, low, 31);
    }
    if (kDelta && warp >= 2) {
      const int row = threadIdx.x - 64;
      const int64_t number = (place.row + row) * c.beta_heads + (c.beta_heads == 1 ? 0 : head);
      betas[row] = row < place.tokens ? c.beta[number] : 0;
    }
  };

  WaitForPrevious();
  LetNextStart();
  const T* ks = static_cast<const T*>(c.k) + (place.row * c.k_heads + place.key_head) * c.key;
  const T* qs = static_cast<const T*>(c.q) + (place.row * c.q_heads + place.query) * c.key;
  FetchRows<kKeys>(k_at, ks, int64_t{c.k_heads} * c.key, place.tokens, c.key);
  FetchRows<kKeys>(q_at, qs, int64_t{c.q_heads} * c.key, place.tokens, c.key);
  EndGroup();
  for (int i = 0; i < value_tiles; ++i) {
    const T* vs = static_cast<const T*>(c.v) + (place.row * c.heads + place.head) * c.value + i * kBlock;
    FetchRows<kBlock>(v_at + i * kSpan, vs, int64_t{c.heads} * c.value, place.tokens, c.value - i * kBlock);
  }
  EndGroup();
  gates(place.head);
  WaitForGroups<1>();
  __syncthreads();
  // A thread for each row of K and of Q.
  const int own = threadIdx.x % kChunk;
  float squares = 0;
  if (c.l2_norm) {
#pragma unroll 4
    for (int i = 0; i < kKeys / 8; ++i) {
      const char* from = (threadIdx.x < kChunk ? shared : q_tile) + InTile(own, i);
      float numbers[8];
      ToFloats(LoadPack<8>(reinterpret_cast<const T*>(from)), numbers);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares = fmaf(numbers[j], numbers[j], squares);
    }
  }
  const float unit = own >= place.tokens ? 0.0f : c.l2_norm ? 1 / sqrtf(squares + c.epsilon) : 1.0f;

  // The products of keys with keys, and of queries with keys, up to the diagonal.
  float kk[kDelta ? 8 : 1][4] = {}, qk[8][4] = {};
  if constexpr (kChannels) MultiplyByChannels<T, kKeys>(kk, qk, shared, q_tile, by_channel, warp, lane);
#pragma unroll
  for (int s = 0; s < (kChannels ? 0 : kKeys / 16); ++s) {
    uint32_t left_k[4], left_q[4];
    if (kDelta) LoadMatrices(left_k, Left(k_at, 16 * warp, 16 * s, lane));
    LoadMatrices(left_q, Left(q_at, 16 * warp, 16 * s, lane));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (n > warp) break;
      uint32_t right[4];
      LoadMatrices(right, Straight(k_at, 16 * n, 16 * s, lane));
      if constexpr (kDelta) {
        Multiply<T>(kk[2 * n], left_k, right[0], right[1]);
        Multiply<T>(kk[2 * n + 1], left_k, right[2], right[3]);
      }
      Multiply<T>(qk[2 * n], left_q, right[0], right[1]);
      Multiply<T>(qk[2 * n + 1], left_q, right[2], right[3]);
    }
  }
  // The rows of A of this warp hold its tiles of results on their way out, before A and after.
  char* const stage = q_tile + warp * (kDelta ? 16 * kStep * 4 : 2048);
  const int rows[2] = {16 * warp + g, 16 * warp + g + 8};
  for (int e = 0; e < each; ++e) {
    const int64_t chunk = (first + e) * c.count + index;
    if (threadIdx.x < kChunk) {
      k_units[own] = unit;
    } else {
      q_units[own] = unit * c.scale;
    }
    __syncthreads();
    // With a decay for each channel, q_scaled, k_scaled and the tile of k have what follows from the sums.
    const float all = kChannels ? 0 : sums[kChunk - 1], until = kChannels ? 0 : sums[own];
    if (threadIdx.x < kChunk) {
      c.k_unit[chunk * kChunk + own] = unit * expf(all - until);
      if (kDelta) w_units[own] = betas[own] * unit * expf(until);
    } else {
      c.q_unit[chunk * kChunk + own] = unit * c.scale * expf(until);
    }
    if constexpr (kChannels) {
      const float* const sum = by_channel + (kChunk - 1) * kChannelStep<kKeys>;
      if (threadIdx.x < c.key) c.last[chunk * c.key + threadIdx.x] = expf(sum[threadIdx.x]);
      ScaleByChannels<T, kKeys>(c, chunk, shared, q_tile, by_channel);
      __syncthreads();
    } else if (threadIdx.x == 0) {
      c.last[chunk] = expf(all);
    }
    float product[8][4];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int column = 8 * n + 2 * t;
      const float2 units = *reinterpret_cast<const float2*>(k_units + column);
      const float2 sum = kChannels ? make_float2(0, 0) : *reinterpret_cast<const float2*>(sums + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = rows[i / 2], j = column + i % 2;
        float factor = i % 2 ? units.y : units.x;
        if (!kChannels) factor *= __expf(sums[row] - (i % 2 ? sum.y : sum.x));
        product[n][i] = j <= row ? qk[n][i] * factor * q_units[row] : 0.0f;
        if constexpr (kDelta) kk[n][i] = j < row ? kk[n][i] * factor * k_units[row] * betas[row] : 0.0f;
      }
    }
    StoreTile(product, stage, static_cast<T*>(c.p) + (chunk * kChunk + 16 * warp) * kChunk, kChunk, kChunk, lane);
    if (e + 1 < each) {
      __syncthreads();
      gates(place.head + e + 1);
    }
  }
  if constexpr (kDelta) {
    const int64_t chunk = first * c.count + index;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 2 > warp) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(a + rows[half] * kStep + 8 * n + 2 * t) =
            make_float2(kk[n][2 * half], kk[n][2 * half + 1]);
      }
    }
    // Rows of A that are not finite become 0, since the products of Invert would bring them to earlier rows of T. They
    // and all later rows are NaN: so are the updates of these tokens.
    float odd = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) odd = fmaf(kk[n][i], 0.0f, odd);
    }
    int4* const found = reinterpret_cast<int4*>(q_units);  // for each warp, the first such row
    int finite = kChunk;
    if (__syncthreads_or(!(odd == 0))) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (n / 2 > warp) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (isfinite(kk[n][i])) continue;
          a[rows[i / 2] * kStep + 8 * n + 2 * t + i % 2] = 0;
          finite = min(finite, rows[i / 2]);
        }
      }
      finite = __reduce_min_sync(0xffffffffu, finite);
    }
    if (lane == 0) reinterpret_cast<int*>(found)[warp] = finite;
    __syncwarp();
    Invert(a, between, warp, lane);
    finite = min(min(found->x, found->y), min(found->z, found->w));
    if (finite < kChunk) {
      for (int i = threadIdx.x; i < kChunk * kChunk; i += kThreads) {
        if (i / kChunk >= finite) a[i / kChunk * kStep + i % kChunk] = NAN;
      }
      // Their factors may be NaN, and earlier rows of T have zeros for them.
      if (threadIdx.x < kChunk && own >= finite) betas[own] = 0, w_units[own] = 0;
      __syncthreads();
    }
    // T with the factors of its columns, as left operands.
    uint32_t for_w[4][4], for_u[4][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s > warp) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 16 * s + 2 * t + i / 2 * 8;
        const float2 two = *reinterpret_cast<const float2*>(a + rows[i % 2] * kStep + column);
        for_u[s][i] = Packed<T>(two.x * betas[column], two.y * betas[column + 1]);
        for_w[s][i] = Packed<T>(two.x * w_units[column], two.y * w_units[column + 1]);
      }
    }
    // keep stores a left operand in the rows of A that are behind the tile of results, or in the tile.
    const auto keep = [&](const uint32_t (&left)[4][4], int tile) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if (s > warp) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          memcpy(stage + tile * 2048 + ((g + i % 2 * 8) * kChunk + 16 * s + 2 * t + i / 2 * 8) * 2, &left[s][i], 4);
        }
      }
      __syncwarp();
    };
    WaitForGroups<0>();
    __syncthreads();
    keep(for_w, 1);  // not in registers until the end
    bool again = false;
    // multiply stores 64 columns of the product with a span of a tile.
    const auto multiply = [&](const uint32_t (&left)[4][4], uint32_t right_at, T* to, int step, int columns) {
      float sum[8][4] = {}, odd = 0;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if (s > warp) break;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          uint32_t right[4];
          LoadTransposed(right, Turned(right_at, 16 * n, 16 * s, lane));
          Multiply<T>(sum[2 * n], left[s], right[0], right[1]);
          Multiply<T>(sum[2 * n + 1], left[s], right[2], right[3]);
        }
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) odd = fmaf(sum[n][i], 0.0f, odd);
      }
      again |= __any_sync(0xffffffffu, !(odd == 0));
      StoreTile(sum, stage, to + (chunk * kChunk + 16 * warp) * step, step, columns, lane);
    };
#pragma unroll 1
    for (int i = 0; i * 64 < c.key; ++i) {
      multiply(for_w, k_at + i * kSpan, static_cast<T*>(c.w) + i * 64, c.key, c.key - i * 64);
    }
#pragma unroll 1
    for (int i = 0; i < value_tiles; ++i) {
      multiply(for_u, v_at + i * kSpan, static_cast<T*>(c.u) + i * kBlock, c.value, c.value - i * kBlock);
    }
    if (again) {
      __syncwarp();
      keep(for_u, 0);
      const T *const left_u = reinterpret_cast<const T*>(stage), *const left_w = left_u + 16 * kChunk;
      const int64_t row = chunk * kChunk + 16 * warp;
      T *const w = static_cast<T*>(c.w) + row * c.key, *const u = static_cast<T*>(c.u) + row * c.value;
      const char* const values = q_tile + kRoom;
      for (int i = 0; i * 64 < c.key; ++i) {
        MultiplyAgain(left_w, shared + i * kSpan, w + i * 64, c.key, c.key - i * 64);
      }
      for (int i = 0; i < value_tiles; ++i) {
        MultiplyAgain(left_u, values + i * kSpan, u + i * kBlock, c.value, c.value - i * kBlock);
      }
    }
  }
}

}  // namespace
}  // namespace mojo
