// BiasGELU on CUDA.
//
// Bytes moved: 2 times rows * width elements, and the bias once. The floor is those bytes over the memory bandwidth.
#include "cuda/activation.cuh"
#include "cuda/common.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel.
struct Params {
  const void* x;
  const void* bias;
  void* y;
  int64_t count;
  int64_t width;
  float alpha;
};

constexpr int kThreads = 256;  // of a block

// Activated returns two results.
template <class T, Activation kActivation>
__device__ __forceinline__ Two<T> Activated(Two<T> x, Two<T> bias, float alpha) {
  constexpr bool kExact = sizeof(T) == 4;
  const float2 g = ToFloats(Plus(x, bias));
  return FromFloats<T>(Activate<kActivation, kExact>(g.x, alpha), Activate<kActivation, kExact>(g.y, alpha));
}

// GeluPacks handles one pack of kBytes in each thread, or one element if kBytes is 0. Packs divide a row.
//
// Registers: 24. No shared memory.
template <class T, Activation kActivation, int kBytes>
__global__ void __launch_bounds__(kThreads, 6) GeluPacks(const Params p) {
  constexpr int kCount = kBytes == 0 ? 1 : kBytes / sizeof(T);
  const T* x = static_cast<const T*>(p.x);
  const T* bias = static_cast<const T*>(p.bias);
  T* y = static_cast<T*>(p.y);
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  WaitForPrevious();
  if (at >= p.count) return;
  const int64_t channel =
      p.count <= UINT32_MAX ? static_cast<uint32_t>(at) % static_cast<uint32_t>(p.width) : at % p.width;
  if constexpr (kBytes == 0) {
    y[at] = Activated<T, kActivation>(Twice(x[at]), Twice(bias[channel]), p.alpha).x;
  } else {
    const Pack<T, kCount> v = LoadPack<kCount>(x + at), b = LoadPack<kCount>(bias + channel);
    LetNextStart();
    Pack<T, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) out.Put(j, Activated<T, kActivation>(v.At(j), b.At(j), p.alpha));
    StorePack(y + at, out);
  }
}

template <class T, Activation kActivation, int kBytes>
cudaError_t RunPacks(const Params& p, cudaStream_t stream) {
  const size_t blocks = DivideUp(p.count, kThreads * (kBytes == 0 ? 1 : kBytes / sizeof(T)));
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return Launch(GeluPacks<T, kActivation, kBytes>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, p);
}

template <class T, Activation kActivation>
cudaError_t RunActivation(const Params& p, cudaStream_t stream) {
  const bool packs = p.width % static_cast<int64_t>(8 / sizeof(T)) == 0 && AllAligned(8, p.x, p.bias, p.y);
  return packs ? RunPacks<T, kActivation, 8>(p, stream) : RunPacks<T, kActivation, 0>(p, stream);
}

template <class T>
cudaError_t RunType(const MojoBiasGELUArgs& args, const Params& p, cudaStream_t stream) {
  switch (args.activation) {
    case Activation::kSilu: return RunActivation<T, Activation::kSilu>(p, stream);
    case Activation::kGelu: return RunActivation<T, Activation::kGelu>(p, stream);
    case Activation::kGeluTanh: return RunActivation<T, Activation::kGeluTanh>(p, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaBiasGELU(const MojoBiasGELUArgs* args, cudaStream_t stream) {
  if (args->rows == 0 || args->width == 0) return cudaSuccess;
  const mojo::Params p = {args->x,
                          args->bias,
                          args->y,
                          static_cast<int64_t>(args->rows * args->width),
                          static_cast<int64_t>(args->width),
                          args->alpha};
  return mojo::OfType(args->type, [&](auto t) { return mojo::RunType<decltype(t)>(*args, p, stream); });
}
