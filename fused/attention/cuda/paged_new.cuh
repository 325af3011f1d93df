// The rows of the pools that a call writes, for kernels that run beside their writing.
#pragma once

#include "attention/cuda/paged_attention.cuh"

namespace mojo {
namespace paged {

constexpr int kMostNew = 128;  // tokens, and sequences, of a call that NewRows has room for

// NewRow is the row of the pool that the token with the thread's number is written to. It is asked for early, since the
// answer takes long.
class NewRow {
 public:
  // own is the sequence with the thread's number: in a step of one token each it has the thread's token.
  __device__ __forceinline__ NewRow(const Params& p, const Sequence& own) {
    const int t = threadIdx.x;
    if (t >= static_cast<int>(p.tokens)) return;
    if (p.slots != nullptr) {
      entry_ = __ldg(p.slots + t);
      return;
    }
    const Sequence s = own.Has(t) ? own : Sequence(p, SequenceAt(p, t));
    const int j = s.past + t - s.token;
    if (s.Has(t) && j < s.length) key_ = j, entry_ = EntryOf(p, s, j);
  }
  // Row is -1 if the token is not written.
  __device__ __forceinline__ int Row(const Params& p) const {
    const int row = key_ < 0 ? entry_ : PlaceIn(p, entry_, key_);
    return static_cast<unsigned>(row) < p.blocks * p.block ? row : -1;
  }

 private:
  // SequenceAt is the first sequence that ends behind a token.
  static __device__ __forceinline__ int SequenceAt(const Params& p, int token) {
    int low = 0, high = static_cast<int>(p.sequences) - 1;
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high) / 2;
      if (__ldg(p.cumulative + middle + 1) > token) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  int key_ = -1, entry_ = -1;  // the entry of the table for a key of the sequence, or the row itself
};

// NewRows are the rows of the pool that tokens are written to. They are in shared memory.
struct NewRows {
  static constexpr int kBits = 4096;
  int slot[kMostNew];         // the row of a token, -1 if it is not written
  unsigned mark[kBits / 32];  // has the bit of each row or, with kBlocks, of its block

  // Clear begins.
  template <int kThreads>
  __device__ __forceinline__ void Clear() {
    for (int i = threadIdx.x; i < kBits / 32; i += kThreads) mark[i] = 0;
  }
  // Find fills it with the threads' tokens. All threads of a block take part, and synchronize.
  template <int kThreads, bool kBlocks>
  __device__ __forceinline__ void Find(const Params& p, const NewRow& own) {
    static_assert(kThreads >= kMostNew, "a token for each thread");
    __syncthreads();
    const int t = threadIdx.x;
    if (t < kMostNew) {
      const int row = own.Row(p);
      slot[t] = row;
      if (row >= 0) Mark(kBlocks ? ColumnOf(p, row) : row);
    }
    __syncthreads();
  }
  __device__ __forceinline__ void Mark(int n) { atomicOr(mark + n % kBits / 32, 1u << n % 32); }
  // MayHave reports whether a row, or block, may have been marked.
  __device__ __forceinline__ bool MayHave(int n) const { return mark[n % kBits / 32] >> n % 32 & 1; }

  // TokenAt returns the token that is written to a row, or -1. All lanes of a warp take part.
  __device__ __forceinline__ int TokenAt(const Params& p, int row) const {
    const int tokens = static_cast<int>(p.tokens), lane = threadIdx.x % 32;
    for (int base = 0; base < tokens; base += 32) {
      const unsigned found = __ballot_sync(0xffffffffu, base + lane < tokens && slot[base + lane] == row);
      if (found != 0) return base + __ffs(found) - 1;
    }
    return -1;
  }
};

}  // namespace paged
}  // namespace mojo
