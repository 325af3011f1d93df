// RotaryEmbedding on CUDA.
//
// Bytes moved: x read and y written once, cos and sin read once for all heads of a place in the same block. The floor
// is those bytes over the memory bandwidth.
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

template <class T, bool kFrom, bool kTo, bool kPlain>
struct RunRotatePacks {
  static cudaError_t Packs(const RotaryLaunch& launch, dim3 grid, dim3 block, cudaStream_t stream) {
    return Launch(RotatePacks<T, kFrom, kTo, kPlain>, grid, block, 0, stream, launch);
  }
};

cudaError_t RunPacks(const MojoRotaryArgs& args, const RotaryLaunch& launch, dim3 grid, dim3 block,
                     cudaStream_t stream) {
  return PickRotary<RunRotatePacks>(args, launch, grid, block, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaRotaryEmbedding(const MojoRotaryArgs* args, int count, cudaStream_t stream) {
  if (count < 0 || count > MOJO_MAX_TENSORS) return cudaErrorInvalidValue;
  mojo::RotaryWork work[MOJO_MAX_TENSORS];
  for (int i = 0; i < count; ++i) work[i] = {&args[i], nullptr};
  return mojo::RunRotary(work, count, mojo::RunPacks, stream);
}
