// What the kernels of Attention share that split the keys of a pair among blocks.
//
// A unit is eight rows of a pair. Its keys are cut into groups, kSplitKeys for each warp of a block, and blocks take
// runs of groups; as many work as the length has work for, the others end at once. Each warp copies its own keys and
// values into its own ring of stages in shared memory, so that warps wait for nobody before the end. Then a block adds
// up what its warps have, and the last block of a unit what all blocks have, in their order.
#ifndef MOJO_KERNELS_CUDA_ATTENTION_SPLIT_CUH_
#define MOJO_KERNELS_CUDA_ATTENTION_SPLIT_CUH_

#include "cuda/attention.cuh"
#include "cuda/mma.cuh"

namespace mojo {

constexpr int kSplitRows = 8;   // of a unit
constexpr int kSplitKeys = 16;  // of a stage
constexpr int kMostSplitWarps = 8;
constexpr int kMostSplits = 256;

// SplitWork is how the work is cut, and where the parts of the scratch memory lie.
struct SplitWork {
  int splits, row_tiles, warps;
  unsigned long long tag;        // of this launch
  unsigned long long* finished;  // [units]: tag and how many blocks have finished
  float* part;                   // [units, splits, kSplitRows, channels]
  float2* state;                 // [units, splits, kSplitRows]: the greatest score, and the sum of weights
};

// How many blocks of a unit have finished stands in the lowest bits of a number whose others are the launch's tag, so
// that scratch memory may hold anything before: a number with another tag counts as 0.
constexpr int kTagShift = 16;

// BeginCount makes the number one of this launch.
__device__ __forceinline__ void BeginCount(unsigned long long* at, unsigned long long tag) {
  const unsigned long long found = *static_cast<volatile unsigned long long*>(at);
  if (found >> kTagShift != tag) atomicCAS(at, found, tag << kTagShift);
}

// CountsLast counts a block, and tells whether it is the last of count.
__device__ __forceinline__ bool CountsLast(unsigned long long* at, unsigned long long tag, int count) {
  const unsigned long long before = atomicAdd(at, 1ull);
  const bool last = static_cast<int>(before & ((1ull << kTagShift) - 1)) == count - 1;
  if (last) *static_cast<volatile unsigned long long*>(at) = tag << kTagShift;
  return last;
}

// Part is what a block of a unit does.
struct Part {
  Pair p;
  int unit, split, used;  // used blocks of the unit work
  int first_row, rows;    // of the unit, and of the pair
  bool copies;            // past rows, too, go to present
  bool writes;            // rows go to present
  int begin, from, to;    // the first key, and the block's groups
  int warps;

  __device__ __forceinline__ Part(const MojoAttentionArgs& a, const SplitWork& work)
      : p(a, work.row_tiles == 1 ? blockIdx.y : blockIdx.y / work.row_tiles),
        unit(blockIdx.y),
        split(blockIdx.x),
        first_row((unit - p.number * work.row_tiles) * kSplitRows),
        rows(static_cast<int>(a.queries) * p.group),
        warps(blockDim.x / 32) {
    const bool present = a.present_key != nullptr || a.present_value != nullptr;
    writes = present && first_row == 0;
    copies = writes && a.past_length == nullptr && a.past_key != nullptr;
    begin = Seen(a, p, Query(a, 0)).begin;
    if (writes) begin = min(begin, p.past);
    if (copies) begin = 0;
    const int keys = kSplitKeys * warps, groups = (p.length - begin + keys - 1) / keys;
    used = max(1, min(work.splits, groups));
    from = used == 1 ? 0 : groups * split / used;
    to = used == 1 ? groups : groups * (split + 1) / used;
  }

  // Query is the query of a row of the unit, and HeadOf its head. Nothing is divided in a step of one token.
  __device__ __forceinline__ int Query(const MojoAttentionArgs& a, int row) const {
    return a.queries == 1 ? 0 : (first_row + row) / p.group;
  }
  __device__ __forceinline__ int HeadOf(const MojoAttentionArgs& a, int row) const {
    const int member = first_row + row - Query(a, row) * p.group;
    return a.cyclic ? member * static_cast<int>(a.key_heads) + p.head : p.head * p.group + member;
  }
  // At is where a row of the unit lies in q or y.
  __device__ __forceinline__ size_t At(const MojoAttentionArgs& a, const MojoHeadSteps& steps, int row) const {
    return p.batch * steps.batch + HeadOf(a, row) * steps.head + Query(a, row) * steps.row;
  }

  // Key is the first key of this warp in a group.
  __device__ __forceinline__ int Key(int group) const {
    return begin + (group * warps + static_cast<int>(threadIdx.x) / 32) * kSplitKeys;
  }
};

// StagesOf is how many stages of so many bytes a warp has: enough bytes on their way, and room for other blocks.
__host__ __device__ constexpr int StagesOf(int bytes) { return bytes <= 8192 ? 3 : 2; }

// Stage is how a stage of a warp lies: rows of keys, then rows of values, in pieces of 16 bytes that are swapped so
// that the eight which are read at once lie in different banks.
template <class T, int kWidth>
struct Stage {
  static constexpr int kPieces = kWidth * sizeof(T) / 16;
  static constexpr int kLanes = kPieces < 32 ? kPieces : 32;  // that copy a row
  static constexpr int kAtOnce = 32 / kLanes;                 // rows
  static constexpr int kTensorBytes = kSplitKeys * kWidth * sizeof(T);
  static constexpr int kBytes = 2 * kTensorBytes;
  static constexpr int kCount = StagesOf(kBytes);
  static constexpr int kWarpBytes = kCount * kBytes;

  static __device__ __forceinline__ int At(int row, int piece) { return (row * kPieces + (piece ^ (row & 7))) * 16; }
};

// Copies is what a lane copies of the keys, or the values, of its warp.
template <class T, int kWidth>
struct Copies {
  typedef Stage<T, kWidth> S;
  const Keys<T>& keys;
  int length, row, piece, at;  // the first row and piece of a stage, and where it lies

  __device__ __forceinline__ Copies(const Keys<T>& k, int n)
      : keys(k), length(n), row(threadIdx.x % 32 / S::kLanes), piece(threadIdx.x % S::kLanes), at(S::At(row, piece)) {}

  // Is tells whether a row has the piece.
  __device__ __forceinline__ bool Is(int p) const { return p * kPackSize<T> < keys.width; }

  // Each calls does(row, piece, place) for all that the lane copies. Places of rows differ in bits that At swaps.
  template <class Does>
  __device__ __forceinline__ void Each(const Does& does) const {
#pragma unroll 1
    for (int i = 0; i < kSplitKeys; i += S::kAtOnce) {
#pragma unroll
      for (int p = 0; p < S::kPieces; p += S::kLanes) {
        does(i + row, p + piece, (at ^ (i & 7) * 16) + (i * S::kPieces + p) * 16);
      }
    }
  }

  // Start copies kSplitKeys rows from key on into a stage, and zeros behind the last one.
  __device__ __forceinline__ void Start(uint32_t to, int key) const {
    if (key + kSplitKeys <= keys.past) {
      const T* from = keys.past_rows + (key + row) * keys.width + piece * kPackSize<T>;
      const size_t step = S::kAtOnce * keys.width;
#pragma unroll
      for (int i = 0; i < kSplitKeys; i += S::kAtOnce, from += step) {
#pragma unroll
        for (int p = 0; p < S::kPieces; p += S::kLanes) {
          Copy(to + (at ^ (i & 7) * 16) + (i * S::kPieces + p) * 16, from + p * kPackSize<T>, Is(p + piece));
        }
      }
      return;
    }
    Each([&](int r, int p, int place) {
      const bool is = key + r < length && Is(p);
      Copy(to + place, is ? keys.Row(key + r) + p * kPackSize<T> : keys.added_rows, is);
    });
  }

  // Keep writes the rows that this lane copied to present.
  __device__ __forceinline__ void Keep(const char* from, int key, bool copies) const {
    if (keys.present_rows == nullptr || (!copies && key + kSplitKeys <= keys.past)) return;
    Each([&](int r, int p, int place) {
      const int j = key + r;
      if (j >= length || !Is(p) || (!copies && j < keys.past)) return;
      *reinterpret_cast<uint4*>(keys.Present(j) + p * kPackSize<T>) = *reinterpret_cast<const uint4*>(from + place);
    });
  }
};

// What a warp has added up lies in shared memory, rows so far apart that lanes which write them meet in no bank.
template <int kWidth>
constexpr int kSumPitch = kWidth + 4;

__device__ __forceinline__ void Add(float4* total, float by, float4 v) {
  total->x += by * v.x, total->y += by * v.y, total->z += by * v.z, total->w += by * v.w;
}

// Joined is what parts of a row have together: four channels, the greatest score, the sum of weights.
struct Joined {
  float4 total = make_float4(0, 0, 0, 0);
  float most = -INFINITY, sum = 0;

  __device__ __forceinline__ void Join(float4 v, float v_most, float v_sum) {
    const float greatest = fmaxf(most, v_most), base = Finite(greatest);
    const float by = PowerOfTwo(most - base), v_by = PowerOfTwo(v_most - base);
    total.x *= by, total.y *= by, total.z *= by, total.w *= by;
    Add(&total, v_by, v);
    most = greatest;
    sum = sum * by + v_sum * v_by;
  }
};

// StoreRow writes four channels of a row of y.
template <class T>
__device__ __forceinline__ void StoreRow(const MojoAttentionArgs& a, const Part& part, const Keys<T>& values, int row,
                                         int channel, Joined joined) {
  float most = -INFINITY, sink = 0;
  AddSink(a, part.HeadOf(a, row), &most, &sink);
  joined.Join(make_float4(0, 0, 0, 0), most, sink);
  float4 total = joined.total;
  if (joined.sum == 0) {
    total = make_float4(0, 0, 0, 0);
    for (int j = 0; a.empty_mean && j < part.p.length; ++j) {
      float v[4];
      ToFloats(LoadPack<4>(values.Row(j) + channel), v);
      Add(&total, 1, make_float4(v[0], v[1], v[2], v[3]));
    }
    joined.sum = a.empty_mean && part.p.length > 0 ? part.p.length : 1;
  }
  const float by = 1 / joined.sum, v[4] = {total.x * by, total.y * by, total.z * by, total.w * by};
  StorePack(static_cast<T*>(a.y) + part.At(a, a.y_steps, row) + channel, PackFloats<T>(v));
}

// Finish makes the rows of y of what the warps of this block have, or a part of the unit, and of all parts in the last
// block. memory has rows of kSumPitch for each warp, at step bytes of each other.
template <class T, int kWidth>
__device__ __forceinline__ void Finish(const MojoAttentionArgs& a, const SplitWork& work, const Part& part,
                                       const Keys<T>& values, const char* memory, int step, const float* most,
                                       const float* sum) {
  __shared__ bool last;
  const int rows = min(kSplitRows, part.rows - part.first_row);
  const bool alone = part.used == 1;
  const size_t first_part = static_cast<size_t>(part.unit) * work.splits;
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * (kWidth / 4); i += blockDim.x) {
    const int r = i / (kWidth / 4), channel = i % (kWidth / 4) * 4;
    if (channel >= values.width) continue;
    Joined joined;
#pragma unroll 4
    for (int w = 0; w < part.warps; ++w) {
      joined.Join(*reinterpret_cast<const float4*>(memory + w * step + (r * kSumPitch<kWidth> + channel) * 4),
                  most[w * kSplitRows + r], sum[w * kSplitRows + r]);
    }
    if (alone) {
      StoreRow(a, part, values, r, channel, joined);
      continue;
    }
    const size_t at = (first_part + part.split) * kSplitRows + r;
    *reinterpret_cast<float4*>(work.part + at * kWidth + channel) = joined.total;
    if (channel == 0) work.state[at] = make_float2(joined.most, joined.sum);
  }
  if (alone) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = CountsLast(work.finished + part.unit, work.tag, part.used);
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * (kWidth / 4); i += blockDim.x) {
    const int r = i / (kWidth / 4), channel = i % (kWidth / 4) * 4;
    if (channel >= values.width) continue;
    Joined joined;
#pragma unroll 8
    for (int n = 0; n < part.used; ++n) {
      const size_t at = (first_part + n) * kSplitRows + r;
      const float2 state = __ldcg(work.state + at);
      joined.Join(__ldcg(reinterpret_cast<const float4*>(work.part + at * kWidth + channel)), state.x, state.y);
    }
    StoreRow(a, part, values, r, channel, joined);
  }
}

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_ATTENTION_SPLIT_CUH_
