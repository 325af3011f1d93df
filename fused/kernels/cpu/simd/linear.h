// Products of rows of activations with panels of weights.
//
// A lane is a row of weights: activations are broadcast to all lanes, and nothing is added up across lanes. A few rows
// multiply codes as they are read; for more, the codes of some blocks are unpacked first, for all rows.
#pragma once

#include "cpu/simd/float8.h"
#include "cpu/simd/quantize.h"
#include "cpu/simd/quantized.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Blocks whose factors are read and whose codes are unpacked at a time, to stay in the first-level cache.
constexpr size_t kUnpackBlocks = 16;

// Slabs that are multiplied with an activation once it is in a register; their sums must fit into the registers.
#if defined(__AVX512F__) || defined(__AVX2__) || defined(__aarch64__)
constexpr int kWide = kSlabs;
#else
constexpr int kWide = 1;
#endif

template <class A, class B>
constexpr bool SameType = false;
template <class A>
constexpr bool SameType<A, A> = true;

// Four is four bytes at p in every lane.
MOJO_INLINE U32 Four(const char* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
#if defined(__AVX512F__)
  return (U32)_mm512_set1_epi32(static_cast<int>(word));
#elif defined(__AVX2__)
  return (U32)_mm256_set1_epi32(static_cast<int>(word));
#else
  return SetBits(word);
#endif
}

// Add is a + b. It hides additions from compilers that turn a chain into a tree, whose products do not fit the
// registers.
MOJO_INLINE I32 Add(I32 a, I32 b) {
  I32 sum = a + b;
#if defined(__aarch64__)
  asm("" : "+w"(sum));
#elif defined(__SSE2__)
  asm("" : "+x"(sum));
#endif
  return sum;
}

// MultiplyPairs adds products of two 16-bit numbers a lane.
MOJO_INLINE I32 MultiplyPairs(I32 sum, U32 a, U32 b) {
#if defined(__AVX512VNNI__)
  return (I32)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return Add(sum, (I32)_mm256_madd_epi16((__m256i)a, (__m256i)b));
#elif defined(__SSE2__)
  return Add(sum, (I32)__builtin_ia32_pmaddwd128((__attribute__((vector_size(16))) short)a,
                                                 (__attribute__((vector_size(16))) short)b));
#elif defined(__aarch64__)
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return Add(sum, (I32)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
#else
  const I32 x = (I32)a, y = (I32)b;
  return sum + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

MOJO_INLINE F32 ToFloats(I32 v) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps((__m512i)v);
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps((__m256i)v);
#else
  return __builtin_convertvector(v, F32);
#endif
}

// Stored are packed codes, Ready are unpacked ones of any kind. Get makes the vectors of four columns.
template <Code kKind, bool kShorts>
struct Stored {
  const uint8_t* codes;
  MOJO_INLINE void Get(int slab, int h, int j, U32* to) const { UnpackWords<kKind, kShorts>(codes, slab, h, j, to); }
};
template <bool kShorts>
struct Ready {
  U32 words[kParts][4][kSlabs][kWords<kShorts>];
  MOJO_INLINE void Get(int slab, int h, int j, U32* to) const {
    for (int i = 0; i < kWords<kShorts>; ++i) to[i] = words[h][j][slab][i];
  }
};

// SumPairs are the sums of products of a block of weights for some slabs and rows, with 16-bit activations.
template <int kBlocks, int kRows, class Codes>
MOJO_INLINE void SumPairs(const Codes& codes, int slab, int b, const char* tile, I32 (*sum)[kRows]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int h = b * kParts / kBlocks; h < (b + 1) * kParts / kBlocks; ++h) {
      U32 w[kWide][2];
#pragma GCC unroll 4
      for (int s = 0; s < kWide; ++s) codes.Get(slab + s, h, j, w[s]);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const U32 x = Four(tile + r * 64 + h * 32 + j * 8 + i * 4);
#pragma GCC unroll 4
          for (int s = 0; s < kWide; ++s) sum[s][r] = MultiplyPairs(sum[s][r], w[s][i], x);
        }
      }
    }
  }
}

// SumPairsInPlace does the same for one row and codes of 4 bits. It multiplies most of them in place in their 16 bits:
// 16 or 256 times their value. 8 products of 15 * 256 and 32767 fit into the sums.
template <int kBlocks, bool kShorts>
MOJO_INLINE void SumPairsInPlace(const Stored<Code::kInt4, kShorts>& codes, int slab, int b, const char* tile,
                                 I32 (*sum)[1]) {
  typedef uint16_t Shorts __attribute__((vector_size(sizeof(U32))));
  I32 by16[kWide]{}, by256[kWide]{};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
    for (int s = 0; s < kWide; ++s) {
      const U32 v = LoadBits(codes.codes + 64 * j + (slab + s) * sizeof(U32));
      const char* x = tile + j * 8;
      if (kBlocks == 1 || b == 0) {
        sum[s][0] = MultiplyPairs(sum[s][0], v & 0x000f000f, Four(x));
        by256[s] = MultiplyPairs(by256[s], v & 0x0f000f00, Four(x + 4));
      }
      if (kBlocks == 1 || b == 1) {
        by16[s] = MultiplyPairs(by16[s], v & 0x00f000f0, Four(x + 32));
        sum[s][0] = MultiplyPairs(sum[s][0], (U32)((Shorts)v >> 12), Four(x + 36));
      }
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < kWide; ++s) sum[s][0] += (by16[s] >> 4) + (by256[s] >> 8);
}

// Room returns how many products of two codes and two numbers of 8 bits AVX2 adds in 16 bits: 8 * 2 * 15 * 127 and
// 4 * 2 * 24 * 127 fit. It is 0 if products are added in 32 bits, so that the kinds of codes share the loops.
template <Code kKind, bool kShorts, int kBlocks>
constexpr int Room() {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  return kShorts ? 0 : kKind == Code::kInt4 && kBlocks == 1 ? 8 : 4;
#else
  return 0;
#endif
}

// SumBytes does the same for 8-bit activations.
template <int kRoom, int kBlocks, int kRows, class Codes>
MOJO_INLINE void SumBytes(const Codes& codes, int slab, int b, const char* tile, I32 (*sum)[kRows]) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  __m256i pairs[kWide][kRows];
#endif
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int p = 0; p < kParts / kBlocks; ++p) {
      const int h = b * kParts / kBlocks + p;
      [[maybe_unused]] const int number = j * kParts / kBlocks + p;
      U32 w[kWide][1];
#pragma GCC unroll 4
      for (int s = 0; s < kWide; ++s) codes.Get(slab + s, h, j, w[s]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const U32 x = Four(tile + r * 32 + h * 16 + j * 4);
#pragma GCC unroll 4
        for (int s = 0; s < kWide; ++s) {
#if defined(__AVX512VNNI__)
          sum[s][r] = (I32)_mm512_dpbusd_epi32((__m512i)sum[s][r], (__m512i)w[s][0], (__m512i)x);
#elif defined(__AVX2__)
          const __m256i products = _mm256_maddubs_epi16((__m256i)w[s][0], (__m256i)x);
          pairs[s][r] = number % kRoom == 0 ? products : _mm256_add_epi16(pairs[s][r], products);
          asm("" : "+x"(pairs[s][r]));
          if (number % kRoom == kRoom - 1) {
            sum[s][r] = Add(sum[s][r], (I32)_mm256_madd_epi16(pairs[s][r], _mm256_set1_epi16(1)));
          }
#elif defined(__ARM_FEATURE_DOTPROD)
          sum[s][r] = (I32)vdotq_s32((int32x4_t)sum[s][r], (int8x16_t)w[s][0], (int8x16_t)x);
#else
          (void)x;  // such activations are widened
#endif
        }
      }
    }
  }
}

// AddBlock adds to y, the sums of kRows rows, the products of kWide slabs with one block of columns. factors has one
// row for each block of weights.
template <int kRoom, bool kShorts, int kBlocks, int kRows, class Codes>
MOJO_INLINE void AddBlock(const Codes& codes, int slab, const Factors (*factors)[kSlabs], bool offset, const char* tile,
                          F32 (*y)[kRows]) {
  const char* numbers = tile + kRows * kCodeBlock * (kShorts ? 2 : 1);
#pragma GCC unroll 2
  for (int b = 0; b < kBlocks; ++b) {
    I32 sum[kWide][kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const I32 begin = (I32)Four(numbers + ((1 + b) * kRows + r) * 4);
#pragma GCC unroll 4
      for (int s = 0; s < kWide; ++s) sum[s][r] = begin;
    }
    if constexpr (!kShorts) {
      SumBytes<kRoom, kBlocks, kRows>(codes, slab, b, tile, sum);
    } else if constexpr (kRows == 1 && SameType<Codes, Stored<Code::kInt4, true>>) {
      SumPairsInPlace<kBlocks>(codes, slab, b, tile, sum);
    } else {
      SumPairs<kBlocks, kRows>(codes, slab, b, tile, sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32 step = FromBits(Four(numbers + r * 4));
#pragma GCC unroll 4
      for (int s = 0; s < kWide; ++s) {
        y[s][r] = Fma(ToFloats(sum[s][r]), factors[b][slab + s].scale * step, y[s][r]);
      }
      if (offset) {
        const F32 of_sum = FromBits(Four(numbers + ((1 + kBlocks + b) * kRows + r) * 4));
#pragma GCC unroll 4
        for (int s = 0; s < kWide; ++s) y[s][r] = Fma(factors[b][slab + s].offset, of_sum, y[s][r]);
      }
    }
  }
}

// Prefetch prefetches the codes some blocks ahead.
MOJO_INLINE void Prefetch(const uint8_t* codes, size_t bytes) {
  constexpr size_t kAhead = 2048;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(codes + kAhead + i, 0, 3);
}

// PrefetchFactors prefetches as many blocks' factors as there are from first to end - 1, behind these. It is compiled
// once for all products.
__attribute__((noinline)) static void PrefetchFactors(const QuantizedWeights& w, size_t panel, size_t first,
                                                      size_t end) {
  const size_t size = w.scales == kFloatScales ? 4 : w.scales == kHalfScales ? 2 : 1, step = kPanel * size;
  const size_t from = (panel * (w.k / w.block) + end) * step, to = from + (end - first) * step;
  for (size_t at = from; at < to; at += 64) {
    __builtin_prefetch(static_cast<const char*>(w.scale) + at, 0, 2);
    if (w.minus != nullptr) __builtin_prefetch(static_cast<const char*>(w.minus) + at, 0, 2);
  }
}

// Rows are the sums of kRows rows of kWide slabs over some blocks. They begin at zero: adding to y would make one long
// chain of additions.
template <int kRows>
struct Rows {
  F32 sum[kWide][kRows] = {};
  MOJO_INLINE void AddTo(float* y, int slab) const {
    for (int s = 0; s < kWide; ++s) {
      for (int r = 0; r < kRows; ++r) {
        float* to = y + r * kPanel + (slab + s) * kLanes;
        Store(to, Load(to) + sum[s][r]);
      }
    }
  }
};

// MultiplyStored computes kRows rows of a panel, reading the codes in place.
template <Code kKind, bool kShorts, int kBlocks, int kRows>
void MultiplyStored(const QuantizedWeights& w, size_t panel, const char* tile, float* y) {
  const size_t blocks = w.k / kCodeBlock;
  const uint8_t* codes = w.codes + panel * blocks * CodeBytes(kKind);
  const bool offset = HasOffset(w);
  Factors factors[kUnpackBlocks * kBlocks][kSlabs];
  for (size_t i = 0; i < kRows * kPanel; ++i) y[i] = 0;
  for (size_t first = 0; first < blocks; first += kUnpackBlocks) {
    const size_t count = blocks - first < kUnpackBlocks ? blocks - first : kUnpackBlocks;
    LoadFactors(w, panel, first * kBlocks, (first + count) * kBlocks, factors);
    PrefetchFactors(w, panel, first * kBlocks, (first + count) * kBlocks);
    for (int slab = 0; slab < kSlabs; slab += kWide) {
      Rows<kRows> rows;
      const char* at = tile + first * kRows * TileBytes(kShorts, kBlocks);
      for (size_t i = 0; i < count; ++i, at += kRows * TileBytes(kShorts, kBlocks)) {
        const Stored<kKind, kShorts> block{codes + (first + i) * CodeBytes(kKind)};
        if (slab == 0) Prefetch(block.codes, CodeBytes(kKind));
        AddBlock<Room<kKind, kShorts, kBlocks>(), kShorts, kBlocks, kRows>(block, slab, factors + i * kBlocks, offset,
                                                                           at, rows.sum);
      }
      rows.AddTo(y, slab);
    }
  }
}

// Unpacked is some blocks of a panel.
template <bool kShorts, int kBlocks>
struct Unpacked {
  Ready<kShorts> codes[kUnpackBlocks];
  Factors factors[kUnpackBlocks * kBlocks][kSlabs];
};

// MultiplyUnpacked adds the products of kRows rows with some blocks to y. Meanwhile it prefetches the codes of as many
// blocks of code_bytes at next, if that is not null.
template <int kRoom, bool kShorts, int kBlocks, int kRows>
void MultiplyUnpacked(const Unpacked<kShorts, kBlocks>& w, size_t blocks, bool offset, const char* tile,
                      const uint8_t* next, size_t code_bytes, float* y) {
  for (int slab = 0; slab < kSlabs; slab += kWide) {
    Rows<kRows> rows;
    const char* at = tile;
    for (size_t i = 0; i < blocks; ++i, at += kRows * TileBytes(kShorts, kBlocks)) {
      for (size_t b = 0; next != nullptr && slab == 0 && b < code_bytes; b += 64) {
        __builtin_prefetch(next + i * code_bytes + b, 0, 2);
      }
      AddBlock<kRoom, kShorts, kBlocks, kRows>(w.codes[i], slab, w.factors + i * kBlocks, offset, at, rows.sum);
    }
    rows.AddTo(y, slab);
  }
}

// MultiplyMany computes all rows of args of a panel.
template <Code kKind, bool kShorts, int kBlocks>
void MultiplyMany(const MultiplyArgs& args, size_t panel, float* y) {
  const QuantizedWeights& w = *args.weights;
  const size_t blocks = w.k / kCodeBlock, bytes = TileBytes(kShorts, kBlocks);
  const bool offset = HasOffset(w);
  Unpacked<kShorts, kBlocks> unpacked;
  for (size_t i = 0; i < (args.end_row - args.first_row) * kPanel; ++i) y[i] = 0;
  for (size_t first = 0; first < blocks; first += kUnpackBlocks) {
    const size_t count = blocks - first < kUnpackBlocks ? blocks - first : kUnpackBlocks;
    LoadFactors(w, panel, first * kBlocks, (first + count) * kBlocks, unpacked.factors);
    PrefetchFactors(w, panel, first * kBlocks, (first + count) * kBlocks);
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* codes = w.codes + (panel * blocks + first + i) * CodeBytes(kKind);
      for (int h = 0; h < kParts; ++h) {
        for (int j = 0; j < 4; ++j) {
          for (int s = 0; s < kSlabs; ++s) {
            U32 words[kWords<kShorts>];
            UnpackWords<kKind, kShorts>(codes, s, h, j, words);
            __builtin_memcpy(unpacked.codes[i].words[h][j][s], words, sizeof(words));
          }
        }
      }
    }
    const uint8_t* next = w.codes + (panel * blocks + first + count) * CodeBytes(kKind);
    for (size_t row = args.first_row; row < args.end_row; next = nullptr) {
      const size_t tile = TileAt<kBlocks>(args.rows, row);
      const char* x = static_cast<const char*>(args.x) + (row * blocks + first * tile) * bytes;
      float* to = y + (row - args.first_row) * kPanel;
      WithTile<kBlocks>(tile, [&](auto rows) MOJO_LAMBDA {
        MultiplyUnpacked<Room<kKind, kShorts, kBlocks>(), kShorts, kBlocks, decltype(rows)::value>(
            unpacked, count, offset, x, next, CodeBytes(kKind), to);
      });
      row += tile;
    }
  }
}

// MultiplyFew does the same for rows that fit into a tile: unpacking does not pay.
template <Code kKind, bool kShorts, int kBlocks>
void MultiplyFew(const MultiplyArgs& args, size_t panel, float* y) {
  const QuantizedWeights& w = *args.weights;
  const size_t row_bytes = w.k / kCodeBlock * TileBytes(kShorts, kBlocks);
  for (size_t row = args.first_row; row < args.end_row;) {
    const size_t tile = TileAt<kBlocks>(args.rows, row);
    const char* x = static_cast<const char*>(args.x) + row * row_bytes;
    float* to = y + (row - args.first_row) * kPanel;
    WithTile<kBlocks>(tile, [&](auto rows) MOJO_LAMBDA {
      MultiplyStored<kKind, kShorts, kBlocks, decltype(rows)::value>(w, panel, x, to);
    });
    row += tile;
  }
}

// MultiplyFloats multiplies activations that are not rounded.
inline void MultiplyFloats(const MultiplyArgs& args, size_t panel, float* y) {
  const QuantizedWeights& w = *args.weights;
  const size_t rows = args.end_row - args.first_row;
  for (size_t i = 0; i < rows * kPanel; ++i) y[i] = 0;
  for (size_t first = 0; first < w.k; first += kCodeBlock) {
    float column[kCodeBlock][kPanel];
    DecodeBlock(w, panel, first, column);
    for (size_t r = 0; r < rows; ++r) {
      const float* x = static_cast<const float*>(args.x) + (args.first_row + r) * w.k + first;
      for (int s = 0; s < kSlabs; ++s) {
        float* to = y + r * kPanel + s * kLanes;
        F32 sum{};
        for (size_t c = 0; c < kCodeBlock; ++c) sum = Fma(Load(column[c] + s * kLanes), Set(x[c]), sum);
        Store(to, Load(to) + sum);
      }
    }
  }
}

typedef void (*PanelProduct)(const MultiplyArgs& args, size_t panel, float* y);

template <Code kKind, bool kShorts, int kBlocks>
PanelProduct PickForBlocks(bool many) {
  return many ? MultiplyMany<kKind, kShorts, kBlocks> : MultiplyFew<kKind, kShorts, kBlocks>;
}

template <Code kKind>
PanelProduct PickProductOfPanel(const MultiplyArgs& args) {
  const bool many = args.end_row - args.first_row > kMostTile, one = args.weights->block == kCodeBlock;
  if constexpr (!NeedsShorts(kKind, Activations::kInt8)) {
    if (args.activations == Activations::kInt8) {
      return one ? PickForBlocks<kKind, false, 1>(many) : PickForBlocks<kKind, false, 2>(many);
    }
  }
  return one ? PickForBlocks<kKind, true, 1>(many) : PickForBlocks<kKind, true, 2>(many);
}

// Write adds the bias and writes the panel's columns that exist in the result.
template <class T>
void Write(const MultiplyArgs& args, size_t panel, const float* sums) {
  const size_t n = args.weights->n, first = panel * kPanel, count = n - first < kPanel ? n - first : kPanel;
  for (size_t row = args.first_row; row < args.end_row; ++row, sums += kPanel) {
    T* y = static_cast<T*>(args.y) + row * n + first;
    ForEachVector(count, [&](auto lanes, size_t i) MOJO_LAMBDA {
      F32 v = Load(lanes, sums + i);
      if (args.bias != nullptr) v += Load(lanes, args.bias + first + i);
      Store(lanes, y + i, v);
    });
  }
}

inline void MultiplyPanels(const MultiplyArgs& args) {
  PanelProduct product = MultiplyFloats;
  if (args.weights->code == Code::kE4m3) {
    product = MultiplyFloat8;
  } else if (args.activations != Activations::kFloat) {
    switch (args.weights->code) {
      case Code::kInt4: product = PickProductOfPanel<Code::kInt4>(args); break;
      case Code::kInt8: product = PickProductOfPanel<Code::kInt8>(args); break;
      case Code::kE2m1: product = PickProductOfPanel<Code::kE2m1>(args); break;
      case Code::kE4m3: break;
    }
  }
  float sums[kLinearRows * kPanel];
  for (size_t panel = args.first_panel; panel < args.end_panel; ++panel) {
    product(args, panel, sums);
    OfType(args.type, [&](auto t) { Write<decltype(t)>(args, panel, sums); });
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo
