// Inner loops of RMSNorm, AddRMSNorm and GatedRMSNorm.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// SumOver adds up value(Whole or Part, offset) over a row, each with add. Four sums hide the latency of the addition,
// and adding them in pairs keeps the error of long rows small.
template <class Value, class Add>
MOJO_INLINE float SumOver(size_t n, Value value, Add add) {
  F32 a = {}, b = {}, c = {}, d = {};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const F32 v0 = value(Whole{}, i);
    const F32 v1 = value(Whole{}, i + kLanes);
    const F32 v2 = value(Whole{}, i + 2 * kLanes);
    const F32 v3 = value(Whole{}, i + 3 * kLanes);
    a = add(v0, a);
    b = add(v1, b);
    c = add(v2, c);
    d = add(v3, d);
  }
  for (; i + kLanes <= n; i += kLanes) a = add(value(Whole{}, i), a);
  if (i < n) b = add(value(Part{n - i}, i), b);
  return Sum((a + b) + (c + d));
}

// SumOfSquares adds up the squares.
template <class Value>
MOJO_INLINE float SumOfSquares(size_t n, Value value) {
  return SumOver(n, value, [](F32 v, F32 sum) MOJO_LAMBDA { return Fma(v, v, sum); });
}

// MeanOf is the mean of numbers, each of them finite, whose sum overflows float32: the definition's mean of the squares
// of a row of width 576 is finite for elements up to 1.8e19, a float32 sum only up to 7e17. It is rare, so it may be
// slow:
// cold code is compiled to be small.
template <bool kSquares, class Value>
__attribute__((noinline, cold)) float MeanOf(size_t n, Value value) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const F32 v = value(Part{1}, i);
    sum += static_cast<double>(Sum(kSquares ? v * v : v));
  }
  return static_cast<float>(sum / static_cast<double>(n));
}

// Added is the numbers of a row, or, with a residual, their rounded sums.
template <class T>
struct Added {
  const T* x;
  const T* residual = nullptr;
  template <class Lanes>
  MOJO_INLINE F32 operator()(Lanes lanes, size_t i) const {
    const F32 v = Load(lanes, x + i);
    return residual == nullptr ? v : Round(x, v + Load(lanes, residual + i));
  }
};

// InverseRoot is 1 / sqrt(mean + epsilon) of a row; squares is the sum of its squares.
template <class Value>
MOJO_INLINE F32 InverseRoot(float squares, size_t n, float epsilon, Value value) {
  float mean = squares / static_cast<float>(n);
  if (!__builtin_isfinite(squares)) mean = MeanOf<true>(n, value);
  return Set(1.0f / __builtin_sqrtf(mean + epsilon));
}

// NormRows is the loop over rows. X and Y are the stored types of X and of the output; kAfter is scale_after_cast, kAdd
// selects AddRMSNorm. Y may be X's buffer.
template <class X, class Y, bool kAfter, bool kAdd>
void NormRows(const NormArgs& args, size_t begin, size_t end) {
  const size_t width = args.width;
  const float* scale = args.scale;
  for (size_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(args.x) + row * width;
    Y* y = static_cast<Y*>(args.y) + row * width;
    float squares;
    // The input of the second pass: the row, or the sum that the first pass stored.
    const X* normed = x;
    const X* residual = nullptr;
    if (kAdd) {
      residual = static_cast<const X*>(args.residual) + row * width;
      if (args.sum != nullptr) {
        X* sum = static_cast<X*>(args.sum) + row * width;
        squares = SumOfSquares(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
          const F32 v = Round(x, Load(lanes, x + i) + Load(lanes, residual + i));
          Store(lanes, sum + i, v);
          return v;
        });
        normed = sum;
        residual = nullptr;
      } else {
        squares = SumOfSquares(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
          return Round(x, Load(lanes, x + i) + Load(lanes, residual + i));
        });
      }
    } else {
      squares = SumOfSquares(width, [=](auto lanes, size_t i) MOJO_LAMBDA { return Load(lanes, x + i); });
    }
    const F32 inv = InverseRoot(squares, width, args.epsilon, Added<X>{normed, residual});
    const auto write = [=](auto lanes, size_t i, F32 v) MOJO_LAMBDA {
      F32 n = v * inv;
      if (kAfter) n = Round(y, n);
      Store(lanes, y + i, n * Load(lanes, scale + i));
    };
    if (kAdd && residual != nullptr) {
      ForEachVector(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
        write(lanes, i, Round(x, Load(lanes, x + i) + Load(lanes, residual + i)));
      });
    } else {
      ForEachVector(width, [=](auto lanes, size_t i) MOJO_LAMBDA { write(lanes, i, Load(lanes, normed + i)); });
    }
  }
}

// kKeptGated is how many gated numbers of a row are kept from the first pass to the second; wider rows are computed
// twice.
constexpr size_t kKeptGated = 4096;

// GatedRows is the loop over rows with a gate. X is the stored type of X, Y of gate and output. Y may be X's or gate's
// buffer.
template <class X, class Y, NormGate kGate, bool kAfter>
void GatedRows(const NormArgs& args, size_t begin, size_t end) {
  const size_t width = args.width;
  const Silu silu(1);
  float kept[kKeptGated];
  float* const keep = kGate == kGateThenNorm && width <= kKeptGated ? kept : nullptr;
  for (size_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(args.x) + row * width;
    const Y* gate = static_cast<const Y*>(args.gate) + row * width;
    const float* scale = args.scale + row % args.groups * width;
    Y* y = static_cast<Y*>(args.y) + row * width;
    const auto value = [=](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 v = Load(lanes, x + i);
      return kGate == kGateThenNorm ? v * silu(Load(lanes, gate + i)) : v;
    };
    const float squares = SumOfSquares(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 v = value(lanes, i);
      if (keep != nullptr) Store(lanes, keep + i, v);
      return v;
    });
    const F32 inv = InverseRoot(squares, width, args.epsilon, value);
    ForEachVector(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      F32 n = (keep != nullptr ? Load(lanes, keep + i) : value(lanes, i)) * inv;
      if (kAfter) n = Round(y, n);
      n = n * Load(lanes, scale + i);
      if (kGate == kNormThenGate) n = (kAfter ? Round(y, n) : n) * silu(Load(lanes, gate + i));
      Store(lanes, y + i, n);
    });
  }
}

template <class X, class Y, bool kAfter>
NormFn PickOrder(NormGate gate) {
  return gate == kGateThenNorm ? GatedRows<X, Y, kGateThenNorm, kAfter> : GatedRows<X, Y, kNormThenGate, kAfter>;
}

template <class N>
NormFn PickNarrowGated(const NormKey& key) {
  if (key.x == kFloat32) return key.scale_after_cast ? nullptr : PickOrder<float, N, false>(key.gate);
  if (key.x != key.y) return nullptr;
  return key.scale_after_cast ? PickOrder<N, N, true>(key.gate) : PickOrder<N, N, false>(key.gate);
}

inline NormFn PickGated(const NormKey& key) {
  if (key.add) return nullptr;
  switch (key.y) {
    case kFloat32: return key.x == kFloat32 ? PickOrder<float, float, false>(key.gate) : nullptr;
    case kFloat16: return PickNarrowGated<Half>(key);
    case kBFloat16: return PickNarrowGated<BFloat>(key);
  }
  return nullptr;
}

template <class X, class Y, bool kAfter>
NormFn PickAdd(bool add) {
  return add ? NormRows<X, Y, kAfter, true> : NormRows<X, Y, kAfter, false>;
}

template <class N>
NormFn PickNarrow(const NormKey& key) {
  if (key.x == kFloat32) {
    return key.scale_after_cast ? PickAdd<float, N, true>(key.add) : nullptr;
  }
  if (key.x != key.y) return nullptr;
  return key.scale_after_cast ? PickAdd<N, N, true>(key.add) : PickAdd<N, N, false>(key.add);
}

inline NormFn PickNorm(const NormKey& key) {
#if defined(MOJO_ONLY_FLOAT32)
  if (key.gate != kNoGate) return nullptr;
#else
  if (key.gate != kNoGate) return PickGated(key);
  if (key.y == kFloat16) return PickNarrow<Half>(key);
  if (key.y == kBFloat16) return PickNarrow<BFloat>(key);
#endif
  // Rounding to float32 changes nothing: scale_after_cast makes no difference.
  return key.x == kFloat32 && key.y == kFloat32 ? PickAdd<float, float, false>(key.add) : nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo
