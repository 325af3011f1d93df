// RMSNorm and AddRMSNorm on CUDA.
//
// A row stays in registers between the sum of squares and the scaling: memory is read once. A row is
// done by a group of lanes of a warp, by a whole block, or, where it is too wide or not aligned to 16
// bytes, by a block that reads it twice.
//
// Bytes moved: RMSNorm 2 and AddRMSNorm 4 times rows * width elements, and scale once. The floor is
// that over the bandwidth of the memory.
#include "cuda/rms_norm.cuh"

#include <type_traits>

#include "cuda/common.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel. X is the type of x, residual and sum.
struct Params {
  const void* x;
  const void* residual;
  const void* scale;
  void* y;
  void* sum;
  int64_t rows;
  int width;
  float per_element;  // 1 / width
  float epsilon;
  bool scale_after_cast;
  unsigned int zero;  // 0, which the compiler does not know
};

// Forget makes the compiler forget what it derived from a pack. It would keep the widened numbers of the
// first pass for the second: twice the registers, and spills.
template <class T, int kCount>
__device__ __forceinline__ void Forget(unsigned int zero, Pack<T, kCount>* pack) {
#pragma unroll
  for (int i = 0; i < pack->kWords; ++i) pack->words[i] ^= zero;
}

// AddPacks gives round_T(a + b).
template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> AddPacks(const Pack<T, kCount>& a,
                                                    const Pack<T, kCount>& b) {
  float u[kCount], v[kCount];
  ToFloats(a, u);
  ToFloats(b, v);
#pragma unroll
  for (int i = 0; i < kCount; ++i) u[i] += v[i];
  return PackFloats<T>(u);
}

// Squares adds the squares of a pack to two sums: chains half as long.
template <class T, int kCount>
__device__ __forceinline__ float2 Squares(const Pack<T, kCount>& pack, float2 sum) {
  float v[kCount];
  ToFloats(pack, v);
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    sum.x = fmaf(v[i], v[i], sum.x);
    sum.y = fmaf(v[i + 1], v[i + 1], sum.y);
  }
  return sum;
}

// Element is an element of what is normalised.
template <class X, bool kAdd>
__device__ __forceinline__ float Element(const X* x, const X* residual, int i) {
  const float v = ToFloat(x[i]);
  return kAdd ? Round<X>(v + ToFloat(residual[i])) : v;
}

// MeanParts adds a thread's parts of the mean of the squares. Where their sum overflows float32 the mean
// need not. Rare, so it reads the row again and keeps the registers of the usual way few.
template <class X, bool kAdd>
__device__ __forceinline__ float MeanParts(const X* x, const X* residual, int width,
                                           float per_element, int threads) {
  float part = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < width; i += threads) {
    const float v = Element<X, kAdd>(x, residual, i);
    part += v * v * per_element;
  }
  return part;
}

// ScaleOf is the scale of kCount numbers; where it is wider than they, it is two packs.
template <class S, int kCount>
struct ScaleOf {
  static constexpr int kPart = kCount < kPackSize<S> ? kCount : kPackSize<S>;
  Pack<S, kPart> parts[kCount / kPart];

  __device__ __forceinline__ void Load(const S* p) {
#pragma unroll
    for (int i = 0; i < kCount / kPart; ++i) parts[i] = LoadPack<kPart>(p + i * kPart);
  }
};

// Scaled gives the result of a pack. Numbers are rounded in pairs, which one instruction does.
template <class Y, class X, class S, int kCount>
__device__ __forceinline__ Pack<Y, kCount> Scaled(const Pack<X, kCount>& x,
                                                  const ScaleOf<S, kCount>& scale, float inv,
                                                  bool after_cast) {
  constexpr int kPairs = ScaleOf<S, kCount>::kPart / 2;
  Pack<Y, kCount> y;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float2 v = ToFloats(x.At(i));
    const Two<S> s = scale.parts[i / kPairs].At(i % kPairs);
    if constexpr (std::is_same_v<S, Y>) {
      if (after_cast) {
        y.Put(i, Times(FromFloats<Y>(v.x * inv, v.y * inv), s));
        continue;
      }
    }
    const float2 wide = ToFloats(s);
    y.Put(i, FromFloats<Y>(v.x * inv * wide.x, v.y * inv * wide.y));
  }
  return y;
}

constexpr int kMostThreads = 512;   // of a block
constexpr int kGroupThreads = 128;  // of a block of groups

// BlocksAtOnce is how many blocks shall fit a multiprocessor: what is in flight then, 16 bytes (with kAdd
// 32) for each pack of each thread, covers the latency of memory.
constexpr int BlocksAtOnce(bool add, int packs, bool groups) {
  if (groups) return packs > 4 ? 4 : packs == 4 && !add ? 10 : 8;
  return packs > 4 ? 1 : packs == 4 && !add ? 3 : 2;
}

// NormRows keeps kPacks packs of a row in each thread. blockDim.x threads do a row: with kGroups a power
// of two of at most 32, and blockDim.y rows a block; else whole warps and one row.
//
// Registers: 32 with one pack, 40 with two, 48 with four (56 with kAdd), 64 with eight (96 with kAdd).
// Shared memory: 64 bytes without kGroups.
template <class X, class Y, class S, bool kAdd, int kPacks, bool kGroups>
__global__ void __launch_bounds__(kGroups ? kGroupThreads : kMostThreads, BlocksAtOnce(kAdd, kPacks, kGroups))
    NormRows(const Params p) {
  constexpr int kCount = kPackSize<X>;
  // The scale is asked for together with the row where that costs few registers.
  constexpr bool kEarlyScale = kPacks <= 2;
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int threads = blockDim.x;
  const int packs = p.width / kCount;
  const int64_t row = kGroups ? int64_t{blockIdx.x} * blockDim.y + threadIdx.y : int64_t{blockIdx.x};
  const bool live = !kGroups || row < p.rows;
  const int64_t offset = row * p.width;
  const X* x = static_cast<const X*>(p.x) + offset;
  const X* residual = static_cast<const X*>(p.residual) + offset;
  const S* scale = static_cast<const S*>(p.scale);
  Pack<X, kCount> v[kPacks];
  WaitForPrevious();
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    v[i] = live && at < packs ? LoadPack<kCount>(x + at * kCount) : Pack<X, kCount>{};
  }
  Pack<X, kCount> r[kAdd ? kPacks : 1];
  if constexpr (kAdd) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = i * threads + static_cast<int>(threadIdx.x);
      r[i] = live && at < packs ? LoadPack<kCount>(residual + at * kCount) : Pack<X, kCount>{};
    }
  }
  ScaleOf<S, kCount> of_scale[kPacks];
  if constexpr (kEarlyScale) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = i * threads + static_cast<int>(threadIdx.x);
      if (at < packs) of_scale[i].Load(scale + at * kCount);
    }
  }
  if constexpr (kAdd) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) v[i] = AddPacks(v[i], r[i]);
  }
  LetNextStart();
  float2 two = make_float2(0, 0);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) two = Squares(v[i], two);
  const float squares = kGroups ? GroupSum(two.x + two.y, threads)
                                : BlockSum<kMostThreads>(two.x + two.y, sums);
  float mean = squares * p.per_element;
  if (kGroups ? __any_sync(0xffffffffu, !isfinite(squares)) : !isfinite(squares)) {
    float part = live ? MeanParts<X, kAdd>(x, residual, p.width, p.per_element, threads) : 0;
    if (!kGroups) __syncthreads();
    part = kGroups ? GroupSum(part, threads) : BlockSum<kMostThreads>(part, sums);
    if (!isfinite(squares)) mean = part;
  }
  const float inv = rsqrtf(mean + p.epsilon);
  Y* y = static_cast<Y*>(p.y) + offset;
  X* sum = static_cast<X*>(p.sum) + offset;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = (i * threads + static_cast<int>(threadIdx.x)) * kCount;
    if (!live || at >= p.width) continue;
    if constexpr (!kEarlyScale) of_scale[i].Load(scale + at);
    if constexpr (sizeof(X) < 4) Forget(p.zero, &v[i]);
    if (kAdd && p.sum != nullptr) StorePack(sum + at, v[i]);
    StorePack(y + at, Scaled<Y>(v[i], of_scale[i], inv, p.scale_after_cast));
  }
}

// NormAnyRow does a row of any width and alignment a block, reading it twice, element by element.
//
// Registers: 32. Shared memory: 64 bytes.
template <class X, class Y, class S, bool kAdd>
__global__ void __launch_bounds__(kMostThreads, 2) NormAnyRow(const Params p) {
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int64_t offset = int64_t{blockIdx.x} * p.width;
  const X* x = static_cast<const X*>(p.x) + offset;
  const X* residual = static_cast<const X*>(p.residual) + offset;
  const S* scale = static_cast<const S*>(p.scale);
  Y* y = static_cast<Y*>(p.y) + offset;
  X* sum = static_cast<X*>(p.sum) + offset;
  WaitForPrevious();
  LetNextStart();
  float squares = 0;
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float v = Element<X, kAdd>(x, residual, i);
    squares = fmaf(v, v, squares);
  }
  squares = BlockSum<kMostThreads>(squares, sums);
  float mean = squares * p.per_element;
  if (!isfinite(squares)) {
    const float part = MeanParts<X, kAdd>(x, residual, p.width, p.per_element, blockDim.x);
    __syncthreads();
    mean = BlockSum<kMostThreads>(part, sums);
  }
  const float inv = rsqrtf(mean + p.epsilon);
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float v = Element<X, kAdd>(x, residual, i);
    if (kAdd && p.sum != nullptr) sum[i] = FromFloat<X>(v);
    const float n = v * inv;
    y[i] = FromFloat<Y>((p.scale_after_cast ? Round<Y>(n) : n) * ToFloat(scale[i]));
  }
}

// PowerOfTwo rounds up to a power of two.
int PowerOfTwo(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// RunRows launches NormRows as planned.
template <class X, class Y, class S, bool kAdd, int kPacks, bool kGroups>
cudaError_t RunRows(const Params& p, const NormPlan& plan, cudaStream_t stream) {
  const dim3 block(plan.threads, plan.rows);
  const dim3 grid(static_cast<unsigned>(DivideUp(p.rows, plan.rows)));
  return Launch(NormRows<X, Y, S, kAdd, kPacks, kGroups>, grid, block, 0, stream, p);
}

// Run launches the kernel of the plan. kUsual: the types are those of real models, and get every form.
template <class X, class Y, class S, bool kUsual, bool kAdd>
cudaError_t Run(const Params& p, const NormPlan& plan, cudaStream_t stream) {
  switch (plan.form) {
    case NormPlan::kGroups4:
      return RunRows<X, Y, S, kAdd, 4, true>(p, plan, stream);
    case NormPlan::kBlock4:
      return RunRows<X, Y, S, kAdd, 4, false>(p, plan, stream);
    case NormPlan::kGroups8:
      if constexpr (kUsual) return RunRows<X, Y, S, kAdd, 8, true>(p, plan, stream);
      break;
    case NormPlan::kBlock1:
      if constexpr (kUsual) return RunRows<X, Y, S, kAdd, 1, false>(p, plan, stream);
      break;
    case NormPlan::kBlock2:
      if constexpr (kUsual) return RunRows<X, Y, S, kAdd, 2, false>(p, plan, stream);
      break;
    case NormPlan::kBlock8:
      if constexpr (kUsual) return RunRows<X, Y, S, kAdd, 8, false>(p, plan, stream);
      break;
    default:
      break;
  }
  return Launch(NormAnyRow<X, Y, S, kAdd>, dim3(static_cast<unsigned>(p.rows)),
                dim3(p.width > 2048 ? kMostThreads : 128), 0, stream, p);
}

template <class X, class Y, class S, bool kUsual>
cudaError_t RunAdd(bool add, const Params& p, const NormPlan& plan, cudaStream_t stream) {
  return add ? Run<X, Y, S, kUsual, true>(p, plan, stream)
             : Run<X, Y, S, kUsual, false>(p, plan, stream);
}

// RunTypes chooses by the types; narrow is the one that is not float32 where there is one.
template <class N>
cudaError_t RunNarrow(const MojoRMSNormArgs& args, bool add, const Params& p, const NormPlan& plan,
                      cudaStream_t stream) {
  if (args.x_type == kMojoFloat32) return RunAdd<float, N, N, false>(add, p, plan, stream);
  if (args.scale_type == kMojoFloat32) return RunAdd<N, N, float, false>(add, p, plan, stream);
  return RunAdd<N, N, N, true>(add, p, plan, stream);
}

const NormPlan* forced_plan = nullptr;

bool Usual(const MojoRMSNormArgs& args) {
  return args.x_type == args.scale_type && args.x_type != kMojoFloat32;
}

cudaError_t RunNorm(const MojoRMSNormArgs& args, bool add, cudaStream_t stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  if (args.width > INT32_MAX / 2 || args.rows > INT32_MAX) return cudaErrorInvalidValue;
  if (args.x_type != args.scale_type && args.x_type != kMojoFloat32 &&
      args.scale_type != kMojoFloat32) {
    return cudaErrorInvalidValue;
  }
  const Params p = {args.x,
                    args.residual,
                    args.scale,
                    args.y,
                    add ? args.sum : nullptr,
                    static_cast<int64_t>(args.rows),
                    static_cast<int>(args.width),
                    1.0f / static_cast<float>(args.width),
                    args.epsilon,
                    args.scale_after_cast != 0,
                    0};
  const NormPlan plan = forced_plan != nullptr ? *forced_plan : PlanNorm(args, add);
  const MojoType narrow = args.x_type == kMojoFloat32 ? args.scale_type : args.x_type;
  switch (narrow) {
    case kMojoFloat32:
      return RunAdd<float, float, float, false>(add, p, plan, stream);
    case kMojoFloat16:
      return RunNarrow<Half>(args, add, p, plan, stream);
    case kMojoBFloat16:
      return RunNarrow<BFloat>(args, add, p, plan, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

void ForceNormPlan(const NormPlan* plan) { forced_plan = plan; }

NormPlan PlanNorm(const MojoRMSNormArgs& args, bool add) {
  NormPlan any = {NormPlan::kAny, 0, 1};
  const size_t count = 16 / TypeSize(args.x_type);
  if (args.width % count != 0 || !Aligned(args.x, 16) || !Aligned(args.scale, 16) ||
      !Aligned(args.y, 16) || (add && (!Aligned(args.residual, 16) || !Aligned(args.sum, 16)))) {
    return any;
  }
  const size_t packs = args.width / count;
  if (packs > size_t{kMostThreads} * (Usual(args) ? 8 : 4)) return any;
  const int n = static_cast<int>(packs);
  const auto warps = [](int threads) { return static_cast<int>(DivideUp(threads, 32) * 32); };
  if (n <= 128) {
    // Narrow rows: four packs a lane and no shared memory.
    const int lanes = PowerOfTwo(static_cast<int>(DivideUp(n, 4)));
    return {NormPlan::kGroups4, lanes, kGroupThreads / lanes};
  }
  const size_t blocks_at_once = static_cast<size_t>(TheDevice().multiprocessors);
  if (Usual(args) && args.rows <= 2 * blocks_at_once) {
    // Few rows: many threads, so that each does little after its loads arrive.
    if (n <= kMostThreads) return {NormPlan::kBlock1, warps(n), 1};
    if (n <= 2 * kMostThreads) return {NormPlan::kBlock2, warps(static_cast<int>(DivideUp(n, 2))), 1};
  }
  if (Usual(args) && n <= 2 * kMostThreads && (args.rows <= 16 * blocks_at_once || n <= 256)) {
    return {NormPlan::kBlock2, warps(static_cast<int>(DivideUp(n, 2))), 1};
  }
  if (n > 4 * kMostThreads) return {NormPlan::kBlock8, warps(static_cast<int>(DivideUp(n, 8))), 1};
  return {NormPlan::kBlock4, warps(static_cast<int>(DivideUp(n, 4))), 1};
}

}  // namespace mojo

cudaError_t MojoCudaRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream) {
  return mojo::RunNorm(*args, false, stream);
}

cudaError_t MojoCudaAddRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream) {
  return mojo::RunNorm(*args, true, stream);
}
