// Shared parts of PagedAttention's kernels: sequences, rows of the pool, and the order of sums.
//
// A row of queries is a token and one of the heads that share its keys: row token * group + member of a sequence.
#pragma once

#include <initializer_list>

#include "attention/cuda/attention.cuh"
#include "common/room.h"

namespace mojo {
namespace paged {

constexpr int kFewRows = 64;  // the most rows of a sequence that AttendFew takes

// Params are the arguments of a kernel.
struct Params : MojoQPagedAttentionArgs {
  int group;     // heads that share keys
  int by_group;  // 65536 / group, rounded up: a row of few times that, over 65536, is its token
  Divisor by_block, by_key_heads, by_row_tiles;
  Divisor by_pieces;             // by the 16-byte pieces of a new row's key and value
  int few;                       // tokens of the longest sequence of few rows
  bool concurrent;               // AttendFew runs while the new rows are written to the pools
  bool packed;                   // slots of parts are tokens, otherwise sequence * few + token
  int row_tiles;                 // of AttendFew's grid
  int slices;                    // of the values' channels
  int splits;                    // blocks that share a tile's keys
  int cluster;                   // blocks of a cluster
  int beside;                    // blocks of a multiprocessor
  int stages;                    // of a warp's ring
  int most_nodes;                // that scratch memory has room for
  unsigned long long tag;        // of this launch
  unsigned long long* finished;  // [sequences, key_heads, kMostTiles, slices]: CountsLast's counters
  float* part;                   // [slots, heads, most_nodes, value_width]
  float2* state;                 // [slots, heads, most_nodes, slices]: the greatest score, and the sum of weights
};

// Sequence is one of the sequences.
struct Sequence {
  int number, token, added, past, length;

  __device__ __forceinline__ Sequence(const Params& p, int n) : number(n) {
    const int tokens = static_cast<int>(p.tokens), room = static_cast<int>(p.columns * p.block);
    token = min(max(__ldg(p.cumulative + n), 0), tokens);
    added = min(max(__ldg(p.cumulative + n + 1), token), tokens) - token;
    past = min(max(__ldg(p.past + n), 0), max(room - added, 0));
    length = min(past + added, room);
  }
  __device__ __forceinline__ bool Has(int t) const { return t >= token && t - token < added; }
  __device__ __forceinline__ bool HasFewRows(const Params& p) const { return added <= p.few; }
  // Slot is where the parts of one of the sequence's tokens are.
  __device__ __forceinline__ size_t Slot(const Params& p, int i) const {
    return p.packed ? token + i : static_cast<size_t>(number) * p.few + i;
  }
};

// SequenceOf returns the sequence of a token, the first one that ends behind it. All threads of a block take part.
template <int kThreads>
__device__ __forceinline__ int SequenceOf(const Params& p, int token) {
  const int sequences = static_cast<int>(p.sequences);
  int before = 0;
  for (int base = 0; base < sequences; base += kThreads) {
    const int n = base + static_cast<int>(threadIdx.x);
    before += __syncthreads_count(n < sequences && __ldg(p.cumulative + n + 1) <= token);
  }
  return min(before, sequences - 1);
}

// Rows are the rows of a block: of a sequence and one of its key heads.
struct Rows {
  Sequence s;
  int first, count;  // the first row, and how many the sequence has
  int key_head;
};

// FindRows returns the rows of the n-th tile of all sequences of many rows, or a tile without rows.
__device__ __forceinline__ Rows FindRows(const Params& p, int n, int rows, int key_head) {
  const int lane = threadIdx.x % 32, sequences = static_cast<int>(p.sequences);
  for (int base = 0; base < sequences; base += 32) {
    int tiles = 0;
    if (base + lane < sequences) {
      const Sequence s(p, base + lane);
      tiles = s.HasFewRows(p) ? 0 : (s.added * p.group + rows - 1) / rows;
    }
    int end = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += before;
    }
    const unsigned beyond = __ballot_sync(0xffffffffu, end > n);
    if (beyond != 0) {
      const int owner = __ffs(beyond) - 1;
      const int begin = __shfl_sync(0xffffffffu, end - tiles, owner);
      const Sequence s(p, base + owner);
      return {s, (n - begin) * rows, s.added * p.group, key_head};
    }
    n -= __shfl_sync(0xffffffffu, end, 31);
  }
  return {Sequence(p, 0), 0, 0, key_head};
}

// ColumnOf is j / block, the column of the table of a key.
__device__ __forceinline__ int ColumnOf(const Params& p, int j) { return p.by_block.Quotient(j); }

// EntryOf is the entry of the table for a sequence's key, and PlaceIn the row of the pool of a key with that entry.
__device__ __forceinline__ int EntryOf(const Params& p, const Sequence& s, int j) {
  return __ldg(p.table + static_cast<size_t>(s.number) * p.columns + ColumnOf(p, j));
}
__device__ __forceinline__ int BlockIn(const Params& p, int entry) {
  return min(max(entry, 0), static_cast<int>(p.blocks) - 1);
}
__device__ __forceinline__ int PlaceIn(const Params& p, int entry, int j) {
  const int block = static_cast<int>(p.block);
  return BlockIn(p, entry) * block + (j - ColumnOf(p, j) * block);
}

// BlockOf is the block of the pool of a sequence's key, Place its row.
__device__ __forceinline__ int BlockOf(const Params& p, const Sequence& s, int j) {
  return BlockIn(p, EntryOf(p, s, j));
}
__device__ __forceinline__ size_t Place(const Params& p, const Sequence& s, int j) {
  return static_cast<size_t>(BlockOf(p, s, j)) * p.block + (j - ColumnOf(p, j) * static_cast<int>(p.block));
}

// SlotOf returns the row of the pool that a token is written to; others than the pool has are not written. All threads
// of a block take part.
template <int kThreads>
__device__ __forceinline__ size_t SlotOf(const Params& p, int token) {
  size_t row = SIZE_MAX;
  if (p.slots != nullptr) {
    const int slot = __ldg(p.slots + token);
    if (slot >= 0) row = slot;
  } else {
    const Sequence s(p, SequenceOf<kThreads>(p, token));
    const int j = s.past + token - s.token;
    if (token >= s.token && j < s.length) row = Place(p, s, j);
  }
  return row;
}

// Int8Code and E4M3Code are elements of pools of codes.
struct Int8Code {
  int8_t bits;
};
struct E4M3Code {
  uint8_t bits;
};
template <class C>
constexpr bool kIsCode = sizeof(C) == 1;

using mojo::ToFloat;
__device__ __forceinline__ float ToFloat(Int8Code c) { return c.bits; }
__device__ __forceinline__ float ToFloat(E4M3Code c) {
  // The code is the upper byte of a float16, moved by one bit: its exponent has another bias.
  const unsigned bits = (c.bits & 0x80u) << 8 | (c.bits & 0x7fu) << 7;
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits))) * 256;
}

// ScaleOf is the factor of the keys, or values, of a key head in a block: 1 for pools of other elements.
template <class C>
__device__ __forceinline__ float ScaleOf(const Params& p, const float* scales, int block, int key_head) {
  return kIsCode<C> ? scales[static_cast<size_t>(block) * p.key_heads + key_head] : 1;
}

// SeenBy are the keys that a token of a sequence sees.
__device__ __forceinline__ Span SeenBy(const Params& p, const Sequence& s, int i) {
  const int at = s.past + i, window = static_cast<int>(p.window);
  const int end = p.causal ? min(s.length, at + 1) : s.length;
  return {window > 0 ? min(max(0, at - window + 1), end) : 0, end};
}

__device__ __forceinline__ int HeadOf(const Params& p, int key_head, int member) {
  return p.cyclic ? member * static_cast<int>(p.key_heads) + key_head : key_head * p.group + member;
}

// ScoreOf makes a score from the product of a query and a key.
template <class T>
__device__ __forceinline__ float ScoreOf(const Params& p, float product) {
  if (p.softcap == 0) return product * (p.scale * kLog2E);
  return Capped<T>(product * p.scale, p.softcap) * kLog2E;
}

// Ending is the factor of a row's total, with its sink.
__device__ __forceinline__ float Ending(float most, float sum, float sink) {
  const float greatest = fmaxf(most, sink);
  if (greatest == -INFINITY) return 0;
  const float by = PowerOfTwo(most - greatest), all = sum * by + PowerOfTwo(sink - greatest);
  return all == 0 ? 0 : by / all;
}

// Prepare divides the work, and takes scratch memory.
Params Prepare(const MojoQPagedAttentionArgs& a, bool codes, Room<256>* room);

// IsTooLarge reports whether sizes exceed the kernels' integers.
inline bool IsTooLarge(const MojoPagedAttentionArgs& a) {
  constexpr size_t kMost = size_t{1} << 30;
  return a.tokens > kMost || a.sequences > kMost || a.columns * a.block > kMost || a.blocks > kMost ||
         a.key_heads * a.width > kMost || a.key_heads * a.value_width > kMost;
}

// Copied is an output that begins as its input, which may be the same memory.
struct Copied {
  void* to;
  const void* from;
  size_t bytes;
};
cudaError_t CopyPools(std::initializer_list<Copied> pools, cudaStream_t stream);

// The kernels of 16-bit numbers, and of any others, with their own pools or with codes. They read keys and values only
// from the pool.
bool MmaTakes(const MojoPagedAttentionArgs& a);
cudaError_t AttendMma(const Params& p, cudaStream_t stream);
cudaError_t AttendAny(const Params& p, cudaStream_t stream);
// PromptsWgmma is the part of AttendMma for sequences without parts on compute capability 9.0.
bool PromptsWgmmaTakes(const Params& p, bool codes);
cudaError_t PromptsWgmma(const Params& p, bool codes, cudaStream_t stream);
cudaError_t AttendCodesMma(const Params& p, cudaStream_t stream);
cudaError_t AttendCodesAny(const Params& p, cudaStream_t stream);

// Attend computes y from pools that have all rows, by the kernel that takes the arguments.
typedef cudaError_t Attends(const Params& p, cudaStream_t stream);
cudaError_t Attend(const Params& p, Attends* mma, Attends* any, cudaStream_t stream);

}  // namespace paged
}  // namespace mojo
