// The rows of the pools that a call writes, for kernels that run beside their writing.
#pragma once

#include "attention/cuda/paged_attention.cuh"

namespace mojo {
namespace paged {

constexpr int kMostNew = 128;  // tokens, and sequences, of a call that NewRows has room for

// NewRows are the rows of the pool that tokens are written to. They are in shared memory.
struct NewRows {
  static constexpr int kBits = 4096, kShort = 8;
  int slot[kMostNew];         // the row of a token, -1 if it is not written
  int longer[kMostNew];       // sequences of more than kShort tokens
  int count;                  // how many those are
  unsigned mark[kBits / 32];  // has the bit of each row or, with kBlocks, of its block

  // Clear begins.
  template <int kThreads>
  __device__ __forceinline__ void Clear() {
    for (int i = threadIdx.x; i < kBits / 32; i += kThreads) mark[i] = 0;
    for (int i = threadIdx.x; i < kMostNew; i += kThreads) slot[i] = -1;
    if (threadIdx.x == 0) count = 0;
  }
  // Find fills it. own is the sequence with the thread's number, if there is one, which is read early. All threads of a
  // block take part, and synchronize.
  template <int kThreads, bool kBlocks>
  __device__ __forceinline__ void Find(const Params& p, const Sequence& own) {
    const int tokens = static_cast<int>(p.tokens), sequences = static_cast<int>(p.sequences);
    __syncthreads();
    if (p.slots != nullptr) {
      for (int t = threadIdx.x; t < tokens; t += kThreads) {
        const int given = __ldg(p.slots + t);
        Put<kBlocks>(p, t, given >= 0 ? given : SIZE_MAX);
      }
    } else {
      for (int n = threadIdx.x; n < sequences; n += kThreads) {
        const Sequence s = n == own.number ? own : Sequence(p, n);
        if (s.added > kShort) {
          longer[atomicAdd(&count, 1)] = n;
        } else {
          for (int i = 0; i < s.added; ++i) Put<kBlocks>(p, s, i);
        }
      }
      __syncthreads();
      for (int k = 0; k < count; ++k) {
        const Sequence s(p, longer[k]);
        for (int i = threadIdx.x; i < s.added; i += kThreads) Put<kBlocks>(p, s, i);
      }
    }
    __syncthreads();
  }
  template <bool kBlocks>
  __device__ __forceinline__ void Put(const Params& p, const Sequence& s, int i) {
    if (s.past + i < s.length) Put<kBlocks>(p, s.token + i, Place(p, s, s.past + i));
  }
  template <bool kBlocks>
  __device__ __forceinline__ void Put(const Params& p, int token, size_t row) {
    if (row >= p.blocks * p.block) return;
    slot[token] = static_cast<int>(row);
    Mark(kBlocks ? ColumnOf(p, slot[token]) : slot[token]);
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
