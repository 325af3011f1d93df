// Products of the weights of one expert with the tokens that picked it.
//
// Weights may be in either order: by rows (an output's weights side by side) or by columns (the weights of one input
// side by side). Neither is transposed. A row and a token are multiplied lane by lane and the lanes added at the end;
// columns are added up, each times one number of the token. Tiles of weights times tokens stay in registers, so that
// few tokens read the weights at the speed of the memory and many tokens run at the speed of the multipliers.
//
// The result of a token does not depend on the number of others: every sum is made in the same order.
#pragma once

#include <stdint.h>

#include "cpu/simd/kernels.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// A tile is kTileRows rows (or kTileRows vectors of columns) times up to kTileTokens tokens; its sums and their
// operands must fit into the registers.
constexpr int kTileRows = 4;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileTokens = 6;
#else
constexpr int kTileTokens = 3;
#endif

// Whether few tokens read weights by columns as streams instead of tiles: with AVX2 (AMD EPYC) that is up to 1.8 times
// as fast, with AVX-512 (Intel Xeon) slower.
#if defined(__AVX512F__)
constexpr bool kStreams = false;
#else
constexpr bool kStreams = true;
#endif

// Inputs that are worked off at a time: a tile's tokens stay in the first-level cache; by columns, the current strip
// and the next one do.
constexpr size_t kRowDepth = 1024;
constexpr size_t kColumnDepth = 48;

// Rows that are widened to float32 at a time if more than one tile of tokens reads them.
constexpr size_t kWideRows = 16;

// Ahead prefetches the next weights, a cache line at a time, while others are multiplied: kLines lines in every step,
// into the second-level cache.
template <int kLines>
struct Ahead {
  const char* next;  // the line of the first step
  size_t line;       // bytes from one line of a step to the next
  size_t step;       // bytes from a step to the next one

  MOJO_INLINE void Fetch(size_t i) const {
#pragma GCC unroll 16
    for (int n = 0; n < kLines; ++n) __builtin_prefetch(next + i * step + n * line, 0, 2);
  }
};

// PairSums adds neighbors: the sums of a in the lower half, of b in the upper one.
MOJO_INLINE F32 PairSums(F32 a, F32 b) { return Evens(a, b) + Odds(a, b); }

// FourSums returns the sums of the lanes of four vectors.
MOJO_INLINE F32 FourSums(F32 a, F32 b, F32 c, F32 d) {
  F32 v = PairSums(PairSums(a, b), PairSums(c, d));
  for (int lanes = kLanes; lanes > 4; lanes /= 2) v = PairSums(v, v);
  return v;
}

// AddFirst adds the first kCount lanes of v, at most four, to y, or sets y to them.
typedef float Four __attribute__((vector_size(16)));
template <int kCount>
MOJO_INLINE void AddFirst(F32 v, bool set, float* y) {
#if defined(__AVX512F__)
  Four sums = (Four)_mm512_castps512_ps128(v);
#elif defined(__AVX2__)
  Four sums = (Four)_mm256_castps256_ps128(v);
#else
  Four sums = v;
#endif
  Four old{};
  if (!set) __builtin_memcpy(&old, y, kCount * sizeof(float));
  sums = old + sums;
  __builtin_memcpy(y, &sums, kCount * sizeof(float));
}

// RowTile multiplies kRows rows with kTokens tokens, depth numbers of each from x[token] + at on.
template <int kRows, int kTokens, int kLines, class T>
MOJO_INLINE void RowTile(const T* w, size_t stride, const float* const* x, size_t at, size_t depth, float* y,
                         size_t y_stride, Ahead<kLines> ahead) {
  F32 sum[kTokens][kRows] = {};
  ForEachVector(depth, [&](auto lanes, size_t k) MOJO_LAMBDA {
    F32 row[kRows];
    ahead.Fetch(k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) row[r] = Load(lanes, w + r * stride + k);
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
      const F32 token = Load(lanes, x[m] + at + k);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[m][r] = Fma(row[r], token, sum[m][r]);
    }
  });
#pragma GCC unroll 6
  for (int m = 0; m < kTokens; ++m) {
    const F32 none{};
    const F32 sums = FourSums(sum[m][0], kRows > 1 ? sum[m][1 % kRows] : none, kRows > 2 ? sum[m][2 % kRows] : none,
                              kRows > 3 ? sum[m][3 % kRows] : none);
    AddFirst<kRows>(sums, at == 0, y + m * y_stride);
  }
}

// RowTiles is RowTile over any number of rows. ahead is for the first row; each next row is row bytes further on.
template <int kTokens, int kLines, class T>
void RowTiles(const T* w, size_t stride, size_t rows, const float* const* x, size_t at, size_t depth, float* y,
              size_t y_stride, Ahead<kLines> ahead, size_t row) {
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    RowTile<kTileRows, kTokens>(w + r * stride, stride, x, at, depth, y + r, y_stride, ahead);
    ahead.next += kTileRows * row;
  }
  for (; r < rows; ++r) {
    RowTile<1, kTokens>(w + r * stride, stride, x, at, depth, y + r, y_stride, Ahead<0>{});
  }
}

// Count is a number of tokens, 1 to kTileTokens, as a constant.
template <int kTokens>
struct Count {
  static constexpr int value = kTokens;
};

// WithCount calls body with count, from kTokens to kTileTokens, as a constant.
template <int kTokens, class Body>
MOJO_INLINE void WithCount(size_t count, Body body) {
  if constexpr (kTokens < kTileTokens) {
    if (count > kTokens) return WithCount<kTokens + 1>(count, body);
  }
  body(Count<kTokens>{});
}

// ForEachTile cuts tokens into tiles of about one size and calls body(Count, first token) for each.
template <class Body>
MOJO_INLINE void ForEachTile(size_t tokens, Body body) {
  for (size_t tiles = (tokens + kTileTokens - 1) / kTileTokens, first = 0; tiles > 0; --tiles) {
    const size_t count = (tokens - first + tiles - 1) / tiles;
    WithCount<1>(count, [&](auto constant) MOJO_LAMBDA { body(constant, first); });
    first += count;
  }
}

// FewTokensByRows multiplies with the tokens of one or two tiles. Every group of rows prefetches a group that lies
// kFewAhead bytes or more behind it, and stays in the first-level cache for the second tile. Weights behind a task's
// own are often another thread's.
constexpr size_t kFewAhead = 8192;
template <class T>
void FewTokensByRows(const ProductArgs& args) {
  const T* w = static_cast<const T*>(args.w);
  const size_t group = kTileRows * args.stride;
  const size_t far = (kFewAhead / (group * sizeof(T) + 1) + 1) * group;
  for (size_t at = 0; at < args.depth; at += kRowDepth) {
    const size_t depth = args.depth - at < kRowDepth ? args.depth - at : kRowDepth;
    for (size_t r = 0; r < args.width; r += kTileRows) {
      const size_t rows = args.width - r < kTileRows ? args.width - r : kTileRows;
      const Ahead<kTileRows> ahead{reinterpret_cast<const char*>(w + at + r * args.stride + far),
                                   args.stride * sizeof(T), sizeof(T)};
      ForEachTile(args.tokens, [&](auto count, size_t first) MOJO_LAMBDA {
        RowTiles<decltype(count)::value>(w + r * args.stride + at, args.stride, rows, args.x + first, at, depth,
                                         args.y + r + first * args.y_stride, args.y_stride, ahead,
                                         args.stride * sizeof(T));
      });
    }
  }
}

// ManyTokensByRows multiplies with the tokens of several tiles. 16-bit weights are widened first, once for all tiles.
// Each tile prefetches half of the next weights.
template <class T>
void ManyTokensByRows(const ProductArgs& args) {
  constexpr bool kWidens = sizeof(T) != sizeof(float);
  const T* w = static_cast<const T*>(args.w);
  const size_t most = kWidens ? kWideRows : args.width;
  float wide[kWidens ? kWideRows * kRowDepth : 1];
  for (size_t at = 0; at < args.depth; at += kRowDepth) {
    const size_t depth = args.depth - at < kRowDepth ? args.depth - at : kRowDepth;
    for (size_t r = 0; r < args.width; r += most) {
      const size_t rows = args.width - r < most ? args.width - r : most;
      const T* stored = w + r * args.stride + at;
      const float* read = wide;
      size_t stride = kRowDepth;
      if constexpr (kWidens) {
        for (size_t i = 0; i < rows; ++i) Widened<T>(stored + i * args.stride, wide + i * kRowDepth, depth);
      } else {
        read = stored;
        stride = args.stride;
      }
      const T* next = at + depth < args.depth ? stored + depth : w + (r + args.width) * args.stride;
      size_t tile = 0;
      ForEachTile(args.tokens, [&](auto count, size_t first) {
        const Ahead<kTileRows / 2> ahead{
            reinterpret_cast<const char*>(next + tile++ % 2 * (kTileRows / 2) * args.stride), args.stride * sizeof(T),
            sizeof(T)};
        RowTiles<decltype(count)::value>(read, stride, rows, args.x + first, at, depth,
                                         args.y + r + first * args.y_stride, args.y_stride, ahead,
                                         args.stride * sizeof(T));
      });
    }
  }
}

// Vectors of a cache line.
constexpr int kLineVectors = 16 / kLanes;

// ColumnTile adds depth numbers of kTokens tokens, from x[token] + at on, times kVectors vectors of columns.
template <int kVectors, int kTokens, int kLines, class Lanes, class T>
MOJO_INLINE void ColumnTile(Lanes lanes, const T* w, size_t stride, const float* const* x, size_t at, size_t depth,
                            float* y, size_t y_stride, Ahead<kLines> ahead) {
  F32 sum[kTokens][kVectors] = {};  // from zero: y would make one long chain of additions
  for (size_t k = 0; k < depth; ++k) {
    F32 columns[kVectors];
    ahead.Fetch(k);
    if (kTokens > 1 && k < kTokens) {  // the sums of a task are more than the first-level cache holds
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; v += kLineVectors) __builtin_prefetch(y + k * y_stride + v * kLanes, 1, 3);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) columns[v] = Load(lanes, w + k * stride + v * kLanes);
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
      const F32 token = Set(x[m][at + k]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[m][v] = Fma(columns[v], token, sum[m][v]);
    }
  }
  for (int m = 0; m < kTokens; ++m) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = y + m * y_stride + v * kLanes;
      Store(lanes, to, at == 0 ? sum[m][v] : Load(lanes, to) + sum[m][v]);
    }
  }
}

// FewTokensByColumns multiplies with the tokens of one tile. It reads the weights once, a few rows at a time over all
// columns, so that neighbors in memory are read together. It returns the number of columns that are done.
template <class T>
size_t FewTokensByColumns(const ProductArgs& args) {
  size_t done = 0;
  WithCount<1>(args.tokens, [&](auto count) MOJO_LAMBDA {
    constexpr int kTokens = decltype(count)::value;
    constexpr int kVectors = kTokens * 8 <= kTileTokens * kTileRows ? 8 : kTileRows;
    constexpr size_t kWidth = kVectors * kLanes;
    const T* w = static_cast<const T*>(args.w);
    for (size_t at = 0; at < args.depth; at += kColumnDepth) {
      const size_t depth = args.depth - at < kColumnDepth ? args.depth - at : kColumnDepth;
      for (size_t n = 0; n + kWidth <= args.width; n += kWidth) {
        const T* strip = w + at * args.stride + n;
        const Ahead<(kWidth * sizeof(T) + 63) / 64> ahead{
            reinterpret_cast<const char*>(strip + kColumnDepth * args.stride), 64, args.stride * sizeof(T)};
        ColumnTile<kVectors, kTokens>(Whole{}, strip, args.stride, args.x, at, depth, args.y + n, args.y_stride, ahead);
      }
    }
    done = args.width / kWidth * kWidth;
  });
  return done;
}

// StreamColumns multiplies kTokens tokens with the weights of a few inputs at a time, which lie side by side in
// memory for all outputs. The sums of kColumnDepth inputs are in the cache.
template <int kTokens, class T>
void StreamColumns(const ProductArgs& args) {
  constexpr size_t kInputs = 4, kOutputs = 2048 / kTokens / kLanes * kLanes;
  const T* w = static_cast<const T*>(args.w);
  float sums[kTokens][kOutputs];
  for (size_t first = 0; first < args.width; first += kOutputs) {
    const size_t width = args.width - first < kOutputs ? args.width - first : kOutputs;
    const auto add = [&](auto inputs, size_t k, bool set) MOJO_LAMBDA {
      constexpr int kCount = decltype(inputs)::value;
      ForEachVector(width, [&](auto lanes, size_t n) MOJO_LAMBDA {
        F32 columns[kCount];
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) columns[i] = Load(lanes, w + (k + i) * args.stride + first + n);
#pragma GCC unroll 6
        for (int m = 0; m < kTokens; ++m) {
          F32 sum = set ? F32{} : Load(lanes, sums[m] + n);
#pragma GCC unroll 4
          for (int i = 0; i < kCount; ++i) sum = Fma(columns[i], Set(args.x[m][k + i]), sum);
          Store(lanes, sums[m] + n, sum);
        }
      });
    };
    for (size_t at = 0; at < args.depth; at += kColumnDepth) {
      const size_t end = args.depth - at < kColumnDepth ? args.depth : at + kColumnDepth;
      size_t k = at;
      for (; k + kInputs <= end; k += kInputs) add(Count<kInputs>{}, k, k == at);
      for (; k < end; ++k) add(Count<1>{}, k, k == at);
      for (int m = 0; m < kTokens; ++m) {
        float* const y = args.y + m * args.y_stride + first;
        for (size_t n = 0; n < width; ++n) y[n] = at == 0 ? sums[m][n] : y[n] + sums[m][n];
      }
    }
  }
}

// ManyTokensByColumns is the same with the tokens of several tiles. Strips of columns are copied side by side first,
// for all tiles. Meanwhile each tile prefetches lines of the next strip.
template <class T>
size_t ManyTokensByColumns(const ProductArgs& args) {
  constexpr size_t kWidth = kTileRows * kLanes, kLines = (kWidth * sizeof(T) + 127) / 128;
  const T* w = static_cast<const T*>(args.w);
  float packed[kColumnDepth * kWidth];
  for (size_t at = 0; at < args.depth; at += kColumnDepth) {
    const size_t depth = args.depth - at < kColumnDepth ? args.depth - at : kColumnDepth;
    for (size_t n = 0; n + kWidth <= args.width; n += kWidth) {
      const T* strip = w + at * args.stride + n;
      for (size_t k = 0; k < depth; ++k) Widened<T>(strip + k * args.stride, packed + k * kWidth, kWidth);
      const T* next = n + 2 * kWidth <= args.width ? strip + kWidth : w + (at + depth) * args.stride;
      size_t tile = 0;
      ForEachTile(args.tokens, [&](auto count, size_t first) {
        const Ahead<kLines> ahead{reinterpret_cast<const char*>(next) + tile++ % 2 * kLines * 64, 64,
                                  args.stride * sizeof(T)};
        ColumnTile<kTileRows, decltype(count)::value>(Whole{}, packed, kWidth, args.x + first, at, depth,
                                                      args.y + n + first * args.y_stride, args.y_stride, ahead);
      });
    }
  }
  return args.width / kWidth * kWidth;
}

// MultiplyColumns is the product with weights by columns. Columns outside whole strips go one vector at a time.
template <class T>
void MultiplyColumns(const ProductArgs& args) {
  const size_t done = args.tokens > kTileTokens ? ManyTokensByColumns<T>(args) : FewTokensByColumns<T>(args);
  ForEachVector(args.width - done, [&](auto lanes, size_t n) {
    const T* w = static_cast<const T*>(args.w) + done + n;
    for (size_t m = 0; m < args.tokens; ++m) {
      for (size_t at = 0; at < args.depth; at += kColumnDepth) {
        const size_t depth = args.depth - at < kColumnDepth ? args.depth - at : kColumnDepth;
        ColumnTile<1, 1>(lanes, w + at * args.stride, args.stride, args.x + m, at, depth,
                         args.y + done + n + m * args.y_stride, args.y_stride, Ahead<0>{});
      }
    }
  });
}

template <class T>
void Multiply(const ProductArgs& args) {
  if (args.by_rows) {
    // Two tiles that widen the same weights are faster than widening them first.
    constexpr size_t kFew = sizeof(T) == sizeof(float) ? kTileTokens : 2 * kTileTokens;
    return args.tokens > kFew ? ManyTokensByRows<T>(args) : FewTokensByRows<T>(args);
  }
  if constexpr (kStreams) {
    if (args.tokens <= kTileTokens) {
      return WithCount<1>(args.tokens, [&](auto count) MOJO_LAMBDA { StreamColumns<decltype(count)::value, T>(args); });
    }
  }
  MultiplyColumns<T>(args);
}

// NextPages prefetches the first line of the page behind each page that begins in bytes, which are read in order: the
// processor's own prefetches end with a page.
MOJO_INLINE void NextPages(const void* bytes, size_t count) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(bytes);
  for (uintptr_t page = (begin + kPage - 1) / kPage * kPage; page < begin + count; page += kPage) {
    __builtin_prefetch(reinterpret_cast<const char*>(page + kPage), 0, 3);
  }
}

// StreamRows multiplies kTokens tokens with weights by rows, one row after the other. Each row has several sums, since
// one sum would wait for itself: their order differs from a tile's. On an AMD EPYC (Zen 4), the processor's prefetches
// read such a stream up to 1.5 times as fast as the kernel's own, and fastest if loads are at most a line apart.
template <int kTokens, class T>
void StreamRows(const ProductArgs& args) {
  constexpr int kSums = kLanes > 4 ? 2 : 4;
  constexpr size_t kStep = kSums * kLanes;
  for (size_t n = 0; n < args.width; ++n) {
    const T* const w = static_cast<const T*>(args.w) + n * args.stride;
    NextPages(w, args.depth * sizeof(T));
    F32 sum[kTokens][kSums] = {};
    size_t k = 0;
    for (; k + kStep <= args.depth; k += kStep) {
#pragma GCC unroll 4
      for (int i = 0; i < kSums; ++i) {
        const F32 row = Load(w + k + i * kLanes);
#pragma GCC unroll 6
        for (int m = 0; m < kTokens; ++m) sum[m][i] = Fma(row, Load(args.x[m] + k + i * kLanes), sum[m][i]);
      }
    }
    ForEachVector(args.depth - k, [&](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 row = Load(lanes, w + k + i);
#pragma GCC unroll 6
      for (int m = 0; m < kTokens; ++m) sum[m][0] = Fma(row, Load(lanes, args.x[m] + k + i), sum[m][0]);
    });
    for (int m = 0; m < kTokens; ++m) {
      F32 all = sum[m][0] + sum[m][1];
      if constexpr (kSums > 2) all = all + (sum[m][2] + sum[m][3]);
      args.y[m * args.y_stride + n] = Sum(all);
    }
  }
}

// MultiplyFew is Multiply, but few tokens read weights by rows as a stream.
template <class T>
void MultiplyFew(const ProductArgs& args) {
  if (args.by_rows && args.tokens <= kTileTokens) {
    return WithCount<1>(args.tokens, [&](auto count) MOJO_LAMBDA { StreamRows<decltype(count)::value, T>(args); });
  }
  Multiply<T>(args);
}

inline ProductFn PickStream(ElementType type) {
  return OfType(type, [](auto t) { return MultiplyFew<decltype(t)>; });
}

inline ProductFn PickProduct(ElementType type) {
  return OfType(type, [](auto t) { return Multiply<decltype(t)>; });
}

// AddWeighted is y = sum over i of weight[i] * row[i], in that order.
template <class T>
void AddWeighted(const WeightedSumArgs& args) {
  T* y = static_cast<T*>(args.y);
  ForEachVector(args.width, [&](auto lanes, size_t n) MOJO_LAMBDA {
    F32 sum{};
    for (size_t i = 0; i < args.count; ++i) {
      sum = Fma(Load(lanes, args.rows[i] + n), Set(args.weights[i]), sum);
    }
    Store(lanes, y + n, sum);
  });
}

inline WeightedSumFn PickWeightedSum(ElementType type) {
  return OfType(type, [](auto t) { return AddWeighted<decltype(t)>; });
}

}  // namespace MOJO_ISA
}  // namespace mojo
