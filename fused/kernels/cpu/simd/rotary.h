// Inner loops of RotaryEmbedding.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Stored is numbers in memory: One loads a vector from i on, Two loads two, Pairs one of the first and one of the
// second numbers.
template <class T>
struct Stored {
  const T* p;
  template <class Lanes>
  MOJO_INLINE F32 One(Lanes lanes, size_t i) const {
    return Load(lanes, p + i);
  }
  template <class Lanes>
  MOJO_INLINE void Two(Lanes lanes, size_t i, F32* v, F32* w) const {
    LoadTwo(lanes, p + i, v, w);
  }
  template <class Lanes>
  MOJO_INLINE void Pairs(Lanes lanes, size_t i, F32* a, F32* b) const {
    LoadPairs(lanes, p + i, a, b);
  }
};

// LoadChannels loads both channels of the pairs from i on, of half pairs.
template <PairLayout kFrom, class Lanes, class Source>
MOJO_INLINE void LoadChannels(Lanes lanes, const Source& x, size_t half, size_t i, F32* a, F32* b) {
  if (kFrom == kInterleaved) return x.Pairs(lanes, 2 * i, a, b);
  *a = x.One(lanes, i);
  *b = x.One(lanes, half + i);
}

// LoadTable loads cos or sin for the pairs from i on.
template <PairLayout kTo, class Lanes, class T>
MOJO_INLINE void LoadTable(Lanes lanes, const T* p, size_t half, bool wide, size_t i, F32* a, F32* b) {
  if (wide) return LoadChannels<kTo>(lanes, Stored<T>{p}, half, i, a, b);
  *a = *b = Load(lanes, p + i);
}

// Rotation is one row: half pairs of x, to y. x is a Source: Stored or a type with its functions.
template <class T, class Source>
struct Rotation {
  Source x;
  const T* cos;
  const T* sin;
  T* y;
  size_t half;
  bool cos_wide;
  bool sin_wide;
};

// RotatePairs gathers the first and the second channels of the pairs. It uses no fused multiply-add: the contract
// rounds each product. Both channels are read before either is written, so y may be x's buffer if the layouts are the
// same.
template <PairLayout kFrom, PairLayout kTo, class T, class Source>
MOJO_INLINE void RotatePairs(const Rotation<T, Source>& r) {
  ForEachVector(r.half, [&](auto lanes, size_t i) MOJO_LAMBDA {
    F32 a, b, cos_a, cos_b, sin_a, sin_b;
    LoadChannels<kFrom>(lanes, r.x, r.half, i, &a, &b);
    LoadTable<kTo>(lanes, r.cos, r.half, r.cos_wide, i, &cos_a, &cos_b);
    LoadTable<kTo>(lanes, r.sin, r.half, r.sin_wide, i, &sin_a, &sin_b);
    const F32 p = Round(r.y, a * cos_a) - Round(r.y, b * sin_a);
    const F32 q = Round(r.y, b * cos_b) + Round(r.y, a * sin_b);
    if (kTo == kInterleaved) {
      StorePairs(lanes, r.y + 2 * i, p, q);
    } else {
      Store(lanes, r.y + i, p);
      Store(lanes, r.y + r.half + i, q);
    }
  });
}

// LoadByChannel loads cos or sin for the channels of the pairs from i on.
template <class Lanes, class T>
MOJO_INLINE void LoadByChannel(Lanes lanes, const T* p, bool wide, size_t i, F32* v, F32* w) {
  if (wide) return LoadTwo(lanes, p + 2 * i, v, w);
  const F32 table = Load(lanes, p + i);
  *v = LowPairs(table, table);
  *w = HighPairs(table, table);
}

// RotateInterleaved keeps the order of pairs: y = x * cos +- (x with its pairs swapped) * sin.
template <class T, class Source>
MOJO_INLINE void RotateInterleaved(const Rotation<T, Source>& r) {
  ForEachVector(r.half, [&](auto lanes, size_t i) MOJO_LAMBDA {
    F32 v, w, cos_v, cos_w, sin_v, sin_w;
    r.x.Two(lanes, 2 * i, &v, &w);
    LoadByChannel(lanes, r.cos, r.cos_wide, i, &cos_v, &cos_w);
    LoadByChannel(lanes, r.sin, r.sin_wide, i, &sin_v, &sin_w);
    StoreTwo(lanes, r.y + 2 * i, Round(r.y, v * cos_v) + EvensNegated(Round(r.y, Swapped(v) * sin_v)),
             Round(r.y, w * cos_w) + EvensNegated(Round(r.y, Swapped(w) * sin_w)));
  });
}

// Rotate takes the faster way. Pairs of bfloat16 are gathered at no cost.
template <PairLayout kFrom, PairLayout kTo, class T, class Source>
MOJO_INLINE void Rotate(const Rotation<T, Source>& r) {
  if (kFrom == kInterleaved && kTo == kInterleaved) return RotateInterleaved(r);
  RotatePairs<kFrom, kTo>(r);
}
template <PairLayout kFrom, PairLayout kTo, class Source>
MOJO_INLINE void Rotate(const Rotation<BFloat, Source>& r) {
  RotatePairs<kFrom, kTo>(r);
}

// RotationOf is the rotation of a row of args: from the rotated channels of x to y's.
template <class T, class Source>
MOJO_INLINE Rotation<T, Source> RotationOf(const RotaryArgs& args, size_t row, const Source& x, T* y) {
  return {x,
          static_cast<const T*>(args.cos) + row * args.cos_step,
          static_cast<const T*>(args.sin) + row * args.sin_step,
          y + args.first,
          args.half,
          args.cos_wide,
          args.sin_wide};
}

template <class T, PairLayout kFrom, PairLayout kTo>
void RotateRows(const RotaryArgs& args) {
  const size_t width = args.width, first = args.first, rotated = 2 * args.half;
  const bool in_place = args.x == args.y;
  T row_copy[kFrom == kTo ? 1 : kRotaryInPlace];  // pairs that move need one
  for (size_t row = 0; row < args.count; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * width;
    T* y = static_cast<T*>(args.y) + row * width;
    if (!in_place && width != rotated) {
      Copy(x, y, first);
      Copy(x + first + rotated, y + first + rotated, width - first - rotated);
    }
    Stored<T> source{x + first};
    if (kFrom != kTo && in_place) {
      Copy(source.p, row_copy, rotated);
      source.p = row_copy;
    }
    Rotate<kFrom, kTo>(RotationOf<T>(args, row, source, y));
  }
}

template <class T>
RotaryFn PickLayouts(PairLayout from, PairLayout to) {
  if (from == kHalves) {
    return to == kHalves ? RotateRows<T, kHalves, kHalves> : RotateRows<T, kHalves, kInterleaved>;
  }
  return to == kHalves ? RotateRows<T, kInterleaved, kHalves> : RotateRows<T, kInterleaved, kInterleaved>;
}

inline RotaryFn PickRotary(ElementType type, PairLayout from, PairLayout to) {
  return OfType(type, [=](auto t) { return PickLayouts<decltype(t)>(from, to); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
