// A warp of split attention multiplies its keys and values by the rows of its row tile: 16 bit numbers by mma.sync,
// float32 by fused multiply-adds.
//
// Keys and values are the left operand (M) and rows the right one (N = 8), so that few rows waste little of the tensor
// cores. A warp's sums of values are [channels, rows].
#pragma once

#include "attention/cuda/attention_join.cuh"

namespace mojo {

// MmaRows has keys lane / 4 and lane / 4 + 8 of each tile of a stage, and rows lane % 4 * 2 and the next one.
template <class T, int kWidth>
struct MmaRows {
  static constexpr int kBytes = 0;  // of shared memory for a block
  static constexpr int kDeep = kWidth / 16, kTiles = Stage<T, kWidth>::kKeys / kSplitKeys;
  uint32_t query[kDeep][2];
  float total[kDeep][4] = {};
  float most[2], sum[2] = {};
  Span seen[2];
  const float* bias[2];
  bool valid[kTiles][2];

  // Begin loads the rows; See needs the length.
  __device__ __forceinline__ void Begin(const MojoAttentionArgs& a, const Part& part, char*) {
    const int lane = threadIdx.x % 32;
    const bool has = part.first_row + lane / 4 < part.rows;
    const T* const q = static_cast<const T*>(a.q) + (has ? part.At(a, a.q_steps, lane / 4) : 0);
#pragma unroll
    for (int d = 0; d < kDeep; ++d) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = d * 16 + half * 8 + lane % 4 * 2;
        query[d][half] = has && at < a.width ? *reinterpret_cast<const uint32_t*>(q + at) : 0;
      }
    }
  }
  __device__ __forceinline__ void See(const MojoAttentionArgs& a, const Part& part) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = lane % 4 * 2 + i;
      const bool is = part.first_row + own < part.rows;
      most[i] = -INFINITY;
      seen[i] = is ? Seen(a, part.p, part.Query(a, own)) : Span{0, 0};
      bias[i] = a.bias != nullptr && is ? BiasOf(a, part.p, part.HeadOf(a, own), part.Query(a, own)) : nullptr;
    }
  }

  // KeyOf is the number of the lane's key in a stage that starts at key.
  static __device__ __forceinline__ int KeyOf(int key, int tile, int j) {
    return key + tile * kSplitKeys + j * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
  }

  // Ask loads the other inputs of the keys while the keys are in flight.
  __device__ __forceinline__ void Ask(const MojoAttentionArgs& a, const Part& part, int key) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = KeyOf(key, t, j);
        valid[t][j] = at < part.p.length && Valid(a, part.p, at);
      }
    }
  }

  __device__ __forceinline__ void Add(const MojoAttentionArgs& a, const Part&, const char* stage, int key) {
    typedef Stage<T, kWidth> S;
    constexpr int kTileBytes = kSplitKeys * kWidth * sizeof(T);
    const int lane = threadIdx.x % 32;
    const uint32_t keys = SharedAddress(stage), values = keys + S::kTensorBytes;
    float score[kTiles][4] = {};
    const int key_at = S::At(lane % 16, lane / 16);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float other[4] = {};  // two sums, since each multiplication waits for the one before it
#pragma unroll
      for (int d = 0; d < kDeep; d += 2) {
        uint32_t left[4], right[4];
        LoadMatrices(left, keys + t * kTileBytes + (key_at ^ d * 32));
        LoadMatrices(right, keys + t * kTileBytes + (key_at ^ (d + 1) * 32));
        Multiply<T>(score[t], left, query[d][0], query[d][1]);
        Multiply<T>(other, right, query[d + 1][0], query[d + 1][1]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) score[t][n] += other[n];
    }
    float by[2];
    bool less = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float greatest = -INFINITY;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = score[t][j * 2 + i];
          const int at = KeyOf(key, t, j);
          if (valid[t][j] && seen[i].Has(at)) {
            s = Score<T>(a, s, bias[i] == nullptr ? 0 : BiasAt(a, bias[i], at));
          } else {
            s = -INFINITY;
          }
          greatest = fmaxf(greatest, s);
        }
      }
#pragma unroll
      for (int step = 4; step < 32; step *= 2) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
      greatest = fmaxf(greatest, most[i]);
      const float base = Finite(greatest);
      by[i] = PowerOfTwo(most[i] - base);
      less = less || greatest > most[i];
      most[i] = greatest;
      float added = 0;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        score[t][i] = PowerOfTwo(score[t][i] - base);
        score[t][2 + i] = PowerOfTwo(score[t][2 + i] - base);
        added += score[t][i] + score[t][2 + i];
      }
      sum[i] = sum[i] * by[i] + added;
    }
    if (__any_sync(0xffffffffu, less)) {
#pragma unroll
      for (int c = 0; c < kDeep; ++c) {
#pragma unroll
        for (int n = 0; n < 4; ++n) total[c][n] *= by[n % 2];
      }
    }
    const int value_at = S::At(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const uint32_t first = Transposed(Packed<T>(score[t][0], score[t][1]));
      const uint32_t second = Transposed(Packed<T>(score[t][2], score[t][3]));
#pragma unroll
      for (int c = 0; c < kDeep; ++c) {
        uint32_t left[4];
        LoadTransposed(left, values + t * kTileBytes + (value_at ^ c * 32));
        Multiply<T>(total[c], left, first, second);
      }
    }
  }

  // Store writes the warp's results: rows of kSumPitch, greatest scores and sums of weights.
  __device__ __forceinline__ void Store(float* to, float2* to_state) {
    const int lane = threadIdx.x % 32, row = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
      if (lane < 4) to_state[row + i] = make_float2(most[i], sum[i]);
#pragma unroll
      for (int c = 0; c < kDeep; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          to[(row + i) * kSumPitch<kWidth> + c * 16 + half * 8 + lane / 4] = total[c][half * 2 + i];
        }
      }
    }
  }
};

// FloatRows has key lane % 16 of a stage for scores, whose channels two lanes share, and kOwn channels of values.
template <int kWidth>
struct FloatRows {
  static constexpr int kOwn = kWidth / 32;
  static constexpr int kWeightBytes = kSplitKeys * kSplitRows * 4;
  static constexpr int kBytes = kSplitRows * kWidth * 4 + kMostSplitWarps * kWeightBytes + kSplitRows * sizeof(Span);
  const float* query;  // [kSplitRows, kWidth], of the block
  float* weight;       // [kSplitKeys, kSplitRows], of the warp
  Span* seen;          // [kSplitRows], of the block
  int rows;
  float total[kSplitRows][kOwn] = {};
  float most[kSplitRows], sum[kSplitRows] = {};
  bool valid;

  __device__ __forceinline__ void Begin(const MojoAttentionArgs& a, const Part& part, char* memory) {
    float* const q = reinterpret_cast<float*>(memory);
    query = q;
    weight = q + kSplitRows * kWidth + threadIdx.x / 32 * (kSplitKeys * kSplitRows);
    seen = reinterpret_cast<Span*>(memory + kSplitRows * kWidth * 4 + kMostSplitWarps * kWeightBytes);
    rows = min(kSplitRows, part.rows - part.first_row);
    for (int i = threadIdx.x; i < rows * kWidth; i += blockDim.x) {
      const int row = i / kWidth, d = i % kWidth;
      q[i] = d < a.width ? static_cast<const float*>(a.q)[part.At(a, a.q_steps, row) + d] : 0;
    }
  }
  __device__ __forceinline__ void See(const MojoAttentionArgs& a, const Part& part) {
    if (threadIdx.x < rows) seen[threadIdx.x] = Seen(a, part.p, part.Query(a, threadIdx.x));
#pragma unroll
    for (int r = 0; r < kSplitRows; ++r) most[r] = -INFINITY;
    __syncthreads();
  }

  __device__ __forceinline__ void Ask(const MojoAttentionArgs& a, const Part& part, int key) {
    const int at = key + static_cast<int>(threadIdx.x) % kSplitKeys;
    valid = at < part.p.length && Valid(a, part.p, at);
  }

  __device__ __forceinline__ void Add(const MojoAttentionArgs& a, const Part& part, const char* stage, int key) {
    typedef Stage<float, kWidth> S;
    const int lane = threadIdx.x % 32, own = lane % kSplitKeys;
    float score[kSplitRows] = {};
#pragma unroll 4
    for (int piece = lane / kSplitKeys; piece < S::kPieces; piece += 2) {
      const float4 k = *reinterpret_cast<const float4*>(stage + S::At(own, piece));
#pragma unroll
      for (int r = 0; r < kSplitRows; ++r) {
        if (r >= rows) break;
        const float4 q = *reinterpret_cast<const float4*>(query + r * kWidth + piece * 4);
        score[r] += q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
      }
    }
    float by[kSplitRows];
#pragma unroll
    for (int r = 0; r < kSplitRows; ++r) {
      if (r >= rows) break;
      float s = score[r] + __shfl_xor_sync(0xffffffffu, score[r], kSplitKeys);
      if (valid && seen[r].Has(key + own)) {
        s = Score<float>(
            a, s, a.bias == nullptr ? 0 : BiasAt(a, BiasOf(a, part.p, part.HeadOf(a, r), part.Query(a, r)), key + own));
      } else {
        s = -INFINITY;
      }
      const float greatest = fmaxf(most[r], GroupMax(s, kSplitKeys)), base = Finite(greatest);
      by[r] = PowerOfTwo(most[r] - base);
      most[r] = greatest;
      s = PowerOfTwo(s - base);
      sum[r] = sum[r] * by[r] + s;
      if (lane < kSplitKeys) weight[own * kSplitRows + r] = s;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kSplitRows; ++r) {
      if (r >= rows) break;
#pragma unroll
      for (int c = 0; c < kOwn; ++c) total[r][c] *= by[r];
    }
#pragma unroll 2
    for (int j = 0; j < kSplitKeys; ++j) {
      const char* const row = stage + S::kTensorBytes;
      float v[kOwn];
      if constexpr (kOwn == 2) {
        *reinterpret_cast<float2*>(v) = *reinterpret_cast<const float2*>(row + S::At(j, lane / 2) + lane % 2 * 8);
      } else {
#pragma unroll
        for (int c = 0; c < kOwn; c += 4) {
          *reinterpret_cast<float4*>(v + c) = *reinterpret_cast<const float4*>(row + S::At(j, lane + c * 8));
        }
      }
#pragma unroll
      for (int r = 0; r < kSplitRows; ++r) {
        if (r >= rows) break;
#pragma unroll
        for (int c = 0; c < kOwn; ++c) total[r][c] += weight[j * kSplitRows + r] * v[c];
      }
    }
  }

  __device__ __forceinline__ void Store(float* to, float2* to_state) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kSplitRows; ++r) {
      if (r >= rows) break;
      const float all = GroupSum(sum[r], kSplitKeys);
      if (lane == 0) to_state[r] = make_float2(most[r], all);
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
        to[r * kSumPitch<kWidth> + (kOwn == 2 ? lane * 2 + c : c / 4 * 128 + lane * 4 + c % 4)] = total[r][c];
      }
    }
  }
};

}  // namespace mojo
