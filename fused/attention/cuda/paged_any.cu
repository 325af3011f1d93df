// PagedAttention of any type and width, in float32 arithmetic: the fallback of the tensor cores.
//
// A block is a token of a head. It goes over the keys that the token sees 128 at a time, a thread for each, with the
// online softmax, then adds their values, a thread for each channel. The floor is the bytes of the keys and values;
// heads that share keys read them again.
#include <type_traits>

#include "attention/cuda/paged_attention.cuh"

namespace mojo {
namespace paged {
namespace {

constexpr int kThreads = 128;

// kResident is how many blocks a multiprocessor should hold; with 0 the compiler chooses. For float8e4m3fn, which 8.0
// has no instruction for, it would choose more and spill registers.
template <class C>
constexpr int kResident = std::is_same<C, E4M3Code>::value ? 8 : 0;

// AttendToken has dynamic shared memory for a query and its total.
//
// Registers: 48. Shared memory: 1.6 KB and 4 bytes for each channel.
template <class T, class C>
__global__ __launch_bounds__(kThreads, kResident<C>) void AttendToken(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float weights[kThreads], across[kThreads / 32];
  __shared__ size_t places[kThreads];
  WaitForPrevious();
  LetNextStart();
  const int token = blockIdx.x, head = blockIdx.y, width = static_cast<int>(p.width),
            value_width = static_cast<int>(p.value_width);
  float *const query = memory, *const total = memory + width;
  const Sequence s(p, SequenceOf<kThreads>(p, token));
  const Span seen = token >= s.token && token < s.token + s.added ? SeenBy(p, s, token - s.token) : Span{0, 0};
  const int key_head = p.cyclic ? head % static_cast<int>(p.key_heads) : head / p.group;
  const size_t row = static_cast<size_t>(token) * p.heads + head;
  for (int d = threadIdx.x; d < width; d += kThreads) query[d] = ToFloat(static_cast<const T*>(p.q)[row * width + d]);
  for (int d = threadIdx.x; d < value_width; d += kThreads) total[d] = 0;
  float most = -INFINITY, sum = 0;
  for (int key = seen.begin; key < seen.end; key += kThreads) {
    const int at = key + static_cast<int>(threadIdx.x), count = min(kThreads, seen.end - key);
    __syncthreads();
    float score = -INFINITY, value_scale = 1;
    if (at < seen.end) {
      const size_t place = Place(p, s, at) * p.key_heads + key_head;
      const C* const k = static_cast<const C*>(p.key_cache_out) + place * width;
      const int block = kIsCode<C> ? BlockOf(p, s, at) : 0;
      value_scale = ScaleOf<C>(p, p.value_scale_out, block, key_head);
      places[threadIdx.x] = place;
      float product = 0;
      for (int d = 0; d < width; ++d) product += query[d] * ToFloat(k[d]);
      score = ScoreOf<float>(p, product * ScaleOf<C>(p, p.key_scale_out, block, key_head));
    }
    float greatest = GroupMax(score, 32);
    if (threadIdx.x % 32 == 0) across[threadIdx.x / 32] = greatest;
    __syncthreads();
    greatest = most;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) greatest = fmaxf(greatest, across[w]);
    const float base = Finite(greatest), by = PowerOfTwo(most - base), weight = PowerOfTwo(score - base);
    most = greatest;
    weights[threadIdx.x] = weight;
    __syncthreads();
    float added = 0;
    for (int j = 0; j < count; ++j) added += weights[j];
    sum = sum * by + added;
    if constexpr (kIsCode<C>) {
      __syncthreads();
      weights[threadIdx.x] = weight * value_scale;
      __syncthreads();
    }
    for (int d = threadIdx.x; d < value_width; d += kThreads) {
      float t = total[d] * by;
      for (int j = 0; j < count; ++j) {
        t += weights[j] * ToFloat(static_cast<const C*>(p.value_cache_out)[places[j] * value_width + d]);
      }
      total[d] = t;
    }
  }
  const float by = Ending(most, sum, SinkScore(p.sink, head));
  for (int d = threadIdx.x; d < value_width; d += kThreads) {
    static_cast<T*>(p.y)[row * value_width + d] = FromFloat<T>(total[d] * by);
  }
}

template <class T, class C>
cudaError_t Run(const Params& p, cudaStream_t stream) {
  const size_t bytes = (p.width + p.value_width) * 4, most = static_cast<size_t>(TheDevice().shared_bytes) - 4096;
  if (bytes > most || p.heads > 65535) return cudaErrorInvalidValue;
  const auto kernel = AttendToken<T, C>;
  if (cudaError_t e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most))) {
    return e;
  }
  const dim3 grid(static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.heads));
  return Launch(kernel, grid, kThreads, bytes, stream, p);
}

}  // namespace

cudaError_t AttendAny(const Params& p, cudaStream_t stream) {
  return OfType(p.type, [&](auto t) { return Run<decltype(t), decltype(t)>(p, stream); });
}

cudaError_t AttendCodesAny(const Params& p, cudaStream_t stream) {
  return OfType(p.type, [&](auto t) {
    return p.float8 ? Run<decltype(t), E4M3Code>(p, stream) : Run<decltype(t), Int8Code>(p, stream);
  });
}

}  // namespace paged
}  // namespace mojo
