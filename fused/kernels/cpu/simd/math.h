// Elementary functions on vectors. The coefficients come from tools/fit_polynomials.py.
#pragma once

#include "common/gelu.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// Exponents of 2 that Power takes: from results close to 0 to infinity.
constexpr float kLowest = -126.4f;
constexpr float kHighest = 129.4f;

// Integer is a float32 from kLowest to kHighest rounded to an integer. Adding 1.5 * 2^23 leaves the
// integer in the low bits of the sum; 126 more makes them the exponent bits of 2^(value-1).
struct Integer {
  F32 sum;
  F32 value;
};
MOJO_INLINE F32 Shift() { return Set(0x1.8p23f + 126); }
MOJO_INLINE Integer FromSum(F32 sum) { return {sum, sum - Shift()}; }

// PowerOfFraction is 2^f for |f| <= 1/2, times kScale.
#if defined(__AVX512F__)
constexpr float kScale = 1;
#else
// 2^n in two factors, since 2^128 has no float32: this 2, and 2^(n-1) made of bits.
constexpr float kScale = 2;
#endif
MOJO_INLINE F32 PowerOfFraction(F32 f) {
  F32 q = Set(kScale * 0x1.5bb9e0p-10f);
  q = Fma(q, f, Set(kScale * 0x1.3ceab6p-7f));
  q = Fma(q, f, Set(kScale * 0x1.c6b754p-5f));
  q = Fma(q, f, Set(kScale * 0x1.ebf9bcp-3f));
  q = Fma(q, f, Set(kScale * 0x1.62e42ap-1f));
  return Fma(q, f, Set(kScale));
}

// Power is 2^(n + f) + plus for |f| <= 1/2, the power to about 1.5 ulp; for n = 129 it is infinity.
MOJO_INLINE F32 Power(Integer n, F32 f, float plus) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(PowerOfFraction(f), n.value) + plus;
#else
  return Fma(PowerOfFraction(f), FromBits(Bits(n.sum) << 23), Set(plus));
#endif
}

// Power is 2^t + plus, t limited to the range of float32.
MOJO_INLINE F32 Power(F32 t, float plus) {
  t = AtLeast(AtMost(t, Set(kHighest)), Set(kLowest));
  const Integer n = FromSum(t + Shift());
  return Power(n, t - n.value, plus);
}

// The least t with a normal float32 e^t: processors are slow at subnormals.
constexpr float kLeastExponent = -87.3f;

// Exponent converts t from base e to base 2: an integer and a rest of at most 1/2.
MOJO_INLINE Integer Exponent(F32 t, F32* rest) {
  const F32 log2e = Set(0x1.715476p0f);
  const Integer n = FromSum(Fma(t, log2e, Shift()));
  *rest = Fma(t, Set(0x1.4ae0cp-26f), Fma(t, log2e, -n.value));
  return n;
}

// Exponential is e^t + plus for t from kLeastExponent to 89.7; lower t count as kLeastExponent.
MOJO_INLINE F32 Exponential(F32 t, float plus) {
  F32 rest;
  const Integer n = Exponent(AtLeast(AtMost(t, Set(89.69f)), Set(kLeastExponent)), &rest);
  return Power(n, rest, plus);
}

// PowerOfE is e^t for t <= 0, and 0 if that is not a normal number. A NaN stays.
MOJO_INLINE F32 PowerOfE(F32 t) {
#if defined(__AVX512F__)
  F32 rest;
  const Integer n = Exponent(t, &rest);
  const __mmask16 normal = _mm512_cmp_ps_mask(t, Set(kLeastExponent), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(normal, PowerOfFraction(rest), n.value);
#else
  return Select(t < Set(kLeastExponent), F32{}, Exponential(t, 0));
#endif
}

// Silu computes g * sigmoid(alpha * g) = g / (1 + 2^(factor g)), factor = -alpha log2(e). One
// multiply-add per step works on the exact product factor * g, so no bits of it are lost.
struct Silu {
  F32 factor, lowest, highest;

  explicit Silu(float alpha) {
    const float most = 0x1.fffffep127f;
    float c = alpha * -0x1.715476p0f;
    c = c > most ? most : c < -most ? -most : c;
    // The bounds of g. If alpha is close to 0, g is unbounded.
    const float a = kLowest / c, b = kHighest / c;
    const bool flat = c < 1e-30f && c > -1e-30f;
    factor = Set(flat ? 0.0f : c);
    lowest = Set(flat ? -most : a < b ? a : b);
    highest = Set(flat ? most : a < b ? b : a);
  }

  MOJO_INLINE F32 operator()(F32 g) const {
    const F32 v = AtLeast(AtMost(g, highest), lowest);
    const Integer n = FromSum(Fma(v, factor, Shift()));
    return g / Power(n, Fma(v, factor, -n.value), 1);
  }
};

// GeluTanh computes g / (1 + 2^t), with the t of common/gelu.h.
struct GeluTanh {
  explicit GeluTanh(float) {}

  MOJO_INLINE F32 operator()(F32 g) const {
    const F32 t = g * Fma(g * g, Set(kGeluTanhCube), Set(kGeluTanhLinear));
    return g / Power(t, 1);
  }
};

// Gelu computes g Phi(g) = g/2 (1 + erf(g / sqrt 2)) as max(g, 0) - |g| Phi(-|g|), without cancellation. Phi(-x) = 2^(x
// t(x) - x^2 log2(e)/2 - 1); beyond 5, t stays constant, which makes a tail of 1e-7 and less a little too large. At
// +-infinity the result is g's limit.
struct Gelu {
  explicit Gelu(float) {}

  MOJO_INLINE F32 operator()(F32 g) const {
    const F32 x = AtMost(FromBits(Bits(g) & 0x7fffffffu), Set(13.0f));
    const F32 z = AtMost(x, Set(5.0f));
    F32 t = Set(0x1.426f2ap-22f);
    t = Fma(t, z, Set(-0x1.b53ce2p-18f));
    t = Fma(t, z, Set(0x1.e2038ap-15f));
    t = Fma(t, z, Set(-0x1.e6f716p-13f));
    t = Fma(t, z, Set(-0x1.2c0962p-14f));
    t = Fma(t, z, Set(0x1.cb7f08p-8f));
    t = Fma(t, z, Set(-0x1.adde50p-5f));
    t = Fma(t, z, Set(0x1.0c6d20p-2f));
    t = Fma(t, z, Set(-0x1.26aed0p0f));
    const F32 exponent = Fma(x * x, Set(-0x1.715476p-1f), t * z);
    const Integer n = FromSum(exponent + Shift());
    const F32 half_tail = x * Power(n, exponent - n.value, 0);
    return Fma(half_tail, Set(-0.5f), AtLeast(g, Set(0.0f)));
  }
};

// Logistic is 1 / (1 + e^-x) by the quotient of polynomials, in the order of operations, of onnxruntime's Sigmoid on
// x86 with FMA: there the results have the same bits. A router needs that: near 0 and 1, many scores are equal or in
// another order than their logits, a few are a unit above 1, and the rounded scores decide between experts. Its error
// is up to 1e-7 absolute, so small scores have few digits.
MOJO_INLINE F32 Logistic(F32 x) {
  const F32 v = AtMost(AtLeast(x, Set(-18.0f)), Set(18.0f));
  const F32 square = v * v;
  F32 p = Fma(square, Set(4.37031012579801e-11f), Set(1.15627324459942e-07f));
  p = Fma(p, square, Set(6.08574864600143e-05f));
  p = Fma(p, square, Set(8.51377133304701e-03f));
  p = Fma(p, square, Set(2.48287947061529e-01f));
  p = p * v;
  F32 q = Fma(square, Set(6.10247389755681e-13f), Set(5.76102136993427e-09f));
  q = Fma(q, square, Set(6.29106785017040e-06f));
  q = Fma(q, square, Set(1.70198817374094e-03f));
  q = Fma(q, square, Set(1.16817656904453e-01f));
  q = Fma(q, square, Set(9.93151921023180e-01f));
  return AtLeast(p / q + Set(0.5f), Set(0.0f));
}

// Relu computes max(g, 0); a NaN stays.
struct Relu {
  explicit Relu(float) {}

  MOJO_INLINE F32 operator()(F32 g) const { return AtLeast(g, Set(0.0f)); }
};

// ReluSquared computes max(g, 0)^2; a NaN stays.
struct ReluSquared {
  explicit ReluSquared(float) {}

  MOJO_INLINE F32 operator()(F32 g) const {
    const F32 positive = AtLeast(g, Set(0.0f));
    return positive * positive;
  }
};

}  // namespace MOJO_ISA
}  // namespace mojo
