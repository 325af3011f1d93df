// Activations rounded to integers, in tiles.
#pragma once

#include "cpu/simd/quantized.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Maximum rows of a tile: their sums and the operands of products must fit into the registers.
#if defined(__AVX512VNNI__)
constexpr int kMostTile = 8;
#else
constexpr int kMostTile = 4;
#endif

// TileAt is the number of rows of the tile that begins at a row: the maximum at first, then all remaining rows. If
// blocks of weights are half as wide as the columns' blocks, it is a power of two, since each other number is more to
// compile.
template <int kBlocks>
inline size_t TileAt(size_t rows, size_t row) {
  size_t tile = kMostTile;
  while (tile > rows - row) tile = kBlocks == 1 ? rows - row : tile / 2;
  return tile;
}

// TileRows is a number of rows as a constant.
template <int kRows>
struct TileRows {
  static constexpr int value = kRows;
};

// WithTile calls body with the rows of a tile, at most kRows, as a constant.
template <int kBlocks, int kRows = kMostTile, class Body>
MOJO_INLINE void WithTile(size_t rows, Body body) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return WithTile<kBlocks, kBlocks == 1 ? kRows - 1 : kRows / 2>(rows, body);
  }
  body(TileRows<kRows>{});
}

// NeedsShorts reports whether activations take 16 bits: without instructions for 8-bit codes, codes are widened.
MOJO_INLINE constexpr bool NeedsShorts(Code code, Activations activations) {
#if defined(__AVX512VNNI__)
  return (void)code, activations == Activations::kInt16;
#elif defined(__AVX2__)
  return activations == Activations::kInt16 || code == Code::kInt8;
#elif defined(__ARM_FEATURE_DOTPROD)
  return (void)code, activations == Activations::kInt16;
#else
  return (void)code, (void)activations, true;
#endif
}

// TileBytes is the size of a row in a tile for one block of columns.
MOJO_INLINE constexpr size_t TileBytes(bool shorts, size_t parts) {
  return kCodeBlock * (shorts ? 2 : 1) + (1 + 2 * parts) * 4;
}

inline size_t RowBytes(const QuantizedWeights& w, Activations activations) {
  if (activations == Activations::kFloat || activations == Activations::kFp8) return w.k * sizeof(float);
  return w.k / kCodeBlock * TileBytes(NeedsShorts(w.code, activations), kCodeBlock / w.block);
}

// Vectors of a block.
constexpr int kVectors = static_cast<int>(kCodeBlock) / kLanes;

// StoreCodes narrows the codes of a block; 16-bit codes are in the order of UnpackWords.
template <bool kShorts>
MOJO_INLINE void StoreCodes(const I32* v, void* to) {
#if defined(__AVX512F__)
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (kShorts) {
      const __m512i ordered = _mm512_shuffle_epi32((__m512i)v[i], _MM_PERM_DBCA);
      _mm256_storeu_si256(static_cast<__m256i*>(to) + i, _mm512_cvtepi32_epi16(ordered));
    } else {
      _mm_storeu_si128(static_cast<__m128i*>(to) + i, _mm512_cvtepi32_epi8((__m512i)v[i]));
    }
  }
#elif defined(__AVX2__)
  // Packing alternates between the halves.
  __m256i pairs[2], *out = static_cast<__m256i*>(to);
  for (int i = 0; i < 2; ++i) {
    __m256i a = (__m256i)v[2 * i], b = (__m256i)v[2 * i + 1];
    if constexpr (kShorts) {
      a = _mm256_shuffle_epi32(a, _MM_SHUFFLE(3, 1, 2, 0));
      b = _mm256_shuffle_epi32(b, _MM_SHUFFLE(3, 1, 2, 0));
    }
    pairs[i] = _mm256_packs_epi32(a, b);
    if constexpr (kShorts) _mm256_storeu_si256(out + i, _mm256_permute4x64_epi64(pairs[i], _MM_SHUFFLE(3, 1, 2, 0)));
  }
  if constexpr (!kShorts) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(out, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(pairs[0], pairs[1]), order));
  }
#else
  for (int i = 0; i < static_cast<int>(kCodeBlock); ++i) {
    const int32_t code = v[i / kLanes][i % kLanes];
    if constexpr (kShorts) {
      constexpr int kPlace[] = {0, 2, 1, 3};
      static_cast<int16_t*>(to)[i / 4 * 4 + kPlace[i % 4]] = static_cast<int16_t>(code);
    } else {
      static_cast<int8_t*>(to)[i] = static_cast<int8_t>(code);
    }
  }
#endif
}

MOJO_INLINE int32_t SumInts(I32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)v);
#elif defined(__AVX2__)
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1))));
#else
  int32_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
#endif
}

// QuantizeBlock rounds 32 numbers of row number row of a tile, whose block begins at to.
template <class T, bool kShorts, int parts>
MOJO_INLINE void QuantizeBlock(const T* x, float limit, int32_t zero, char* to, size_t tile, size_t row) {
  F32 v[kVectors], most{};
  for (int i = 0; i < kVectors; ++i) {
    v[i] = Load(x + i * kLanes);
    const F32 magnitude = FromBits(Bits(v[i]) & 0x7fffffffu);
    most = Select(magnitude > most, magnitude, most);
  }
  const float greatest = Greatest(most);
  float sums[kParts], total = 0;
  for (int h = 0; h < parts; ++h) {
    F32 sum{};
    for (int i = h * kVectors / parts; i < (h + 1) * kVectors / parts; ++i) sum += v[i];
    total += sums[h] = Sum(sum);
  }
  float step = greatest / limit, factor = greatest < 0x1p-100f ? 0 : limit / greatest;
  if (!(greatest < __builtin_inff()) || total != total) {  // the result is a NaN too
    step = __builtin_nanf("");
    factor = 0;
    for (F32& part : v) part = F32{};
  }
  char* codes = to + row * kCodeBlock * (kShorts ? 2 : 1);
  float* numbers = reinterpret_cast<float*>(to + tile * kCodeBlock * (kShorts ? 2 : 1));
  int32_t* begins = reinterpret_cast<int32_t*>(numbers + tile);
  float* of_sums = numbers + (1 + parts) * tile;
  numbers[row] = step;
  I32 rounded[kVectors];
  for (int h = 0; h < parts; ++h) {
    I32 sum{};
    for (int i = h * kVectors / parts; i < (h + 1) * kVectors / parts; ++i) {
      // Added to 1.5 * 2^23, a small number is rounded to an integer, to nearest even.
      rounded[i] = (I32)Bits(v[i] * Set(factor) + Set(0x1.8p23f)) - 0x4b400000;
      sum += rounded[i];
    }
    begins[h * tile + row] = -zero * SumInts(sum);
    of_sums[h * tile + row] = sums[h];
  }
  StoreCodes<kShorts>(rounded, codes);
}

template <class T, bool kShorts, int kBlocks>
void QuantizeRows(const QuantizeArgs& args, size_t first, size_t end) {
  const QuantizedWeights& w = *args.weights;
  const float limit = args.activations == Activations::kInt16 ? 32767 : 127;
  const size_t blocks = w.k / kCodeBlock, bytes = TileBytes(kShorts, kBlocks);
  for (size_t row = first; row < end;) {
    const size_t tile = TileAt<kBlocks>(args.rows, row);
    char* to = args.to + row * blocks * bytes;
    for (size_t r = 0; r < tile; ++r) {
      const T* x = static_cast<const T*>(args.x) + (row + r) * w.k;
      for (size_t b = 0; b < blocks; ++b) {
        QuantizeBlock<T, kShorts, kBlocks>(x + b * kCodeBlock, limit, ZeroCode(w.code, kShorts), to + b * tile * bytes,
                                           tile, r);
      }
    }
    row += tile;
  }
}

template <class T>
void QuantizeType(const QuantizeArgs& args, size_t first, size_t end) {
  const bool shorts = NeedsShorts(args.weights->code, args.activations), one = args.weights->block == kCodeBlock;
  if (shorts) return one ? QuantizeRows<T, true, 1>(args, first, end) : QuantizeRows<T, true, 2>(args, first, end);
  return one ? QuantizeRows<T, false, 1>(args, first, end) : QuantizeRows<T, false, 2>(args, first, end);
}

inline void Quantize(const QuantizeArgs& args, size_t first, size_t end) {
  return OfType(args.type, [&](auto t) { return QuantizeType<decltype(t)>(args, first, end); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
