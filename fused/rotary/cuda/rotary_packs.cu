// RotaryEmbedding, and NormRotary: RMSNorm over the channels of each head, then rotary, in one pass.
//
// Bytes moved: x read and y written once, cos and sin read once for all heads of a place in the same block, and the
// scale once. The floor is those bytes over the memory bandwidth. With a norm, the lanes of a row, a power of two of
// them, add up its squares.
#include <type_traits>

#include "cuda/norm_packs.cuh"
#include "rotary/cuda/rotary.cuh"

namespace mojo {
namespace {

// RotatePacks rotates; kFrom and kTo are true if pairs are interleaved in x and in y.
//
// Registers: 32 with kPlain, else 40. No shared memory.
template <class T, bool kFrom, bool kTo, bool kPlain>
__global__ void __launch_bounds__(kRotaryThreads, kPlain && sizeof(T) < 4 ? 16 : 12)
    RotatePacks(const __grid_constant__ RotaryLaunch p) {
  constexpr int kCount = kPackSize<T>;
  WaitForPrevious();
  const Place place = FindPlace(p);
  if (!place.live) return;
  const Packs packs = FindPacks<T, kFrom, kTo, kPlain>(p, place.lane);
  const T* x = static_cast<const T*>(place.second ? p.x[1] : p.x[0]) + place.x + packs.from;
  Pairs<T> v;
  v.a = LoadPack<kCount>(x);
  v.b = LoadPack<kCount>(x + packs.from_step);
  const bool rotated = kPlain || place.lane < p.chunks;
  Rotation<T> r;
  if (rotated) r = LoadRotation<T, kTo, kPlain>(p, place);
  LetNextStart();
  if (rotated) v = Turn<kFrom, kTo>(v, r);
  T* y = static_cast<T*>(place.second ? p.y[1] : p.y[0]) + place.x + packs.to;
  StorePack(y, v.a);
  StorePack(y + packs.to_step, v.b);
}

// Normed is a pack after the norm.
template <class T, class S, int kCount>
__device__ __forceinline__ Pack<T, kCount> Normed(const Pack<T, kCount>& pack, const ScaleOf<S, kCount>& scale,
                                                  float inv, bool after_cast) {
  Pack<T, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    float2 n = ToFloats(pack.At(i));
    n = make_float2(n.x * inv, n.y * inv);
    if constexpr (std::is_same_v<S, T>) {
      if (after_cast) {
        out.Put(i, Times(FromFloats<T>(n.x, n.y), scale.At(i)));
        continue;
      }
    } else {
      if (after_cast) n = ToFloats(FromFloats<T>(n.x, n.y));
    }
    const float2 wide = ToFloats(scale.At(i));
    out.Put(i, FromFloats<T>(n.x * wide.x, n.y * wide.y));
  }
  return out;
}

// NormRotatePacks normalizes and rotates; kFrom and kTo are true if pairs are interleaved in x and in y. S is the type
// of the scale.
//
// Registers: 64. No shared memory.
template <class T, class S, bool kFrom, bool kTo, bool kPlain>
__global__ void __launch_bounds__(kRotaryThreads, 8) NormRotatePacks(const __grid_constant__ RotaryLaunch p) {
  constexpr int kCount = kPackSize<T>;
  WaitForPrevious();
  const Place place = FindPlace(p);
  // Threads without work stay for the sums.
  const bool live = place.live && place.lane < p.all_chunks;
  const bool rotated = kPlain || place.lane < p.chunks;
  const Packs packs = FindPacks<T, kFrom, kTo, kPlain>(p, place.lane);
  Pairs<T> v = {};
  Rotation<T> r = {};
  ScaleOf<S, kCount> scale_a = {}, scale_b = {};
  if (live) {
    const T* x = static_cast<const T*>(place.second ? p.x[1] : p.x[0]) + place.x + packs.from;
    v.a = LoadPack<kCount>(x);
    v.b = LoadPack<kCount>(x + packs.from_step);
    if (rotated) r = LoadRotation<T, kTo, kPlain>(p, place);
    const S* scale = static_cast<const S*>(place.second ? p.scale[1] : p.scale[0]) + packs.from;
    scale_a.Load(scale);
    scale_b.Load(scale + packs.from_step);
  }
  LetNextStart();
  const float mean = GroupSum(MeanParts(v.a, p.per_channel, 0) + MeanParts(v.b, p.per_channel, 0), blockDim.x);
  if (!live) return;
  const float inv = rsqrtf(mean + p.epsilon);
  v.a = Normed<T>(v.a, scale_a, inv, p.scale_after_cast);
  v.b = Normed<T>(v.b, scale_b, inv, p.scale_after_cast);
  if (rotated) v = Turn<kFrom, kTo>(v, r);
  T* y = static_cast<T*>(place.second ? p.y[1] : p.y[0]) + place.x + packs.to;
  StorePack(y, v.a);
  StorePack(y + packs.to_step, v.b);
}

// PickPacks calls run with the type, the layouts and whether the launch is plain, as types.
template <class Run>
cudaError_t PickPacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, Run run) {
  const std::true_type yes;
  const std::false_type no;
  return OfType(args.type, [&](auto t) {
    if (Plain(args, launch)) return run(t, no, no, yes);
    if (args.interleaved) return args.output_interleaved ? run(t, yes, yes, no) : run(t, yes, no, no);
    return args.output_interleaved ? run(t, no, yes, no) : run(t, no, no, no);
  });
}

cudaError_t RunRotatePacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, dim3 block,
                           cudaStream_t stream) {
  return PickPacks(args, launch, [&](auto t, auto from, auto to, auto plain) {
    const auto kernel = RotatePacks<decltype(t), decltype(from)::value, decltype(to)::value, decltype(plain)::value>;
    return Launch(kernel, grid, block, 0, stream, launch);
  });
}

cudaError_t RunNormRotatePacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, dim3 block,
                               cudaStream_t stream) {
  return PickPacks(args, launch, [&](auto t, auto from, auto to, auto plain) {
    typedef decltype(t) T;
    constexpr bool kFrom = decltype(from)::value, kTo = decltype(to)::value, kPlain = decltype(plain)::value;
    const auto kernel = launch.scale_is_float ? NormRotatePacks<T, float, kFrom, kTo, kPlain>
                                              : NormRotatePacks<T, T, kFrom, kTo, kPlain>;
    return Launch(kernel, grid, block, 0, stream, launch);
  });
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* args, int count, cudaStream_t stream) {
  if (count < 0 || count > MOJO_MAX_TENSORS) return cudaErrorInvalidValue;
  mojo::RotaryWork work[MOJO_MAX_TENSORS];
  for (int i = 0; i < count; ++i) work[i] = {&args[i], nullptr};
  return mojo::RunRotary(work, count, mojo::RunRotatePacks, stream);
}

cudaError_t MojoCudaNormRotary(const MojoNormRotaryArgs* args, int count, cudaStream_t stream) {
  if (count < 0 || count > MOJO_MAX_TENSORS) return cudaErrorInvalidValue;
  mojo::RotaryWork work[MOJO_MAX_TENSORS];
  for (int i = 0; i < count; ++i) work[i] = {&args[i].rotary, &args[i]};
  return mojo::RunRotary(work, count, mojo::RunNormRotatePacks, stream);
}
