// Products of rows of activations with panels of weights.
//
// A lane is a row of weights: activations are handed to all lanes at once, and nothing is added up across lanes. A few
// rows multiply codes as they are read; for more, the codes of some blocks are unpacked first, for all rows.
#ifndef MOJO_KERNELS_CPU_SIMD_LINEAR_H_
#define MOJO_KERNELS_CPU_SIMD_LINEAR_H_

#include "cpu/simd/coded.h"
#include "cpu/simd/quantise.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Blocks that are unpacked at a time, so that they stay in the first levels of the cache.
constexpr size_t kUnpackBlocks = 32;

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

// MultiplyPairs adds products of two numbers of 16 bits a lane.
MOJO_INLINE I32 MultiplyPairs(I32 sum, U32 a, U32 b) {
#if defined(__AVX512VNNI__)
  return (I32)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return sum + (I32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return sum + (I32)__builtin_ia32_pmaddwd128((__attribute__((vector_size(16))) short)a,
                                              (__attribute__((vector_size(16))) short)b);
#elif defined(__aarch64__)
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return sum + (I32)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
  const I32 x = (I32)a, y = (I32)b;
  return sum + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

// AddPart adds to the sums of kRows rows the products of one part: w has its vectors, x the activations of the first
// row, and the others bytes behind each other.
template <bool kShorts, int kRows>
MOJO_INLINE void AddPart(const U32* w, const char* x, size_t bytes, I32* sum) {
  if constexpr (kShorts) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const U32 weights = w[j];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = MultiplyPairs(sum[r], weights, Four(x + r * bytes + 4 * j));
    }
    return;
  }
#if defined(__AVX512VNNI__)
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const U32 weights = w[j];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[r] = (I32)_mm512_dpbusd_epi32((__m512i)sum[r], (__m512i)weights, (__m512i)Four(x + r * bytes + 4 * j));
    }
  }
#elif defined(__AVX2__)
  // Codes of up to 24: the sums of 8 products have room in 16 bits.
  __m256i pairs[kRows];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i weights = (__m256i)w[j];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i products = _mm256_maddubs_epi16(weights, (__m256i)Four(x + r * bytes + 4 * j));
      pairs[r] = j == 0 ? products : _mm256_add_epi16(pairs[r], products);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] += (I32)_mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1));
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

// AddBlock adds to y, the sums of kRows rows, the products of a slab with one block of columns. w
// has the vectors of its parts, factors one for each block of weights.
template <bool kShorts, int kBlocks, int kRows>
MOJO_INLINE void AddBlock(const U32* w, const Factors* factors, bool offset, const char* tile, F32* y) {
  constexpr size_t kBytes = kCodeBlock * (kShorts ? 2 : 1);
  const char* numbers = tile + kRows * kBytes;
#pragma GCC unroll 2
  for (int b = 0; b < kBlocks; ++b) {
    I32 sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = (I32)Four(numbers + ((1 + b) * kRows + r) * 4);
#pragma GCC unroll 2
    for (int p = 0; p < kParts / kBlocks; ++p) {
      const int h = b * kParts / kBlocks + p;
      AddPart<kShorts, kRows>(w + h * kWords<kShorts>, tile + h * kBytes / 2, kBytes, sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32 factor = factors[b].scale * FromBits(Four(numbers + r * 4));
      y[r] = Fma(ToFloats(sum[r]), factor, y[r]);
      if (offset) {
        y[r] = Fma(factors[b].offset, FromBits(Four(numbers + ((1 + kBlocks + b) * kRows + r) * 4)), y[r]);
      }
    }
  }
}

// Prefetch asks for the codes some blocks ahead.
MOJO_INLINE void Prefetch(const uint8_t* codes, size_t bytes) {
  constexpr size_t kAhead = 2048;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(codes + kAhead + i, 0, 3);
}

// MultiplyStored computes kRows rows of a panel, reading the codes as they are.
template <CodeKind kKind, bool kShorts, int kBlocks, int kRows>
void MultiplyStored(const CodedWeights& w, size_t panel, const char* tile, float* y) {
  const size_t blocks = w.k / kCodeBlock;
  const uint8_t* codes = w.codes + panel * blocks * CodeBytes(kKind);
  const bool offset = HasOffset(w);
  F32 sum[kSlabs][kRows];
  for (auto& slab : sum) {
    for (F32& v : slab) v = F32{};
  }
  for (size_t i = 0; i < blocks; ++i, codes += CodeBytes(kKind), tile += kRows * TileBytes(kShorts, kBlocks)) {
    Prefetch(codes, CodeBytes(kKind));
#pragma GCC unroll 4
    for (int s = 0; s < kSlabs; ++s) {
      U32 unpacked[kParts][kWords<kShorts>];
      UnpackCodes<kKind, kShorts>(codes, s, unpacked);
      Factors factors[kBlocks];
#pragma GCC unroll 2
      for (int b = 0; b < kBlocks; ++b) factors[b] = LoadFactors(w, panel, s, i * kBlocks + b);
      AddBlock<kShorts, kBlocks, kRows>(unpacked[0], factors, offset, tile, sum[s]);
    }
  }
  for (int s = 0; s < kSlabs; ++s) {
    for (int r = 0; r < kRows; ++r) Store(y + r * kPanel + s * kLanes, sum[s][r]);
  }
}

// Unpacked is some blocks of a panel.
template <bool kShorts, int kBlocks>
struct Unpacked {
  U32 codes[kSlabs][kUnpackBlocks][kParts * kWords<kShorts>];
  Factors factors[kSlabs][kUnpackBlocks][kBlocks];
};

// MultiplyUnpacked adds the products of kRows rows with some blocks to y.
template <bool kShorts, int kBlocks, int kRows>
void MultiplyUnpacked(const Unpacked<kShorts, kBlocks>& w, size_t blocks, bool offset, const char* tile, float* y) {
  for (int s = 0; s < kSlabs; ++s) {
    F32 sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = Load(y + r * kPanel + s * kLanes);
    const char* at = tile;
    for (size_t i = 0; i < blocks; ++i, at += kRows * TileBytes(kShorts, kBlocks)) {
      AddBlock<kShorts, kBlocks, kRows>(w.codes[s][i], w.factors[s][i], offset, at, sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) Store(y + r * kPanel + s * kLanes, sum[r]);
  }
}

// MultiplyMany computes all rows of args of a panel.
template <CodeKind kKind, bool kShorts, int kBlocks>
void MultiplyMany(const MultiplyArgs& args, size_t panel, float* y) {
  const CodedWeights& w = *args.weights;
  const size_t blocks = w.k / kCodeBlock, bytes = TileBytes(kShorts, kBlocks);
  const bool offset = HasOffset(w);
  Unpacked<kShorts, kBlocks> unpacked;
  for (size_t i = 0; i < (args.end_row - args.first_row) * kPanel; ++i) y[i] = 0;
  for (size_t first = 0; first < blocks; first += kUnpackBlocks) {
    const size_t count = blocks - first < kUnpackBlocks ? blocks - first : kUnpackBlocks;
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* codes = w.codes + (panel * blocks + first + i) * CodeBytes(kKind);
      for (int s = 0; s < kSlabs; ++s) {
        U32 vectors[kParts][kWords<kShorts>];
        UnpackCodes<kKind, kShorts>(codes, s, vectors);
        __builtin_memcpy(unpacked.codes[s][i], vectors, sizeof(vectors));
        for (int b = 0; b < kBlocks; ++b) {
          unpacked.factors[s][i][b] = LoadFactors(w, panel, s, (first + i) * kBlocks + b);
        }
      }
    }
    for (size_t row = args.first_row; row < args.end_row;) {
      const size_t tile = TileAt(args.rows, row);
      const char* x = static_cast<const char*>(args.x) + (row * blocks + first * tile) * bytes;
      float* to = y + (row - args.first_row) * kPanel;
      switch (tile) {
        case 8: MultiplyUnpacked<kShorts, kBlocks, kMostTile>(unpacked, count, offset, x, to); break;
        case 4: MultiplyUnpacked<kShorts, kBlocks, 4>(unpacked, count, offset, x, to); break;
        case 2: MultiplyUnpacked<kShorts, kBlocks, 2>(unpacked, count, offset, x, to); break;
        default: MultiplyUnpacked<kShorts, kBlocks, 1>(unpacked, count, offset, x, to); break;
      }
      row += tile;
    }
  }
}

// MultiplyFew does the same for rows that fit into a tile, for which it does not pay to unpack.
template <CodeKind kKind, bool kShorts, int kBlocks>
void MultiplyFew(const MultiplyArgs& args, size_t panel, float* y) {
  const CodedWeights& w = *args.weights;
  const size_t row_bytes = w.k / kCodeBlock * TileBytes(kShorts, kBlocks);
  for (size_t row = args.first_row; row < args.end_row;) {
    const size_t tile = TileAt(args.rows, row);
    const char* x = static_cast<const char*>(args.x) + row * row_bytes;
    float* to = y + (row - args.first_row) * kPanel;
    switch (tile) {
      case 8: MultiplyStored<kKind, kShorts, kBlocks, kMostTile>(w, panel, x, to); break;
      case 4: MultiplyStored<kKind, kShorts, kBlocks, 4>(w, panel, x, to); break;
      case 2: MultiplyStored<kKind, kShorts, kBlocks, 2>(w, panel, x, to); break;
      default: MultiplyStored<kKind, kShorts, kBlocks, 1>(w, panel, x, to); break;
    }
    row += tile;
  }
}

// MultiplyFloats multiplies activations that are not rounded.
inline void MultiplyFloats(const MultiplyArgs& args, size_t panel, float* y) {
  const CodedWeights& w = *args.weights;
  const size_t rows = args.end_row - args.first_row;
  for (size_t i = 0; i < rows * kPanel; ++i) y[i] = 0;
  for (size_t first = 0; first < w.k; first += kCodeBlock) {
    float column[kCodeBlock][kPanel];
    DecodeBlock(w, panel, first, column);
    for (size_t r = 0; r < rows; ++r) {
      const float* x = static_cast<const float*>(args.x) + (args.first_row + r) * w.k + first;
      for (int s = 0; s < kSlabs; ++s) {
        F32 sum = Load(y + r * kPanel + s * kLanes);
        for (size_t c = 0; c < kCodeBlock; ++c) sum = Fma(Load(column[c] + s * kLanes), Set(x[c]), sum);
        Store(y + r * kPanel + s * kLanes, sum);
      }
    }
  }
}

typedef void (*PanelProduct)(const MultiplyArgs& args, size_t panel, float* y);

template <CodeKind kKind, bool kShorts, int kBlocks>
PanelProduct PickForBlocks(bool many) {
  return many ? MultiplyMany<kKind, kShorts, kBlocks> : MultiplyFew<kKind, kShorts, kBlocks>;
}

template <CodeKind kKind>
PanelProduct PickProductOfPanel(const MultiplyArgs& args) {
  const bool many = args.end_row - args.first_row > kMostTile, one = args.weights->block == kCodeBlock;
  if constexpr (!NeedsShorts(kKind, kInt8Activations)) {
    if (args.activations == kInt8Activations) {
      return one ? PickForBlocks<kKind, false, 1>(many) : PickForBlocks<kKind, false, 2>(many);
    }
  }
  return one ? PickForBlocks<kKind, true, 1>(many) : PickForBlocks<kKind, true, 2>(many);
}

// Write adds the bias and writes the columns of a panel that the result has.
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
  if (args.activations != kFloatActivations) {
    switch (args.weights->code) {
      case kInt4Codes: product = PickProductOfPanel<kInt4Codes>(args); break;
      case kInt8Codes: product = PickProductOfPanel<kInt8Codes>(args); break;
      case kE2M1Codes: product = PickProductOfPanel<kE2M1Codes>(args); break;
    }
  }
  float sums[kLinearRows * kPanel];
  for (size_t panel = args.first_panel; panel < args.end_panel; ++panel) {
    product(args, panel, sums);
    switch (args.type) {
      case kFloat32: Write<float>(args, panel, sums); break;
      case kFloat16: Write<Half>(args, panel, sums); break;
      case kBFloat16: Write<BFloat>(args, panel, sums); break;
    }
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_LINEAR_H_
