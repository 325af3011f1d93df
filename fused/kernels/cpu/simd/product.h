// Products of the weights of one expert with the tokens that picked it.
//
// Weights may lie in either order: by rows (an output's weights side by side) or by columns (the
// weights of one input side by side). Neither is transposed. A row and a token are multiplied lane by
// lane and the lanes added at the end; columns are added up, each times one number of the token. Few
// tokens read the weights once, in their order, at the speed of the memory. For many tokens tiles of
// weights times tokens stay in registers, and run at the speed of the multipliers.
//
// What a token gets does not depend on how many others there are: every sum is made in the same order.
#ifndef MOJO_KERNELS_CPU_SIMD_PRODUCT_H_
#define MOJO_KERNELS_CPU_SIMD_PRODUCT_H_

#include "cpu/simd/kernels.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// A tile is kTileRows rows, with kRowSums sums for each, or kTileColumns vectors of columns, times up to kTileTokens
// tokens; its sums and what they are made of must fit into the registers.
constexpr int kTileRows = 2;
constexpr int kRowSums = 2;
constexpr int kTileColumns = 4;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileTokens = 6;
#else
constexpr int kTileTokens = 3;
#endif

// Inputs whose products are added up apart from those of others: so many that a tile's tokens stay in the first level
// of the cache; by columns, that the strip that is multiplied and the one that comes do.
constexpr size_t kRowDepth = 1024;
constexpr size_t kColumnDepth = 48;

// Rows that are widened to float32 at a time where more tokens than those of a tile read them.
constexpr size_t kWideRows = 16;

// Ahead is what the weights that are multiplied later are asked for by, a cache line at a time, while others are
// multiplied: kLines lines in every step. The second level of the cache is where they should come.
template <int kLines>
struct Ahead {
  const char* next;  // the line of the first step
  size_t line;       // bytes from one of the lines of a step to the next one
  size_t step;       // bytes from a step to the next one

  MOJO_INLINE void Fetch(size_t i) const {
#pragma GCC unroll 16
    for (int n = 0; n < kLines; ++n) __builtin_prefetch(next + i * step + n * line, 0, 2);
  }
};

// RowTile multiplies kRows rows with kTokens tokens, depth numbers of each from x[token] + at on. With kStreams the
// rows are read from memory for the first time, and what lies behind them is asked for.
template <bool kStreams, int kRows, int kTokens, class T>
MOJO_INLINE void RowTile(const T* w, size_t stride, const float* const* x, size_t at, size_t depth, float* y,
                         size_t y_stride) {
  constexpr size_t kStep = kRowSums * kLanes, kAhead = 1024;
  F32 sum[kTokens][kRows][kRowSums] = {};
  const auto add = [&](auto lanes, int i, size_t k) MOJO_LAMBDA {
    F32 row[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) row[r] = Load(lanes, w + r * stride + k);
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
      const F32 token = Load(lanes, x[m] + at + k);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) sum[m][r][i] = Fma(row[r], token, sum[m][r][i]);
    }
  };
  size_t k = 0;
  for (; k + kStep <= depth; k += kStep) {
    if constexpr (kStreams) __builtin_prefetch(reinterpret_cast<const char*>(w + k) + kAhead, 0, 3);
#pragma GCC unroll 2
    for (int i = 0; i < kRowSums; ++i) add(Whole{}, i, k + i * kLanes);
  }
  if (k + kLanes <= depth) {
    add(Whole{}, 0, k);
    k += kLanes;
  }
  if (k < depth) add(Part{depth - k}, 1, k);
#pragma GCC unroll 6
  for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      float* const to = y + m * y_stride + r;
      const float all = Sum(sum[m][r][0] + sum[m][r][1]);
      *to = at == 0 ? all : *to + all;
    }
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

// FewTokensByRows multiplies one row after the other: memory is read faster as one stream than as several. A row stays
// in the cache for the tokens of a second tile.
template <class T>
void FewTokensByRows(const ProductArgs& args) {
  for (size_t n = 0; n < args.width; ++n) {
    const T* const w = static_cast<const T*>(args.w) + n * args.stride;
    for (size_t at = 0; at < args.depth; at += kRowDepth) {
      const size_t depth = args.depth - at < kRowDepth ? args.depth - at : kRowDepth;
      ForEachTile(args.tokens, [&](auto count, size_t first) MOJO_LAMBDA {
        RowTile<true, 1, decltype(count)::value>(w + at, args.stride, args.x + first, at, depth,
                                                 args.y + n + first * args.y_stride, args.y_stride);
      });
    }
  }
}

// ManyTokensByRows multiplies with the tokens of several tiles. Weights of 16 bits are widened first, once for all of
// them.
template <class T>
void ManyTokensByRows(const ProductArgs& args) {
  constexpr bool kWidens = sizeof(T) != sizeof(float);
  const T* w = static_cast<const T*>(args.w);
  const size_t most = kWidens ? kWideRows : args.width;
  float wide[kWidens ? kWideRows * kRowDepth : 1];
  for (size_t at = 0; at < args.depth; at += kRowDepth) {
    const size_t depth = args.depth - at < kRowDepth ? args.depth - at : kRowDepth;
    for (size_t n = 0; n < args.width; n += most) {
      const size_t rows = args.width - n < most ? args.width - n : most;
      const T* stored = w + n * args.stride + at;
      const float* read = wide;
      size_t stride = kRowDepth;
      if constexpr (kWidens) {
        for (size_t i = 0; i < rows; ++i) Widened<T>(stored + i * args.stride, wide + i * kRowDepth, depth);
      } else {
        read = stored;
        stride = args.stride;
      }
      ForEachTile(args.tokens, [&](auto count, size_t first) {
        constexpr int kTokens = decltype(count)::value;
        const float* const* x = args.x + first;
        float* const y = args.y + n + first * args.y_stride;
        size_t r = 0;
        for (; r + kTileRows <= rows; r += kTileRows) {
          RowTile<false, kTileRows, kTokens>(read + r * stride, stride, x, at, depth, y + r, args.y_stride);
        }
        if (r < rows) RowTile<false, 1, kTokens>(read + r * stride, stride, x, at, depth, y + r, args.y_stride);
      });
    }
  }
}

// ColumnTile adds depth numbers of kTokens tokens, from x[token] + at on, times kVectors vectors of columns.
template <int kVectors, int kTokens, int kLines, class Lanes, class T>
MOJO_INLINE void ColumnTile(Lanes lanes, const T* w, size_t stride, const float* const* x, size_t at, size_t depth,
                            float* y, size_t y_stride, Ahead<kLines> ahead) {
  F32 sum[kTokens][kVectors] = {};  // from zero: y would make one long chain of the additions of all depths
  for (size_t k = 0; k < depth; ++k) {
    F32 columns[kVectors];
    ahead.Fetch(k);
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

// FewTokensByColumns multiplies kTokens tokens with the weights of a few inputs at a time, which lie side by side in
// memory for all outputs. The sums of kColumnDepth inputs are in the cache.
template <int kTokens, class T>
void FewTokensByColumns(const ProductArgs& args) {
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

// StripsOfColumns multiplies with the tokens of several tiles, which all read strips of columns that are copied
// side by side first. Meanwhile each tile asks for lines of the strip that comes next. It returns the number of columns
// that are done.
template <class T>
size_t StripsOfColumns(const ProductArgs& args) {
  constexpr size_t kWidth = kTileColumns * kLanes, kLines = (kWidth * sizeof(T) + 127) / 128;
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
        ColumnTile<kTileColumns, decltype(count)::value>(Whole{}, packed, kWidth, args.x + first, at, depth,
                                                         args.y + n + first * args.y_stride, args.y_stride, ahead);
      });
    }
  }
  return args.width / kWidth * kWidth;
}

// ManyTokensByColumns is the product of many tokens with weights by columns. Columns that fill no strip go one vector
// at a time.
template <class T>
void ManyTokensByColumns(const ProductArgs& args) {
  const size_t done = StripsOfColumns<T>(args);
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
  if (args.by_rows) return args.tokens > 2 * kTileTokens ? ManyTokensByRows<T>(args) : FewTokensByRows<T>(args);
  if (args.tokens > kTileTokens) return ManyTokensByColumns<T>(args);
  WithCount<1>(args.tokens, [&](auto count) MOJO_LAMBDA { FewTokensByColumns<decltype(count)::value, T>(args); });
}

inline ProductFn PickProduct(ElementType type) {
  switch (type) {
    case kFloat32: return Multiply<float>;
    case kFloat16: return Multiply<Half>;
    case kBFloat16: return Multiply<BFloat>;
  }
  return nullptr;
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
  switch (type) {
    case kFloat32: return AddWeighted<float>;
    case kFloat16: return AddWeighted<Half>;
    case kBFloat16: return AddWeighted<BFloat>;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_PRODUCT_H_
