// GLU on CUDA.
//
// Bytes moved: 3 times count elements; the floor is that over the bandwidth of the memory. A thread asks
// for all its packs of gate and up before it computes.
#include "cuda/glu.cuh"

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
  float limit;  // infinity: none
  float up_offset;
};

// Gated gives two results. kPlain: no limit and no offset, as most models have it.
template <class T, MojoActivation kActivation, bool kPlain>
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
  const Two<T> a = FromFloats<T>(Activate<kActivation, kExact>(g.x, p.alpha),
                                 Activate<kActivation, kExact>(g.y, p.alpha));
  return Times(a, up);
}

// GatePacks does kPacks packs of 16 bytes a thread. What is left of the last pack goes to the last block.
//
// Registers: 40 with one pack, 48 with two (56 with a limit or an offset), 64 with four. Shared memory: none.
template <class T, MojoActivation kActivation, bool kPlain, int kPacks>
__global__ void __launch_bounds__(256, 4) GatePacks(const Params p) {
  constexpr int kCount = kPackSize<T>;
  const T* gate = static_cast<const T*>(p.gate);
  const T* up = static_cast<const T*>(p.up);
  T* y = static_cast<T*>(p.y);
  const int64_t packs = p.count / kCount;
  const int64_t first = int64_t{blockIdx.x} * (blockDim.x * kPacks) + threadIdx.x;
  Pack<T, kCount> g[kPacks], u[kPacks];
  WaitForPrevious();
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int64_t at = first + i * static_cast<int>(blockDim.x);
    if (at < packs) {
      g[i] = LoadPack<kCount>(gate + at * kCount);
      u[i] = LoadPack<kCount>(up + at * kCount);
    }
  }
  LetNextStart();
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int64_t at = first + i * static_cast<int>(blockDim.x);
    if (at >= packs) continue;
    Pack<T, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      out.Put(j, Gated<T, kActivation, kPlain>(g[i].At(j), u[i].At(j), p));
    }
    StorePack(y + at * kCount, out);
  }
  const int64_t rest = packs * kCount + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && rest < p.count) {
    y[rest] = Gated<T, kActivation, kPlain>(Twice(gate[rest]), Twice(up[rest]), p).x;
  }
}

// GateElements is for pointers that are not aligned to 16 bytes.
//
// Registers: 32. Shared memory: none.
template <class T, MojoActivation kActivation>
__global__ void __launch_bounds__(256, 4) GateElements(const Params p) {
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

const GLUPlan* forced_plan = nullptr;

// PlanGLU gives few elements to many blocks, so that each multiprocessor has some. More than one pack a thread was slower at
// every size.
GLUPlan PlanGLU(int64_t packs) {
  if (forced_plan != nullptr) return *forced_plan;
  const int64_t multiprocessors = TheDevice().multiprocessors;
  if (packs <= multiprocessors * 128) return {1, packs <= multiprocessors * 64 ? 64 : 128};
  return {1, 256};
}

template <class T, MojoActivation kActivation, bool kPlain>
cudaError_t RunPacks(const Params& p, cudaStream_t stream) {
  const int64_t packs = p.count / kPackSize<T>;
  const GLUPlan plan = PlanGLU(packs);
  size_t blocks = DivideUp(packs, static_cast<size_t>(plan.packs) * plan.threads);
  if (blocks == 0) blocks = 1;
  const dim3 grid(static_cast<unsigned>(blocks)), block(plan.threads);
  switch (plan.packs) {
    case 1:
      return Launch(GatePacks<T, kActivation, kPlain, 1>, grid, block, 0, stream, p);
    case 2:
      return Launch(GatePacks<T, kActivation, kPlain, 2>, grid, block, 0, stream, p);
    default:
      return Launch(GatePacks<T, kActivation, kPlain, 4>, grid, block, 0, stream, p);
  }
}

template <class T, MojoActivation kActivation>
cudaError_t RunActivation(const MojoGLUArgs& args, cudaStream_t stream) {
  const bool plain = !(args.limit > 0) && args.up_offset == 0;
  const Params p = {args.gate,
                    args.up,
                    args.y,
                    static_cast<int64_t>(args.count),
                    args.alpha,
                    args.limit > 0 ? args.limit : __builtin_inff(),
                    args.up_offset};
  if (Aligned(args.gate, 16) && Aligned(args.up, 16) && Aligned(args.y, 16)) {
    return plain ? RunPacks<T, kActivation, true>(p, stream)
                 : RunPacks<T, kActivation, false>(p, stream);
  }
  const size_t most = static_cast<size_t>(TheDevice().multiprocessors) * 8;
  const size_t blocks = DivideUp(args.count, 256);
  return Launch(GateElements<T, kActivation>, dim3(static_cast<unsigned>(blocks < most ? blocks : most)),
                dim3(256), 0, stream, p);
}

template <class T>
cudaError_t RunType(const MojoGLUArgs& args, cudaStream_t stream) {
  switch (args.activation) {
    case kMojoSilu:
      return RunActivation<T, kMojoSilu>(args, stream);
    case kMojoGelu:
      return RunActivation<T, kMojoGelu>(args, stream);
    case kMojoGeluTanh:
      return RunActivation<T, kMojoGeluTanh>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

void ForceGLUPlan(const GLUPlan* plan) { forced_plan = plan; }

}  // namespace mojo

cudaError_t MojoCudaGLU(const MojoGLUArgs* args, cudaStream_t stream) {
  if (args->count == 0) return cudaSuccess;
  switch (args->type) {
    case kMojoFloat32:
      return mojo::RunType<float>(*args, stream);
    case kMojoFloat16:
      return mojo::RunType<mojo::Half>(*args, stream);
    case kMojoBFloat16:
      return mojo::RunType<mojo::BFloat>(*args, stream);
  }
  return cudaErrorInvalidValue;
}
