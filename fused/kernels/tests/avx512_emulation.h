// AVX-512 in terms of AVX2 and plain C++, for tests on machines that lack it: only the intrinsics that the inner loops
// use. CMake (MOJO_EMULATE_AVX512) includes this file ahead of table.cc and linear_table.cc. Names are looked up in the
// namespace of the instruction set first, so that the loops find these instead of the compiler's.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __AVX512VNNI__ 1

// Without optimization the compiler's are macros, which ignore namespaces.
#undef _mm512_cmp_ps_mask
#undef _mm512_cvtps_ph
#undef _mm512_permute_ps
#undef _mm512_shuffle_epi32

namespace mojo {
namespace MOJO_ISA {

// Inlined, they would take the compiler minutes.
#define MOJO_EMULATED inline __attribute__((noinline))

// As reinterprets the bits of v as another type.
template <class To, class From>
MOJO_EMULATED To As(From v) {
  static_assert(sizeof(To) == sizeof(From), "types of one size");
  To to;
  __builtin_memcpy(&to, &v, sizeof(v));
  return to;
}

// Vectors as their parts.
template <class T, size_t kCount>
struct Lanes {
  T at[kCount];
};
typedef Lanes<float, 16> Floats;
typedef Lanes<int32_t, 16> Ints32;
struct Halves {
  __m256 low, high;
};
struct IntHalves {
  __m256i low, high;
};
struct HalfHalves {
  __m128i low, high;
};

// Each calls f for the number of each lane and returns the results as lanes.
template <class V, class T, size_t kCount, class F>
MOJO_EMULATED V Each(F f) {
  Lanes<T, kCount> y;
  for (size_t i = 0; i < kCount; ++i) y.at[i] = f(i);
  return As<V>(y);
}
template <class F>
MOJO_EMULATED __m512 EachFloat(F f) {
  return Each<__m512, float, 16>(f);
}
template <class F>
MOJO_EMULATED __m512i EachInt(F f) {
  return Each<__m512i, int32_t, 16>(f);
}

// Fold reduces lanes pairwise, the two halves first.
template <class T, class F>
MOJO_EMULATED T Fold(Lanes<T, 16> v, F f) {
  for (size_t n = 8; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) v.at[i] = f(v.at[i], v.at[i + n]);
  }
  return v.at[0];
}

MOJO_EMULATED bool Has(unsigned mask, size_t i) { return (mask >> i & 1) != 0; }

MOJO_EMULATED __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const Halves x = As<Halves>(a), y = As<Halves>(b), z = As<Halves>(c);
  return As<__m512>(Halves{_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)});
}
MOJO_EMULATED __m512 _mm512_min_ps(__m512 a, __m512 b) {
  const Halves x = As<Halves>(a), y = As<Halves>(b);
  return As<__m512>(Halves{_mm256_min_ps(x.low, y.low), _mm256_min_ps(x.high, y.high)});
}
MOJO_EMULATED __m512 _mm512_max_ps(__m512 a, __m512 b) {
  const Halves x = As<Halves>(a), y = As<Halves>(b);
  return As<__m512>(Halves{_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)});
}

// a times 2 to the power of floor(b), rounded once: the product of a double is exact.
MOJO_EMULATED float Scalef(float a, float b) {
  const float n = __builtin_floorf(b) < -400 ? -400 : __builtin_floorf(b) > 400 ? 400 : __builtin_floorf(b);
  return n == n ? static_cast<float>(__builtin_ldexp(a, static_cast<int>(n))) : n;
}
MOJO_EMULATED __m512 _mm512_maskz_scalef_ps(__mmask16 mask, __m512 a, __m512 b) {
  const Floats x = As<Floats>(a), y = As<Floats>(b);
  return EachFloat([&](size_t i) { return Has(mask, i) ? Scalef(x.at[i], y.at[i]) : 0.0f; });
}
MOJO_EMULATED __m512 _mm512_scalef_ps(__m512 a, __m512 b) { return MOJO_ISA::_mm512_maskz_scalef_ps(0xffff, a, b); }

MOJO_EMULATED float _mm512_reduce_add_ps(__m512 v) {
  return Fold(As<Floats>(v), [](float a, float b) { return a + b; });
}
MOJO_EMULATED float _mm512_reduce_max_ps(__m512 v) {
  return Fold(As<Floats>(v), [](float a, float b) { return a > b ? a : b; });
}
MOJO_EMULATED int _mm512_reduce_add_epi32(__m512i v) {
  return Fold(As<Ints32>(v), [](int a, int b) { return static_cast<int>(static_cast<unsigned>(a) + b); });
}
MOJO_EMULATED int _mm512_reduce_max_epi32(__m512i v) {
  return Fold(As<Ints32>(v), [](int a, int b) { return a > b ? a : b; });
}

MOJO_EMULATED __m512 _mm512_cvtepi32_ps(__m512i v) {
  const Ints32 x = As<Ints32>(v);
  return EachFloat([&](size_t i) { return static_cast<float>(x.at[i]); });
}
MOJO_EMULATED __m512 _mm512_cvtph_ps(__m256i v) {
  const HalfHalves x = As<HalfHalves>(v);
  return As<__m512>(Halves{_mm256_cvtph_ps(x.low), _mm256_cvtph_ps(x.high)});
}
MOJO_EMULATED __m256i _mm512_cvtps_ph(__m512 v, int) {  // to nearest even
  const Halves x = As<Halves>(v);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return As<__m256i>(HalfHalves{_mm256_cvtps_ph(x.low, kNearest), _mm256_cvtps_ph(x.high, kNearest)});
}

MOJO_EMULATED __m512i _mm512_cvtepi8_epi32(__m128i v) {
  const auto x = As<Lanes<int8_t, 16>>(v);
  return EachInt([&](size_t i) { return x.at[i]; });
}
MOJO_EMULATED __m512i _mm512_cvtepu8_epi32(__m128i v) {
  const auto x = As<Lanes<uint8_t, 16>>(v);
  return EachInt([&](size_t i) { return x.at[i]; });
}
MOJO_EMULATED __m512i _mm512_cvtepu16_epi32(__m256i v) {
  const auto x = As<Lanes<uint16_t, 16>>(v);
  return EachInt([&](size_t i) { return x.at[i]; });
}
MOJO_EMULATED __m256i _mm512_cvtepi32_epi16(__m512i v) {
  const Ints32 x = As<Ints32>(v);
  return Each<__m256i, int16_t, 16>([&](size_t i) { return static_cast<int16_t>(x.at[i]); });
}
MOJO_EMULATED __m128i _mm512_cvtepi32_epi8(__m512i v) {
  const Ints32 x = As<Ints32>(v);
  return Each<__m128i, int8_t, 16>([&](size_t i) { return static_cast<int8_t>(x.at[i]); });
}

MOJO_EMULATED __m512i _mm512_set1_epi32(int v) {
  return EachInt([&](size_t) { return v; });
}
MOJO_EMULATED __m512i _mm512_broadcast_i32x4(__m128i v) {
  return As<__m512i>(IntHalves{_mm256_broadcastsi128_si256(v), _mm256_broadcastsi128_si256(v)});
}
MOJO_EMULATED __m512i _mm512_shuffle_epi8(__m512i a, __m512i b) {
  const IntHalves x = As<IntHalves>(a), y = As<IntHalves>(b);
  return As<__m512i>(IntHalves{_mm256_shuffle_epi8(x.low, y.low), _mm256_shuffle_epi8(x.high, y.high)});
}
MOJO_EMULATED __m512i _mm512_shuffle_epi32(__m512i v, int order) {
  const Ints32 x = As<Ints32>(v);
  return EachInt([&](size_t i) { return x.at[i / 4 * 4 + (order >> i % 4 * 2 & 3)]; });
}
MOJO_EMULATED __m512 _mm512_permute_ps(__m512 v, int order) {
  return (__m512)MOJO_ISA::_mm512_shuffle_epi32((__m512i)v, order);
}
MOJO_EMULATED __m128 _mm512_castps512_ps128(__m512 v) { return _mm256_castps256_ps128(As<Halves>(v).low); }

MOJO_EMULATED __mmask16 _mm512_movepi32_mask(__m512i v) {
  const Ints32 x = As<Ints32>(v);
  unsigned mask = 0;
  for (size_t i = 0; i < 16; ++i) mask |= (x.at[i] < 0 ? 1u : 0u) << i;
  return static_cast<__mmask16>(mask);
}
MOJO_EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  if (predicate != _CMP_UNORD_Q && predicate != _CMP_NLT_UQ) __builtin_trap();
  const Floats x = As<Floats>(a), y = As<Floats>(b);
  return MOJO_ISA::_mm512_movepi32_mask(EachInt([&](size_t i) {
    const bool unordered = x.at[i] != x.at[i] || y.at[i] != y.at[i];
    return (predicate == _CMP_UNORD_Q ? unordered : !(x.at[i] < y.at[i])) ? -1 : 0;
  }));
}
MOJO_EMULATED __m512i _mm512_mask_or_epi32(__m512i rest, __mmask16 mask, __m512i a, __m512i b) {
  const Ints32 r = As<Ints32>(rest), x = As<Ints32>(a), y = As<Ints32>(b);
  return EachInt([&](size_t i) { return Has(mask, i) ? x.at[i] | y.at[i] : r.at[i]; });
}

// Loads and stores by a mask touch no other lane's memory.
template <class V, class T>
MOJO_EMULATED V LoadSome(unsigned mask, const void* from) {
  return Each<V, T, 16>([&](size_t i) {
    T v{};
    if (Has(mask, i)) __builtin_memcpy(&v, static_cast<const T*>(from) + i, sizeof(T));
    return v;
  });
}
template <class T, class V>
MOJO_EMULATED void StoreSome(void* to, unsigned mask, V v) {
  const auto x = As<Lanes<T, 16>>(v);
  for (size_t i = 0; i < 16; ++i) {
    if (Has(mask, i)) __builtin_memcpy(static_cast<T*>(to) + i, &x.at[i], sizeof(T));
  }
}
MOJO_EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 m, const void* p) { return LoadSome<__m512, float>(m, p); }
MOJO_EMULATED __m512i _mm512_maskz_loadu_epi32(__mmask16 m, const void* p) { return LoadSome<__m512i, int32_t>(m, p); }
MOJO_EMULATED __m256i _mm256_maskz_loadu_epi16(__mmask16 m, const void* p) { return LoadSome<__m256i, int16_t>(m, p); }
MOJO_EMULATED void _mm512_mask_storeu_ps(void* p, __mmask16 m, __m512 v) { StoreSome<float>(p, m, v); }
MOJO_EMULATED void _mm512_mask_storeu_epi32(void* p, __mmask16 m, __m512i v) { StoreSome<int32_t>(p, m, v); }
MOJO_EMULATED void _mm256_mask_storeu_epi16(void* p, __mmask16 m, __m256i v) { StoreSome<int16_t>(p, m, v); }
MOJO_EMULATED void _mm512_stream_ps(float* p, __m512 v) {
  if (reinterpret_cast<uintptr_t>(p) % 64 != 0) __builtin_trap();  // as the instruction faults
  StoreSome<float>(p, 0xffff, v);
}

MOJO_EMULATED __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  const Ints32 s = As<Ints32>(sum);
  const auto x = As<Lanes<uint8_t, 64>>(a);
  const auto y = As<Lanes<int8_t, 64>>(b);
  return EachInt([&](size_t i) {
    unsigned v = static_cast<unsigned>(s.at[i]);
    for (size_t j = 4 * i; j < 4 * i + 4; ++j) v += static_cast<unsigned>(x.at[j] * y.at[j]);
    return static_cast<int32_t>(v);
  });
}
MOJO_EMULATED __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
  const IntHalves s = As<IntHalves>(sum), x = As<IntHalves>(a), y = As<IntHalves>(b);
  return As<__m512i>(IntHalves{_mm256_add_epi32(s.low, _mm256_madd_epi16(x.low, y.low)),
                               _mm256_add_epi32(s.high, _mm256_madd_epi16(x.high, y.high))});
}

}  // namespace MOJO_ISA
}  // namespace mojo

// For arguments of an enumeration type, the compiler's function would be found as well.
#define _mm512_shuffle_epi32 mojo::MOJO_ISA::_mm512_shuffle_epi32
