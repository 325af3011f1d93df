// PagedAttention of 16-bit numbers with mma.sync (compute capability 8.0): the algorithm of Dao, "FlashAttention-2",
// 2023, over blocks of a pool as in Kwon et al., "PagedAttention", 2023.
//
// Sequences of few rows are in paged_few.cuh. For those of many rows, a block is four warps with 64 rows, which go over
// all keys that they see, 64 at a time, with the online softmax. Values are copied while keys are multiplied, and the
// next keys while values are. The floor is rows * keys seen * (width + value_width) multiply-adds. Codes are widened to
// the type of the queries on their way into shared memory, times their scales: a code has fewer bits than the 16-bit
// types.
#pragma once

#include <algorithm>
#include <type_traits>

#include "attention/cuda/attention_mma.cuh"
#include "attention/cuda/paged_few.cuh"

namespace mojo {
namespace paged {
namespace {

constexpr int kTile = 64;  // keys that are multiplied at once
constexpr int kManyWarps = 4;

// Fill starts the copy of kCount rows, with zeros past the last channel and for rows whose place is negative. Places
// count steps of bytes.
template <int kWidth, int kThreads, int kCount, class Place>
__device__ __forceinline__ void Fill(uint32_t to, const void* from, size_t step, int channels, const Place& place) {
  constexpr int kPieces = kWidth / 8, kAtOnce = kThreads / kPieces, kRowBytes = kWidth * 2;
  const int piece = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
  const char* const at = static_cast<const char*>(from) + piece * 16;
  const uint32_t row = to + first * kRowBytes, swizzled = (piece ^ (first & 7)) * 16;
  const bool has = piece * 8 < channels;
#pragma unroll 8
  for (int i = 0; i < kCount; i += kAtOnce) {
    const int n = place(first + i);
    Copy(row + i * kRowBytes + (swizzled ^ (i & 7) * 16), at + static_cast<uint32_t>(max(n, 0)) * step, has && n >= 0);
  }
}

// Widened is 8 codes times a scale. The greatest of float16 may be a little less than the code of its neighbors.
template <class T, class C>
__device__ __forceinline__ uint4 Widened(uint2 codes, float scale) {
  const C* const c = reinterpret_cast<const C*>(&codes);
  uint4 to;
  Two<T>* const two = reinterpret_cast<Two<T>*>(&to);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float a = ToFloat(c[2 * i]) * scale, b = ToFloat(c[2 * i + 1]) * scale;
    if constexpr (std::is_same<T, Half>::value) {
      a = fminf(fmaxf(a, -65504.0f), 65504.0f), b = fminf(fmaxf(b, -65504.0f), 65504.0f);
    }
    two[i] = FromFloats<T>(a, b);
  }
  return to;
}

// FillCodes is Fill of codes. scale is the factor of a row.
template <class T, class C, int kWidth, int kThreads, int kCount, class Place, class Scale>
__device__ __forceinline__ void FillCodes(char* to, const C* from, size_t step, int channels, const Place& place,
                                          const Scale& scale) {
  constexpr int kPieces = kWidth / 8, kAtOnce = kThreads / kPieces, kRowBytes = kWidth * 2;
  const int piece = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
  const bool has = piece * 8 < channels;
#pragma unroll 2
  for (int i = 0; i < kCount; i += kAtOnce) {
    const int row = first + i, n = place(row);
    uint2 codes = make_uint2(0, 0);
    if (has && n >= 0) codes = *reinterpret_cast<const uint2*>(from + n * step + piece * 8);
    const float by = has && n >= 0 ? scale(row) : 0;
    *reinterpret_cast<uint4*>(to + row * kRowBytes + (piece ^ (row & 7)) * 16) = Widened<T, C>(codes, by);
  }
}

// Layout is the shared memory of a block: of queries, keys, values, the places of two tiles' keys and, with codes,
// their scales.
template <class C, int kWidth, int kValues, int kWarps>
struct Layout {
  static constexpr int kThreads = 32 * kWarps, kRows = 16 * kWarps;
  static constexpr int kKeysAt = kRows * kWidth * 2, kValuesAt = kKeysAt + kTile * kWidth * 2,
                       kPlacesAt = kValuesAt + kTile * kValues * 2, kScalesAt = kPlacesAt + 2 * kTile * 4,
                       kBytes = kScalesAt + (kIsCode<C> ? 4 * kTile * 4 : 0);
};

// Attention is the state of a block: its rows, and the sums of this thread's two rows.
template <class T, class C, int kWidth, int kValues, int kWarps>
struct Attention {
  typedef Layout<C, kWidth, kValues, kWarps> L;
  const Params& p;
  const Rows& rows;
  const int channel;  // the first of the values
  char* const memory;
  Span seen[2];
  float most[2], sum[2], total[kValues / 8][4];

  __device__ __forceinline__ Attention(const Params& p, const Rows& rows, int channel, char* memory)
      : p(p), rows(rows), channel(channel), memory(memory) {
    Fill<kWidth, L::kThreads, L::kRows>(
        SharedAddress(memory), static_cast<const T*>(p.q) + rows.s.token * p.heads * p.width, p.width * sizeof(T),
        static_cast<int>(p.width), [&](int r) { return rows.first + r < rows.count ? From(rows.first + r) : -1; });
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = Row(i);
      seen[i] = row < rows.count ? SeenBy(p, rows.s, row / p.group) : Span{0, 0};
    }
  }

  // Row is the i-th row of this thread. At is the index of a row in q and y, From its distance from the sequence's
  // first.
  __device__ __forceinline__ int Row(int i) const {
    return rows.first + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + i * 8;
  }
  __device__ __forceinline__ int Head(int row) const { return HeadOf(p, rows.key_head, row % p.group); }
  __device__ __forceinline__ int From(int row) const { return row / p.group * static_cast<int>(p.heads) + Head(row); }
  __device__ __forceinline__ size_t At(int row) const { return rows.s.token * p.heads + From(row); }
  // All are the keys that a row of the block sees.
  static __device__ __forceinline__ Span All(const Params& p, const Rows& rows) {
    const int last = min(rows.first + L::kRows, rows.count) - 1;
    return {SeenBy(p, rows.s, rows.first / p.group).begin, SeenBy(p, rows.s, last / p.group).end};
  }

  __device__ __forceinline__ void Wait() const {
    if constexpr (kWarps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  // Find writes the places of a tile's keys, -1 for keys before begin and from end on.
  __device__ __forceinline__ void Find(int key, int begin, int end) const {
    int* const places = reinterpret_cast<int*>(memory + L::kPlacesAt) + key / kTile % 2 * kTile;
    for (int r = threadIdx.x; r < kTile; r += L::kThreads) {
      places[r] = key + r >= begin && key + r < end ? static_cast<int>(Place(p, rows.s, key + r)) : -1;
      if constexpr (kIsCode<C>) {
        if (places[r] < 0) continue;
        const int block = BlockOf(p, rows.s, key + r);
        Scales(key, 0)[r] = ScaleOf<C>(p, p.key_scale_out, block, rows.key_head);
        Scales(key, 1)[r] = ScaleOf<C>(p, p.value_scale_out, block, rows.key_head);
      }
    }
  }
  // Scales are those of a tile's keys, or values.
  __device__ __forceinline__ float* Scales(int key, int values) const {
    return reinterpret_cast<float*>(memory + L::kScalesAt) + (key / kTile % 2 * 2 + values) * kTile;
  }
  template <int kColumns>
  __device__ __forceinline__ void FillTile(int at, const void* pool, size_t width, int first, int key) const {
    const int* const places = reinterpret_cast<const int*>(memory + L::kPlacesAt) + key / kTile % 2 * kTile;
    if constexpr (kIsCode<C>) {
      const float* const scales = Scales(key, at == L::kValuesAt);
      FillCodes<T, C, kColumns, L::kThreads, kTile>(
          memory + at, static_cast<const C*>(pool) + rows.key_head * width + first, p.key_heads * width,
          static_cast<int>(width) - first, [&](int r) { return places[r]; }, [&](int r) { return scales[r]; });
      return;
    }
    Fill<kColumns, L::kThreads, kTile>(
        SharedAddress(memory) + at, static_cast<const T*>(pool) + rows.key_head * width + first,
        p.key_heads * width * sizeof(T), static_cast<int>(width) - first, [&](int r) { return places[r]; });
  }

  // Run adds the keys of a span.
  __device__ __forceinline__ void Run(Span span) {
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    const uint32_t q_at = SharedAddress(memory), k_at = q_at + L::kKeysAt, v_at = q_at + L::kValuesAt;
#pragma unroll
    for (int i = 0; i < 2; ++i) most[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int c = 0; c < kValues / 8; ++c) {
#pragma unroll
      for (int n = 0; n < 4; ++n) total[c][n] = 0;
    }
    const float factor = p.scale * kLog2E;
    int key = span.begin / kTile * kTile;
    if (key < span.end) {
      Find(key, span.begin, span.end);
      Wait();
      FillTile<kWidth>(L::kKeysAt, p.key_cache_out, p.width, 0, key);
    }
    EndGroup();
    for (; key < span.end; key += kTile) {
      const bool more = key + kTile < span.end;
      FillTile<kValues>(L::kValuesAt, p.value_cache_out, p.value_width, channel, key);
      EndGroup();
      if (more) Find(key + kTile, 0, span.end);
      WaitForGroups<1>();
      Wait();
      float score[kTile / 8][4] = {};
      AddScores<T, kWidth, kTile>(score, lane, q_at, warp_row, k_at);
      Wait();
      if (more) FillTile<kWidth>(L::kKeysAt, p.key_cache_out, p.width, 0, key + kTile);
      EndGroup();
      const int first = key + lane % 4 * 2;
      float by[2];
      bool less = false;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (p.softcap == 0) {
#pragma unroll
          for (int c = 0; c < kTile / 4; ++c) score[c / 2][i * 2 + c % 2] *= factor;
        } else {
#pragma unroll
          for (int c = 0; c < kTile / 4; ++c) {
            score[c / 2][i * 2 + c % 2] = ScoreOf<T>(p, score[c / 2][i * 2 + c % 2]);
          }
        }
        const Span own{max(seen[i].begin, span.begin), min(seen[i].end, span.end)};
        if (own.begin > key || own.end < key + kTile) {
#pragma unroll
          for (int c = 0; c < kTile / 4; ++c) {
            if (!own.Has(first + c / 2 * 8 + c % 2)) score[c / 2][i * 2 + c % 2] = -INFINITY;
          }
        }
        float greatest = most[i];
#pragma unroll
        for (int c = 0; c < kTile / 4; ++c) greatest = fmaxf(greatest, score[c / 2][i * 2 + c % 2]);
        greatest = GroupMax(greatest, 4);
        const float base = Finite(greatest);
        by[i] = PowerOfTwo(most[i] - base);
        less = less || greatest > most[i];
        most[i] = greatest;
        float added = 0;
#pragma unroll
        for (int c = 0; c < kTile / 4; ++c) {
          float& s = score[c / 2][i * 2 + c % 2];
          s = PowerOfTwo(s - base);
          added += s;
        }
        sum[i] = sum[i] * by[i] + added;
      }
      if (__any_sync(0xffffffffu, less)) {
#pragma unroll
        for (int c = 0; c < kValues / 8; ++c) {
#pragma unroll
          for (int n = 0; n < 4; ++n) total[c][n] *= by[n / 2];
        }
      }
      WaitForGroups<1>();
      Wait();
      AddValues<T, kTile, kValues>(total, score, lane, v_at);
      Wait();
    }
    WaitForGroups<0>();
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] = GroupSum(sum[i], 4);
  }

  // StoreRow writes this thread's i-th row to y.
  __device__ __forceinline__ void StoreRow(int i) const {
    const int row = Row(i), width = static_cast<int>(p.value_width) - channel;
    T* const y = static_cast<T*>(p.y) + At(row) * p.value_width + channel;
    const float by = Ending(most[i], sum[i], SinkScore(p.sink, Head(row)));
#pragma unroll
    for (int c = 0; c < kValues / 8; ++c) {
      const int to = c * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      if (to >= width) break;
      *reinterpret_cast<Two<T>*>(y + to) = FromFloats<T>(total[c][i * 2] * by, total[c][i * 2 + 1] * by);
    }
  }
};

// AttendTiles has blocks [row tiles, key heads, columns of values].
//
// Registers: 168. Shared memory: 25, 49 and 81 KB for widths of 64, 128 and 256.
template <class T, class C, int kWidth, int kValues>
__global__ __launch_bounds__(32 * kManyWarps, 2) void AttendTiles(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char memory[];
  // The last tiles, which see the most keys, come first. The launch before this one, of the same call, does not write
  // the lengths.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const Rows rows = FindRows(p, tile, 16 * kManyWarps, blockIdx.y);
  WaitForPrevious();
  LetNextStart();
  if (rows.count == 0) return;
  Attention<T, C, kWidth, kValues, kManyWarps> attention(p, rows, blockIdx.z * kValues, memory);
  attention.Run(attention.All(p, rows));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (attention.Row(i) < rows.count) attention.StoreRow(i);
  }
}

template <class T, class C, int kWidth, int kValues>
cudaError_t RunTiles(const Params& p, cudaStream_t stream) {
  constexpr int kBytes = Layout<C, kWidth, kValues, kManyWarps>::kBytes;
  const auto kernel = AttendTiles<T, C, kWidth, kValues>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  // No sequence has both many tokens and fewer than few + 1.
  const size_t many = std::min(p.sequences, p.tokens / (p.few + 1));
  const dim3 grid(static_cast<unsigned>(p.tokens * p.group / (16 * kManyWarps) + many),
                  static_cast<unsigned>(p.key_heads), static_cast<unsigned>(DivideUp(p.value_width, kValues)));
  return Launch(kernel, grid, 32 * kManyWarps, kBytes, stream, p);
}

template <class T, class C>
cudaError_t Run(const Params& p, cudaStream_t stream) {
  // A sequence by itself has all tokens.
  const bool is_few = p.tokens <= static_cast<size_t>(p.few);
  if (p.few > 0 && (is_few || p.sequences > 1 || p.concurrent)) {
    if (cudaError_t e = AttendFewRows<T, C>(p, stream)) return e;
  }
  if (is_few) return cudaSuccess;
  if (PromptsWgmmaTakes(p, kIsCode<C>)) return PromptsWgmma(p, kIsCode<C>, stream);
  if (p.width <= 64 && p.value_width <= 64) return RunTiles<T, C, 64, 64>(p, stream);
  return p.width <= 128 ? RunTiles<T, C, 128, 128>(p, stream) : RunTiles<T, C, 256, 128>(p, stream);
}

}  // namespace
}  // namespace paged
}  // namespace mojo
