// The softmax of attention, a block of keys at a time (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018): a row keeps its greatest score and the sum of the powers of e relative to it. When a block raises
// the greatest score, the previous sums are multiplied with a factor.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/unpack.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// The sums of a product and its operands must fit into the registers. With few registers, they hold the weights of a
// key, and its values come one vector after the other, from a strip of keys at a time: the strip is still in the
// nearest cache for the next channels, a whole block of keys is not.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kAttentionSums = 24;
constexpr bool kManyRegisters = true;
#else
constexpr int kAttentionSums = 12;
constexpr bool kManyRegisters = false;
#endif

constexpr float kNoScore = -__builtin_inff();

inline size_t Smaller(size_t a, size_t b) { return a < b ? a : b; }
inline size_t Larger(size_t a, size_t b) { return a > b ? a : b; }

// Steps are rows at equal distances.
template <class T>
struct Steps {
  static constexpr bool kFollow = true;
  const T* data;
  size_t step;

  MOJO_INLINE const T* operator[](size_t j) const { return data + j * step; }
  Steps From(size_t j) const { return {data + j * step, step}; }
};

// Places are rows of a pool in any order. Far is an address to prefetch when row j is read.
template <class T>
struct Places {
  static constexpr bool kFollow = false;
  const T* data;
  size_t step;
  const size_t* places;
  size_t far;

  MOJO_INLINE const T* operator[](size_t j) const { return data + places[j] * step; }
  MOJO_INLINE const T* Far(size_t j) const { return data + places[j + far] * step; }
  Places From(size_t j) const { return {data, step, places + j, far}; }
};

// Int8Code and E4M3Code are elements of pools of codes. Loads return their numbers, without the scale;
// no key has the codes of NaN, which become 480.
struct Int8Code {
  int8_t bits;
};
struct E4M3Code {
  uint8_t bits;
};
template <class T>
constexpr bool kIsCode = sizeof(T) == 1;

MOJO_INLINE F32 Load(const Int8Code* p) { return WidenBytes(&p->bits); }
MOJO_INLINE F32 Load(const E4M3Code* p) {
#if defined(__AVX512F__)
  // The code is the upper byte of a float16, moved by one bit: its exponent has another bias, and conversions keep
  // subnormals whatever the session has the processor do with them.
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
  const __m256i half = _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return (F32)_mm512_cvtph_ps(half) * 256;
#elif defined(__AVX2__)
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i words = _mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8);
  const __m128i half = _mm_and_si128(_mm_srai_epi16(words, 1), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  return (F32)_mm256_cvtph_ps(half) * 256;
#else
  const U32 code = WidenBytes(&p->bits), magnitude = code & 0x7fu;
  const U32 normal = (magnitude << 20) + (120u << 23);
  const U32 tiny = Bits(__builtin_convertvector((I32)magnitude, F32) * 0x1p-9f);
  return FromBits(Select(magnitude < 8, tiny, normal) | (code & 0x80u) << 24);
#endif
}

// Scale multiplies a row of count scores, a number of whole vectors.
MOJO_INLINE void Scale(float* scores, const float* scales, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) Store(scores + i, Load(scores + i) * Load(scales + i));
}

// TanhOf is tanh(x) to about 2 ulp: a polynomial if the powers of e would cancel.
MOJO_INLINE F32 TanhOf(F32 x) {
  const F32 a = FromBits(Bits(x) & 0x7fffffffu), z = x * x;
  F32 q = Set(-0x1.722ae0p-8f);
  q = Fma(q, z, Set(0x1.5157f4p-6f));
  q = Fma(q, z, Set(-0x1.b81dc0p-5f));
  q = Fma(q, z, Set(0x1.110646p-3f));
  q = Fma(q, z, Set(-0x1.55552ep-2f));
  const F32 near = Fma(q * z, a, a);
  const F32 e = PowerOfE(a * -2);
  const F32 far = (1 - e) / (1 + e);
  const F32 magnitude = Select(a < Set(0.625f), near, far);
  return FromBits(Bits(magnitude) | (Bits(x) & 0x80000000u));
}

// Between is a mask of the keys from j on, one for each lane, that are at least first and less than last.
MOJO_INLINE I32 Between(size_t j, size_t first, size_t last) {
  const size_t from = first > j ? Smaller(first - j, kLanes) : 0, to = last > j ? Smaller(last - j, kLanes) : 0;
  const I32 lane = LaneNumbers();
  return (lane >= static_cast<int32_t>(from)) & (lane < static_cast<int32_t>(to));
}

// Adjust caps the scores of a row, adds its bias, and writes minus infinity for keys outside first to last - 1 and for
// keys that are not valid. Scores begin with key number key; count is a number of whole vectors.
inline void Adjust(const AttentionTile& t, size_t row, size_t key, size_t count, size_t first, size_t last,
                   float* scores) {
  const float* bias = t.bias == nullptr ? nullptr : t.bias[row];
  for (size_t i = 0; i < count; i += kLanes) {
    const size_t j = key + i;
    F32 s = Load(scores + i);
    if (t.softcap > 0) s = TanhOf(s * (1 / t.softcap)) * t.softcap;
    if (bias != nullptr && j < last) {
      const Part part{Smaller(last - j, kLanes)};
      s += t.bias_step == 0 ? Set(bias[0]) : part.count == kLanes ? Load(bias + j) : Load(part, bias + j);
    }
    if (t.valid != nullptr) s = Select(Load(t.valid + j) == 0, s, Set(kNoScore));
    if (j < first || j + kLanes > last) s = Select(Between(j, first, last), s, Set(kNoScore));
    Store(scores + i, s);
  }
}

// Reduced is one vector: each lane is one of kLanes vectors, reduced by combine.
template <class Combine>
MOJO_INLINE F32 Reduced(F32* v, Combine combine) {
#pragma GCC unroll 4
  for (int n = kLanes / 2; n > 0; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) v[i] = combine(Evens(v[2 * i], v[2 * i + 1]), Odds(v[2 * i], v[2 * i + 1]));
  }
  return v[0];
}

// Weigh replaces the scores of rows by powers of e, relative to the greatest of each, and computes the factors that
// scale the sums of earlier blocks. It takes as many rows together as there are lanes, so that no row waits for the sum
// over the lanes of another one.
inline void Weigh(const AttentionTile& t, size_t row, size_t rows, size_t key, size_t count, float* scores) {
  for (; rows > kLanes; row += kLanes, rows -= kLanes, scores += kLanes * kAttentionBlock) {
    Weigh(t, row, kLanes, key, count, scores);
  }
  F32 each[kLanes];
  for (F32& v : each) v = Set(kNoScore);
  for (size_t r = 0; r < rows; ++r) {
    float* of = scores + r * kAttentionBlock;
    const size_t first = t.first[row + r], last = Smaller(t.last[row + r], t.end);
    if (t.softcap > 0 || t.bias != nullptr || t.valid != nullptr || first > key || last < key + count) {
      Adjust(t, row + r, key, count, first, last, of);
    }
    F32 greatest = Load(of);
    for (size_t i = kLanes; i < count; i += kLanes) greatest = AtLeast(Load(of + i), greatest);
    each[r] = greatest;
  }
  const Part part{rows};
  const F32 before = Load(part, t.most + row);
  const F32 most = AtLeast(Reduced(each, [](F32 a, F32 b) MOJO_LAMBDA { return AtLeast(a, b); }), before);
  const F32 base = Select(most == Set(kNoScore), F32{}, most);
  const F32 factor = Select(most == before, Set(1), PowerOfE(before - base));
  float bases[kLanes];
  Store(bases, base);
  for (F32& v : each) v = F32{};
  for (size_t r = 0; r < rows; ++r) {
    float* of = scores + r * kAttentionBlock;
    const F32 less = Set(bases[r]);
    F32 sum{};
    for (size_t i = 0; i < count; i += kLanes) {
      const F32 p = PowerOfE(Load(of + i) - less);
      Store(of + i, p);
      sum += p;
    }
    each[r] = sum;
  }
  const F32 sums = Reduced(each, [](F32 a, F32 b) MOJO_LAMBDA { return a + b; });
  Store(part, t.most + row, most);
  Store(part, t.sum + row, Load(part, t.sum + row) * factor + sums);
  Store(part, t.factors + row, factor);
}

}  // namespace MOJO_ISA
}  // namespace mojo
