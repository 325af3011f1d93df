// How attention_latent.cu divides the keys of all sequences among blocks. The lengths are on the device, so each block
// finds its own part.
#pragma once

#include <limits.h>

#include "attention/cuda/attention.cuh"
#include "cuda/hopper.cuh"

namespace mojo {
namespace latent {

constexpr int kWidth = 576, kOut = 512, kOwn = kOut / 2;  // kOwn channels of values are a warpgroup's
constexpr int kRows = 64, kKeys = 64;

// Work is how the work is cut.
struct Work {
  CUtensorMap q, k;
  const void* latents;
  size_t step;    // from one sequence of latents to the next
  int row_tiles;  // of a sequence; blocks of a partition
  float factor;   // of the scores, for PowerOfTwo
  float* part;  // [blocks, 2, kRows, kOut]: of row tiles that a block shares with others, the one that it begins second
  float2* state;  // [blocks, 2, kRows]: the greatest score, and the sum of weights
};

// Sequence is a sequence of a call.
struct Sequence {
  int batch;
  int begin;  // pairs before it
  int pairs;
};

// PairsIn is the number of pairs in a sequence, at least one.
__device__ __forceinline__ int PairsIn(const MojoAttentionArgs& a, int batch) {
  return max(1, (Pair(a, batch).length + 2 * kKeys - 1) / (2 * kKeys));
}

// FindSequence finds the sequence that contains pair number place; past the last pair, begin is the number of all
// pairs. A whole warp calls it. If all sequences have one length, it does not search.
__device__ __forceinline__ Sequence FindSequence(const MojoAttentionArgs& a, int place) {
  const int batch = static_cast<int>(a.batch), lane = threadIdx.x % 32;
  if (a.past_lengths == nullptr || a.one_length) {
    const int pairs = PairsIn(a, 0), b = min(place / pairs, batch);
    return {b, b * pairs, pairs};
  }
  int before = 0;
#pragma unroll 1
  for (int first = 0; first < batch; first += 32) {
    const int pairs = first + lane < batch ? PairsIn(a, first + lane) : 0;
    int sum = pairs;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    const int passed = __popc(__ballot_sync(~0u, before + sum <= place));
    if (passed < 32) {
      const int here = __shfl_sync(~0u, pairs, passed);
      return {first + passed, before + __shfl_sync(~0u, sum, passed) - here, here};
    }
    before += __shfl_sync(~0u, sum, 31);
  }
  return {batch, before, 0};
}

// SequenceOf is the sequence with this number. A whole warp calls it.
__device__ __forceinline__ Sequence SequenceOf(const MojoAttentionArgs& a, int batch) {
  const int pairs = PairsIn(a, batch);
  if (a.past_lengths == nullptr || a.one_length) return {batch, batch * pairs, pairs};
  int before = 0;
#pragma unroll 1
  for (int b = threadIdx.x % 32; b < batch; b += 32) before += PairsIn(a, b);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(~0u, before, step);
  return {batch, before, pairs};
}

// PairsEach is the number of pairs for each partition.
__device__ __forceinline__ int PairsEach(int all, int partitions) { return (all + partitions - 1) / partitions; }

// OfWarp returns v, which is equal in all lanes: the shuffle tells the compiler so, which then keeps one for the warp.
__device__ __forceinline__ int OfWarp(int v) { return __shfl_sync(~0u, v, 0); }

// Segment is the part of a sequence that a block works on: its pairs from begin to end - 1.
struct Segment {
  Pair pair;
  int pairs;  // of the sequence
  int begin, end;

  __device__ __forceinline__ Segment(const MojoAttentionArgs& a, const Sequence& s, int place, int end_place)
      : pair(a, OfWarp(s.batch)),
        pairs(OfWarp(s.pairs)),
        begin(OfWarp(place - s.begin)),
        end(OfWarp(min(s.pairs, end_place - s.begin))) {
    pair.length = OfWarp(pair.length);
  }
};

// Places are the places of a block's pairs.
struct Places {
  const int tile;  // of rows
  int at, end;

  __device__ __forceinline__ Places(const MojoAttentionArgs& a, const Work& work)
      : tile(static_cast<int>(blockIdx.x) % work.row_tiles) {
    const int partitions = static_cast<int>(gridDim.x) / work.row_tiles,
              partition = static_cast<int>(blockIdx.x) / work.row_tiles;
    const int all = FindSequence(a, INT_MAX).begin, each = PairsEach(all, partitions);
    at = OfWarp(min(all, each * partition));
    end = OfWarp(min(all, at + each));
  }
  // Next is the next segment; there is one while at < end.
  __device__ __forceinline__ Segment Next(const MojoAttentionArgs& a) {
    const Segment s(a, FindSequence(a, at), at, end);
    at = OfWarp(at + s.end - s.begin);
    return s;
  }
};

}  // namespace latent
}  // namespace mojo
