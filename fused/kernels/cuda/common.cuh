// Shared parts of the CUDA kernels: launches, element types, 16-byte vectors, sums over threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "cuda/mojo_cuda.h"

namespace mojo {

typedef __half Half;
typedef __nv_bfloat16 BFloat;

// kSystemBytes is the shared memory that the driver takes of each block.
constexpr int kSystemBytes = 1024;

// Device is the data on the current device that launches need.
struct Device {
  int multiprocessors;
  int capability;    // 90 for compute capability 9.0
  int shared_bytes;  // the most that a block may have
  bool waits;        // the kernels that it runs know WaitForPrevious
  // The number of multiprocessors that clusters of 1, 2, 4 and 8 blocks can fill, with one block on each.
  int clustered[4];
  // [n][bits]: the blocks of clusters of 1 << bits that run at one time if a multiprocessor has room for n, 2 or 3.
  int beside[4][4];
};

// TheDevice reads the current device's numbers once per device.
const Device& TheDevice();

// LaunchPoint is the position of a launch in a stream.
struct LaunchPoint {
  bool dependent = false;  // use a programmatic dependent launch
  bool captured = false;   // it becomes a node of a graph
};

// BeginLaunch returns it for the next launch. A dependent launch takes 1.1 to 1.6 us less than another in a stream
// (H200), after any kernel. In a graph it takes 0.8 us less after a kernel that calls LetNextStart, and 0.2 to 0.3 more
// after one that does not: in a graph a launch is dependent only after another node of Launch.
LaunchPoint BeginLaunch(cudaStream_t stream);

// EndLaunch is called after the launch.
void EndLaunch(const LaunchPoint& point, cudaStream_t stream);

inline size_t TypeSize(MojoType type) { return type == kMojoFloat32 ? 4 : 2; }

// Aligned reports whether p is aligned to bytes, a power of two.
inline bool Aligned(const void* p, size_t bytes) { return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0; }

// AllAligned is Aligned for several pointers.
template <class... Pointers>
bool AllAligned(size_t bytes, Pointers... p) {
  return (Aligned(p, bytes) && ...);
}

__host__ __device__ constexpr size_t DivideUp(size_t a, size_t b) { return (a + b - 1) / b; }

// LaunchClusters starts a kernel that begins with WaitForPrevious, in clusters of this size. Its blocks may be
// scheduled while the previous kernel in the stream ends.
template <class... Params, class... Args>
cudaError_t LaunchClusters(void (*kernel)(Params...), int cluster, dim3 grid, dim3 block, size_t shared_bytes,
                           cudaStream_t stream, Args&&... args) {
  const LaunchPoint point = BeginLaunch(stream);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (point.dependent) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(args)...);
  EndLaunch(point, stream);
  return error;
}

// OfType calls f with a zero of the stored type.
template <class F>
cudaError_t OfType(MojoType type, F f) {
  switch (type) {
    case kMojoFloat32: return f(float());
    case kMojoFloat16: return f(Half());
    case kMojoBFloat16: return f(BFloat());
  }
  return cudaErrorInvalidValue;
}

// Launch starts a kernel without clusters.
template <class... Params, class... Args>
cudaError_t Launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   Args&&... args) {
  return LaunchClusters(kernel, 1, grid, block, shared_bytes, stream, args...);
}

// What follows is device code, which files without kernels do not see: HOST of the Makefile.
#if defined(__CUDACC__)

// Divisor divides numbers from 0 to 2^31 - 1 by d, which the host knows, with a product: Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication", 1994. A division is 25 instructions, wherever it stands.
struct Divisor {
  int bits = 0;         // log2 of d, rounded up
  unsigned factor = 0;  // 2^(31 + bits) / d, rounded up

  Divisor() = default;
  explicit Divisor(size_t d) {
    while (d > size_t{1} << bits) ++bits;
    if (d > 0) factor = static_cast<unsigned>((size_t{1} << (31 + bits)) / d + 1);
  }
  __device__ __forceinline__ int Quotient(int n) const { return static_cast<int>(__umulhi(2u * n, factor) >> bits); }
};

// WaitForPrevious waits until the kernels before this one in the stream have ended and their writes can
// be seen. Every thread of a kernel started by Launch calls it before it touches device memory: a
// kernel that skips it could end before its predecessors, and its successor would start too early.
__device__ __forceinline__ void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// LetNextStart allows the next kernel's blocks to be scheduled (they wait in WaitForPrevious) once every
// block of this one has called it or ended.
__device__ __forceinline__ void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ float ToFloat(float v) { return v; }
__device__ __forceinline__ float ToFloat(Half v) { return __half2float(v); }
__device__ __forceinline__ float ToFloat(BFloat v) { return __bfloat162float(v); }

// FromFloat rounds to T, to nearest even.
template <class T>
__device__ __forceinline__ T FromFloat(float v);
template <>
__device__ __forceinline__ float FromFloat<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ Half FromFloat<Half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ __forceinline__ BFloat FromFloat<BFloat>(float v) {
  return __float2bfloat16_rn(v);
}

// Number reads element i of a tensor of one of the types.
__device__ __forceinline__ float Number(const void* p, size_t i, MojoType type) {
  if (type == kMojoFloat32) return static_cast<const float*>(p)[i];
  if (type == kMojoFloat16) return ToFloat(static_cast<const Half*>(p)[i]);
  return ToFloat(static_cast<const BFloat*>(p)[i]);
}

// Round is v rounded to T.
template <class T>
__device__ __forceinline__ float Round(float v) {
  return ToFloat(FromFloat<T>(v));
}

// Two<T> is two adjacent numbers, the unit of 16-bit arithmetic.
template <class T>
struct TwoOf;
template <>
struct TwoOf<float> {
  typedef float2 Type;
};
template <>
struct TwoOf<Half> {
  typedef __half2 Type;
};
template <>
struct TwoOf<BFloat> {
  typedef __nv_bfloat162 Type;
};
template <class T>
using Two = typename TwoOf<T>::Type;

__device__ __forceinline__ float2 ToFloats(float2 v) { return v; }
__device__ __forceinline__ float2 ToFloats(__half2 v) { return __half22float2(v); }
__device__ __forceinline__ float2 ToFloats(__nv_bfloat162 v) {
  unsigned int word;
  memcpy(&word, &v, 4);
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

// FromFloats rounds both numbers to T.
template <class T>
__device__ __forceinline__ Two<T> FromFloats(float a, float b);
template <>
__device__ __forceinline__ float2 FromFloats<float>(float a, float b) {
  return make_float2(a, b);
}
template <>
__device__ __forceinline__ __half2 FromFloats<Half>(float a, float b) {
  return __floats2half2_rn(a, b);
}
template <>
__device__ __forceinline__ __nv_bfloat162 FromFloats<BFloat>(float a, float b) {
  return __floats2bfloat162_rn(a, b);
}

// Twice is v in both places.
template <class T>
__device__ __forceinline__ Two<T> Twice(T v) {
  Two<T> two;
  two.x = v;
  two.y = v;
  return two;
}

// Times, Plus and Minus round each result to the type of the numbers, as if it were computed in float32 first: there
// the product of two 16 bit numbers is exact, and so is their sum whenever it is near the middle between two results.
// The compiler does not fuse them.
__device__ __forceinline__ float2 Times(float2 a, float2 b) {
  return make_float2(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y));
}
__device__ __forceinline__ float2 Plus(float2 a, float2 b) {
  return make_float2(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y));
}
__device__ __forceinline__ float2 Minus(float2 a, float2 b) {
  return make_float2(__fsub_rn(a.x, b.x), __fsub_rn(a.y, b.y));
}
__device__ __forceinline__ __half2 Times(__half2 a, __half2 b) { return __hmul2_rn(a, b); }
__device__ __forceinline__ __half2 Plus(__half2 a, __half2 b) { return __hadd2_rn(a, b); }
__device__ __forceinline__ __half2 Minus(__half2 a, __half2 b) { return __hsub2_rn(a, b); }
__device__ __forceinline__ __nv_bfloat162 Times(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmul2_rn(a, b); }
__device__ __forceinline__ __nv_bfloat162 Plus(__nv_bfloat162 a, __nv_bfloat162 b) { return __hadd2_rn(a, b); }
__device__ __forceinline__ __nv_bfloat162 Minus(__nv_bfloat162 a, __nv_bfloat162 b) { return __hsub2_rn(a, b); }

// Pack is an even number of contiguous T, at most 16 bytes, that are loaded and stored at once. It holds whole
// registers: the compiler would split an array of 16-bit T.
template <class T, int kCount>
struct Pack {
  static constexpr int kWords = kCount * sizeof(T) / 4;
  static_assert(kCount % 2 == 0 && kWords >= 1 && kWords <= 4, "4, 8 or 16 bytes");
  unsigned int words[kWords];

  // At returns the numbers 2i and 2i + 1, Put sets them.
  __device__ __forceinline__ Two<T> At(int i) const {
    Two<T> two;
    memcpy(&two, words + i * (sizeof(two) / 4), sizeof(two));
    return two;
  }
  __device__ __forceinline__ void Put(int i, Two<T> two) { memcpy(words + i * (sizeof(two) / 4), &two, sizeof(two)); }
};

// kPackSize is how many numbers are 16 bytes.
template <class T>
constexpr int kPackSize = 16 / sizeof(T);

// LoadPack loads data that other threads or blocks read too.
template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> LoadPack(const T* p) {
  Pack<T, kCount> pack;
  if constexpr (pack.kWords == 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    pack.words[0] = v.x, pack.words[1] = v.y, pack.words[2] = v.z, pack.words[3] = v.w;
  } else if constexpr (pack.kWords == 2) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    pack.words[0] = v.x, pack.words[1] = v.y;
  } else {
    pack.words[0] = *reinterpret_cast<const unsigned int*>(p);
  }
  return pack;
}

template <class T, int kCount>
__device__ __forceinline__ void StorePack(T* p, const Pack<T, kCount>& pack) {
  const auto& w = pack.words;
  if constexpr (pack.kWords == 4) {
    *reinterpret_cast<uint4*>(p) = make_uint4(w[0], w[1], w[2], w[3]);
  } else if constexpr (pack.kWords == 2) {
    *reinterpret_cast<uint2*>(p) = make_uint2(w[0], w[1]);
  } else {
    *reinterpret_cast<unsigned int*>(p) = w[0];
  }
}

// ToFloats widens a pack.
template <class T, int kCount>
__device__ __forceinline__ void ToFloats(const Pack<T, kCount>& pack, float (&out)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float2 two = ToFloats(pack.At(i));
    out[2 * i] = two.x;
    out[2 * i + 1] = two.y;
  }
}

// PackFloats rounds numbers to a pack.
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> PackFloats(const float (&v)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) pack.Put(i, FromFloats<T>(v[2 * i], v[2 * i + 1]));
  return pack;
}

// GroupSum adds v over aligned groups of size lanes, a power of two of at most 32. All lanes of the warp
// take part and all of a group get the same sum.
__device__ __forceinline__ float GroupSum(float v, int size) {
  for (int step = size / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

__device__ __forceinline__ float WarpSum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

// BlockSum adds v over a block of whole warps, at most kMaxThreads; all threads get the same sum. shared has
// kMaxThreads / 32 numbers, aligned to 16 bytes, and may be used again after a barrier. Reading the warps' sums in
// quads is shorter than a second tree of shuffles, and zeros for missing warps are shorter than a loop.
template <int kMaxThreads>
__device__ __forceinline__ float BlockSum(float v, float* shared) {
  static_assert(kMaxThreads % 128 == 0 && kMaxThreads <= 1024, "quads of warps, and a thread of a warp for each");
  v = WarpSum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  if (threadIdx.x < kMaxThreads / 32 && threadIdx.x >= blockDim.x / 32) shared[threadIdx.x] = 0;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMaxThreads / 32; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(shared + i);
    sum += (four.x + four.y) + (four.z + four.w);
  }
  return sum;
}

#endif  // __CUDACC__

}  // namespace mojo
