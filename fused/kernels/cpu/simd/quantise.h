// Activations rounded to integers, in tiles.
#ifndef MOJO_KERNELS_CPU_SIMD_QUANTISE_H_
#define MOJO_KERNELS_CPU_SIMD_QUANTISE_H_

#include "cpu/simd/coded.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Rows of a tile at most: their sums and those of products must fit into the registers.
#if defined(__AVX512VNNI__)
constexpr int kMostTile = 8;
#else
constexpr int kMostTile = 4;
#endif

// TileAt is how many rows the tile has that begins at a row: the most at first, then powers of two.
inline size_t TileAt(size_t rows, size_t row) {
  size_t tile = kMostTile;
  while (tile > rows - row) tile /= 2;
  return tile;
}

// NeedsShorts reports whether activations take 16 bits: without instructions for codes of 8 bits, those are widened.
MOJO_INLINE constexpr bool NeedsShorts(CodeKind code, ActivationKind activations) {
#if defined(__AVX512VNNI__)
  return (void)code, activations == kInt16Activations;
#elif defined(__AVX2__)
  return activations == kInt16Activations || code == kInt8Codes;
#else
  return (void)code, (void)activations, true;
#endif
}

// TileBytes is the size of a row in a tile for one block of columns.
MOJO_INLINE constexpr size_t TileBytes(bool shorts, size_t parts) {
  return kCodeBlock * (shorts ? 2 : 1) + (1 + 2 * parts) * 4;
}

inline size_t RowBytes(const CodedWeights& w, ActivationKind activations) {
  if (activations == kFloatActivations) return w.k * sizeof(float);
  return w.k / kCodeBlock * TileBytes(NeedsShorts(w.code, activations), kCodeBlock / w.block);
}

// StoreBytes and StoreShorts narrow a vector of codes; those of 16 bits go by the order of UnpackCodes.
MOJO_INLINE void StoreBytes(I32 v, void* to) {
#if defined(__AVX512F__)
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)v));
#else
  int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int i = 0; i < kLanes; ++i) static_cast<int8_t*>(to)[i] = static_cast<int8_t>(lanes[i]);
#endif
}
MOJO_INLINE void StoreShorts(I32 v, void* to) {
#if defined(__AVX512F__)
  const __m512i ordered = _mm512_shuffle_epi32((__m512i)v, _MM_PERM_DBCA);
  _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(ordered));
#else
  int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof(v));
  int16_t* out = static_cast<int16_t*>(to);
  for (int i = 0; i < kLanes; i += 4) {
    out[i] = static_cast<int16_t>(lanes[i]);
    out[i + 1] = static_cast<int16_t>(lanes[i + 2]);
    out[i + 2] = static_cast<int16_t>(lanes[i + 1]);
    out[i + 3] = static_cast<int16_t>(lanes[i + 3]);
  }
#endif
}

MOJO_INLINE int32_t SumInts(I32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)v);
#else
  int32_t lanes[kLanes], sum = 0;
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
#endif
}

// QuantiseBlock rounds 32 numbers: those of row number row of a tile, whose block begins at to.
template <class T, bool kShorts>
void QuantiseBlock(const T* x, float limit, int32_t zero, int parts, char* to, size_t tile, size_t row) {
  constexpr int kVectors = static_cast<int>(kCodeBlock) / kLanes;
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
  if (!(greatest < __builtin_inff()) || total != total) {  // the result is no number either
    step = __builtin_nanf("");
    factor = 0;
    for (F32& part : v) part = F32{};
  }
  char* codes = to + row * kCodeBlock * (kShorts ? 2 : 1);
  float* numbers = reinterpret_cast<float*>(to + tile * kCodeBlock * (kShorts ? 2 : 1));
  int32_t* begins = reinterpret_cast<int32_t*>(numbers + tile);
  float* of_sums = numbers + (1 + parts) * tile;
  numbers[row] = step;
  for (int h = 0; h < parts; ++h) {
    I32 sum{};
    for (int i = h * kVectors / parts; i < (h + 1) * kVectors / parts; ++i) {
      // Added to 1.5 * 2^23, a small number is rounded to an integer, to nearest even.
      const I32 code = (I32)Bits(v[i] * Set(factor) + Set(0x1.8p23f)) - 0x4b400000;
      sum += code;
      if constexpr (kShorts) {
        StoreShorts(code, codes + i * kLanes * 2);
      } else {
        StoreBytes(code, codes + i * kLanes);
      }
    }
    begins[h * tile + row] = -zero * SumInts(sum);
    of_sums[h * tile + row] = sums[h];
  }
}

template <class T>
void QuantiseRows(const QuantiseArgs& args, size_t first, size_t end) {
  const CodedWeights& w = *args.weights;
  const bool shorts = NeedsShorts(w.code, args.activations);
  const float limit = args.activations == kInt16Activations ? 32767 : 127;
  const int parts = static_cast<int>(kCodeBlock / w.block);
  const size_t blocks = w.k / kCodeBlock, bytes = TileBytes(shorts, parts);
  const auto quantise = shorts ? QuantiseBlock<T, true> : QuantiseBlock<T, false>;
  for (size_t row = first; row < end;) {
    const size_t tile = TileAt(args.rows, row);
    char* to = args.to + row * blocks * bytes;
    for (size_t r = 0; r < tile; ++r) {
      const T* x = static_cast<const T*>(args.x) + (row + r) * w.k;
      for (size_t b = 0; b < blocks; ++b) {
        quantise(x + b * kCodeBlock, limit, ZeroCode(w.code), parts, to + b * tile * bytes, tile, r);
      }
    }
    row += tile;
  }
}

inline void Quantise(const QuantiseArgs& args, size_t first, size_t end) {
  switch (args.type) {
    case kFloat32: return QuantiseRows<float>(args, first, end);
    case kFloat16: return QuantiseRows<Half>(args, first, end);
    case kBFloat16: return QuantiseRows<BFloat>(args, first, end);
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_QUANTISE_H_
