// GLU on CUDA.
//
// Bytes moved: 3 times count elements; the floor is those bytes over the memory bandwidth. A thread handles 8 bytes of
// each tensor: with 16, fewer threads load at once, which is up to 4 % slower up to 1024 tokens.
#include "cuda/activation.cuh"
#include "cuda/common.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel.
struct Params {
  const void* gate;
  const void* up;
  void* y;
  int64_t count;
  float alpha;
  float limit;  // infinity: no limit
  float up_offset;
};

// Gated returns two results. kPlain: no limit and no offset, as most models have it.
template <class T, Activation kActivation, bool kPlain>
__device__ __forceinline__ Two<T> Gated(Two<T> gate, Two<T> up, const Params& p) {
  constexpr bool kExact = sizeof(T) == 4;
  float2 g = ToFloats(gate);
  if (!kPlain) {
    // Comparisons that a NaN passes.
    g.x = g.x > p.limit ? p.limit : g.x;
    g.y = g.y > p.limit ? p.limit : g.y;
    float2 u = ToFloats(up);
    u.x = u.x > p.limit ? p.limit : u.x < -p.limit ? -p.limit : u.x;
    u.y = u.y > p.limit ? p.limit : u.y < -p.limit ? -p.limit : u.y;
    up = FromFloats<T>(u.x + p.up_offset, u.y + p.up_offset);
  }
  const Two<T> a =
      FromFloats<T>(Activate<kActivation, kExact>(g.x, p.alpha), Activate<kActivation, kExact>(g.y, p.alpha));
  return Times(a, up);
}

constexpr int kThreads = 256;  // of a block

// GatePacks handles a pack of 8 bytes in each thread, and the incomplete last pack element by element.
//
// Registers: 32. No shared memory.
template <class T, Activation kActivation, bool kPlain>
__global__ void __launch_bounds__(kThreads, 6) GatePacks(const Params p) {
  constexpr int kCount = 8 / sizeof(T);
  const T* gate = static_cast<const T*>(p.gate);
  const T* up = static_cast<const T*>(p.up);
  T* y = static_cast<T*>(p.y);
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  WaitForPrevious();
  if (at + kCount <= p.count) {
    const Pack<T, kCount> g = LoadPack<kCount>(gate + at);
    const Pack<T, kCount> u = LoadPack<kCount>(up + at);
    LetNextStart();
    Pack<T, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) out.Put(j, Gated<T, kActivation, kPlain>(g.At(j), u.At(j), p));
    StorePack(y + at, out);
  } else if (at < p.count) {
#pragma unroll 1
    for (int64_t i = at; i < p.count; ++i) {
      y[i] = Gated<T, kActivation, kPlain>(Twice(gate[i]), Twice(up[i]), p).x;
    }
  }
}

// GateElements is for pointers that are not aligned to 8 bytes.
//
// Registers: 32. No shared memory.
template <class T, Activation kActivation>
__global__ void __launch_bounds__(kThreads, 4) GateElements(const Params p) {
  const T* gate = static_cast<const T*>(p.gate);
  const T* up = static_cast<const T*>(p.up);
  T* y = static_cast<T*>(p.y);
  WaitForPrevious();
  LetNextStart();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count; i += step) {
    y[i] = Gated<T, kActivation, false>(Twice(gate[i]), Twice(up[i]), p).x;
  }
}

template <class T, Activation kActivation, bool kPlain>
cudaError_t RunPacks(const Params& p, cudaStream_t stream) {
  const size_t blocks = DivideUp(p.count, kThreads * (8 / sizeof(T)));
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return Launch(GatePacks<T, kActivation, kPlain>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, p);
}

template <class T, Activation kActivation>
cudaError_t RunActivation(const MojoGLUArgs& args, cudaStream_t stream) {
  const bool plain = !(args.limit > 0) && args.up_offset == 0;
  const Params p = {args.gate,     args.up,
                    args.y,        static_cast<int64_t>(args.count),
                    args.alpha,    args.limit > 0 ? args.limit : __builtin_inff(),
                    args.up_offset};
  if (AllAligned(8, args.gate, args.up, args.y)) {
    return plain ? RunPacks<T, kActivation, true>(p, stream) : RunPacks<T, kActivation, false>(p, stream);
  }
  const size_t most = static_cast<size_t>(TheDevice().multiprocessors) * 8;
  const size_t blocks = DivideUp(args.count, kThreads);
  return Launch(GateElements<T, kActivation>, dim3(static_cast<unsigned>(blocks < most ? blocks : most)),
                dim3(kThreads), 0, stream, p);
}

template <class T>
cudaError_t RunType(const MojoGLUArgs& args, cudaStream_t stream) {
  switch (args.activation) {
    case Activation::kSilu: return RunActivation<T, Activation::kSilu>(args, stream);
    case Activation::kGelu: return RunActivation<T, Activation::kGelu>(args, stream);
    case Activation::kGeluTanh: return RunActivation<T, Activation::kGeluTanh>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaGLU(const MojoGLUArgs* args, cudaStream_t stream) {
  if (args->count == 0) return cudaSuccess;
  return mojo::OfType(args->type, [&](auto t) { return mojo::RunType<decltype(t)>(*args, stream); });
}
