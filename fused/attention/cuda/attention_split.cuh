// Split-KV attention of few rows: the shared parts of its kernels (Dao et al., "Flash-Decoding for long-context
// inference", 2023).
//
// A row tile is eight rows of a pair. Its keys are cut into groups, one pipeline stage for each warp of a block, which
// blocks take in turn. The length decides how many blocks work. Each warp copies its own keys and values into its own
// ring of stages in shared memory, so that warps wait for each other only at the end. attention_join.cuh combines the
// partial results.
#pragma once

#include "attention/cuda/attention.cuh"
#include "cuda/mma.cuh"

namespace mojo {

constexpr int kSplitRows = 8;   // of a row tile
constexpr int kSplitKeys = 16;  // that are multiplied at once
constexpr int kMostSplitWarps = 8;
constexpr int kMostSplits = 256;
constexpr int kMostClusterBits = 3;  // clusters have up to eight blocks

// SplitWork is the partition of the work and the layout of the scratch memory.
struct SplitWork {
  int splits;                    // blocks of a row tile
  int cluster_bits;              // of them as many form a cluster, which adds up in shared memory
  int row_tiles;                 // of a pair
  int group;                     // heads that share keys
  int by_group;                  // 256 / group, rounded up: a row times that and over 256 is its query
  unsigned long long tag;        // of this launch
  unsigned long long* finished;  // [tiles, cluster]: tag and how many clusters have finished
  float* part;                   // [tiles, clusters, kSplitRows, channels]
  float2* state;                 // [tiles, clusters, kSplitRows]: the greatest score, and the sum of weights
};

// Part is the share of a row tile that a block computes. Resolve completes it once the length is known.
struct Part {
  Pair p;
  int tile, split;      // the row tile, and which of its blocks
  int first_row, rows;  // of the row tile, and of the pair
  int warps, by_group, stage_keys;
  bool added_alone;  // all keys are new: they are copied as past ones are
  bool writes;       // new rows go to present
  bool keeps;        // and those that are copied
  int tail;          // the first key not copied: new, or past the end
  int begin;         // the first key
  int groups, used;  // used blocks of the row tile work

  __device__ __forceinline__ Part(const MojoAttentionArgs& a, const SplitWork& work, int keys_of_stage)
      : p(a, blockIdx.z, static_cast<int>(blockIdx.y) >> (work.row_tiles - 1), work.group),
        tile(blockIdx.z * gridDim.y + blockIdx.y),
        split(blockIdx.x),
        first_row((static_cast<int>(blockIdx.y) & (work.row_tiles - 1)) * kSplitRows),
        rows(static_cast<int>(a.queries) * work.group),
        warps(blockDim.x / 32),
        by_group(work.by_group),
        stage_keys(keys_of_stage),
        added_alone(a.past == 0) {
    writes = (a.present_key != nullptr || a.present_value != nullptr) && first_row == 0;
    keeps = writes && (added_alone || a.past_lengths == nullptr);
    begin = 0;
  }

  __device__ __forceinline__ void Resolve(const MojoAttentionArgs& a, const SplitWork& work, int64_t past) {
    p.SetPast(a, past);
    tail = added_alone ? p.length : p.past;
    begin = Seen(a, p, Query(a, 0)).begin;
    if (writes) begin = min(begin, p.past);
    if (keeps) begin = 0;
    groups = GroupsOf(p.length - begin);
    used = max(1, min(work.splits, groups));
  }
  __device__ __forceinline__ int GroupsOf(int keys) const {
    const int each = stage_keys * warps;  // a power of two
    return (keys + each - 1) >> (31 - __clz(each));
  }

  // Query is the query of a row of the row tile, and HeadOf its head.
  __device__ __forceinline__ int Query(const MojoAttentionArgs& a, int row) const {
    return (first_row + row) * by_group >> 8;
  }
  __device__ __forceinline__ int HeadOf(const MojoAttentionArgs& a, int row) const {
    return p.HeadOfMember(a, first_row + row - Query(a, row) * p.group);
  }
  // At is the offset of a row of the tile in q or y.
  __device__ __forceinline__ size_t At(const MojoAttentionArgs& a, const HeadSteps& steps, int row) const {
    return p.batch * steps.batch + HeadOf(a, row) * steps.head + Query(a, row) * steps.row;
  }

  // Key is the first key of this warp in a group.
  __device__ __forceinline__ int Key(int group) const {
    return begin + (group * warps + static_cast<int>(threadIdx.x) / 32) * stage_keys;
  }
};

// StageKeys is the number of keys of a stage, by the bytes of a row.
__host__ __device__ constexpr int StageKeys(int row_bytes) { return row_bytes <= 128 ? 2 * kSplitKeys : kSplitKeys; }

// StagesOf is the number of a warp's stages of this size: enough bytes in flight, and room for other blocks.
__host__ __device__ constexpr int StagesOf(int bytes) { return bytes <= 8192 ? 3 : 2; }

// Stage is the layout of a warp's stage: rows of keys, then rows of values, in 16-byte pieces that are swapped so that
// eight pieces read at once are in different banks.
template <class T, int kWidth>
struct Stage {
  static constexpr int kPieces = kWidth * sizeof(T) / 16;
  static constexpr int kLanes = kPieces < 32 ? kPieces : 32;  // that copy a row
  static constexpr int kAtOnce = 32 / kLanes;                 // rows
  static constexpr int kKeys = StageKeys(kWidth * sizeof(T));
  static constexpr int kTensorBytes = kKeys * kWidth * sizeof(T);
  static constexpr int kBytes = 2 * kTensorBytes;
  static constexpr int kCount = StagesOf(kBytes);
  static constexpr int kWarpBytes = kCount * kBytes;

  static __device__ __forceinline__ int At(int row, int piece) { return (row * kPieces + (piece ^ (row & 7))) * 16; }
};

// Rows are the keys of a pair, or its values: the stored rows, then the new ones.
template <class T>
struct SplitRows {
  const T *rows, *added;
  T* present;  // null if no output
  size_t step, added_step;
  int limit, width;  // stored rows, and their width in pieces

  __device__ __forceinline__ bool Has(int piece) const { return piece < width; }
  __device__ __forceinline__ uint4 Added(int j, int piece) const {
    return *reinterpret_cast<const uint4*>(added + j * added_step + piece * kPackSize<T>);
  }
  __device__ __forceinline__ void SetPresent(int j, int piece, uint4 v) const {
    if (present != nullptr) reinterpret_cast<uint4*>(present)[j * static_cast<size_t>(width) + piece] = v;
  }

  // Start copies rows from key on into a stage, with zeros past the last row.
  template <int kWidth>
  __device__ __forceinline__ void Start(uint32_t to, int key) const {
    typedef Stage<T, kWidth> S;
    const int row = threadIdx.x % 32 / S::kLanes, piece = threadIdx.x % S::kLanes, at = S::At(row, piece);
    const int left = limit - key - row;
    const T* from = rows + (key + row) * step + piece * kPackSize<T>;
#pragma unroll
    for (int i = 0; i < S::kKeys; i += S::kAtOnce, from += S::kAtOnce * step) {
#pragma unroll
      for (int p = 0; p < S::kPieces; p += S::kLanes) {
        Copy(to + (at ^ (i & 7) * 16) + (i * S::kPieces + p) * 16, from + p * kPackSize<T>, i < left && Has(p + piece));
      }
    }
  }
};

template <class T>
__device__ __forceinline__ SplitRows<T> MakeSplitRows(const MojoAttentionArgs& a, const Part& part, const void* added,
                                                      const HeadSteps& steps, const void* past, void* present,
                                                      size_t width) {
  const Pair& p = part.p;
  SplitRows<T> r;
  r.added = static_cast<const T*>(added) + p.batch * steps.batch + p.head * steps.head;
  r.added_step = steps.row;
  r.rows = part.added_alone ? r.added : static_cast<const T*>(past) + p.number * a.past * width;
  r.step = part.added_alone ? steps.row : width;
  r.limit = static_cast<int>(part.added_alone ? a.added : a.past);
  r.present = present == nullptr ? nullptr : static_cast<T*>(present) + p.number * a.room * width;
  r.width = static_cast<int>(width) / kPackSize<T>;
  return r;
}

// Mend writes the rows that Start left out of a stage, new rows and zeros after them, and copies new rows to present.
template <class T, int kWidth>
__device__ __forceinline__ void Mend(const Part& part, const SplitRows<T>& keys, const SplitRows<T>& values,
                                     char* stage, int key) {
  typedef Stage<T, kWidth> S;
#pragma unroll 1
  for (int i = max(part.tail - key, 0) * S::kPieces + threadIdx.x % 32; i < S::kKeys * S::kPieces; i += 32) {
    const int row = i / S::kPieces, piece = i % S::kPieces, j = key + row, at = S::At(row, piece);
    const bool is = j < part.p.length, is_key = is && keys.Has(piece), is_value = is && values.Has(piece);
    uint4 k = make_uint4(0, 0, 0, 0), v = k;
    if (is_key) k = keys.Added(j - part.tail, piece);
    if (is_value) v = values.Added(j - part.tail, piece);
    *reinterpret_cast<uint4*>(stage + at) = k;
    *reinterpret_cast<uint4*>(stage + S::kTensorBytes + at) = v;
    if (is_key && part.writes) keys.SetPresent(j, piece, k);
    if (is_value && part.writes) values.SetPresent(j, piece, v);
  }
}

// Keep copies the rows of a stage that came from past to present.
template <class T, int kWidth>
__device__ __forceinline__ void Keep(const Part& part, const SplitRows<T>& keys, const SplitRows<T>& values,
                                     const char* stage, int key) {
  typedef Stage<T, kWidth> S;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < min(part.tail - key, S::kKeys) * S::kPieces; i += 32) {
    const int row = i / S::kPieces, piece = i % S::kPieces, at = S::At(row, piece);
    if (keys.Has(piece)) keys.SetPresent(key + row, piece, *reinterpret_cast<const uint4*>(stage + at));
    if (values.Has(piece)) {
      values.SetPresent(key + row, piece, *reinterpret_cast<const uint4*>(stage + S::kTensorBytes + at));
    }
  }
}

}  // namespace mojo
