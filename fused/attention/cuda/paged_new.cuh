// The rows of the pools that a call writes, for kernels that run beside their writing.
#pragma once

#include "attention/cuda/paged_attention.cuh"

namespace mojo {
namespace paged {

constexpr int kMostNew = 128;  // tokens, and sequences, of a call that NewRows has room for

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
  // Find fills it. own is the sequence with the thread's number, which is read early: in a step of one token each it
  // has the thread's token. All threads of a block take part, and synchronize.
  template <int kThreads, bool kBlocks>
  __device__ __forceinline__ void Find(const Params& p, const Sequence& own) {
    static_assert(kThreads >= kMostNew, "a token for each thread");
    __syncthreads();
    const int t = threadIdx.x;
    if (t < kMostNew) {
      size_t row = SIZE_MAX;
      const bool has = t < static_cast<int>(p.tokens);
      if (has && p.slots != nullptr) {
        const int given = __ldg(p.slots + t);
        if (given >= 0) row = given;
      } else if (has) {
        const Sequence s = own.Has(t) ? own : Sequence(p, SequenceAt(p, t));
        if (s.Has(t) && s.past + t - s.token < s.length) row = Place(p, s, s.past + t - s.token);
      }
      const bool written = row < p.blocks * p.block;
      slot[t] = written ? static_cast<int>(row) : -1;
      if (written) Mark(kBlocks ? ColumnOf(p, slot[t]) : slot[t]);
    }
    __syncthreads();
  }
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
