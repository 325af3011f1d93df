// Products by the processor's multiplications of bfloat16: VDPBF16PS, and tiles of AMX for panels of tokens.
//
// Tokens are rounded to bfloat16, in rows that zeros fill up to kPairStep inputs. Two neighbors are a pair, a word of
// 32 bits: rows and panels of pairs are moved like float32. A pair's products are added to a sum in float32; numbers
// below 2^-126 count as zero.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/product.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// RoundToPairs rounds n numbers and writes zeros behind them, up to a multiple of kPairStep.
static inline void RoundToPairs(ElementType type, const void* from, float* to, size_t n) {
  BFloat* const y = reinterpret_cast<BFloat*>(to);
  OfType(type, [=](auto t) {
    const auto* x = static_cast<const decltype(t)*>(from);
    ForEachVector(n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, y + i, Load(lanes, x + i)); });
  });
  for (size_t i = n; i % kPairStep != 0; ++i) y[i] = BFloat{0};
}

// RoundPanel does the same with a panel.
static inline void RoundPanel(const float* from, float* to, size_t n) {
  for (size_t k = 0; k < (n + kPairStep - 1) / kPairStep * kPairStep; k += 2) {
    const F32 first = k < n ? Load(from + k * kLanes) : F32{},
              second = k + 1 < n ? Load(from + (k + 1) * kLanes) : F32{};
    Store(to + k / 2 * kLanes, FromBits(RoundedBFloat(first) >> 16 | (RoundedBFloat(second) & 0xffff0000u)));
  }
}

// LoadWeights loads up to kPairStep weights; count may be greater.
MOJO_INLINE __m512i LoadWeights(const BFloat* w, size_t count) {
  if (count >= kPairStep) return _mm512_loadu_si512(w);
  return _mm512_maskz_loadu_epi16((__mmask32{1} << count) - 1, w);
}

MOJO_INLINE F32 AddPairs(F32 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

// PairRows multiplies kRows rows of weights with kTokens tokens, and prefetches as many rows behind them.
template <int kRows, int kTokens>
MOJO_INLINE void PairRows(const ProductArgs& args, size_t n, size_t first) {
  const BFloat* const w = static_cast<const BFloat*>(args.w) + n * args.stride;
  F32 sum[kTokens][kRows] = {};
  for (size_t k = 0; k < args.depth; k += kPairStep) {
    __m512i row[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1) __builtin_prefetch(w + (kRows + r) * args.stride + k, 0, 2);
      row[r] = LoadWeights(w + r * args.stride + k, args.depth - k);
    }
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
      const __m512i token = _mm512_loadu_si512(args.x[first + m] + k / 2);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[m][r] = AddPairs(sum[m][r], row[r], token);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < kTokens; ++m) {
    const F32 none{};
    const F32 sums = FourSums(sum[m][0], kRows > 1 ? sum[m][1 % kRows] : none, kRows > 2 ? sum[m][2 % kRows] : none,
                              kRows > 3 ? sum[m][3 % kRows] : none);
    AddFirst<kRows>(sums, true, args.y + (first + m) * args.y_stride + n);
  }
}

static void MultiplyPairRows(const ProductArgs& args) {
  size_t n = 0;
  for (; n + kTileRows <= args.width; n += kTileRows) {
    ForEachTile(args.tokens,
                [&](auto count, size_t first) { PairRows<kTileRows, decltype(count)::value>(args, n, first); });
  }
  for (; n < args.width; ++n) {
    ForEachTile(args.tokens, [&](auto count, size_t first) { PairRows<1, decltype(count)::value>(args, n, first); });
  }
}

// PairColumns makes pairs of up to 32 columns of two rows: those of columns 8i to 8i + 3 in the first result's lanes 4i
// to 4i + 3, of the next four columns in the second's. Without the second row its numbers are zeros.
MOJO_INLINE void PairColumns(const BFloat* w, size_t stride, size_t columns, bool two, __m512i* a, __m512i* b) {
  const __m512i upper = LoadWeights(w, columns);
  const __m512i lower = two ? LoadWeights(w + stride, columns) : _mm512_setzero_si512();
  *a = _mm512_unpacklo_epi16(upper, lower);
  *b = _mm512_unpackhi_epi16(upper, lower);
}

// InOrder puts the numbers of PairColumns into the order of columns, 16 in each result.
MOJO_INLINE void InOrder(F32 a, F32 b, F32* first, F32* second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  *first = _mm512_permutex2var_ps(a, low, b);
  *second = _mm512_permutex2var_ps(a, high, b);
}

// A step of columns takes so many inputs, so that neighbors in memory are read together.
constexpr size_t kPairDepth = 64;

// PairColumnTile adds the inputs from at to end - 1 of up to 32 columns to the sums of kTokens tokens.
template <int kTokens>
MOJO_INLINE void PairColumnTile(const ProductArgs& args, size_t n, size_t first, size_t at, size_t end) {
  const BFloat* const w = static_cast<const BFloat*>(args.w) + n;
  const size_t columns = args.width - n < kPairStep ? args.width - n : kPairStep;
  F32 sum[kTokens][2] = {};
  for (size_t k = at; k < end; k += 2) {
    __m512i a, b;
    __builtin_prefetch(w + (k + kPairDepth) * args.stride, 0, 2);
    __builtin_prefetch(w + (k + kPairDepth + 1) * args.stride, 0, 2);
    PairColumns(w + k * args.stride, args.stride, columns, k + 1 < end, &a, &b);
#pragma GCC unroll 6
    for (int m = 0; m < kTokens; ++m) {
      const __m512i token = (__m512i)Set(args.x[first + m][k / 2]);
      sum[m][0] = AddPairs(sum[m][0], a, token);
      sum[m][1] = AddPairs(sum[m][1], b, token);
    }
  }
  for (int m = 0; m < kTokens; ++m) {
    float* const y = args.y + (first + m) * args.y_stride + n;
    F32 sums[2];
    InOrder(sum[m][0], sum[m][1], sums, sums + 1);
    for (size_t i = 0; i < columns; i += kLanes) {
      const auto add = [&](auto lanes) MOJO_LAMBDA {
        Store(lanes, y + i, at == 0 ? sums[i / kLanes] : Load(lanes, y + i) + sums[i / kLanes]);
      };
      if (columns - i >= kLanes) {
        add(Whole{});
      } else {
        add(Part{columns - i});
      }
    }
  }
}

static void MultiplyPairColumns(const ProductArgs& args) {
  for (size_t at = 0; at < args.depth; at += kPairDepth) {
    const size_t end = args.depth - at < kPairDepth ? args.depth : at + kPairDepth;
    for (size_t n = 0; n < args.width; n += kPairStep) {
      ForEachTile(args.tokens,
                  [&](auto count, size_t first) { PairColumnTile<decltype(count)::value>(args, n, first, at, end); });
    }
  }
}

static void MultiplyPairs(const ProductArgs& args) { (args.by_rows ? MultiplyPairRows : MultiplyPairColumns)(args); }

// Tiles have 16 rows of 64 bytes: 0 to 3 hold sums, 4 and 5 weights, 6 and 7 panels. Compilers do not
// know that the instructions read and write memory: TileFence keeps the order.
constexpr size_t kTile = 16;
MOJO_INLINE void TileFence() { __asm__ volatile("" ::: "memory"); }

// TileState configures the tiles while it lives.
struct TileState {
  TileState() {
    struct {
      uint8_t palette = 1, rest[15] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    TileFence();
    _tile_loadconfig(&config);
  }
  ~TileState() { _tile_release(); }
};

// TileRows multiplies rows of weights, up to kLeft times 16 of them, with kRight panels of pairs. If prefetch, it
// prefetches the rows behind them.
template <int kLeft, int kRight>
void TileRows(const PanelArgs& args, size_t n, size_t panel, bool prefetch) {
  constexpr size_t kRow = kTile * sizeof(float), kWhole = kLeft * kTile;
  const size_t stride = args.stride * sizeof(BFloat), y_apart = args.width * kRow;
  const size_t x_apart = (args.depth + kPairStep - 1) / kPairStep * kTile * kRow;
  const size_t rows = args.width - n < kWhole ? args.width - n : kWhole;
  const char* const w = static_cast<const char*>(args.w) + n * stride;
  const char* const next = n + rows < args.width ? w + rows * stride : static_cast<const char*>(args.next);
  const char* x = reinterpret_cast<const char*>(args.x) + panel * x_apart;
  char* const y = reinterpret_cast<char*>(args.y) + panel * y_apart + n * kRow;
  alignas(64) char room[kWhole * 64], sums[kRight][kWhole * kRow];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (size_t k = 0; k < args.depth; k += kPairStep, x += kTile * kRow) {
    const char* left = w + k * sizeof(BFloat);
    size_t step = stride;
    for (size_t i = 0; prefetch && i < kWhole; ++i) __builtin_prefetch(next + i * stride + k * sizeof(BFloat), 0, 2);
    if (rows < kWhole || args.depth - k < kPairStep) {
      for (size_t i = 0; i < kWhole; ++i) {
        const auto* row = reinterpret_cast<const BFloat*>(left + i * stride);
        _mm512_store_si512(room + i * 64, i < rows ? LoadWeights(row, args.depth - k) : _mm512_setzero_si512());
      }
      TileFence();
      left = room;
      step = 64;
    }
    _tile_loadd(4, left, step);
    _tile_loadd(6, x, kRow);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRight > 1) {
      _tile_loadd(7, x + x_apart, kRow);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kLeft > 1) {
      _tile_loadd(5, left + kTile * step, step);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kRight > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums[0], kRow);
  if constexpr (kRight > 1) _tile_stored(1, sums[1], kRow);
  if constexpr (kLeft > 1) _tile_stored(2, sums[0] + kTile * kRow, kRow);
  if constexpr (kLeft > 1 && kRight > 1) _tile_stored(3, sums[1] + kTile * kRow, kRow);
  TileFence();
  for (int p = 0; p < kRight; ++p) {
    for (size_t i = 0; i < rows; ++i) {
      const F32 sum = Load(reinterpret_cast<const float*>(sums[p] + i * kRow));
      Store(reinterpret_cast<float*>(y + p * y_apart + i * kRow),
            args.bias == nullptr ? sum : sum + Set(args.bias[n + i]));
    }
  }
}

// MultiplyPairPanels is a PanelFn with panels of pairs.
static void MultiplyPairPanels(const PanelArgs& args) {
  const TileState state;
  for (size_t n = 0; n < args.width; n += 2 * kTile) {
    for (size_t p = 0; p < args.panels; p += 2) {
      const bool one = args.panels - p < 2;
      if (args.width - n > kTile) {
        (one ? TileRows<2, 1> : TileRows<2, 2>)(args, n, p, p == 0);
      } else {
        (one ? TileRows<1, 1> : TileRows<1, 2>)(args, n, p, p == 0);
      }
    }
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo
