// The combination of split attention: partial results of warps become rows of y. A block combines its warps, the blocks
// of a cluster combine theirs, each for some rows and in its shared memory, and the last cluster of a row tile combines
// all clusters, in their order, through scratch memory. Results do not depend on which cluster is last.
#pragma once

#include "attention/cuda/attention_split.cuh"
#include "cuda/cluster.cuh"

namespace mojo {

// The lowest bits of a counter count the clusters of a row tile that have finished; the other bits are the launch's
// tag. Scratch memory may hold anything before: a number with another tag counts as 0.
constexpr int kTagShift = 16;

// BeginCount turns the counter into this launch's.
__device__ __forceinline__ void BeginCount(unsigned long long* at, unsigned long long tag) {
  const unsigned long long found = *static_cast<volatile unsigned long long*>(at);
  if (found >> kTagShift != tag) atomicCAS(at, found, tag << kTagShift);
}

// CountsLast counts a block, and reports whether it is the last of count.
__device__ __forceinline__ bool CountsLast(unsigned long long* at, unsigned long long tag, int count) {
  const unsigned long long before = atomicAdd(at, 1ull);
  const bool last = static_cast<int>(before & ((1ull << kTagShift) - 1)) == count - 1;
  if (last) *static_cast<volatile unsigned long long*>(at) = tag << kTagShift;
  return last;
}

// The pitch of a warp's totals in shared memory, so that writing lanes have no bank conflicts.
template <int kWidth>
constexpr int kSumPitch = kWidth + 4;

__device__ __forceinline__ void Add(float4* total, float by, float4 v) {
  total->x += by * v.x, total->y += by * v.y, total->z += by * v.z, total->w += by * v.w;
}

// Joined is the combined result of a row's parts: four channels, the greatest score, the sum of weights.
struct Joined {
  float4 total = make_float4(0, 0, 0, 0);
  float most = -INFINITY, sum = 0;

  // Join adds count parts with these strides between their channels and states.
  __device__ __forceinline__ void Join(const float* from, size_t apart, const float2* state, int states_apart,
                                       int count) {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int n = 0; n < count; n += kAtOnce) {
      float4 v[kAtOnce];
      float2 s[kAtOnce];
      float greatest = most;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        v[i] = make_float4(0, 0, 0, 0);
        s[i] = make_float2(-INFINITY, 0);
        if (n + i < count) {
          v[i] = *reinterpret_cast<const float4*>(from + (n + i) * apart);
          s[i] = state[(n + i) * states_apart];
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) greatest = fmaxf(greatest, s[i].x);
      const float base = Finite(greatest), by = PowerOfTwo(most - base);
      total.x *= by, total.y *= by, total.z *= by, total.w *= by;
      sum *= by;
      most = greatest;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float v_by = PowerOfTwo(s[i].x - base);
        Add(&total, v_by, v[i]);
        sum += s[i].y * v_by;
      }
    }
  }
  __device__ __forceinline__ void JoinSink(float sink) {
    const float greatest = fmaxf(most, sink), by = PowerOfTwo(most - greatest);
    total.x *= by, total.y *= by, total.z *= by, total.w *= by;
    sum = sum * by + PowerOfTwo(sink - greatest);
    most = greatest;
  }
};

// StoreRow writes four channels of a row of y.
template <class T>
__device__ __forceinline__ void StoreRow(const MojoAttentionArgs& a, const Part& part, int row, int channel,
                                         Joined joined) {
  const float sink = SinkScore(a.sink, part.HeadOf(a, row));
  if (sink != -INFINITY) joined.JoinSink(sink);
  if (joined.sum == 0) {
    joined.sum = 1;
    joined.total = make_float4(0, 0, 0, 0);
    if (a.empty_mean && part.p.length > 0) {
      const Keys<T> values = ValuesOf<T>(a, part.p);
#pragma unroll 1
      for (int j = 0; j < part.p.length; ++j) {
        float v[4];
        ToFloats(LoadPack<4>(values.Row(j) + channel), v);
        Add(&joined.total, 1, make_float4(v[0], v[1], v[2], v[3]));
      }
      joined.sum = part.p.length;
    }
  }
  const float4 total = joined.total;
  const float by = __fdividef(1, joined.sum), v[4] = {total.x * by, total.y * by, total.z * by, total.w * by};
  StorePack(static_cast<T*>(a.y) + part.At(a, a.y_steps, row) + channel, PackFloats<T>(v));
}

// JoinPlace is the memory in which the blocks of a cluster put their parts of this block's rows.
template <int kWidth>
struct JoinPlace {
  float total[kSplitRows * kWidth];
  float2 state[kSplitRows];
};

// Finish writes rows of y from the totals of the row tile's warps. memory has rows of kSumPitch for each warp, step
// floats apart; warp_state is [warps, kSplitRows].
template <class T, int kWidth>
__device__ __forceinline__ void Finish(const MojoAttentionArgs& a, const SplitWork& work, const Part& part,
                                       const float* memory, int step, const float2* warp_state, JoinPlace<kWidth>* join,
                                       const ByteCount* arrived) {
  constexpr int kQuads = kWidth / 4;
  __shared__ bool last;
  const int rows = min(kSplitRows, part.rows - part.first_row), value_width = static_cast<int>(a.value_width);
  const int bits = work.cluster_bits, own = kSplitRows >> bits;  // rows that a block adds up
  const int number = part.split >> bits, rank = part.split - (number << bits), first = rank * own;
  // Blocks of the cluster, and clusters, that work.
  int count = min(1 << bits, part.used - (number << bits));
  const int used = (part.used + (1 << bits) - 1) >> bits;
  if (bits > 0) {
    WaitForCluster();
    const int bytes = count * max(0, min(own, rows - first)) * (value_width * 4 + 8);
    if (threadIdx.x == 0) ExpectBytes(arrived, bytes);
  }
  __syncthreads();
  if (part.split < part.used) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * kQuads; i += blockDim.x) {
      const int r = i / kQuads, channel = i % kQuads * 4;
      if (channel >= value_width) continue;
      Joined joined;
      joined.Join(memory + r * kSumPitch<kWidth> + channel, step, warp_state + r, kSplitRows, part.warps);
      const int to = first + (r & (own - 1));
      const float2 state = make_float2(joined.most, joined.sum);
      if (bits > 0) {
        const int owner = r >> (3 - bits);
        const uint32_t counts = InBlock(arrived, owner);
        StoreThere(InBlock(join->total + to * kWidth + channel, owner), joined.total, counts);
        if (channel == 0) StoreThere(InBlock(join->state + to, owner), state, counts);
      } else {
        *reinterpret_cast<float4*>(join->total + to * kWidth + channel) = joined.total;
        if (channel == 0) join->state[to] = state;
      }
    }
  }
  if (bits > 0) {
    WaitForBytes(arrived);
  } else {
    __syncthreads();
  }
  const float* from = join->total;
  const float2* state = join->state;
  int apart = own;
#pragma unroll 1
  for (bool ends = used == 1;; ends = true) {
#pragma unroll 1
    for (int i = threadIdx.x; i < own * kQuads; i += blockDim.x) {
      const int local = i / kQuads, channel = i % kQuads * 4, r = first + local;
      if (r >= rows || channel >= value_width) continue;
      Joined joined;
      joined.Join(from + local * kWidth + channel, apart * kWidth, state + local, apart, count);
      if (ends) {
        StoreRow<T>(a, part, r, channel, joined);
        continue;
      }
      const size_t at = (static_cast<size_t>(part.tile) * (work.splits >> bits) + number) * kSplitRows + r;
      *reinterpret_cast<float4*>(work.part + at * kWidth + channel) = joined.total;
      if (channel == 0) work.state[at] = make_float2(joined.most, joined.sum);
    }
    if (ends) return;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      last = CountsLast(work.finished + (part.tile << bits) + rank, work.tag, used);
      __threadfence();
    }
    __syncthreads();
    if (!last) return;
    const size_t at = static_cast<size_t>(part.tile) * (work.splits >> bits) * kSplitRows + first;
    from = work.part + at * kWidth;
    state = work.state + at;
    count = used;
    apart = kSplitRows;
  }
}

}  // namespace mojo
