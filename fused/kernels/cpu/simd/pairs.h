// Loads and stores of numbers that lie in pairs: a0 b0 a1 b1 ...
#pragma once

#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "a pair of 16 bit numbers is taken apart as a little-endian word");

// MOJO_SHUFFLE picks lanes of two vectors: a's are 0 to kLanes - 1, b's follow.
#if defined(__clang__)
#define MOJO_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MOJO_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (I32){__VA_ARGS__})
#endif

MOJO_INLINE F32 Evens(F32 v, F32 w) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(v, w, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(v, w, 0, 2, 4, 6, 8, 10, 12, 14);
#else
  return MOJO_SHUFFLE(v, w, 0, 2, 4, 6);
#endif
}
MOJO_INLINE F32 Odds(F32 v, F32 w) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(v, w, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(v, w, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return MOJO_SHUFFLE(v, w, 1, 3, 5, 7);
#endif
}

// EvensOfFour and OddsOfFour are the same within each four lanes, which is cheaper: two of a, then two of b.
MOJO_INLINE F32 EvensOfFour(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14);
#else
  return Evens(a, b);
#endif
}
MOJO_INLINE F32 OddsOfFour(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
#else
  return Odds(a, b);
#endif
}

#if defined(__AVX2__)
// EvenFours takes the first of each two fours of lanes of a, then of b; OddFours the second ones.
MOJO_INLINE F32 EvenFours(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
#else
  return MOJO_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
#endif
}
MOJO_INLINE F32 OddFours(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
#else
  return MOJO_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
#endif
}
#endif

// LowPairs interleaves the lower lanes of a and b, HighPairs the upper ones.
MOJO_INLINE F32 LowPairs(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return MOJO_SHUFFLE(a, b, 0, 4, 1, 5);
#endif
}
MOJO_INLINE F32 HighPairs(F32 a, F32 b) {
#if defined(__AVX512F__)
  return MOJO_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
  return MOJO_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return MOJO_SHUFFLE(a, b, 2, 6, 3, 7);
#endif
}

// Swapped exchanges the lanes of each pair.
MOJO_INLINE F32 Swapped(F32 v) {
#if defined(__AVX512F__)
  return _mm512_permute_ps(v, 0xb1);
#elif defined(__AVX2__)
  return _mm256_permute_ps(v, 0xb1);
#else
  return MOJO_SHUFFLE(v, v, 1, 0, 3, 2);
#endif
}

// EvensNegated changes the sign of the first lane of each pair.
MOJO_INLINE F32 EvensNegated(F32 v) {
  typedef uint64_t U64 __attribute__((vector_size(kLanes * 4)));
  return (F32)((U64)v ^ (U64{} + 0x80000000u));
}

// LoadTwo and StoreTwo move as many pairs as a vector has lanes, in their order in memory.
template <class T>
MOJO_INLINE void LoadTwo(Whole, const T* p, F32* v, F32* w) {
  *v = Load(p);
  *w = Load(p + kLanes);
}
template <class T>
MOJO_INLINE void LoadTwo(Part part, const T* p, F32* v, F32* w) {
  const size_t n = 2 * part.count;
  *v = Load(Part{n < kLanes ? n : kLanes}, p);
  *w = n > kLanes ? Load(Part{n - kLanes}, p + kLanes) : F32{};
}
template <class T>
MOJO_INLINE void StoreTwo(Whole, T* p, F32 v, F32 w) {
  Store(p, v);
  Store(p + kLanes, w);
}
template <class T>
MOJO_INLINE void StoreTwo(Part part, T* p, F32 v, F32 w) {
  const size_t n = 2 * part.count;
  Store(Part{n < kLanes ? n : kLanes}, p, v);
  if (n > kLanes) Store(Part{n - kLanes}, p + kLanes, w);
}

// LoadPairs loads the first and the second numbers of pairs; StorePairs rounds to the type of p.
template <class Lanes, class T>
MOJO_INLINE void LoadPairs(Lanes lanes, const T* p, F32* a, F32* b) {
  F32 v, w;
  LoadTwo(lanes, p, &v, &w);
  *a = Evens(v, w);
  *b = Odds(v, w);
}
template <class Lanes, class T>
MOJO_INLINE void StorePairs(Lanes lanes, T* p, F32 a, F32 b) {
  StoreTwo(lanes, p, LowPairs(a, b), HighPairs(a, b));
}

// A pair of bfloat16 is a word that needs no shuffling.
MOJO_INLINE U32 LoadWords(Whole, const BFloat* p) {
  U32 words;
  __builtin_memcpy(&words, p, sizeof(words));
  return words;
}
MOJO_INLINE void StoreWords(Whole, BFloat* p, U32 words) { __builtin_memcpy(p, &words, sizeof(words)); }
#if defined(__AVX512F__)
MOJO_INLINE U32 LoadWords(Part part, const BFloat* p) { return (U32)_mm512_maskz_loadu_epi32(FirstLanes(part), p); }
MOJO_INLINE void StoreWords(Part part, BFloat* p, U32 words) {
  _mm512_mask_storeu_epi32(p, FirstLanes(part), (__m512i)words);
}
#else
MOJO_INLINE U32 LoadWords(Part part, const BFloat* p) {
  BFloat pairs[2 * kLanes] = {};
  __builtin_memcpy(pairs, p, 2 * part.count * sizeof(BFloat));
  return LoadWords(Whole{}, pairs);
}
MOJO_INLINE void StoreWords(Part part, BFloat* p, U32 words) {
  __builtin_memcpy(p, &words, 2 * part.count * sizeof(BFloat));
}
#endif
template <class Lanes>
MOJO_INLINE void LoadPairs(Lanes lanes, const BFloat* p, F32* a, F32* b) {
  const U32 words = LoadWords(lanes, p);
  *a = FromBits(words << 16);
  *b = FromBits(words & 0xffff0000u);
}
template <class Lanes>
MOJO_INLINE void StorePairs(Lanes lanes, BFloat* p, F32 a, F32 b) {
  StoreWords(lanes, p, RoundedBFloat(a) >> 16 | (RoundedBFloat(b) & 0xffff0000u));
}

#undef MOJO_SHUFFLE

}  // namespace MOJO_ISA
}  // namespace mojo
