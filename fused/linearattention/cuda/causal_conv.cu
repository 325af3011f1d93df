// CausalConv on CUDA.
//
// Bytes moved: X, Y, past and present once, and the weights. The floor is those bytes over the memory bandwidth. Up to
// kept tokens, as in a decode step, each thread handles a channel; else an element of Y or of present.
#include "cuda/activation.cuh"
#include "cuda/common.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel.
struct Params {
  const void* x;
  const void* weight;
  const void* bias;
  const void* past;
  void* y;
  void* present;
  int64_t rows, channels, tokens, width, kept;
  bool silu;
};

constexpr int kThreads = 256;  // of a block

// Row is a channel of a sequence: past, then the tokens of X.
template <class T>
struct Row {
  const T* x;
  const T* past;  // its last number; null: zeros
  const T* weight;
  float bias;

  __device__ __forceinline__ Row(const Params& p, int64_t row) {
    const int64_t channel = row % p.channels;
    x = static_cast<const T*>(p.x) + row * p.tokens;
    past = p.past == nullptr ? nullptr : static_cast<const T*>(p.past) + (row + 1) * p.kept - 1;
    weight = static_cast<const T*>(p.weight) + channel * p.width;
    bias = p.bias == nullptr ? 0.0f : ToFloat(static_cast<const T*>(p.bias)[channel]);
  }

  // At returns the number of token t, of past if t is negative.
  __device__ __forceinline__ T At(int64_t t) const {
    if (t >= 0) return x[t];
    return past == nullptr ? FromFloat<T>(0.0f) : past[t + 1];
  }

  __device__ __forceinline__ T Result(const Params& p, int64_t t) const {
    constexpr bool kExact = sizeof(T) == 4;
    float z = 0;
    for (int64_t j = 0; j < p.width; ++j) z = fmaf(ToFloat(weight[j]), ToFloat(At(t - (p.width - 1) + j)), z);
    z += bias;
    return FromFloat<T>(p.silu ? Activate<Activation::kSilu, kExact>(z, 1) : z);
  }
};

// ConvRows computes a whole channel in each thread, so that present may be past.
//
// Registers: 40. No shared memory.
template <class T>
__global__ void __launch_bounds__(kThreads) ConvRows(const Params p) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  WaitForPrevious();
  if (row >= p.rows) return;
  const Row<T> r(p, row);
  for (int64_t t = 0; t < p.tokens; ++t) static_cast<T*>(p.y)[row * p.tokens + t] = r.Result(p, t);
  if (p.present == nullptr) return;
  T* present = static_cast<T*>(p.present) + row * p.kept;
  // A number comes from its own position or a later one, which is not overwritten yet.
  for (int64_t i = 0; i < p.kept; ++i) present[i] = r.At(p.tokens - p.kept + i);
}

// ConvElements computes one element of Y in each thread.
//
// Registers: 40. No shared memory.
template <class T>
__global__ void __launch_bounds__(kThreads) ConvElements(const Params p) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  WaitForPrevious();
  if (at >= p.rows * p.tokens) return;
  const int64_t row = at / p.tokens;
  static_cast<T*>(p.y)[at] = Row<T>(p, row).Result(p, at - row * p.tokens);
}

// KeepLast writes present, if all of its values come from X.
//
// Registers: 24. No shared memory.
template <class T>
__global__ void __launch_bounds__(kThreads) KeepLast(const Params p) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  WaitForPrevious();
  if (at >= p.rows * p.kept) return;
  const int64_t row = at / p.kept;
  static_cast<T*>(p.present)[at] = static_cast<const T*>(p.x)[(row + 1) * p.tokens - p.kept + (at - row * p.kept)];
}

// Each starts a kernel with count threads.
cudaError_t Each(void (*kernel)(Params), int64_t count, const Params& p, cudaStream_t stream) {
  const size_t blocks = DivideUp(static_cast<size_t>(count), kThreads);
  if (blocks == 0) return cudaSuccess;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return Launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, p);
}

template <class T>
cudaError_t RunType(const Params& p, cudaStream_t stream) {
  if (p.tokens < p.kept || p.tokens == 0) return Each(ConvRows<T>, p.rows, p, stream);
  if (cudaError_t error = Each(ConvElements<T>, p.rows * p.tokens, p, stream)) return error;
  return p.present == nullptr ? cudaSuccess : Each(KeepLast<T>, p.rows * p.kept, p, stream);
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaCausalConv(const MojoCausalConvArgs* args, cudaStream_t stream) {
  const mojo::Params p = {args->x,
                          args->weight,
                          args->bias,
                          args->past,
                          args->y,
                          args->present,
                          static_cast<int64_t>(args->batch * args->channels),
                          static_cast<int64_t>(args->channels),
                          static_cast<int64_t>(args->tokens),
                          static_cast<int64_t>(args->width),
                          static_cast<int64_t>(args->kept),
                          args->silu != 0};
  return mojo::OfType(args->type, [&](auto t) { return mojo::RunType<decltype(t)>(p, stream); });
}
