// NormRotary on CUDA: RMSNorm over the channels of each head, then rotary, in one pass.
//
// Bytes moved: as RotaryEmbedding, and scale once. The lanes of a row, a power of two of them, add up its
// squares.
#include "cuda/rotary.cuh"

namespace mojo {
namespace {

// LoadScale widens the scale of a pack's channels.
template <class T>
__device__ __forceinline__ void LoadScale(const RotaryTensor& t, int channel,
                                          float (&out)[kPackSize<T>]) {
  constexpr int kCount = kPackSize<T>;
  if (t.scale_is_float) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      float four[4];
      ToFloats(LoadPack<4>(static_cast<const float*>(t.scale) + channel + i), four);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i + j] = four[j];
    }
  } else {
    ToFloats(LoadPack<kCount>(static_cast<const T*>(t.scale) + channel), out);
  }
}

template <class T>
__device__ __forceinline__ float Squares(const Pack<T, kPackSize<T>>& pack, float sum) {
  float v[kPackSize<T>];
  ToFloats(pack, v);
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) sum = fmaf(v[i], v[i], sum);
  return sum;
}

// MeanOfSquares is the mean where the sum of the squares overflows float32. Rare, so it reads the row
// again.
template <class T>
__device__ __noinline__ float MeanOfSquares(const T* row, int width, float per_channel, int lane,
                                            int lanes) {
  float mean = 0;
#pragma unroll 1
  for (int i = lane; i < width; i += lanes) {
    const float v = ToFloat(row[i]);
    mean += v * v * per_channel;
  }
  return mean;
}

// Normed is a pack after the norm.
template <class T>
__device__ __forceinline__ Pack<T, kPackSize<T>> Normed(const Pack<T, kPackSize<T>>& pack,
                                                        const float (&scale)[kPackSize<T>], float inv,
                                                        bool after_cast) {
  Pack<T, kPackSize<T>> out;
#pragma unroll
  for (int i = 0; i < kPackSize<T> / 2; ++i) {
    float2 n = ToFloats(pack.At(i));
    n = make_float2(n.x * inv, n.y * inv);
    if (after_cast) n = ToFloats(FromFloats<T>(n.x, n.y));
    out.Put(i, FromFloats<T>(n.x * scale[2 * i], n.y * scale[2 * i + 1]));
  }
  return out;
}

// NormRotatePacks does kHeads heads a thread; kFrom and kTo tell whether the pairs are beside each other
// in x and in y.
//
// Registers: 80 with one head, 96 with two, 128 with four. Shared memory: none.
template <class T, bool kFrom, bool kTo, int kHeads>
__global__ void __launch_bounds__(kRotaryThreads, kHeads == 4 ? 4 : 5)
    NormRotatePacks(const __grid_constant__ RotaryLaunch p) {
  constexpr int kCount = kPackSize<T>;
  const bool second = blockIdx.x >= p.split;
  const RotaryTensor& t = p.tensors[second];
  const uint32_t thread = (blockIdx.x - (second ? p.split : 0)) * kRotaryThreads + threadIdx.x;
  WaitForPrevious();
  // Threads without work stay for the sums.
  const bool in_range = thread < t.threads;
  const Place place = Find<kHeads>(t, in_range ? thread : 0);
  const bool live = in_range && place.lane < t.all_chunks;
  const bool rotated = place.lane < t.chunks;
  const T* x = static_cast<const T*>(t.x) + place.x;
  T* y = static_cast<T*>(t.y) + place.x;
  const Packs packs = FindPacks<T, kFrom, kTo>(t, place.lane);
  Pairs<T> v[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    v[i] = {};
    if (live && place.head + i < t.heads) {
      v[i].a = LoadPack<kCount>(x + i * t.head_step + packs.from);
      v[i].b = LoadPack<kCount>(x + i * t.head_step + packs.from + packs.from_step);
    }
  }
  Rotation<T> r = {};
  float scale_a[kCount] = {}, scale_b[kCount] = {};
  if (live) {
    LoadScale<T>(t, packs.from, scale_a);
    LoadScale<T>(t, packs.from + packs.from_step, scale_b);
    if (rotated) r = LoadRotation<T, kTo>(t, place);
  }
  LetNextStart();
  const int lanes = static_cast<int>(t.lanes.divisor);
  float squares[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) squares[i] = Squares<T>(v[i].b, Squares<T>(v[i].a, 0));
#pragma unroll
  for (int i = 0; i < kHeads; ++i) squares[i] = GroupSum(squares[i], lanes);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const bool there = in_range && place.head + i < t.heads;
    float mean = squares[i] * t.per_channel;
    if (__any_sync(0xffffffffu, !isfinite(squares[i]))) {
      float part = 0;
      if (there) part = MeanOfSquares(x + i * t.head_step, t.width, t.per_channel, place.lane, lanes);
      part = GroupSum(part, lanes);
      if (!isfinite(squares[i])) mean = part;
    }
    if (!there || !live) continue;
    const float inv = rsqrtf(mean + t.epsilon);
    v[i].a = Normed<T>(v[i].a, scale_a, inv, t.scale_after_cast);
    v[i].b = Normed<T>(v[i].b, scale_b, inv, t.scale_after_cast);
    if (rotated) v[i] = Turn<kFrom, kTo>(v[i], r);
    StorePack(y + i * t.head_step + packs.to, v[i].a);
    StorePack(y + i * t.head_step + packs.to + packs.to_step, v[i].b);
  }
}

template <class T, bool kFrom, bool kTo>
struct RunNormRotatePacks {
  static cudaError_t Heads(const RotaryLaunch& launch, dim3 grid, int heads, cudaStream_t stream) {
    return LaunchHeads(NormRotatePacks<T, kFrom, kTo, 1>, NormRotatePacks<T, kFrom, kTo, 2>, NormRotatePacks<T, kFrom, kTo, 4>, launch, grid,
                       heads, stream);
  }
};

cudaError_t RunPacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, int heads,
                     cudaStream_t stream) {
  return PickRotary<RunNormRotatePacks>(args, launch, grid, heads, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaNormRotary(const MojoNormRotaryArgs* args, int count, cudaStream_t stream) {
  if (count < 0 || count > MOJO_MAX_TENSORS) return cudaErrorInvalidValue;
  mojo::RotaryWork work[MOJO_MAX_TENSORS];
  for (int i = 0; i < count; ++i) work[i] = {&args[i].rotary, &args[i]};
  return mojo::RunRotary(work, count, mojo::RunPacks, stream);
}
