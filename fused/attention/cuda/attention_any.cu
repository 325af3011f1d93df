// Attention of any type, any width and any masks, in float32 arithmetic: the fallback of the other kernels.
//
// A block has 64 rows of a pair and up to 128 channels of their values; it goes over the keys that the rows see 64 at a
// time, with the online softmax (Milakov, Gimelshein, 2018). 256 threads: each multiplies 4 rows and 4 keys, weighs 16
// keys of a row, and adds 8 channels for 4 rows. The floor is rows * keys seen * (width + value_width) multiply-adds.
#include "attention/cuda/attention.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;
constexpr int kDeep = 32;      // channels of queries and keys at a time
constexpr int kPitch = 36;     // of their rows
constexpr int kChannels = 64;  // of values at a time, twice
constexpr int kWeightPitch = 68;
constexpr int kParts = kThreads / kTile;  // threads that weigh the keys of a row

// Fill writes kTile rows of kWidth channels into shared memory as float32. It writes zeros for rows that are null and
// past the last channel.
template <int kWidth, int kRowPitch, class Row>
__device__ __forceinline__ void Fill(float* to, int channels, const Row& row) {
  const int column = threadIdx.x % kWidth;
#pragma unroll 2
  for (int r = threadIdx.x / kWidth; r < kTile; r += kThreads / kWidth) {
    const auto* const from = row(r);
    to[r * kRowPitch + column] = from != nullptr && column < channels ? ToFloat(from[column]) : 0.0f;
  }
}

// Products adds the products over kDeep channels of 4 rows and 4 keys.
__device__ __forceinline__ void Products(const float* rows, const float* keys, float (&score)[4][4]) {
#pragma unroll 1
  for (int d = 0; d < kDeep; d += 4) {
    float4 left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = *reinterpret_cast<const float4*>(rows + i * kPitch + d);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 right = *reinterpret_cast<const float4*>(keys + 16 * j * kPitch + d);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[i][j] += left[i].x * right.x + left[i].y * right.y + left[i].z * right.z + left[i].w * right.w;
      }
    }
  }
}

// AddValues scales the totals of 4 rows by factors, then adds 4 channels of kTile weighted values.
__device__ __forceinline__ void AddValues(const float* weights, const float* factors, const float* values,
                                          float (&total)[4][8], int half) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) total[i][half * 4 + c] *= factors[i];
  }
#pragma unroll 1
  for (int j = 0; j < kTile; j += 4) {
    float4 v[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) v[n] = *reinterpret_cast<const float4*>(values + (j + n) * kChannels);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 w = *reinterpret_cast<const float4*>(weights + i * kWeightPitch + j);
      float* const to = total[i] + half * 4;
      to[0] += w.x * v[0].x + w.y * v[1].x + w.z * v[2].x + w.w * v[3].x;
      to[1] += w.x * v[0].y + w.y * v[1].y + w.z * v[2].y + w.w * v[3].y;
      to[2] += w.x * v[0].z + w.y * v[1].z + w.z * v[2].z + w.w * v[3].z;
      to[3] += w.x * v[0].w + w.y * v[1].w + w.z * v[2].w + w.w * v[3].w;
    }
  }
}

// AttendRows. Registers: 128. Shared memory: 36 KB.
template <class T>
__global__ __launch_bounds__(kThreads, 2) void AttendRows(const __grid_constant__ MojoAttentionArgs a, int tiles,
                                                          int pairs) {
  __shared__ __align__(16) float matrix[2 * kTile * kPitch];  // queries and keys, then values
  __shared__ __align__(16) float weight[kTile * kWeightPitch];
  __shared__ float factor[kTile];  // that rescales a row's total
  static_assert(kTile * kChannels <= 2 * kTile * kPitch, "values take the place of queries and keys");
  WaitForPrevious();
  LetNextStart();
  // The last rows, which see the most keys, come first.
  const int first_row = (tiles - 1 - static_cast<int>(blockIdx.x) / pairs) * kTile,
            channel = blockIdx.y * 2 * kChannels;
  const Pair p(a, blockIdx.x % pairs);
  const Keys<T> keys = KeysOf<T>(a, p), values = ValuesOf<T>(a, p);
  const int rows = static_cast<int>(a.queries) * p.group, last_row = min(rows, first_row + kTile) - 1;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, part = threadIdx.x % kParts;
  const int width = static_cast<int>(a.width), value_width = static_cast<int>(a.value_width);
  // The row that this thread weighs keys of.
  const int row = first_row + threadIdx.x / kParts;
  const bool is_row = row < rows;
  const Span seen = is_row ? Seen(a, p, row / p.group) : Span{0, 0};
  const float* const bias = a.bias != nullptr && is_row ? BiasOf(a, p, row) : nullptr;
  float* const weights = weight + threadIdx.x / kParts * kWeightPitch;
  float most = -INFINITY, sum = 0, total[4][8] = {};
  if (is_row) AddSink(a, p.HeadOf(a, row), &most, &sum);
  if (part != 0) sum = 0;
  Span span{Seen(a, p, first_row / p.group).begin, Seen(a, p, last_row / p.group).end};
  // Runs again, with mean, for rows that saw no key: every key weighs 1 in them and 0 in others.
  for (bool mean = false;; mean = true, span = Span{0, p.length}) {
    for (int key = span.begin / kTile * kTile; key < span.end; key += kTile) {
      float score[4][4] = {};
      for (int deep = 0; deep < width; deep += kDeep) {
        __syncthreads();
        Fill<kDeep, kPitch>(matrix, width - deep, [&](int r) {
          const int at = first_row + r;
          return at < rows ? static_cast<const T*>(a.q) + p.At(a, a.q_steps, at) + deep : nullptr;
        });
        Fill<kDeep, kPitch>(matrix + kTile * kPitch, width - deep,
                            [&](int r) { return key + r < p.length ? keys.Row(key + r) + deep : nullptr; });
        __syncthreads();
        Products(matrix + ty * 4 * kPitch, matrix + (kTile + tx) * kPitch, score);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) weight[(ty * 4 + i) * kWeightPitch + tx + 16 * j] = score[i][j];
      }
      __syncthreads();
      float greatest = most;
#pragma unroll 4
      for (int j = part; j < kTile; j += kParts) {
        const bool is = seen.Has(key + j) && Valid(a, p, key + j);
        const float s = is ? Score<T>(a, weights[j], bias == nullptr ? 0 : BiasAt(a, bias, key + j)) : -INFINITY;
        greatest = fmaxf(greatest, s);
        weights[j] = s;
      }
      greatest = mean ? most : GroupMax(greatest, kParts);
      const float base = Finite(greatest), by = mean ? 1 : PowerOfTwo(most - base);
      float added = 0;
#pragma unroll 4
      for (int j = part; j < kTile; j += kParts) {
        const float w = mean ? greatest == -INFINITY && key + j < p.length : PowerOfTwo(weights[j] - base);
        added += w;
        weights[j] = w;
      }
      most = greatest;
      sum = sum * by + added;
      if (part == 0) factor[threadIdx.x / kParts] = by;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from = channel + half * kChannels;
        if (from >= value_width) break;
        __syncthreads();
        Fill<kChannels, kChannels>(matrix, value_width - from,
                                   [&](int r) { return key + r < p.length ? values.Row(key + r) + from : nullptr; });
        __syncthreads();
        AddValues(weight + ty * 4 * kWeightPitch, factor + ty * 4, matrix + tx * 4, total, half);
      }
      __syncthreads();
    }
    sum = GroupSum(sum, kParts);
    if (mean || !a.empty_mean || !__syncthreads_or(is_row && sum == 0)) break;
    if (part != 0) sum = 0;
  }
  if (part == 0) factor[threadIdx.x / kParts] = sum == 0 ? 0 : 1 / sum;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = first_row + ty * 4 + i;
    if (at >= rows) break;
    T* const y = static_cast<T*>(a.y) + p.At(a, a.y_steps, at);
    const float by = factor[ty * 4 + i];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int to = channel + c / 4 * kChannels + tx * 4 + c % 4;
      if (to < value_width) y[to] = FromFloat<T>(total[i][c] * by);
    }
  }
}

template <class T>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  const int tiles = static_cast<int>(DivideUp(RowsOf(a), kTile)), pairs = static_cast<int>(PairsOf(a));
  const dim3 grid(static_cast<unsigned>(static_cast<size_t>(tiles) * pairs),
                  static_cast<unsigned>(DivideUp(a.value_width, 2 * kChannels)));
  return Launch(AttendRows<T>, grid, kThreads, 0, stream, a, tiles, pairs);
}

}  // namespace

cudaError_t AttentionAny(const MojoAttentionArgs& a, cudaStream_t stream) {
  return OfType(a.type, [&](auto t) { return Run<decltype(t)>(a, stream); });
}

}  // namespace mojo
