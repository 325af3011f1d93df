// Shared parts of RotaryEmbedding and NormRotary: the layout of the work, and the rotation of packs.
//
// A thread handles one chunk of a row: kPackSize pairs (two packs of x) to rotate, or as many channels to copy. The
// threads of a block are (chunk, head, place), so that a thread finds its chunk without a division. With few rows the
// time is a launch, the load of the code and its parameters, and one trip to memory: code and parameters are short.
#pragma once

#include "cuda/common.cuh"

namespace mojo {

constexpr int kRotaryThreads = 128;  // of a block, at most
constexpr int kRotaryHeads = 8;      // of a block, at most; its other threads do other places

// RotaryLaunch is the parameter of a kernel: one tensor, or two with the same cos and sin, whose heads follow those in
// the first. A row is a batch, a place and a head; each place has its cos and sin. Steps are in elements. Fields that
// the addresses in x need come first.
struct RotaryLaunch {
  const void* x[MOJO_MAX_TENSORS];
  uint32_t heads[MOJO_MAX_TENSORS];
  uint32_t head_step[MOJO_MAX_TENSORS];
  uint32_t place_step[MOJO_MAX_TENSORS];
  uint32_t places;
  bool heads_fast;  // blockIdx.x counts groups of heads and y of places; else the other way round
  bool cos_wide;
  bool sin_wide;
  bool scale_is_float;  // NormRotary; else of the type of y
  uint32_t batch_step[MOJO_MAX_TENSORS];
  const void* cos;
  const void* sin;
  uint32_t cos_step[2];  // place, batch
  uint32_t sin_step[2];
  int half;  // pairs
  // NormRotary only.
  bool scale_after_cast;
  const void* scale[MOJO_MAX_TENSORS];
  float epsilon;
  float per_channel;  // 1 / width
  void* y[MOJO_MAX_TENSORS];
  int first;       // rotated channel
  int rest;        // first channel that is copied
  int chunks;      // of a row that are rotated
  int all_chunks;  // of a row
};

// Plain reports whether the launch has the common form: all channels rotated, pairs in halves, and tables as wide as a
// row. It has separate, shorter kernels.
inline bool Plain(const MojoRotaryArgs& args, const RotaryLaunch& p) {
  return p.chunks == p.all_chunks && p.first == 0 && p.cos_wide && p.sin_wide && !args.interleaved &&
         !args.output_interleaved;
}

// RotaryWork is one tensor of a call; norm is null for RotaryEmbedding.
struct RotaryWork {
  const MojoRotaryArgs* rotary;
  const MojoNormRotaryArgs* norm;
};

// RotaryFn launches the packs' kernel of an op for the layouts and the type of args.
typedef cudaError_t (*RotaryFn)(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, dim3 block,
                                cudaStream_t stream);

// RunRotary runs count tensors: in one launch of packs if possible, else one after the other, and with the slow kernel
// if packs cannot handle a tensor.
cudaError_t RunRotary(const RotaryWork* work, int count, RotaryFn packs, cudaStream_t stream);

// RunRotaryAny handles one tensor of any form and alignment.
cudaError_t RunRotaryAny(const RotaryWork& work, cudaStream_t stream);

#if defined(__CUDACC__)

// Place is a thread's position in the work.
struct Place {
  int lane;     // chunk of the row
  bool second;  // tensor
  bool live;    // the row exists
  int64_t x;    // offset of the row
  int64_t cos;  // of the place's rows of the tables
  int64_t sin;
};

// FindPlace returns the place of a thread.
__device__ __forceinline__ Place FindPlace(const RotaryLaunch& p) {
  const uint32_t group = p.heads_fast ? blockIdx.x : blockIdx.y, block = p.heads_fast ? blockIdx.y : blockIdx.x;
  uint32_t head = group * blockDim.y + threadIdx.y;
  const uint32_t at = block * blockDim.z + threadIdx.z;
  Place place;
  place.lane = threadIdx.x;
  place.second = head >= p.heads[0];
  if (place.second) head -= p.heads[0];
  place.live = head < (place.second ? p.heads[1] : p.heads[0]) && at < p.places;
  place.x = int64_t{head} * (place.second ? p.head_step[1] : p.head_step[0]) +
            int64_t{at} * (place.second ? p.place_step[1] : p.place_step[0]) +
            int64_t{blockIdx.z} * (place.second ? p.batch_step[1] : p.batch_step[0]);
  place.cos = int64_t{at} * p.cos_step[0] + int64_t{blockIdx.z} * p.cos_step[1];
  place.sin = int64_t{at} * p.sin_step[0] + int64_t{blockIdx.z} * p.sin_step[1];
  return place;
}

// Pairs are kPackSize pairs: their first numbers and their second ones.
template <class T>
struct Pairs {
  Pack<T, kPackSize<T>> a, b;
};

// Apart separates interleaved pairs, Beside interleaves them.
__device__ __forceinline__ Pairs<float> Apart(const Pairs<float>& p) {
  const auto &u = p.a.words, &v = p.b.words;
  return {{{u[0], u[2], v[0], v[2]}}, {{u[1], u[3], v[1], v[3]}}};
}
__device__ __forceinline__ Pairs<float> Beside(const Pairs<float>& p) {
  const auto &a = p.a.words, &b = p.b.words;
  return {{{a[0], b[0], a[1], b[1]}}, {{a[2], b[2], a[3], b[3]}}};
}
constexpr unsigned int kLowHalves = 0x5410, kHighHalves = 0x7632;
template <class T>
__device__ __forceinline__ Pairs<T> Apart(const Pairs<T>& p) {
  Pairs<T> out;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out.a.words[i] = __byte_perm(p.a.words[2 * i], p.a.words[2 * i + 1], kLowHalves);
    out.b.words[i] = __byte_perm(p.a.words[2 * i], p.a.words[2 * i + 1], kHighHalves);
    out.a.words[2 + i] = __byte_perm(p.b.words[2 * i], p.b.words[2 * i + 1], kLowHalves);
    out.b.words[2 + i] = __byte_perm(p.b.words[2 * i], p.b.words[2 * i + 1], kHighHalves);
  }
  return out;
}
template <class T>
__device__ __forceinline__ Pairs<T> Beside(const Pairs<T>& p) {
  Pairs<T> out;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out.a.words[2 * i] = __byte_perm(p.a.words[i], p.b.words[i], kLowHalves);
    out.a.words[2 * i + 1] = __byte_perm(p.a.words[i], p.b.words[i], kHighHalves);
    out.b.words[2 * i] = __byte_perm(p.a.words[2 + i], p.b.words[2 + i], kLowHalves);
    out.b.words[2 * i + 1] = __byte_perm(p.a.words[2 + i], p.b.words[2 + i], kHighHalves);
  }
  return out;
}

// Channel is the first channel of a chunk's first pack, Step the distance to its second pack.
template <class T, bool kInterleaved>
__device__ __forceinline__ int Channel(int chunk) {
  return chunk * (kInterleaved ? 2 : 1) * kPackSize<T>;
}
template <class T, bool kInterleaved>
__device__ __forceinline__ int Step(int half) {
  return kInterleaved ? kPackSize<T> : half;
}

// Rotation is a chunk's values of cos and sin: a for the first numbers of its results, b for the second.
template <class T>
struct Rotation {
  Pairs<T> cos, sin;
};

template <class T, bool kTo>
__device__ __forceinline__ Pairs<T> LoadTable(const T* table, bool wide, int chunk, int half) {
  constexpr int kCount = kPackSize<T>;
  Pairs<T> p;
  if (wide) {
    table += Channel<T, kTo>(chunk);
    p.a = LoadPack<kCount>(table);
    p.b = LoadPack<kCount>(table + Step<T, kTo>(half));
    return kTo ? Apart(p) : p;
  }
  p.a = LoadPack<kCount>(table + chunk * kCount);
  p.b = p.a;
  return p;
}

// Rotate returns the results of a chunk of pairs.
template <class T>
__device__ __forceinline__ Pairs<T> Rotate(const Pairs<T>& x, const Rotation<T>& r) {
  Pairs<T> y;
#pragma unroll
  for (int i = 0; i < kPackSize<T> / 2; ++i) {
    const Two<T> a = x.a.At(i), b = x.b.At(i);
    y.a.Put(i, Minus(Times(a, r.cos.a.At(i)), Times(b, r.sin.a.At(i))));
    y.b.Put(i, Plus(Times(b, r.cos.b.At(i)), Times(a, r.sin.b.At(i))));
  }
  return y;
}

// Packs are the offsets of a chunk's two packs in x and in y.
struct Packs {
  int from, from_step;
  int to, to_step;
};

// FindPacks returns a lane's packs; chunks from p.chunks on are copied. kFrom and kTo are true if pairs are interleaved
// in x and in y.
template <class T, bool kFrom, bool kTo, bool kPlain>
__device__ __forceinline__ Packs FindPacks(const RotaryLaunch& p, int lane) {
  constexpr int kCount = kPackSize<T>;
  if constexpr (kPlain) return {lane * kCount, p.half, lane * kCount, p.half};
  const bool rotated = lane < p.chunks;
  const int rest = p.rest + (lane - p.chunks) * 2 * kCount;
  Packs packs;
  packs.from = rotated ? p.first + Channel<T, kFrom>(lane) : rest;
  packs.from_step = rotated ? Step<T, kFrom>(p.half) : kCount;
  packs.to = rotated ? p.first + Channel<T, kTo>(lane) : rest;
  packs.to_step = rotated ? Step<T, kTo>(p.half) : kCount;
  return packs;
}

// LoadRotation loads a rotated chunk's values from the tables.
template <class T, bool kTo, bool kPlain>
__device__ __forceinline__ Rotation<T> LoadRotation(const RotaryLaunch& p, const Place& place) {
  return {LoadTable<T, kTo>(static_cast<const T*>(p.cos) + place.cos, kPlain || p.cos_wide, place.lane, p.half),
          LoadTable<T, kTo>(static_cast<const T*>(p.sin) + place.sin, kPlain || p.sin_wide, place.lane, p.half)};
}

// Turn converts a chunk from x's layout to y's and rotates it.
template <bool kFrom, bool kTo, class T>
__device__ __forceinline__ Pairs<T> Turn(const Pairs<T>& chunk, const Rotation<T>& r) {
  const Pairs<T> turned = Rotate(kFrom ? Apart(chunk) : chunk, r);
  return kTo ? Beside(turned) : turned;
}

#endif  // __CUDACC__

}  // namespace mojo
