// RotaryEmbedding on CUDA.
//
// Bytes moved: x read and y written once, cos and sin read once for all heads of a place that the same
// block does. The floor is that over the bandwidth of the memory.
#include "cuda/rotary.cuh"

namespace mojo {
namespace {

// RotatePacks rotates kHeads heads a thread; kFrom and kTo tell whether the pairs are beside each other in
// x and in y.
//
// Registers: 48 with one head, 64 with two, 72 with four. Shared memory: none.
template <class T, bool kFrom, bool kTo, int kHeads>
__global__ void __launch_bounds__(kRotaryThreads, 6) RotatePacks(const __grid_constant__ RotaryLaunch p) {
  constexpr int kCount = kPackSize<T>;
  const bool second = blockIdx.x >= p.split;
  const RotaryTensor& t = p.tensors[second];
  const uint32_t thread = (blockIdx.x - (second ? p.split : 0)) * kRotaryThreads + threadIdx.x;
  WaitForPrevious();
  if (thread >= t.threads) return;
  const Place place = Find<kHeads>(t, thread);
  const T* x = static_cast<const T*>(t.x) + place.x;
  T* y = static_cast<T*>(t.y) + place.x;
  const bool rotated = place.lane < t.chunks;
  const Packs packs = FindPacks<T, kFrom, kTo>(t, place.lane);
  Pairs<T> v[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (place.head + i >= t.heads) break;
    v[i].a = LoadPack<kCount>(x + i * t.head_step + packs.from);
    v[i].b = LoadPack<kCount>(x + i * t.head_step + packs.from + packs.from_step);
  }
  Rotation<T> r;
  if (rotated) r = LoadRotation<T, kTo>(t, place);
  LetNextStart();
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (place.head + i >= t.heads) break;
    if (rotated) v[i] = Turn<kFrom, kTo>(v[i], r);
    StorePack(y + i * t.head_step + packs.to, v[i].a);
    StorePack(y + i * t.head_step + packs.to + packs.to_step, v[i].b);
  }
}

template <class T, bool kFrom, bool kTo>
struct RunRotatePacks {
  static cudaError_t Heads(const RotaryLaunch& launch, dim3 grid, int heads, cudaStream_t stream) {
    return LaunchHeads(RotatePacks<T, kFrom, kTo, 1>, RotatePacks<T, kFrom, kTo, 2>, RotatePacks<T, kFrom, kTo, 4>, launch, grid,
                       heads, stream);
  }
};

cudaError_t RunPacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, int heads,
                     cudaStream_t stream) {
  return PickRotary<RunRotatePacks>(args, launch, grid, heads, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* args, int count, cudaStream_t stream) {
  if (count < 0 || count > MOJO_MAX_TENSORS) return cudaErrorInvalidValue;
  mojo::RotaryWork work[MOJO_MAX_TENSORS];
  for (int i = 0; i < count; ++i) work[i] = {&args[i], nullptr};
  return mojo::RunRotary(work, count, mojo::RunPacks, stream);
}
