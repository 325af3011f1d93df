// ReduceScatter, AllGather and AllToAll: each rank stores a part of its tensor in a buffer of every other rank, and a
// signal behind it. A block waits for the same block of each peer only. Large parts go in several steps.
//
// Bytes moved: (ranks - 1) parts to peers and as many from them, through the buffer and out of it again. The floor is
// those bytes over the bandwidth between devices.
#include <algorithm>

#include "collective/cuda/peers.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 512;

enum class Kind { kReduceScatter, kAllGather, kAllToAll };

// Params are the arguments of a kernel besides the peers: some packs of each part.
template <class T>
struct Params {
  const T* x;
  T* y;
  int64_t part, inner;       // elements
  int64_t x_count, y_count;  // elements that there are
  int64_t first, packs;      // the packs of a part that this step takes
  bool fast;                 // a pack lies together and is aligned
};

// Part finds the elements of a part in a tensor that has all of them, or only one.
template <class T>
struct Part {
  static constexpr int kCount = kPackSize<T>;
  int64_t part, inner, count;
  int rank, ranks;  // ranks is 1 if the tensor has one part
  bool fast;

  // At is the index of a part's element, or -1.
  __device__ __forceinline__ int64_t At(int64_t element) const {
    int64_t at = element;
    if (ranks > 1) {
      const int64_t line = inner == part ? 0 : element / inner;
      at = (line * ranks + rank) * inner + (element - line * inner);
    }
    return element < part && at < count ? at : -1;
  }
  __device__ __forceinline__ Pack<T, kCount> Load(const T* from, int64_t pack) const {
    const int64_t first = At(pack * kCount);
    if (fast && first >= 0 && first + kCount <= count) return LoadPack<kCount>(from + first);
    Pack<T, kCount> out;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int64_t one = At(pack * kCount + 2 * i), other = At(pack * kCount + 2 * i + 1);
      Two<T> two;
      two.x = one >= 0 ? from[one] : FromFloat<T>(0), two.y = other >= 0 ? from[other] : FromFloat<T>(0);
      out.Put(i, two);
    }
    return out;
  }
  __device__ __forceinline__ void Store(T* to, int64_t pack, const Pack<T, kCount>& v) const {
    const int64_t first = At(pack * kCount);
    if (fast && first >= 0 && first + kCount <= count) return StorePack(to + first, v);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = At(pack * kCount + i);
      const Two<T> two = v.At(i / 2);
      if (at >= 0) to[at] = i % 2 == 0 ? two.x : two.y;
    }
  }
};

__device__ __forceinline__ uint64_t* SignalIn(char* memory, int from) {
  return reinterpret_cast<uint64_t*>(memory) + blockIdx.x * kMostPeers + from;
}

// Signal tells every peer's block that this one's parts are in its memory; WaitForSignals waits for theirs.
__device__ __forceinline__ void Signal(const Step& step) {
  __threadfence_system();
  __syncthreads();
  const int peer = threadIdx.x;
  if (peer >= step.p.ranks || peer == step.p.rank) return;
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(SignalIn(step.p.of[peer], step.p.rank)), "l"(step.number)
               : "memory");
}
__device__ __forceinline__ void WaitForSignals(const Step& step) {
  const int peer = threadIdx.x;
  if (peer < step.p.ranks && peer != step.p.rank) {
    const uint64_t* const signal = SignalIn(step.p.of[step.p.rank], peer);
    Patience patience(step.p);
    for (uint64_t found = 0;;) {
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(found) : "l"(signal) : "memory");
      if (found >= step.number) break;
      patience.Wait(peer);
    }
  }
  __syncthreads();
}

// ExchangeParts.
//
// Registers: 56. No shared memory.
template <class T, Kind kKind>
__global__ __launch_bounds__(kThreads, 2) void ExchangeParts(const __grid_constant__ PeerView p,
                                                             const __grid_constant__ Params<T> a) {
  WaitForPrevious();
  LetNextStart();
  const Step step(p);
  const int64_t begin = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  const auto source = [&](int peer) {
    return Part<T>{a.part, a.inner, a.x_count, peer, kKind == Kind::kAllGather ? 1 : p.ranks, a.fast};
  };
  const auto result = [&](int peer) {
    return Part<T>{a.part, a.inner, a.y_count, peer, kKind == Kind::kReduceScatter ? 1 : p.ranks, a.fast};
  };
  for (int n = 1; n < p.ranks; ++n) {
    const int peer = (p.rank + n) % p.ranks;
    uint4* const to = reinterpret_cast<uint4*>(step.PartTo(peer));
    const Part<T> from = source(peer);
#pragma unroll 4
    for (int64_t i = begin; i < a.packs; i += stride) to[i] = AsWords<T>(from.Load(a.x, a.first + i));
  }
  step.ClearLast();
  Signal(step);
  if constexpr (kKind != Kind::kReduceScatter) {
    const Part<T> from = source(p.rank), to = result(p.rank);
    for (int64_t i = begin; i < a.packs; i += stride) to.Store(a.y, a.first + i, from.Load(a.x, a.first + i));
  }
  WaitForSignals(step);
  if constexpr (kKind == Kind::kReduceScatter) {
    const Part<T> from = source(p.rank), to = result(p.rank);
    for (int64_t i = begin; i < a.packs; i += stride) {
      float sum[kPackSize<T>] = {};
      for (int r = 0; r < p.ranks; ++r) {
        AddTo<T>(sum, r == p.rank ? from.Load(a.x, a.first + i) : AsPack<T>(LoadNow(step.PartFrom(r) + i * 16)));
      }
      to.Store(a.y, a.first + i, PackFloats<T>(sum));
    }
  } else {
    for (int n = 1; n < p.ranks; ++n) {
      const int peer = (p.rank + n) % p.ranks;
      const char* const from = step.PartFrom(peer);
      const Part<T> to = result(peer);
#pragma unroll 4
      for (int64_t i = begin; i < a.packs; i += stride) to.Store(a.y, a.first + i, AsPack<T>(LoadNow(from + i * 16)));
    }
  }
  step.End(0);
}

// Run launches the steps. own and all are the elements that there are of one part, and of all.
template <class T, Kind kKind>
cudaError_t Run(const MojoPartsArgs& a, cudaStream_t stream) {
  constexpr size_t kCount = kPackSize<T>;
  const PeerView& peers = *a.peers;
  const size_t all = std::min(a.count, a.part * peers.ranks);
  const size_t own = std::min(a.part, all - std::min(all, a.part * peers.rank));
  Params<T> p;
  p.x = static_cast<const T*>(a.x), p.y = static_cast<T*>(a.y);
  p.part = static_cast<int64_t>(a.part), p.inner = static_cast<int64_t>(a.inner);
  p.x_count = static_cast<int64_t>(kKind == Kind::kAllGather ? own : all);
  p.y_count = static_cast<int64_t>(kKind == Kind::kReduceScatter ? own : all);
  p.fast = a.inner % kCount == 0 && AllAligned(16, a.x, a.y);
  const size_t packs = DivideUp(a.part, kCount), most = peers.part_slot / 16;
  for (size_t first = 0; first < packs; first += most) {
    p.first = static_cast<int64_t>(first), p.packs = static_cast<int64_t>(std::min(most, packs - first));
    const auto blocks = static_cast<unsigned>(std::min<size_t>(DivideUp(p.packs, kThreads), peers.blocks));
    if (cudaError_t e = Launch(ExchangeParts<T, kKind>, blocks, kThreads, 0, stream, peers, p)) return e;
  }
  return cudaSuccess;
}

template <Kind kKind>
cudaError_t Run(const MojoPartsArgs& a, cudaStream_t stream) {
  if (a.part == 0 || a.inner == 0) return cudaSuccess;
  if (a.part > size_t{1} << 56 || a.part % a.inner != 0) return cudaErrorInvalidValue;
  if (a.peers == nullptr) {
    return a.x == a.y ? cudaSuccess
                      : cudaMemcpyAsync(a.y, a.x, a.part * TypeSize(a.type), cudaMemcpyDeviceToDevice, stream);
  }
  return OfType(a.type, [&](auto t) { return Run<decltype(t), kKind>(a, stream); });
}

}  // namespace
}  // namespace mojo

using namespace mojo;

cudaError_t MojoCudaReduceScatter(const MojoPartsArgs* args, cudaStream_t stream) {
  return Run<Kind::kReduceScatter>(*args, stream);
}
cudaError_t MojoCudaAllGather(const MojoPartsArgs* args, cudaStream_t stream) {
  return Run<Kind::kAllGather>(*args, stream);
}
cudaError_t MojoCudaAllToAll(const MojoPartsArgs* args, cudaStream_t stream) {
  return Run<Kind::kAllToAll>(*args, stream);
}
