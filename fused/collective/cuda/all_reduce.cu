// AllReduce of small messages, alone and with AddRMSNorm, in one exchange: each rank stores its message in a buffer of
// every other rank and reads theirs from its own. The data are their own signals, as in NCCL's LL protocols and
// TensorRT-LLM's "Lamport" kernels: buffers are full of -0.0, a message has 0.0 in its place, and a word that is there
// is not -0.0. Every rank adds all messages in the order of ranks, so all get the same bits.
//
// The floor is ranks - 1 messages over the bandwidth between devices, and the latency of one store to a peer. Larger
// messages are a ReduceScatter and an AllGather.
#include <algorithm>
#include <atomic>

#include "collective/cuda/peers.cuh"
#include "cuda/norm_packs.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 512;
// A row has at most a pack in each of kMostThreads threads, or kMostNormPacks in each of kThreads.
constexpr int kMostThreads = 768;
constexpr int kMostNormPacks = 4;
template <int kPacks>
constexpr int kThreadsOf = kPacks == 1 ? kMostThreads : kThreads;
// The blocks that must fit a multiprocessor: more where registers allow it.
template <class X, int kRanks, int kPacks>
constexpr int kBlocksAtOnce = kRanks == 2 && kPacks == 1 && sizeof(X) == 2 ? 2 : 1;

// Elements are count elements in packs; those behind the last are zeros.
template <class T>
struct Elements {
  size_t count;
  bool aligned;

  __device__ __forceinline__ Pack<T, kPackSize<T>> Load(const T* from, size_t pack) const {
    constexpr int kCount = kPackSize<T>;
    const size_t at = pack * kCount;
    if (aligned && at + kCount <= count) return LoadPack<kCount>(from + at);
    T v[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = at + i < count ? from[at + i] : FromFloat<T>(0);
    Pack<T, kCount> out;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      Two<T> two;
      two.x = v[2 * i], two.y = v[2 * i + 1];
      out.Put(i, two);
    }
    return out;
  }
  __device__ __forceinline__ void Store(T* to, size_t pack, const Pack<T, kPackSize<T>>& v) const {
    constexpr int kCount = kPackSize<T>;
    const size_t at = pack * kCount;
    if (aligned && at + kCount <= count) return StorePack(to + at, v);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Two<T> two = v.At(i / 2);
      if (at + i < count) to[at + i] = i % 2 == 0 ? two.x : two.y;
    }
  }
};

// ReduceOnce.
//
// Registers: 40 for two ranks, 96 for more. No shared memory.
template <class T, int kRanks>
__global__ __launch_bounds__(kThreads, 1) void ReduceOnce(const __grid_constant__ PeerView p, const T* x, T* y,
                                                          const Elements<T> elements, uint32_t packs) {
  WaitForPrevious();
  LetNextStart();
  const Step step(p);
  const uint32_t first = blockIdx.x * kThreads + threadIdx.x, stride = gridDim.x * kThreads;
  for (uint32_t i = first; i < packs; i += stride) {
    SendOnce<kRanks, T>(step, size_t{i} * 16, Unsigned<T>(elements.Load(x, i)));
  }
  step.ClearLast();
  for (uint32_t i = first; i < packs; i += stride) {
    elements.Store(y, i, SumOnce<kRanks, T>(step, size_t{i} * 16, elements.Load(x, i)));
  }
  step.End(packs * 16);
}

// NormParams are the arguments of ReduceAddNorm besides the peers. X is the type of x, residual and sum.
struct NormParams {
  const void *x, *residual, *scale;
  void *y, *sum;
  int rows, width;
  float per_element;  // 1 / width
  float epsilon;
  bool scale_after_cast;
};

// ReduceAddNorm handles a row in each block, with up to kPacks packs in a thread.
//
// Registers: 48 for two ranks with one pack, else 128. Shared memory: 128 bytes.
template <class X, class Y, class S, int kRanks, int kPacks>
__global__ __launch_bounds__(kThreadsOf<kPacks>, kBlocksAtOnce<X, kRanks, kPacks>) void ReduceAddNorm(
    const __grid_constant__ PeerView p, const __grid_constant__ NormParams n) {
  constexpr int kCount = kPackSize<X>;
  alignas(16) __shared__ float sums[kMostThreads / 32];
  const int packs = n.width / kCount;
  const S* const scale = static_cast<const S*>(n.scale);
  WaitForPrevious();
  LetNextStart();
  const Step step(p);
  for (int row = blockIdx.x; row < n.rows; row += gridDim.x) {
    const X* const x = static_cast<const X*>(n.x) + int64_t{row} * n.width;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = i * blockDim.x + threadIdx.x;
      if (at >= packs) continue;
      SendOnce<kRanks, X>(step, (size_t{static_cast<uint32_t>(row)} * packs + at) * 16,
                          Unsigned<X>(LoadPack<kCount>(x + at * kCount)));
    }
  }
  step.ClearLast();
  for (int row = blockIdx.x; row < n.rows; row += gridDim.x) {
    const int64_t offset = int64_t{row} * n.width;
    const X *const x = static_cast<const X*>(n.x) + offset, *const residual =
                                                                static_cast<const X*>(n.residual) + offset;
    Pack<X, kCount> v[kPacks];
    ScaleOf<S, kCount> of_scale[kPacks];
    float2 two = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = i * blockDim.x + threadIdx.x;
      v[i] = Pack<X, kCount>{};
      if (at >= packs) continue;
      const Pack<X, kCount> own = LoadPack<kCount>(x + at * kCount), r = LoadPack<kCount>(residual + at * kCount);
      if constexpr (kPacks == 1) of_scale[i].Load(scale + at * kCount);
      v[i] = AddPacks(SumOnce<kRanks, X>(step, (size_t{static_cast<uint32_t>(row)} * packs + at) * 16, own), r);
      if (n.sum != nullptr) StorePack(static_cast<X*>(n.sum) + offset + at * kCount, v[i]);
      two = Squares(v[i], two);
    }
    const float squares = BlockSum<kMostThreads>(two.x + two.y, sums);
    float mean = squares * n.per_element;
    if (!isfinite(squares)) {
      float part = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) part = MeanParts(v[i], n.per_element, part);
      __syncthreads();
      mean = BlockSum<kMostThreads>(part, sums);
    }
    const float inv = rsqrtf(mean + n.epsilon);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = i * blockDim.x + threadIdx.x;
      if (at >= packs) continue;
      if constexpr (kPacks > 1) of_scale[i].Load(scale + at * kCount);
      StorePack(static_cast<Y*>(n.y) + offset + at * kCount, Scaled<Y>(v[i], of_scale[i], inv, n.scale_after_cast));
    }
    __syncthreads();
  }
  step.End(static_cast<uint32_t>(n.rows) * packs * 16);
}

// AtOnce is the number of blocks of a kernel that the device runs at once. known is the kernel's own.
template <class... Params>
int AtOnce(void (*kernel)(Params...), int threads, std::atomic<int> (&known)[kMostThreads / 32 + 1]) {
  std::atomic<int>& blocks = known[threads / 32];
  if (blocks.load() == 0) {
    int each = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0) != cudaSuccess || each < 1) each = 1;
    blocks.store(each * TheDevice().multiprocessors);
  }
  return blocks.load();
}

template <class T, int kRanks>
cudaError_t RunOnce(const MojoAllReduceArgs& a, cudaStream_t stream) {
  const auto packs = static_cast<uint32_t>(DivideUp(a.count, kPackSize<T>));
  const auto blocks = static_cast<unsigned>(std::min<size_t>(DivideUp(packs, kThreads), TheDevice().multiprocessors));
  const Elements<T> elements = {a.count, AllAligned(16, a.x, a.y)};
  return Launch(ReduceOnce<T, kRanks>, blocks, kThreads, 0, stream, *a.peers, static_cast<const T*>(a.x),
                static_cast<T*>(a.y), elements, packs);
}

template <class X, class Y, class S, int kRanks, int kPacks>
cudaError_t RunNorm(const PeerView& peers, const NormParams& n, cudaStream_t stream) {
  static std::atomic<int> known[kMostThreads / 32 + 1];
  const auto kernel = ReduceAddNorm<X, Y, S, kRanks, kPacks>;
  const size_t packs = static_cast<size_t>(n.width) / kPackSize<X>;
  const auto threads = static_cast<unsigned>(std::min(DivideUp(packs, 32) * 32, size_t{kThreadsOf<kPacks>}));
  const auto blocks = static_cast<unsigned>(std::min(n.rows, AtOnce(kernel, static_cast<int>(threads), known)));
  return Launch(kernel, blocks, threads, 0, stream, peers, n);
}

template <class X, class Y, class S>
cudaError_t RunNorm(const PeerView& peers, const NormParams& n, cudaStream_t stream) {
  if (peers.ranks > 2) return RunNorm<X, Y, S, kMostPeers, kMostNormPacks>(peers, n, stream);
  return n.width / kPackSize<X> <= kMostThreads ? RunNorm<X, Y, S, 2, 1>(peers, n, stream)
                                                : RunNorm<X, Y, S, 2, kMostNormPacks>(peers, n, stream);
}

// RunTypes dispatches on the types; N is the type other than float32, if there is one.
template <class N>
cudaError_t RunTypes(const MojoAllReduceAddRMSNormArgs& a, const NormParams& n, cudaStream_t stream) {
  if (a.x_type == kMojoFloat32) return RunNorm<float, N, N>(*a.peers, n, stream);
  if (a.scale_type == kMojoFloat32) return RunNorm<N, N, float>(*a.peers, n, stream);
  return RunNorm<N, N, N>(*a.peers, n, stream);
}

// MessageBytes are the bytes of a message of count elements.
size_t MessageBytes(size_t count, MojoType type) { return DivideUp(count * TypeSize(type), 16) * 16; }

// AllReduceParts is AllReduce of messages of any size: each rank adds one part of them.
cudaError_t AllReduceParts(const MojoAllReduceArgs& a, cudaStream_t stream) {
  const size_t size = TypeSize(a.type), each = 16 / size;
  MojoPartsArgs parts;
  parts.peers = a.peers;
  parts.type = a.type;
  parts.part = parts.inner = DivideUp(DivideUp(a.count, each), a.peers->ranks) * each;
  parts.count = a.count;
  void* const own = static_cast<char*>(a.y) + std::min(parts.part * a.peers->rank, a.count) * size;
  parts.x = a.x, parts.y = own;
  if (cudaError_t e = MojoCudaReduceScatter(&parts, stream)) return e;
  parts.x = own, parts.y = a.y;
  return MojoCudaAllGather(&parts, stream);
}

// NormFits reports whether one kernel can do it all. Other ranks may decide otherwise: the exchange is the same.
bool NormFits(const MojoAllReduceAddRMSNormArgs& a) {
  const size_t bytes = a.width * TypeSize(a.x_type), packs = bytes / 16;
  return bytes % 16 == 0 && packs <= size_t{kThreads} * kMostNormPacks && a.rows * bytes <= a.peers->once_slot &&
         AllAligned(16, a.x, a.residual, a.scale, a.y, a.sum);
}

bool IsNarrower(const MojoRMSNormArgs& a) { return a.x_type == kMojoFloat32 && a.scale_type != kMojoFloat32; }

}  // namespace
}  // namespace mojo

using namespace mojo;

cudaError_t MojoCudaAllReduce(const MojoAllReduceArgs* args, cudaStream_t stream) {
  const MojoAllReduceArgs& a = *args;
  if (a.count == 0) return cudaSuccess;
  if (a.peers == nullptr) {
    return a.x == a.y ? cudaSuccess
                      : cudaMemcpyAsync(a.y, a.x, a.count * TypeSize(a.type), cudaMemcpyDeviceToDevice, stream);
  }
  if (MessageBytes(a.count, a.type) > a.peers->once_slot) return AllReduceParts(a, stream);
  const bool two = a.peers->ranks == 2;
  return OfType(a.type, [&](auto t) {
    return two ? RunOnce<decltype(t), 2>(a, stream) : RunOnce<decltype(t), kMostPeers>(a, stream);
  });
}

size_t MojoAllReduceAddRMSNormScratch(const MojoAllReduceAddRMSNormArgs* args) {
  return args->peers != nullptr && args->sum == nullptr && IsNarrower(*args) ? args->rows * args->width * 4 : 0;
}

cudaError_t MojoCudaAllReduceAddRMSNorm(const MojoAllReduceAddRMSNormArgs* args, cudaStream_t stream) {
  const MojoAllReduceAddRMSNormArgs& a = *args;
  if (a.peers == nullptr) return MojoCudaAddRMSNorm(&a, stream);
  if (a.rows == 0 || a.width == 0) return cudaSuccess;
  if (a.width > INT32_MAX / 2 || a.rows > INT32_MAX) return cudaErrorInvalidValue;
  if (!NormFits(a)) {
    MojoAllReduceArgs reduce;
    reduce.peers = a.peers;
    reduce.x = a.x, reduce.count = a.rows * a.width, reduce.type = a.x_type;
    reduce.y = a.sum != nullptr ? a.sum : IsNarrower(a) ? a.scratch : a.y;
    if (cudaError_t e = MojoCudaAllReduce(&reduce, stream)) return e;
    MojoRMSNormArgs norm = a;
    norm.x = reduce.y;
    return MojoCudaAddRMSNorm(&norm, stream);
  }
  const NormParams n = {a.x,
                        a.residual,
                        a.scale,
                        a.y,
                        a.sum,
                        static_cast<int>(a.rows),
                        static_cast<int>(a.width),
                        1.0f / static_cast<float>(a.width),
                        a.epsilon,
                        a.scale_after_cast};
  const MojoType narrow = a.x_type == kMojoFloat32 ? a.scale_type : a.x_type;
  return OfType(narrow, [&](auto t) { return RunTypes<decltype(t)>(a, n, stream); });
}
