// RotaryEmbedding and NormRotary of any width, layout and alignment: a row a warp, element by element.
#include "rotary/cuda/rotary.cuh"

namespace mojo {
namespace {

constexpr int kWarps = 4;  // of a block

// Params are the arguments of the kernel. dims are innermost first.
struct Params {
  const void* x;
  const void* cos;
  const void* sin;
  void* y;
  const void* scale;
  int64_t rows;
  int rank;
  int64_t dims[kMaxRotaryDims];
  int64_t cos_step[kMaxRotaryDims];
  int64_t sin_step[kMaxRotaryDims];
  int width;
  int first;
  int half;
  bool cos_wide;
  bool sin_wide;
  bool from;  // pairs are beside each other in x
  bool to;    // and in y
  bool scale_is_float;
  bool scale_after_cast;
  float epsilon;
  float per_channel;
};

// Row is a row of x, or its norm.
template <class X, class T, bool kNorm>
struct Row {
  const X* x;
  const void* scale;
  float inv;
  bool scale_is_float;
  bool after_cast;

  __device__ __forceinline__ float At(int channel) const {
    const float v = ToFloat(x[channel]);
    if (!kNorm) return v;
    const float s =
        scale_is_float ? static_cast<const float*>(scale)[channel] : ToFloat(static_cast<const T*>(scale)[channel]);
    const float n = v * inv;
    return Round<T>((after_cast ? Round<T>(n) : n) * s);
  }
};

// Inverse is 1 / sqrt(mean of the squares + epsilon); the warp takes part.
template <class X>
__device__ __forceinline__ float Inverse(const X* x, const Params& p, int lane) {
  float squares = 0;
  for (int i = lane; i < p.width; i += 32) {
    const float v = ToFloat(x[i]);
    squares = fmaf(v, v, squares);
  }
  squares = WarpSum(squares);
  float mean = squares * p.per_channel;
  if (!isfinite(squares)) {
    // The sum overflows float32; the mean need not.
    float part = 0;
    for (int i = lane; i < p.width; i += 32) {
      const float v = ToFloat(x[i]);
      part += v * v * p.per_channel;
    }
    mean = WarpSum(part);
  }
  return rsqrtf(mean + p.epsilon);
}

// RotateRows handles a row in each warp. X is the type of x, T the type of the other tensors.
//
// Registers: 56. No shared memory.
template <class X, class T, bool kNorm>
__global__ void __launch_bounds__(32 * kWarps, 8) RotateRows(const __grid_constant__ Params p) {
  const int lane = threadIdx.x % 32;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  WaitForPrevious();
  LetNextStart();
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < p.rows; row += step) {
    const T* cos = static_cast<const T*>(p.cos);
    const T* sin = static_cast<const T*>(p.sin);
    int64_t rest = row;
    for (int i = 0; i < p.rank; ++i) {
      const int64_t next = rest / p.dims[i];
      const int64_t index = rest - next * p.dims[i];
      cos += index * p.cos_step[i];
      sin += index * p.sin_step[i];
      rest = next;
    }
    Row<X, T, kNorm> x = {static_cast<const X*>(p.x) + row * p.width, p.scale, 0, p.scale_is_float, p.scale_after_cast};
    T* y = static_cast<T*>(p.y) + row * p.width;
    if (kNorm) x.inv = Inverse(x.x, p, lane);
    const int after = p.first + 2 * p.half;
    for (int i = lane; i < p.width; i += 32) {
      if (i < p.first || i >= after) y[i] = FromFloat<T>(x.At(i));
    }
    for (int i = lane; i < p.half; i += 32) {
      const float a = x.At(p.first + (p.from ? 2 * i : i));
      const float b = x.At(p.first + (p.from ? 2 * i + 1 : i + p.half));
      const int j = p.to ? 2 * i : i, k = p.to ? 2 * i + 1 : i + p.half;
      const float cos_a = ToFloat(cos[p.cos_wide ? j : i]), cos_b = ToFloat(cos[p.cos_wide ? k : i]);
      const float sin_a = ToFloat(sin[p.sin_wide ? j : i]), sin_b = ToFloat(sin[p.sin_wide ? k : i]);
      y[p.first + j] = FromFloat<T>(__fsub_rn(Round<T>(__fmul_rn(a, cos_a)), Round<T>(__fmul_rn(b, sin_a))));
      y[p.first + k] = FromFloat<T>(__fadd_rn(Round<T>(__fmul_rn(b, cos_b)), Round<T>(__fmul_rn(a, sin_b))));
    }
  }
}

template <class X, class T, bool kNorm>
cudaError_t Run(const Params& p, cudaStream_t stream) {
  const size_t most = static_cast<size_t>(TheDevice().multiprocessors) * 16;
  const size_t blocks = DivideUp(p.rows, kWarps);
  return Launch(RotateRows<X, T, kNorm>, dim3(static_cast<unsigned>(blocks < most ? blocks : most)), dim3(32 * kWarps),
                0, stream, p);
}

template <class T>
cudaError_t RunType(const RotaryWork& work, const Params& p, cudaStream_t stream) {
  if (work.norm == nullptr) return Run<T, T, false>(p, stream);
  if (work.norm->x_type == work.rotary->type) return Run<T, T, true>(p, stream);
  if (work.norm->x_type != kMojoFloat32) return cudaErrorInvalidValue;
  return Run<float, T, true>(p, stream);
}

}  // namespace

cudaError_t RunRotaryAny(const RotaryWork& work, cudaStream_t stream) {
  const MojoRotaryArgs& args = *work.rotary;
  Params p = {};
  p.x = args.x;
  p.cos = args.cos;
  p.sin = args.sin;
  p.y = args.y;
  p.rows = 1;
  p.rank = static_cast<int>(args.rank);
  for (size_t i = 0; i < args.rank; ++i) {
    const size_t from = args.rank - 1 - i;
    p.dims[i] = static_cast<int64_t>(args.dims[from]);
    p.cos_step[i] = static_cast<int64_t>(args.cos_step[from]);
    p.sin_step[i] = static_cast<int64_t>(args.sin_step[from]);
    p.rows *= p.dims[i];
  }
  p.width = static_cast<int>(args.width);
  p.first = static_cast<int>(args.first);
  p.half = static_cast<int>(args.rotated / 2);
  p.cos_wide = args.cos_wide;
  p.sin_wide = args.sin_wide;
  p.from = args.interleaved;
  p.to = args.output_interleaved;
  if (work.norm != nullptr) {
    p.scale = work.norm->scale;
    p.scale_is_float = work.norm->scale_type == kMojoFloat32;
    p.scale_after_cast = work.norm->scale_after_cast;
    p.epsilon = work.norm->epsilon;
    p.per_channel = 1.0f / static_cast<float>(args.width);
  }
  return OfType(args.type, [&](auto t) { return RunType<decltype(t)>(work, p, stream); });
}

}  // namespace mojo
