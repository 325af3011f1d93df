// What RotaryEmbedding and NormRotary share: how their work lies, and the rotation of packs.
//
// A thread does one chunk of a row: kPackSize pairs (two packs of x) that are rotated, or as many channels
// that are not. It does the same chunk of several heads, rows that take the same cos and sin, with these in
// registers.
#ifndef MOJO_KERNELS_CUDA_ROTARY_CUH_
#define MOJO_KERNELS_CUDA_ROTARY_CUH_

#include "cuda/common.cuh"

namespace mojo {

constexpr int kRotaryThreads = 128;  // of a block
constexpr int kPlaceDims = 3;

// RotaryTensor is one tensor of a launch. A row is a place and a head; a place has its cos and sin.
struct RotaryTensor {
  const void* x;
  const void* cos;
  const void* sin;
  void* y;
  uint32_t threads;    // that have work, of those of the launch
  uint32_t heads;      // rows of a place
  int64_t head_step;   // elements of x from one to the next
  Divider lanes;       // threads of a row
  Divider groups;      // threads that share a place's heads
  Divider dims[kPlaceDims];  // of the places, innermost first
  int64_t x_step[kPlaceDims];
  int64_t cos_step[kPlaceDims];
  int64_t sin_step[kPlaceDims];
  int first;           // rotated channel
  int half;            // pairs
  int rest;            // first channel that is copied
  int chunks;          // of a row that are rotated
  int all_chunks;      // of a row
  bool cos_wide;
  bool sin_wide;
  // NormRotary only.
  const void* scale;
  int width;
  float epsilon;
  float per_channel;  // 1 / width
  bool scale_is_float;  // else of the type of y
  bool scale_after_cast;
};

// RotaryLaunch is the parameter of a kernel: the blocks from split on do the second tensor.
struct RotaryLaunch {
  RotaryTensor tensors[MOJO_MAX_TENSORS];
  uint32_t split;
};

// RotaryWork is one tensor that a call asks for; norm is null for RotaryEmbedding.
struct RotaryWork {
  const MojoRotaryArgs* rotary;
  const MojoNormRotaryArgs* norm;
};

// RotaryFn launches the packs' kernel of an op for the layouts and the type of args, heads heads a thread.
typedef cudaError_t (*RotaryFn)(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid,
                                int heads, cudaStream_t stream);

// RunRotary does count tensors: in one launch of packs where it can, else one after the other, and in the
// slow way those that packs cannot do.
cudaError_t RunRotary(const RotaryWork* work, int count, RotaryFn packs, cudaStream_t stream);

// RunRotaryAny does one tensor of any form and alignment.
cudaError_t RunRotaryAny(const RotaryWork& work, cudaStream_t stream);

// ForceRotaryHeads makes every rotation do 1, 2 or 4 heads a thread, until it is called with 0: for timings
// only, from one thread.
void ForceRotaryHeads(int heads);

// PickRotary calls Run's Heads with the type and the layouts as template arguments. Each op's Run has a name
// of its own: gcc takes instances for templates of one name in two anonymous namespaces for the same.
template <template <class, bool, bool> class Run, class... Params>
cudaError_t PickRotary(const MojoRotaryArgs& args, const Params&... params) {
  const int layouts = (args.interleaved ? 2 : 0) + (args.output_interleaved ? 1 : 0);
  const auto of_type = [&](auto zero) {
    typedef decltype(zero) T;
    switch (layouts) {
      case 0:
        return Run<T, false, false>::Heads(params...);
      case 1:
        return Run<T, false, true>::Heads(params...);
      case 2:
        return Run<T, true, false>::Heads(params...);
      default:
        return Run<T, true, true>::Heads(params...);
    }
  };
  switch (args.type) {
    case kMojoFloat32:
      return of_type(float());
    case kMojoFloat16:
      return of_type(Half());
    case kMojoBFloat16:
      return of_type(BFloat());
  }
  return cudaErrorInvalidValue;
}

// Place is where a thread works.
struct Place {
  int lane;        // chunk of the row
  uint32_t head;   // the first
  int64_t x;       // offset of that head's row
  int64_t cos;     // of the place's rows of the tables
  int64_t sin;
};

// Find gives the place of a thread; thread is below t.threads.
template <int kHeads>
__device__ __forceinline__ Place Find(const RotaryTensor& t, uint32_t thread) {
  Place place;
  uint32_t rest = t.lanes.Divide(thread);
  place.lane = static_cast<int>(thread - rest * t.lanes.divisor);
  uint32_t next = t.groups.Divide(rest);
  place.head = (rest - next * t.groups.divisor) * kHeads;
  place.x = place.head * t.head_step;
  place.cos = 0;
  place.sin = 0;
#pragma unroll
  for (int i = 0; i < kPlaceDims; ++i) {
    rest = next;
    next = t.dims[i].Divide(rest);
    const uint32_t index = rest - next * t.dims[i].divisor;
    place.x += index * t.x_step[i];
    place.cos += index * t.cos_step[i];
    place.sin += index * t.sin_step[i];
  }
  return place;
}

// Pairs are kPackSize pairs: their first numbers and their second ones.
template <class T>
struct Pairs {
  Pack<T, kPackSize<T>> a, b;
};

// Apart takes pairs that lie beside each other apart, Beside puts them there.
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

// Channel is where the first pack of a chunk of half pairs lies, Step how far the second is from it.
template <class T, bool kInterleaved>
__device__ __forceinline__ int Channel(int chunk) {
  return chunk * (kInterleaved ? 2 : 1) * kPackSize<T>;
}
template <class T, bool kInterleaved>
__device__ __forceinline__ int Step(int half) {
  return kInterleaved ? kPackSize<T> : half;
}

// Rotation is what a chunk takes of cos and sin: a for the first numbers of its results, b for the
// second.
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

// Rotate gives the results of a chunk of pairs.
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

// Packs is where the two packs of a chunk lie in x and in y.
struct Packs {
  int from, from_step;
  int to, to_step;
};

// FindPacks gives those of a lane; chunks from t.chunks on are copied. kFrom and kTo tell whether the pairs are beside
// each other in x and in y.
template <class T, bool kFrom, bool kTo>
__device__ __forceinline__ Packs FindPacks(const RotaryTensor& t, int lane) {
  constexpr int kCount = kPackSize<T>;
  const bool rotated = lane < t.chunks;
  const int rest = t.rest + (lane - t.chunks) * 2 * kCount;
  Packs packs;
  packs.from = rotated ? t.first + Channel<T, kFrom>(lane) : rest;
  packs.from_step = rotated ? Step<T, kFrom>(t.half) : kCount;
  packs.to = rotated ? t.first + Channel<T, kTo>(lane) : rest;
  packs.to_step = rotated ? Step<T, kTo>(t.half) : kCount;
  return packs;
}

// LoadRotation gives what a chunk that is rotated takes of the tables.
template <class T, bool kTo>
__device__ __forceinline__ Rotation<T> LoadRotation(const RotaryTensor& t, const Place& place) {
  return {LoadTable<T, kTo>(static_cast<const T*>(t.cos) + place.cos, t.cos_wide, place.lane, t.half),
          LoadTable<T, kTo>(static_cast<const T*>(t.sin) + place.sin, t.sin_wide, place.lane, t.half)};
}

// Turn rotates a chunk as it lies in x to one as it lies in y.
template <bool kFrom, bool kTo, class T>
__device__ __forceinline__ Pairs<T> Turn(const Pairs<T>& chunk, const Rotation<T>& r) {
  const Pairs<T> turned = Rotate(kFrom ? Apart(chunk) : chunk, r);
  return kTo ? Beside(turned) : turned;
}

// LaunchHeads launches the one of three kernels that does heads (1, 2 or 4) heads a thread.
typedef void (*RotaryKernel)(RotaryLaunch);
inline cudaError_t LaunchHeads(RotaryKernel one, RotaryKernel two, RotaryKernel four, const RotaryLaunch& launch, dim3 grid,
                               int heads, cudaStream_t stream) {
  return Launch(heads == 1 ? one : heads == 2 ? two : four, grid, dim3(kRotaryThreads), 0, stream, launch);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_ROTARY_CUH_
