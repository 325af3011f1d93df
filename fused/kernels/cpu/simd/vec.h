// Vectors of float32 for one instruction set, and loads and stores of the three element types.
//
// Compiled several times: MOJO_ISA names the namespace, the compiler's target macros choose the width. Everything is in
// that namespace and no C++ library header is included, so the linker cannot mix code of different instruction sets.
// Built on the vector extensions of GCC and Clang, with intrinsics only if the extensions lack an operation (fused
// multiply-add, half precision).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/types.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mojo {
namespace MOJO_ISA {

#define MOJO_INLINE inline __attribute__((always_inline))
// MOJO_LAMBDA goes after the parameters of a lambda that must be inlined into its loop.
#define MOJO_LAMBDA __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float F32 __attribute__((vector_size(kLanes * 4)));
typedef int32_t I32 __attribute__((vector_size(kLanes * 4)));
typedef uint32_t U32 __attribute__((vector_size(kLanes * 4)));
typedef uint16_t U16 __attribute__((vector_size(kLanes * 2)));

// The stored 16-bit types.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// OfType calls f with a number of the stored type and returns its result. MOJO_ONLY_FLOAT32 compiles no loops for other
// types: they have none.
template <class F>
MOJO_INLINE auto OfType(ElementType type, F f) {
#if defined(MOJO_ONLY_FLOAT32)
  return type == kFloat32 ? f(float()) : decltype(f(float()))();
#else
  switch (type) {
    case kFloat32: break;
    case kFloat16: return f(Half());
    case kBFloat16: return f(BFloat());
  }
  return f(float());
#endif
}

MOJO_INLINE F32 Set(float v) { return v - F32{}; }
MOJO_INLINE U32 SetBits(uint32_t v) { return v - U32{}; }
MOJO_INLINE U32 Bits(F32 v) { return (U32)v; }
MOJO_INLINE F32 FromBits(U32 v) { return (F32)v; }

// Select takes lanes of a whose mask is all ones and lanes of b whose mask is zero.
MOJO_INLINE U32 Select(I32 mask, U32 a, U32 b) { return ((U32)mask & a) | (~(U32)mask & b); }
MOJO_INLINE F32 Select(I32 mask, F32 a, F32 b) { return FromBits(Select(mask, Bits(a), Bits(b))); }

// Fma is a*b + c with one rounding if the machine has it; used only if the contract of an op leaves the rounding open.
MOJO_INLINE F32 Fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return (F32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// Fma of single numbers has the bits of a lane.
MOJO_INLINE float Fma(float a, float b, float c) {
#if defined(__AVX2__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// AtMost is v limited from above, AtLeast from below; a NaN in v stays.
MOJO_INLINE F32 AtMost(F32 v, F32 bound) {
#if defined(__AVX512F__)
  return _mm512_min_ps(bound, v);
#elif defined(__AVX2__)
  return _mm256_min_ps(bound, v);
#else
  return Select(v > bound, bound, v);
#endif
}
MOJO_INLINE F32 AtLeast(F32 v, F32 bound) {
#if defined(__AVX512F__)
  return _mm512_max_ps(bound, v);
#elif defined(__AVX2__)
  return _mm256_max_ps(bound, v);
#else
  return Select(v < bound, bound, v);
#endif
}

// Sum adds the lanes, pairwise.
MOJO_INLINE float Sum(F32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(v);
#elif defined(__AVX2__)
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#else
  float lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  }
  return lanes[0];
#endif
}

// Greatest is the greatest lane; it may ignore a NaN.
MOJO_INLINE float Greatest(F32 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#elif defined(__AVX2__)
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
  float lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) lanes[i] = lanes[i] < lanes[i + n] ? lanes[i + n] : lanes[i];
  }
  return lanes[0];
#endif
}

// LaneNumbers is 0, 1, 2, ...
MOJO_INLINE I32 LaneNumbers() {
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  I32 v;
  __builtin_memcpy(&v, lanes, sizeof(v));
  return v;
}

// Ints widens 16-bit lanes; Shorts narrows lanes that fit in 16 bits. Compilers split the wide conversions into halves:
// four instructions instead of one.
MOJO_INLINE U32 Ints(U16 v) {
#if defined(__AVX512F__)
  return (U32)_mm512_cvtepu16_epi32((__m256i)v);
#elif defined(__AVX2__)
  return (U32)_mm256_cvtepu16_epi32((__m128i)v);
#elif defined(__aarch64__)
  return (U32)vmovl_u16((uint16x4_t)v);
#else
  return __builtin_convertvector(v, U32);
#endif
}
MOJO_INLINE U16 Shorts(U32 v) {
#if defined(__AVX512F__)
  return (U16)_mm512_cvtepi32_epi16((__m512i)v);
#elif defined(__AVX2__)
  return (U16)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
#elif defined(__aarch64__)
  return (U16)vmovn_u32((uint32x4_t)v);
#else
  return __builtin_convertvector(v, U16);
#endif
}

// MOJO_CALLED is MOJO_INLINE where float16 is an instruction. Elsewhere a copy of these functions in each loop would be
// a third of the code.
#if defined(__AVX2__) || defined(__aarch64__)
#define MOJO_CALLED MOJO_INLINE
#else
#define MOJO_CALLED inline __attribute__((noinline))
#endif

// float16 to float32, exact. The portable way never makes a float32 subnormal, which a session that flushes subnormals
// would lose.
MOJO_CALLED F32 Widen(U16 h) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps((__m256i)h);
#elif defined(__AVX2__)
  return _mm256_cvtph_ps((__m128i)h);
#elif defined(__aarch64__)
  return (F32)vcvt_f32_f16((float16x4_t)h);
#else
  const U32 w = __builtin_convertvector(h, U32);
  const U32 shifted = (w & 0x7fff) << 13;
  const U32 exponent = shifted & (0x7c00u << 13);
  const U32 normal = shifted + ((127u - 15) << 23);
  const F32 tiny = FromBits(normal + (1u << 23)) - FromBits(SetBits(113u << 23));
  U32 out = Select(exponent == (0x7c00u << 13), normal + ((128u - 16) << 23), normal);
  out = Select(exponent == 0, Bits(tiny), out);
  return FromBits(out | (w & 0x8000) << 16);
#endif
}

// float32 to float16, to nearest even.
MOJO_CALLED U16 Narrow(F32 v) {
#if defined(__AVX512F__)
  return (U16)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return (U16)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return (U16)vcvt_f16_f32((float32x4_t)v);
#else
  const U32 bits = Bits(v);
  const U32 magnitude = bits & 0x7fffffff;
  // Adding 0.5 moves a subnormal's bits to the bottom of the mantissa, rounded by the adder.
  const U32 tiny = Bits(FromBits(magnitude) + 0.5f) - 0x3f000000u;
  const U32 normal = (magnitude - ((127u - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  U32 out = Select(magnitude < (113u << 23), tiny, normal);
  out = Select(magnitude >= (143u << 23), SetBits(0x7c00), out);
  out = Select(magnitude > 0x7f800000u, SetBits(0x7e00), out);
  return __builtin_convertvector(out | ((bits >> 16) & 0x8000), U16);
#endif
}

// bfloat16 to float32, exact.
MOJO_INLINE F32 WidenBFloat(U16 b) { return FromBits(Ints(b) << 16); }

// RoundedBFloat has float32 rounded to bfloat16, to nearest even, in the upper halves of its lanes; drop the lower
// halves. A NaN stays a NaN: rounding up could carry it over to zero.
MOJO_INLINE U32 RoundedBFloat(F32 v) {
  const U32 bits = Bits(v);
  const U32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
#if defined(__AVX512F__)
  return (U32)_mm512_mask_or_epi32((__m512i)rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), (__m512i)bits,
                                   _mm512_set1_epi32(0x400000));
#else
  return Select(v == v, rounded, bits | 0x400000);
#endif
}
MOJO_INLINE U16 NarrowBFloat(F32 v) { return Shorts(RoundedBFloat(v) >> 16); }

MOJO_INLINE F32 Load(const float* p) {
  F32 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
MOJO_INLINE F32 Load(const Half* p) {
  U16 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return Widen(v);
}
MOJO_INLINE F32 Load(const BFloat* p) {
  U16 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return WidenBFloat(v);
}

// Store rounds to the type of p.
MOJO_INLINE void Store(float* p, F32 v) { __builtin_memcpy(p, &v, sizeof(v)); }
MOJO_INLINE void Store(Half* p, F32 v) {
  const U16 h = Narrow(v);
  __builtin_memcpy(p, &h, sizeof(h));
}
MOJO_INLINE void Store(BFloat* p, F32 v) {
  const U16 b = NarrowBFloat(v);
  __builtin_memcpy(p, &b, sizeof(b));
}

// Round rounds to the type of its unused first argument and widens again.
MOJO_INLINE F32 Round(const float*, F32 v) { return v; }
MOJO_INLINE F32 Round(const Half*, F32 v) { return Widen(Narrow(v)); }
MOJO_INLINE F32 Round(const BFloat*, F32 v) { return FromBits(RoundedBFloat(v) & 0xffff0000u); }

// Whole is a full vector, Part the first count lanes of one: the last piece of a row. Loops are
// written once, as a function of either, and ForEachVector calls them.
struct Whole {};
struct Part {
  size_t count;
};
MOJO_INLINE size_t Lanes(Whole) { return kLanes; }
MOJO_INLINE size_t Lanes(Part part) { return part.count; }

template <class T>
MOJO_INLINE F32 Load(Whole, const T* p) {
  return Load(p);
}
template <class T>
MOJO_INLINE F32 Load(Part part, const T* p) {
  T lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, part.count * sizeof(T));
  return Load(lanes);
}
template <class T>
MOJO_INLINE void Store(Whole, T* p, F32 v) {
  Store(p, v);
}
template <class T>
MOJO_INLINE void Store(Part part, T* p, F32 v) {
  T lanes[kLanes];
  Store(lanes, v);
  __builtin_memcpy(p, lanes, part.count * sizeof(T));
}

#if defined(__AVX512F__)
// The same by masks, several times as fast as through memory.
MOJO_INLINE __mmask16 FirstLanes(Part part) { return static_cast<__mmask16>((1u << part.count) - 1); }
MOJO_INLINE U16 LoadShorts(Part part, const void* p) { return (U16)_mm256_maskz_loadu_epi16(FirstLanes(part), p); }
MOJO_INLINE void StoreShorts(Part part, void* p, U16 v) { _mm256_mask_storeu_epi16(p, FirstLanes(part), (__m256i)v); }
MOJO_INLINE F32 Load(Part part, const float* p) { return _mm512_maskz_loadu_ps(FirstLanes(part), p); }
MOJO_INLINE F32 Load(Part part, const Half* p) { return Widen(LoadShorts(part, p)); }
MOJO_INLINE F32 Load(Part part, const BFloat* p) { return WidenBFloat(LoadShorts(part, p)); }
MOJO_INLINE void Store(Part part, float* p, F32 v) { _mm512_mask_storeu_ps(p, FirstLanes(part), v); }
MOJO_INLINE void Store(Part part, Half* p, F32 v) { StoreShorts(part, p, Narrow(v)); }
MOJO_INLINE void Store(Part part, BFloat* p, F32 v) { StoreShorts(part, p, NarrowBFloat(v)); }
#endif

// Copy copies n numbers.
template <class T>
MOJO_INLINE void Copy(const T* from, T* to, size_t n) {
  constexpr size_t kStep = sizeof(F32) / sizeof(T);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    F32 v;
    __builtin_memcpy(&v, from + i, sizeof(v));
    __builtin_memcpy(to + i, &v, sizeof(v));
  }
  if (i < n) __builtin_memcpy(to + i, from + i, (n - i) * sizeof(T));
}

// ForEachVector calls body(Whole or Part, offset) until n elements are covered.
template <class Body>
MOJO_INLINE void ForEachVector(size_t n, Body body) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(Whole{}, i);
  if (i < n) body(Part{n - i}, i);
}

}  // namespace MOJO_ISA
}  // namespace mojo
