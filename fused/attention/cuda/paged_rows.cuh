// A warp of AttendFew multiplies keys and values of a pool by the rows of a tile. As in attention_rows.cuh, keys and
// values are the left operand and rows the right one. Codes become operands in registers: scores are multiplied by the
// scales of keys, and weights by those of values.
#pragma once

#include <type_traits>

#include "attention/cuda/paged_codes.cuh"
#include "attention/cuda/paged_stage.cuh"

namespace mojo {
namespace paged {

// PoolRows has keys lane / 4 and lane / 4 + 8 of each 16 keys, and rows lane % 4 * 2 and the next one.
template <class T, class C, int kWidth, int kValues>
struct PoolRows {
  typedef PoolStage<C, kWidth, kValues> S;
  static constexpr int kDeep = kWidth / 16, kColumns = kValues / 16, kTiles = S::kKeys / 16;
  // Weights of float16 are relative to the greatest scale of values so far: small ones would be lost.
  static constexpr bool kRelative = kIsCode<C> && std::is_same<T, Half>::value;
  const Params& p;
  uint32_t query[kDeep][2];
  float total[kColumns][4];
  float most[2], sum[2], greatest_scale;
  Span seen[2];

  __device__ __forceinline__ explicit PoolRows(const Params& p) : p(p) {}

  // Begin reads the queries. Of the sequence's count rows, the tile's begin at first.
  __device__ __forceinline__ void Begin(const Sequence& s, int key_head, int first, int count) {
    const int lane = threadIdx.x % 32, row = first + lane / 4;
    const bool has = row < count;
    const int token = has ? row * p.by_group >> 16 : 0, head = has ? HeadOf(p, key_head, row - token * p.group) : 0;
    const T* const q = static_cast<const T*>(p.q) + (static_cast<size_t>(s.token + token) * p.heads + head) * p.width;
#pragma unroll
    for (int d = 0; d < kDeep; ++d) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // A lane has four codes in a row, so that its channels of an operand are in a row too.
        const int at = d * 16 + (kIsCode<C> ? lane % 4 * 4 + half * 2 : half * 8 + lane % 4 * 2);
        query[d][half] = has && at < static_cast<int>(p.width) ? *reinterpret_cast<const uint32_t*>(q + at) : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = first + lane % 4 * 2 + i;
      seen[i] = own < count ? SeenBy(p, s, own * p.by_group >> 16) : Span{0, 0};
    }
  }

  // Clear begins a leaf.
  __device__ __forceinline__ void Clear() {
    greatest_scale = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) most[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int k = 0; k < 4; ++k) total[c][k] = 0;
    }
  }

  // Products adds the products of a stage's keys and all rows. A multiplication waits for the one before with the same
  // sums, so that one tile has two of them.
  __device__ __forceinline__ void Products(float (&score)[kTiles][4], uint32_t keys) const {
    const int lane = threadIdx.x % 32;
    const int at = PieceAt<S::kKeyPieces>(lane % 16, lane / 16);
    float other[4] = {};
#pragma unroll
    for (int d = 0; d < kDeep; d += 2) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint32_t tile = keys + t * 16 * S::kKeyPieces * 16;
        uint32_t left[4], right[4];
        if constexpr (kIsCode<C>) {
          uint32_t codes[4];
          LoadMatrices(codes, tile + (at ^ d * 16));
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            left[k] = Pairs<T, C>::template Get<0, 1>(codes[k]);
            left[2 + k] = Pairs<T, C>::template Get<2, 3>(codes[k]);
            right[k] = Pairs<T, C>::template Get<0, 1>(codes[2 + k]);
            right[2 + k] = Pairs<T, C>::template Get<2, 3>(codes[2 + k]);
          }
        } else {
          LoadMatrices(left, tile + (at ^ d * 32));
          LoadMatrices(right, tile + (at ^ (d + 1) * 32));
        }
        Multiply<T>(score[t], left, query[d][0], query[d][1]);
        Multiply<T>(kTiles == 1 ? other : score[t], right, query[d + 1][0], query[d + 1][1]);
      }
    }
    if constexpr (kTiles == 1) {
#pragma unroll
      for (int k = 0; k < 4; ++k) score[0][k] += other[k];
    }
  }

  // AddValues adds 16 values times their weights.
  __device__ __forceinline__ void AddValues(uint32_t first, uint32_t second, uint32_t values) {
    const int lane = threadIdx.x % 32;
    if constexpr (kIsCode<C>) {
      const int at = PieceAt<S::kValuePieces>(lane % 16, lane / 16);
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t codes[4];
        LoadTransposed(codes, values + (at ^ c * 16));
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          // A word has two channels of two keys.
          const uint32_t left[4] = {
              Pairs<T, C>::template Get<0, 2>(codes[2 * k]), Pairs<T, C>::template Get<1, 3>(codes[2 * k]),
              Pairs<T, C>::template Get<0, 2>(codes[2 * k + 1]), Pairs<T, C>::template Get<1, 3>(codes[2 * k + 1])};
          Multiply<T>(total[c + k], left, first, second);
        }
      }
    } else {
      const int at = PieceAt<S::kValuePieces>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        uint32_t left[4];
        LoadTransposed(left, values + (at ^ c * 32));
        Multiply<T>(total[c], left, first, second);
      }
    }
  }

  // MakeScores turns products of queries and keys into scores. It asks once whether they are capped, so that all are
  // computed side by side.
  __device__ __forceinline__ void MakeScores(float (&score)[kTiles][4], const float* scales) const {
    const bool capped = p.softcap != 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& s = score[t][k];
        if constexpr (kIsCode<C>) s *= scales[t * 16 + k / 2 * 8 + threadIdx.x % 32 / 4] * Pairs<T, C>::kFactor;
        if (!capped) s *= p.scale * kLog2E;
      }
    }
    if (!capped) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int k = 0; k < 4; ++k) score[t][k] = ScoreOf<T>(p, score[t][k]);
    }
  }

  // Add adds the keys of a stage from key on.
  __device__ __forceinline__ void Add(const char* stage, int key) {
    const int lane = threadIdx.x % 32;
    const float* const scales = reinterpret_cast<const float*>(stage + S::kScalesAt);
    const uint32_t keys = SharedAddress(stage), values = keys + S::kValuesAt;
    float score[kTiles][4] = {};
    Products(score, keys);
    float again = 1, inverse = 1;
    bool less = false;
    if constexpr (kRelative) {
      const float greatest = fmaxf(greatest_scale, GroupMax(scales[S::kKeys + lane % S::kKeys], 32));
      less = greatest > greatest_scale;
      if (less) again = greatest_scale / greatest;
      greatest_scale = greatest;
      inverse = greatest > 0 ? 1 / greatest : 1;
    }
    MakeScores(score, scales);
    // Both rows advance together, so that the instructions of one fill the waits of the other.
    float by[2], greatest[2] = {most[0], most[1]};
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& s = score[t][k];
        if (!seen[k % 2].Has(key + t * 16 + k / 2 * 8 + lane / 4)) s = -INFINITY;
        greatest[k % 2] = fmaxf(greatest[k % 2], s);
      }
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) greatest[i] = fmaxf(greatest[i], __shfl_xor_sync(0xffffffffu, greatest[i], step));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float base = Finite(greatest[i]), kept = PowerOfTwo(most[i] - base);
      by[i] = kept * again;
      less = less || greatest[i] > most[i];
      most[i] = greatest[i];
      float added = 0;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = score[t][j * 2 + i];
          s = PowerOfTwo(s - base);
          added += s;
          if constexpr (kIsCode<C>) s *= scales[S::kKeys + t * 16 + j * 8 + lane / 4] * inverse;
        }
      }
      sum[i] = sum[i] * kept + added;
    }
    if (__any_sync(0xffffffffu, less)) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int k = 0; k < 4; ++k) total[c][k] *= by[k % 2];
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      AddValues(Transposed(Packed<T>(score[t][0], score[t][1])), Transposed(Packed<T>(score[t][2], score[t][3])),
                values + t * 16 * S::kValuePieces * 16);
    }
  }

  // SumAt is the place of a channel of a row in the sums that Store writes: the one of the given eight channels with
  // that rest. Eights are swizzled so that writing lanes are in different banks.
  static __device__ __forceinline__ int SumAt(int row, int eight, int rest) {
    return row * kValues + (eight / 4 * 4 + (eight % 4 ^ row / 2 % 4)) * 8 + rest;
  }

  // Store writes the leaf's sums, greatest scores and sums of weights.
  __device__ __forceinline__ void Store(float* to, float2* state) {
    const int lane = threadIdx.x % 32;
    const float factor = kIsCode<C> ? Pairs<T, C>::kFactor * (kRelative ? greatest_scale : 1) : 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane % 4 * 2 + i;
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
      if (lane < 4) state[row] = make_float2(most[i], sum[i]);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if constexpr (kIsCode<C>) {
          *reinterpret_cast<float2*>(to + SumAt(row, c * 2 + lane / 16, lane / 4 % 4 * 2)) =
              make_float2(total[c][i] * factor, total[c][2 + i] * factor);
        } else {
          to[SumAt(row, c * 2, lane / 4)] = total[c][i];
          to[SumAt(row, c * 2 + 1, lane / 4)] = total[c][2 + i];
        }
      }
    }
  }
};

}  // namespace paged
}  // namespace mojo
