// Products with weights of float8e4m3fn, and activations rounded to it.
//
// Codes have the layout of 8-bit integers and are widened to float32: only the float32 sums lose precision.
#pragma once

#include "cpu/simd/quantize.h"
#include "cpu/simd/quantized.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Subnormals preserves numbers below 2^-126 while it lives, since codes pass through them. Sessions may have the
// processor flush them to 0 (session.set_denormal_as_zero).
class Subnormals {
 public:
#if defined(__SSE2__)
  Subnormals() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ & ~0x8040u); }
  ~Subnormals() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  Subnormals() {}
  ~Subnormals() {}
#endif
};

// Float8 is the code at a place of each lane's word, times a scale: its exponent and mantissa are moved to the bits of
// float32's, 120 powers of two too low, which factor contains.
template <int kPlace>
MOJO_INLINE F32 Float8(U32 word, F32 factor) {
  const I32 top = (I32)(word << (24 - 8 * kPlace));
  return FromBits((U32)(top >> 4) & 0x87f00000u) * factor;
}

// Float8Factor is the scale of codes as they are widened, so that products of great activations are as great as with
// the decoded weights. If a scale has no room for 120 more powers of two, the rest is applied to the sums.
struct Float8Factor {
  MOJO_INLINE explicit Float8Factor(float scale) {
    const float folded = scale * 0x1p120f;
    const bool fits = folded - folded == 0;
    codes = Set(fits ? folded : 0x1p120f);
    sums = fits ? 1 : scale;
  }
  F32 codes;
  float sums;
};

// NotNumbers has a bit for each code of a word that is a NaN.
MOJO_INLINE U32 NotNumbers(U32 word) { return ((word & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u; }

// Float8Block is the start of the codes of 128 columns of a panel, block by block of 32.
MOJO_INLINE const uint8_t* Float8Block(const QuantizedWeights& w, size_t panel, size_t block) {
  return w.codes + (panel * w.k + block * kFloatBlock) * kPanel;
}

MOJO_INLINE float Float8Scale(const QuantizedWeights& w, size_t panel, size_t block) {
  return static_cast<const float*>(w.scale)[panel * (w.k / kFloatBlock) + block];
}

// Words of a lane in 128 columns.
constexpr size_t kFloatWords = kFloatBlock / 4;

// The number of independent sums of a row, for so many rows.
MOJO_INLINE constexpr int Chains(int rows) { return rows > 2 ? 1 : 4; }

// MultiplyFewFloat8 computes kRows rows of a panel, reading the codes in place.
template <int kRows>
void MultiplyFewFloat8(const QuantizedWeights& w, size_t panel, const float* x, float* y) {
  constexpr int kChains = Chains(kRows);
  F32 total[kSlabs][kRows] = {};
  U32 bad[kSlabs] = {};
  for (size_t b = 0; b < w.k / kFloatBlock; ++b, x += kFloatBlock) {
    const uint8_t* codes = Float8Block(w, panel, b);
    const Float8Factor factor(Float8Scale(w, panel, b));
    for (int s = 0; s < kSlabs; ++s) {
      F32 sum[kRows][kChains] = {};
      for (size_t j = 0; j < kFloatWords; ++j) {
        const uint8_t* at = codes + 64 * j + s * sizeof(U32);
        __builtin_prefetch(at + 2048, 0, 3);
        const U32 word = LoadBits(at);
        bad[s] |= NotNumbers(word);
        const F32 v[4] = {Float8<0>(word, factor.codes), Float8<1>(word, factor.codes), Float8<2>(word, factor.codes),
                          Float8<3>(word, factor.codes)};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            F32& to = sum[r][i % kChains];
            to = Fma(v[i], Set(x[r * w.k + 4 * j + i]), to);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        for (int c = 1; c < kChains; ++c) sum[r][0] += sum[r][c];
        total[s][r] = Fma(sum[r][0], Set(factor.sums), total[s][r]);
      }
    }
  }
  for (int s = 0; s < kSlabs; ++s) {
    const I32 numbers = bad[s] == 0;
    for (int r = 0; r < kRows; ++r) {
      Store(y + r * kPanel + s * kLanes, Select(numbers, total[s][r], Set(__builtin_nanf(""))));
    }
  }
}

// AddFloat8 adds the products of kRows rows with 128 widened columns of one slab to y.
template <int kRows>
void AddFloat8(const float (*wide)[kPanel], float scale, size_t k, const float* x, float* y) {
  F32 sum[kRows] = {};
  for (size_t c = 0; c < kFloatBlock; ++c) {
    const F32 v = Load(wide[c]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = Fma(v, Set(x[r * k + c]), sum[r]);
  }
  for (int r = 0; r < kRows; ++r) Store(y + r * kPanel, Fma(sum[r], Set(scale), Load(y + r * kPanel)));
}

// WidenFloat8 widens 128 columns of a panel.
inline void WidenFloat8(const uint8_t* codes, F32 factor, float (*to)[kPanel]) {
  for (size_t j = 0; j < kFloatWords; ++j) {
    for (int s = 0; s < kSlabs; ++s) {
      const U32 word = LoadBits(codes + 64 * j + s * sizeof(U32));
      const auto put = [&](size_t i, F32 v) MOJO_LAMBDA {
        const U32 last = (word >> (8 * i)) & 0x7f;
        Store(to[4 * j + i] + s * kLanes, Select(last == 0x7f, Set(__builtin_nanf("")), v));
      };
      put(0, Float8<0>(word, factor));
      put(1, Float8<1>(word, factor));
      put(2, Float8<2>(word, factor));
      put(3, Float8<3>(word, factor));
    }
  }
}

// MultiplyManyFloat8 computes all rows of args of a panel. It widens the codes once.
inline void MultiplyManyFloat8(const MultiplyArgs& args, size_t panel, float* y) {
  const QuantizedWeights& w = *args.weights;
  const size_t rows = args.end_row - args.first_row;
  for (size_t i = 0; i < rows * kPanel; ++i) y[i] = 0;
  alignas(64) float wide[kFloatBlock][kPanel];
  for (size_t b = 0; b < w.k / kFloatBlock; ++b) {
    const Float8Factor factor(Float8Scale(w, panel, b));
    WidenFloat8(Float8Block(w, panel, b), factor.codes, wide);
    for (size_t row = 0; row < rows;) {
      const size_t tile = TileAt<1>(rows, row);
      const float* x = static_cast<const float*>(args.x) + (args.first_row + row) * w.k + b * kFloatBlock;
      for (int s = 0; s < kSlabs; ++s) {
        const auto* from = reinterpret_cast<const float (*)[kPanel]>(wide[0] + s * kLanes);
        float* to = y + row * kPanel + s * kLanes;
        WithTile<1>(tile,
                    [&](auto count) MOJO_LAMBDA { AddFloat8<decltype(count)::value>(from, factor.sums, w.k, x, to); });
      }
      row += tile;
    }
  }
}

// MultiplyFloat8 computes the rows of args of a panel.
inline void MultiplyFloat8(const MultiplyArgs& args, size_t panel, float* y) {
  const Subnormals kept;
  const size_t rows = args.end_row - args.first_row;
  if (rows > kMostTile) return MultiplyManyFloat8(args, panel, y);
  for (size_t row = 0; row < rows;) {
    const size_t tile = TileAt<1>(rows, row);
    const float* x = static_cast<const float*>(args.x) + (args.first_row + row) * args.weights->k;
    float* to = y + row * kPanel;
    WithTile<1>(
        tile, [&](auto count) MOJO_LAMBDA { MultiplyFewFloat8<decltype(count)::value>(*args.weights, panel, x, to); });
    row += tile;
  }
}

// DecodeFloat8Row writes a row of the weights.
inline void DecodeFloat8Row(const QuantizedWeights& w, size_t row, float* to) {
  const Subnormals kept;
  const size_t panel = row / kPanel, r = row % kPanel;
  alignas(64) float wide[kFloatBlock][kPanel];
  for (size_t b = 0; b < w.k / kFloatBlock; ++b) {
    const Float8Factor factor(Float8Scale(w, panel, b));
    WidenFloat8(Float8Block(w, panel, b), factor.codes, wide);
    for (size_t c = 0; c < kFloatBlock; ++c) to[b * kFloatBlock + c] = factor.sums * wide[c][r];
  }
}

// RoundFloat8Block rounds 128 numbers.
template <class T>
void RoundFloat8Block(const T* x, float* to) {
  F32 most{}, all{};
  for (size_t i = 0; i < kFloatBlock; i += kLanes) {
    const F32 v = Load(x + i), magnitude = FromBits(Bits(v) & 0x7fffffffu);
    most = Select(magnitude > most, magnitude, most);
    all += v * Set(0.0f);  // becomes NaN as soon as one element is NaN or infinite
  }
  const float greatest = Greatest(most);
  const bool numbers = greatest < __builtin_inff() && Sum(all) == 0;
  const F32 factor = Set(greatest < 0x1p-100f ? 0 : 448 / greatest);
  const F32 step = Set(numbers ? greatest / 448 : __builtin_nanf(""));
  for (size_t i = 0; i < kFloatBlock; i += kLanes) {
    const F32 v = numbers ? Load(x + i) * factor : F32{};
    // A step between floats is 2^-3 of the power of two below them. Adding and subtracting 1.5 * 2^23 steps leaves
    // whole steps.
    const F32 power = AtLeast(FromBits(Bits(v) & 0x7f800000u), Set(0x1p-6f));
    const F32 whole = power * Set(0x1.8p20f);
    Store(to + i, (v + whole - whole) * step);
  }
}

template <class T>
void RoundFloat8Rows(const QuantizeArgs& args, size_t first, size_t end) {
  const size_t k = args.weights->k;
  const T* x = static_cast<const T*>(args.x);
  float* to = reinterpret_cast<float*>(args.to);
  for (size_t i = first * k; i < end * k; i += kFloatBlock) RoundFloat8Block(x + i, to + i);
}

// RoundFloat8 rounds the rows from first to end - 1.
inline void RoundFloat8(const QuantizeArgs& args, size_t first, size_t end) {
  return OfType(args.type, [&](auto t) { return RoundFloat8Rows<decltype(t)>(args, first, end); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
