// Inner loops of NormRotary: a row is normalized as it is loaded for its rotation.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/rotary.h"

namespace mojo {
namespace MOJO_ISA {

// Normed is a source of rotations: the numbers of x times inv and the scale, rounded as RMSNorm rounds them to
// Y. kAfter is scale_after_cast.
template <class X, class Y, bool kAfter>
struct Normed {
  Stored<X> x;
  Stored<float> scale;
  F32 inv;

  MOJO_INLINE F32 Scaled(F32 v, F32 s) const {
    const Y* y = nullptr;  // for its type
    F32 n = v * inv;
    if (kAfter) n = Round(y, n);
    return Round(y, n * s);
  }
  template <class Lanes>
  MOJO_INLINE F32 One(Lanes lanes, size_t i) const {
    return Scaled(x.One(lanes, i), scale.One(lanes, i));
  }
  template <class Lanes>
  MOJO_INLINE void Two(Lanes lanes, size_t i, F32* v, F32* w) const {
    F32 s, t;
    x.Two(lanes, i, v, w);
    scale.Two(lanes, i, &s, &t);
    *v = Scaled(*v, s);
    *w = Scaled(*w, t);
  }
  template <class Lanes>
  MOJO_INLINE void Pairs(Lanes lanes, size_t i, F32* a, F32* b) const {
    F32 s, t;
    x.Pairs(lanes, i, a, b);
    scale.Pairs(lanes, i, &s, &t);
    *a = Scaled(*a, s);
    *b = Scaled(*b, t);
  }
  // From is the numbers from i on.
  MOJO_INLINE Normed From(size_t i) const { return {{x.p + i}, {scale.p + i}, inv}; }
};

// StoreNormed writes n normed numbers that are not rotated. It is compiled once for all layouts of pairs.
template <class Source, class Y>
__attribute__((noinline)) void StoreNormed(const Source& x, size_t n, Y* y) {
  ForEachVector(n, [&](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, y + i, x.One(lanes, i)); });
}

// InverseRootOf is InverseRoot of a row in memory; InverseRoots computes it for several rows, compiled once for all
// forms.
template <class X>
MOJO_INLINE F32 InverseRootOf(const X* x, size_t width, float epsilon) {
  return InverseRoot(SumOfSquares(width, Added<X>{x}), width, epsilon, Added<X>{x});
}
template <class X>
__attribute__((noinline)) void InverseRoots(const X* x, size_t rows, size_t width, float epsilon, F32* inv) {
  for (size_t row = 0; row < rows; ++row) inv[row] = InverseRootOf(x + row * width, width, epsilon);
}

template <class X, class Y, bool kAfter, PairLayout kFrom, PairLayout kTo>
void NormRotateRows(const NormRotaryArgs& args) {
  // So many rows are summed up before they are rotated. Heads are short, and with the roundings of a 16-bit type the
  // path from the last square to the results is longer than a processor's lookahead; float32 needs no roundings.
  constexpr size_t kAhead = sizeof(Y) == 4 ? 1 : 16;
  const RotaryArgs& rotary = args.rotary;
  const size_t width = rotary.width, first = rotary.first, end = first + 2 * rotary.half;
  const bool in_place = rotary.x == rotary.y;
  X row_copy[kFrom == kTo ? 1 : kRotaryInPlace];  // pairs that move need one
  for (size_t block = 0; block < rotary.count; block += kAhead) {
    const size_t rows = rotary.count - block < kAhead ? rotary.count - block : kAhead;
    const X* x = static_cast<const X*>(rotary.x) + block * width;
    Y* y = static_cast<Y*>(rotary.y) + block * width;
    F32 inv[kAhead];
    if constexpr (kAhead > 1) {
      InverseRoots(x, rows, width, args.epsilon, inv);
    } else {
      inv[0] = InverseRootOf(x, width, args.epsilon);
    }
    for (size_t row = 0; row < rows; ++row, x += width, y += width) {
      const X* from = x;
      if (kFrom != kTo && in_place) {
        Copy(x, row_copy, width);
        from = row_copy;
      }
      const Normed<X, Y, kAfter> normed{{from}, {args.scale}, inv[row]};
      if (first > 0) StoreNormed(normed, first, y);
      if (end < width) StoreNormed(normed.From(end), width - end, y + end);
      Rotate<kFrom, kTo>(RotationOf<Y>(rotary, block + row, normed.From(first), y));
    }
  }
}

template <class X, class Y, bool kAfter>
NormRotaryFn PickNormLayouts(PairLayout from, PairLayout to) {
  if (from == kHalves) {
    return to == kHalves ? NormRotateRows<X, Y, kAfter, kHalves, kHalves>
                         : NormRotateRows<X, Y, kAfter, kHalves, kInterleaved>;
  }
  return to == kHalves ? NormRotateRows<X, Y, kAfter, kInterleaved, kHalves>
                       : NormRotateRows<X, Y, kAfter, kInterleaved, kInterleaved>;
}

template <class N>
NormRotaryFn PickNarrowRotary(const NormRotaryKey& key) {
  if (key.x == kFloat32) {
    return key.scale_after_cast ? PickNormLayouts<float, N, true>(key.from, key.to) : nullptr;
  }
  if (key.x != key.y) return nullptr;
  return key.scale_after_cast ? PickNormLayouts<N, N, true>(key.from, key.to)
                              : PickNormLayouts<N, N, false>(key.from, key.to);
}

inline NormRotaryFn PickNormRotary(const NormRotaryKey& key) {
#if !defined(MOJO_ONLY_FLOAT32)
  if (key.y == kFloat16) return PickNarrowRotary<Half>(key);
  if (key.y == kBFloat16) return PickNarrowRotary<BFloat>(key);
#endif
  // Rounding to float32 changes nothing: scale_after_cast makes no difference.
  return key.x == kFloat32 && key.y == kFloat32 ? PickNormLayouts<float, float, false>(key.from, key.to) : nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo
