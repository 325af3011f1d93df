// RMSNorm and AddRMSNorm on CUDA.
//
// A row stays in registers between the sum of squares and the scaling: memory is read once. A row is done by a group of
// lanes of a warp, by a whole block, or, if it is too wide or not aligned to 16 bytes, by a block that reads it twice.
//
// Bytes moved: RMSNorm 2 and AddRMSNorm 4 times rows * width elements, and scale once. The floor is those bytes over
// the memory bandwidth.
#include "rmsnorm/cuda/rms_norm.cuh"

#include "cuda/norm_packs.cuh"

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

// Forget makes the compiler forget values derived from a pack. It would keep the widened numbers of the first pass for
// the second, which doubles the registers and spills.
template <class T, int kCount>
__device__ __forceinline__ void Forget(unsigned int zero, Pack<T, kCount>* pack) {
#pragma unroll
  for (int i = 0; i < pack->kWords; ++i) pack->words[i] ^= zero;
}

constexpr int kMostThreads = kRowThreads;
constexpr int kGroupThreads = 128;  // of a block of groups

// BlocksAtOnce is the number of blocks that must fit a multiprocessor: the 16 bytes in flight (32 with kAdd) for each
// pack of each thread then cover the latency of memory.
constexpr int BlocksAtOnce(bool add, int packs, bool groups, int threads) {
  if (groups) return add ? 6 : 8;
  if (packs > 4) return 1;
  return packs == 4 ? (add ? 640 : 1024) / threads : (add ? 1024 : 1536) / threads;
}

// NormRows keeps kPacks packs of a row in each thread. blockDim.x threads share a row: with kGroups a power of two up
// to 32, and blockDim.y rows a block; else kThreads, in whole warps, or any number of threads if kThreads is 0.
//
// Registers: 40 with two packs, 64 with four (80 with kAdd), 80 with eight. Shared memory: 64 bytes without kGroups.
template <class X, class Y, class S, bool kAdd, int kPacks, bool kGroups, int kThreads>
__global__ void __launch_bounds__(kGroups         ? kGroupThreads
                                  : kThreads != 0 ? kThreads
                                                  : kMostThreads,
                                  BlocksAtOnce(kAdd, kPacks, kGroups, kThreads != 0 ? kThreads : kMostThreads))
    NormRows(const Params p) {
  constexpr int kCount = kPackSize<X>;
  // The sum is written while the squares are added up, and the scale is loaded together with the row, if that costs few
  // registers.
  constexpr bool kEarlySum = kPacks <= 4;
  constexpr bool kEarlyScale = kPacks <= 4 && sizeof(S) <= sizeof(X);
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int threads = kThreads != 0 ? kThreads : blockDim.x;
  const int packs = p.width / kCount;
  const int64_t row = kGroups ? int64_t{blockIdx.x} * blockDim.y + threadIdx.y : int64_t{blockIdx.x};
  const bool live = !kGroups || row < p.rows;
  const int64_t offset = row * p.width;
  const X* x = static_cast<const X*>(p.x) + offset;
  const X* residual = static_cast<const X*>(p.residual) + offset;
  const S* scale = static_cast<const S*>(p.scale);
  Pack<X, kCount> v[kPacks], r[kPacks];
  ScaleOf<S, kCount> of_scale[kPacks];
  WaitForPrevious();
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    const bool there = live && at < packs;
    v[i] = there ? LoadPack<kCount>(x + at * kCount) : Pack<X, kCount>{};
    if constexpr (kAdd) r[i] = there ? LoadPack<kCount>(residual + at * kCount) : Pack<X, kCount>{};
    if constexpr (kEarlyScale) {
      if (at < packs) of_scale[i].Load(scale + at * kCount);
    }
  }
  X* sum = static_cast<X*>(p.sum) + offset;
  if constexpr (kAdd) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      v[i] = AddPacks(v[i], r[i]);
      const int at = i * threads + static_cast<int>(threadIdx.x);
      if (kEarlySum && p.sum != nullptr && live && at < packs) StorePack(sum + at * kCount, v[i]);
    }
  }
  LetNextStart();
  float2 two = make_float2(0, 0);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) two = Squares(v[i], two);
  const float squares = kGroups ? GroupSum(two.x + two.y, threads)
                                : BlockSum<kThreads != 0 ? kThreads : kMostThreads>(two.x + two.y, sums);
  float mean = squares * p.per_element;
  if (__builtin_expect(kGroups ? __any_sync(0xffffffffu, !isfinite(squares)) : !isfinite(squares), 0)) {
    float part = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if constexpr (sizeof(X) < 4) Forget(p.zero, &v[i]);
      part = MeanParts(v[i], p.per_element, part);
    }
    if (!kGroups) __syncthreads();
    part = kGroups ? GroupSum(part, threads) : BlockSum<kMostThreads>(part, sums);
    if (!isfinite(squares)) mean = part;
  }
  const float inv = rsqrtf(mean + p.epsilon);
  Y* y = static_cast<Y*>(p.y) + offset;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int at = i * threads + static_cast<int>(threadIdx.x);
    if (!live || at >= packs) continue;
    if constexpr (!kEarlyScale) of_scale[i].Load(scale + at * kCount);
    if constexpr (sizeof(X) < 4) Forget(p.zero, &v[i]);
    if (kAdd && !kEarlySum && p.sum != nullptr) StorePack(sum + at * kCount, v[i]);
    StorePack(y + at * kCount, Scaled<Y>(v[i], of_scale[i], inv, p.scale_after_cast));
  }
}

// NormAnyRow handles rows of any width and alignment, one in each block, which reads it twice, element by element.
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
  const auto value = [&](int i) {
    const float v = ToFloat(x[i]);
    return kAdd ? Round<X>(v + ToFloat(residual[i])) : v;
  };
  WaitForPrevious();
  LetNextStart();
  const float inv = rsqrtf(MeanOfSquares(p.width, p.per_element, sums, value) + p.epsilon);
  for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
    const float v = value(i);
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
template <class X, class Y, class S, bool kAdd, int kPacks, bool kGroups, int kThreads>
cudaError_t RunRows(const Params& p, const NormPlan& plan, cudaStream_t stream) {
  const dim3 block(plan.threads, plan.rows);
  const dim3 grid(static_cast<unsigned>(DivideUp(p.rows, plan.rows)));
  return Launch(NormRows<X, Y, S, kAdd, kPacks, kGroups, kThreads>, grid, block, 0, stream, p);
}

// RunBlocks does it with a row's threads as a compile-time constant if that number is common in real models.
template <class X, class Y, class S, bool kUsual, bool kAdd, int kPacks>
cudaError_t RunBlocks(const Params& p, const NormPlan& plan, cudaStream_t stream) {
  if constexpr (kUsual) {
    if (plan.threads == 128) return RunRows<X, Y, S, kAdd, kPacks, false, 128>(p, plan, stream);
    if (plan.threads == 256) return RunRows<X, Y, S, kAdd, kPacks, false, 256>(p, plan, stream);
  }
  return RunRows<X, Y, S, kAdd, kPacks, false, 0>(p, plan, stream);
}

// Run launches the plan's kernel. kUsual: the types are common in real models, and get every form.
template <class X, class Y, class S, bool kUsual, bool kAdd>
cudaError_t Run(const Params& p, const NormPlan& plan, cudaStream_t stream) {
  switch (plan.form) {
    case NormPlan::kGroups4: return RunRows<X, Y, S, kAdd, 4, true, 0>(p, plan, stream);
    case NormPlan::kBlock4: return RunBlocks<X, Y, S, kUsual, kAdd, 4>(p, plan, stream);
    case NormPlan::kBlock2:
      if constexpr (kUsual) return RunBlocks<X, Y, S, kUsual, kAdd, 2>(p, plan, stream);
      break;
    case NormPlan::kBlock8:
      if constexpr (kUsual) return RunRows<X, Y, S, kAdd, 8, false, 0>(p, plan, stream);
      break;
    default: break;
  }
  return Launch(NormAnyRow<X, Y, S, kAdd>, dim3(static_cast<unsigned>(p.rows)),
                dim3(p.width > 2048 ? kMostThreads : 128), 0, stream, p);
}

template <class X, class Y, class S, bool kUsual>
cudaError_t RunAdd(bool add, const Params& p, const NormPlan& plan, cudaStream_t stream) {
  return add ? Run<X, Y, S, kUsual, true>(p, plan, stream) : Run<X, Y, S, kUsual, false>(p, plan, stream);
}

// RunTypes dispatches on the types; N is the type other than float32, if there is one.
template <class N>
cudaError_t RunTypes(const MojoRMSNormArgs& args, bool add, const Params& p, const NormPlan& plan,
                     cudaStream_t stream) {
  if (args.x_type == kMojoFloat32) return RunAdd<float, N, N, false>(add, p, plan, stream);
  if (args.scale_type == kMojoFloat32) return RunAdd<N, N, float, false>(add, p, plan, stream);
  return RunAdd<N, N, N, sizeof(N) == 2>(add, p, plan, stream);
}

const NormPlan* forced_plan = nullptr;

bool Usual(const MojoRMSNormArgs& args) { return args.x_type == args.scale_type && args.x_type != kMojoFloat32; }

cudaError_t RunNorm(const MojoRMSNormArgs& args, bool add, cudaStream_t stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  if (args.width > INT32_MAX / 2 || args.rows > INT32_MAX) return cudaErrorInvalidValue;
  if (args.x_type != args.scale_type && args.x_type != kMojoFloat32 && args.scale_type != kMojoFloat32) {
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
  return OfType(narrow, [&](auto t) { return RunTypes<decltype(t)>(args, add, p, plan, stream); });
}

}  // namespace

void ForceNormPlan(const NormPlan* plan) { forced_plan = plan; }

NormPlan PlanNorm(const MojoRMSNormArgs& args, bool add) {
  NormPlan any = {NormPlan::kAny, 0, 1};
  const size_t count = 16 / TypeSize(args.x_type);
  if (args.width % count != 0 || !AllAligned(16, args.x, args.scale, args.y) ||
      (add && !AllAligned(16, args.residual, args.sum))) {
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
  const auto block = [&](NormPlan::Form form, int each) {
    return NormPlan{form, warps(static_cast<int>(DivideUp(n, each))), 1};
  };
  if (Usual(args)) {
    // Two packs a thread if rows are few or narrow, four if there are many: fewer warps wait for a sum.
    const bool few = args.rows <= 2 * static_cast<size_t>(TheDevice().multiprocessors);
    if (n <= (few ? 2 * kMostThreads : 256)) return block(NormPlan::kBlock2, 2);
    if (n > 4 * kMostThreads) return block(NormPlan::kBlock8, 8);
  }
  return block(NormPlan::kBlock4, 4);
}

}  // namespace mojo

cudaError_t MojoCudaRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream) {
  return mojo::RunNorm(*args, false, stream);
}

cudaError_t MojoCudaAddRMSNorm(const MojoRMSNormArgs* args, cudaStream_t stream) {
  return mojo::RunNorm(*args, true, stream);
}
