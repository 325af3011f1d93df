// Inner loops of NormQuantize.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

typedef int8_t I8 __attribute__((vector_size(kLanes)));

// StoreBytes stores lanes from -128 to 255, a byte each.
MOJO_INLINE void StoreBytes(Whole, uint8_t* p, I32 v) {
  const I8 bytes = __builtin_convertvector(v, I8);
  __builtin_memcpy(p, &bytes, sizeof(bytes));
}
MOJO_INLINE void StoreBytes(Part part, uint8_t* p, I32 v) {
  const I8 bytes = __builtin_convertvector(v, I8);
  __builtin_memcpy(p, &bytes, part.count);
}

// ToInt8 rounds to the nearest integer from -128 to 127, halves to even. NaN becomes 0.
MOJO_INLINE I32 ToInt8(F32 v) {
  const F32 bounded = Select(v == v, AtLeast(AtMost(v, Set(127)), Set(-128)), F32{});
  // A small number plus 1.5 * 2^23 is rounded to an integer, halves to even.
  return (I32)Bits(bounded + Set(0x1.8p23f)) - 0x4b400000;
}

// ToFloat8 returns the code of the nearest number of float8e4m3fn, halves to even. The greatest is 448.
MOJO_INLINE I32 ToFloat8(F32 v) {
  const U32 sign = Bits(v) >> 24 & 0x80u;
  const F32 magnitude = AtMost(FromBits(Bits(v) & 0x7fffffffu), Set(448));
  // Three bits of the mantissa stay, and the bias of the exponent changes from 127 to 7. A mantissa that is rounded up
  // to the next power of two increments the exponent.
  const U32 bits = Bits(magnitude);
  const U32 normal = (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
  // Numbers below 2^-6 are multiples of 2^-9, the spacing of float32 from 2^14 on.
  const U32 subnormal = Bits(magnitude + Set(0x1p14f)) - SetBits(0x46800000u);
  U32 code = Select(magnitude < Set(0x1p-6f), subnormal, normal - 960u);
  code = Select(v == v, code, SetBits(0x7fu));
  return (I32)(code | sign);
}

// GreatestMagnitude returns the greatest magnitude of a row, or NaN if there is one: the bits of NaN exceed all others.
template <class Value>
MOJO_INLINE float GreatestMagnitude(size_t n, Value value) {
  I32 most{};
  ForEachVector(n, [&](auto lanes, size_t i) MOJO_LAMBDA {
    const U32 bits = Bits(value(lanes, i)) & 0x7fffffffu;
    most = (I32)Select((I32)bits > most, bits, (U32)most);
  });
  int32_t greatest = 0;
  for (int i = 0; i < kLanes; ++i) greatest = most[i] > greatest ? most[i] : greatest;
  float magnitude;
  __builtin_memcpy(&magnitude, &greatest, sizeof(magnitude));
  return magnitude;
}

// kKeptNormed is the width of the widest rows kept between the passes. Wider rows are computed again in each pass.
constexpr size_t kKeptNormed = 4096;

// NormQuantizeRows computes rows in three passes: the sum and its squares, the norm and its greatest magnitude, the
// rounding. X is the stored type of x, residual and sum. If kAfter, the norm is rounded to X as well.
template <class X, bool kAfter>
void NormQuantizeRows(const NormQuantizeArgs& args, size_t begin, size_t end) {
  const size_t width = args.width;
  const float* scale = args.scale;
  const float limit = args.float8 ? 448 : 127;
  float kept[kKeptNormed];
  float* const keep = width <= kKeptNormed ? kept : nullptr;
  for (size_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(args.x) + row * width;
    const X* residual = args.residual == nullptr ? nullptr : static_cast<const X*>(args.residual) + row * width;
    X* sum = args.sum == nullptr ? nullptr : static_cast<X*>(args.sum) + row * width;
    uint8_t* y = args.y + row * width;
    const Added<X> added{x, residual};
    const float squares = SumOfSquares(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 v = added(lanes, i);
      if (sum != nullptr) Store(lanes, sum + i, v);
      if (keep != nullptr) Store(lanes, keep + i, v);
      return v;
    });
    // sum may have overwritten x or residual.
    const auto value = [=](auto lanes, size_t i) MOJO_LAMBDA {
      return keep != nullptr ? Load(lanes, keep + i) : sum != nullptr ? Load(lanes, sum + i) : added(lanes, i);
    };
    const F32 inv = InverseRoot(squares, width, args.epsilon, value);
    const auto normed = [=](auto lanes, size_t i) MOJO_LAMBDA {
      F32 n = value(lanes, i) * inv;
      if (kAfter) n = Round(x, n);
      n = n * Load(lanes, scale + i);
      return kAfter ? Round(x, n) : n;
    };
    const float most = GreatestMagnitude(width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      const F32 n = normed(lanes, i);
      if (keep != nullptr) Store(lanes, keep + i, n);
      return n;
    });
    const float step = most / limit;
    const float of_row = step < args.least_scale ? args.least_scale : step;  // NaN stays
    args.y_scale[row] = of_row;
    const F32 divisor = Set(of_row);
    const auto steps = [=](auto lanes, size_t i) MOJO_LAMBDA {
      return (keep != nullptr ? Load(lanes, keep + i) : normed(lanes, i)) / divisor;
    };
    if (args.float8) {
      ForEachVector(width,
                    [=](auto lanes, size_t i) MOJO_LAMBDA { StoreBytes(lanes, y + i, ToFloat8(steps(lanes, i))); });
    } else {
      ForEachVector(width,
                    [=](auto lanes, size_t i) MOJO_LAMBDA { StoreBytes(lanes, y + i, ToInt8(steps(lanes, i))); });
    }
  }
}

inline NormQuantizeFn PickNormQuantize(ElementType x, bool after) {
  switch (x) {
    case kFloat32: return NormQuantizeRows<float, false>;  // rounding to float32 changes nothing
    case kFloat16: return after ? NormQuantizeRows<Half, true> : NormQuantizeRows<Half, false>;
    case kBFloat16: return after ? NormQuantizeRows<BFloat, true> : NormQuantizeRows<BFloat, false>;
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo
