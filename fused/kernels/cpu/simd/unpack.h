// Codes and scales of weights as vectors, one lane for each row of a panel.
#pragma once

#include "cpu/simd/quantized.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Vectors of a panel's width.
constexpr int kSlabs = static_cast<int>(kPanel) / kLanes;

// Parts of a block: 16 columns, the low or the high halves of 4-bit codes.
constexpr int kParts = 2;

// Vectors of four columns: four 8-bit codes a lane, or two 16-bit codes, the first and third and then the others.
template <bool kShorts>
constexpr int kWords = kShorts ? 2 : 1;

MOJO_INLINE U32 LoadBits(const void* p) {
  U32 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// E2M1 codes become twice their values plus 12: 0 to 24.
MOJO_INLINE U32 FromE2M1(U32 codes) {
  alignas(16) static const uint8_t kTwice[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
#if defined(__AVX512BW__)
  return (U32)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kTwice))),
                                  (__m512i)codes);
#elif defined(__AVX2__)
  return (U32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kTwice))),
                                  (__m256i)codes);
#elif defined(__aarch64__)
  return (U32)vqtbl1q_u8(vld1q_u8(kTwice), (uint8x16_t)codes);
#else
  uint8_t bytes[sizeof(codes)];
  __builtin_memcpy(bytes, &codes, sizeof(codes));
  for (size_t i = 0; i < sizeof(codes); ++i) bytes[i] = kTwice[bytes[i]];
  return LoadBits(bytes);
#endif
}

// ZeroCode is the value that UnpackWords returns for the middle of all codes.
constexpr int ZeroCode(Code kind, bool shorts) {
#if defined(__ARM_FEATURE_DOTPROD)
  if (kind == Code::kInt8 && !shorts) return 0;  // bytes have signs there
#endif
  return (void)shorts, kind == Code::kInt4 ? 8 : kind == Code::kInt8 ? 128 : 12;
}

// CodeBytes is the size of a panel's codes of one block of columns.
constexpr size_t CodeBytes(Code kind) { return kind == Code::kInt8 || kind == Code::kE4m3 ? 512 : 256; }

// UnpackWords makes the vectors of a slab of four columns: of quarter number j of part number h of a block, whose codes
// begin at codes.
template <Code kKind, bool kShorts>
MOJO_INLINE void UnpackWords(const uint8_t* codes, int slab, int h, int j, U32* to) {
  typedef uint16_t Shorts __attribute__((vector_size(sizeof(U32))));
  const U32 v = LoadBits(codes + 64 * j + slab * sizeof(U32) + (kKind == Code::kInt8 ? 256 * h : 0));
  if constexpr (kKind == Code::kInt4 && kShorts) {
    to[0] = (h == 0 ? v : v >> 4) & 0x000f000f;
    to[1] = h == 0 ? v >> 8 & 0x000f000f : (U32)((Shorts)v >> 12);
    return;
  }
  U32 bytes = v;
  if constexpr (kKind != Code::kInt8) bytes = (h == 0 ? v : v >> 4) & 0x0f0f0f0f;
  if constexpr (kKind == Code::kE2m1) bytes = FromE2M1(bytes);
#if defined(__ARM_FEATURE_DOTPROD)
  if constexpr (kKind == Code::kInt8 && !kShorts) bytes ^= 0x80808080;
#endif
  if constexpr (kShorts) {
    to[0] = bytes & 0x00ff00ff;
    to[1] = (U32)((Shorts)bytes >> 8);
  } else {
    to[0] = bytes;
  }
}

// WidenBytes reads a byte for each lane. Compilers extract bytes one by one.
MOJO_INLINE F32 WidenBytes(const int8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(bytes, F32);
#endif
}
MOJO_INLINE U32 WidenBytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return (U32)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (U32)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(bytes, U32);
#endif
}

// LoadScale is one number of a slab for each row; at counts rows of panels.
MOJO_INLINE F32 LoadScale(ScaleKind kind, const void* scale, size_t at) {
  switch (kind) {
    case kFloatScales: return Load(static_cast<const float*>(scale) + at);
    case kHalfScales: return Load(static_cast<const Half*>(scale) + at);
    case kTwofoldScales: return WidenBytes(static_cast<const int8_t*>(scale) + at);
    case kExponentScales: {
      const U32 e = WidenBytes(static_cast<const uint8_t*>(scale) + at);
      // 0 is the subnormal 2^-127, 255 a NaN.
      return FromBits(Select(e == 0, SetBits(0x00400000), Select(e == 255, SetBits(0x7fc00000), e << 23)));
    }
  }
  return F32{};
}

// Factors are the multipliers of a code and of the sum of activations, for the middle of all codes.
struct Factors {
  F32 scale, offset;
};

// HasOffset reports whether sums of activations are used.
MOJO_INLINE bool HasOffset(const QuantizedWeights& w) { return w.minus != nullptr || w.shift != 0; }

// BlockOf is scale or minus of a slab of a panel: of block number i of w.block columns.
MOJO_INLINE F32 BlockOf(const QuantizedWeights& w, const void* scale, const void* super, size_t panel, int slab,
                        size_t i) {
  const F32 v = LoadScale(w.scales, scale, (panel * (w.k / w.block) + i) * kPanel + slab * kLanes);
  if (w.scales != kTwofoldScales) return v;
  const size_t at = panel * (w.k / kSuperBlock) + i * w.block / kSuperBlock;
  return v * Load(static_cast<const Half*>(super) + at * kPanel + slab * kLanes);
}

// FactorsOf reads the factors of block number i of a slab. kScales is w.scales.
template <ScaleKind kScales>
MOJO_INLINE Factors FactorsOf(const QuantizedWeights& w, size_t panel, int slab, size_t i) {
  const size_t at = (panel * (w.k / w.block) + i) * kPanel + slab * kLanes;
  const size_t super = (panel * (w.k / kSuperBlock) + i * w.block / kSuperBlock) * kPanel + slab * kLanes;
  const auto number = [&](const void* numbers, const void* supers) MOJO_LAMBDA {
    const F32 v = LoadScale(kScales, numbers, at);
    return kScales == kTwofoldScales ? v * Load(static_cast<const Half*>(supers) + super) : v;
  };
  Factors f;
  f.scale = number(w.scale, w.super_scale);
  f.offset = f.scale * Set(w.shift);
  if (w.minus != nullptr) f.offset += number(w.minus, w.super_minus);
  if (w.code == Code::kE2m1) f.scale *= Set(0.5f);
  return f;
}

// LoadFactorsOf reads the factors of the blocks from first to end - 1, of all slabs.
template <ScaleKind kScales>
MOJO_INLINE void LoadFactorsOf(const QuantizedWeights& w, size_t panel, size_t first, size_t end,
                               Factors (*to)[kSlabs]) {
  for (size_t i = first; i < end; ++i, ++to) {
#pragma GCC unroll 4
    for (int s = 0; s < kSlabs; ++s) (*to)[s] = FactorsOf<kScales>(w, panel, s, i);
  }
}
inline void LoadFactors(const QuantizedWeights& w, size_t panel, size_t first, size_t end, Factors (*to)[kSlabs]) {
  switch (w.scales) {
    case kFloatScales: return LoadFactorsOf<kFloatScales>(w, panel, first, end, to);
    case kHalfScales: return LoadFactorsOf<kHalfScales>(w, panel, first, end, to);
    case kTwofoldScales: return LoadFactorsOf<kTwofoldScales>(w, panel, first, end, to);
    case kExponentScales: return LoadFactorsOf<kExponentScales>(w, panel, first, end, to);
  }
}

// CodeAt is the code of one weight.
inline unsigned CodeAt(const QuantizedWeights& w, size_t panel, size_t row, size_t column) {
  const uint8_t* block = w.codes + (panel * (w.k / kCodeBlock) + column / kCodeBlock) * CodeBytes(w.code);
  const size_t c = column % kCodeBlock;
  if (w.code == Code::kInt8) return block[c / 4 * 64 + row * 4 + c % 4];
  return block[c % 16 / 4 * 64 + row * 4 + c % 4] >> (c / 16 * 4) & 15;
}

// ValueOf is the value of a code before it is scaled.
MOJO_INLINE float ValueOf(const QuantizedWeights& w, unsigned code) {
  static const float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return w.code == Code::kE2m1 ? kE2M1[code] : static_cast<float>(code) - w.zero;
}

// DecodeBlock writes 32 columns of a panel from the column first on.
inline void DecodeBlock(const QuantizedWeights& w, size_t panel, size_t first, float (*to)[kPanel]) {
  for (size_t i = first / w.block; i < (first + kCodeBlock) / w.block; ++i) {
    float scale[kPanel], minus[kPanel] = {};
    for (int s = 0; s < kSlabs; ++s) {
      Store(scale + s * kLanes, BlockOf(w, w.scale, w.super_scale, panel, s, i));
      if (w.minus != nullptr) Store(minus + s * kLanes, BlockOf(w, w.minus, w.super_minus, panel, s, i));
    }
    for (size_t c = i * w.block; c < (i + 1) * w.block; ++c) {
      for (size_t r = 0; r < kPanel; ++r) {
        to[c - first][r] = scale[r] * ValueOf(w, CodeAt(w, panel, r, c)) + minus[r];
      }
    }
  }
}

// DecodeRow writes a row of the weights.
inline void DecodeRow(const QuantizedWeights& w, size_t row, float* to) {
  const size_t panel = row / kPanel, r = row % kPanel;
  const int slab = static_cast<int>(r) / kLanes;
  for (size_t i = 0; i < w.k / w.block; ++i) {
    float scale[kLanes], minus[kLanes];
    Store(scale, BlockOf(w, w.scale, w.super_scale, panel, slab, i));
    if (w.minus != nullptr) Store(minus, BlockOf(w, w.minus, w.super_minus, panel, slab, i));
    for (size_t c = i * w.block; c < (i + 1) * w.block; ++c) {
      to[c] = scale[r % kLanes] * ValueOf(w, CodeAt(w, panel, r, c));
      if (w.minus != nullptr) to[c] += minus[r % kLanes];
    }
  }
}

}  // namespace MOJO_ISA
}  // namespace mojo
