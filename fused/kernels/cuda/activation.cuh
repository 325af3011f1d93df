// The activations of gates, in float32.
#pragma once

#include "common/gelu.h"
#include "cuda/common.cuh"

namespace mojo {

constexpr float kLog2E = 1.44269504f;

// Over is a / b. Not kExact: two units off in the last place, and 0 for b above 2^126.
template <bool kExact>
__device__ __forceinline__ float Over(float a, float b) {
  if (kExact) return a / b;
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}

// ExpOf is e^x: kExact, the library's; else one instruction, which is exact enough for 16 bit results, and 0 below
// 2^-126.
template <bool kExact>
__device__ __forceinline__ float ExpOf(float x) {
  if (kExact) return expf(x);
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2E));
  return power;
}

// Activate returns the activation of g; a NaN stays. kExact is for float32 results, else the result is
// rounded to 16 bits. Nothing cancels: gelu is max(g, 0) - |g| Phi(-|g|) with Phi(-x) = 2^(x t(x) -
// x^2 log2(e)/2 - 1), t a polynomial up to 5 (beyond it a tail of 1e-7 is a little too large), and
// gelu_tanh is g / (1 + 2^t), with the t of common/gelu.h.
template <Activation kActivation, bool kExact>
__device__ __forceinline__ float Activate(float g, float alpha) {
  if constexpr (kActivation == Activation::kSilu) {
    return Over<kExact>(g, 1 + ExpOf<kExact>(-alpha * g));
  } else if constexpr (kActivation == Activation::kGelu) {
    const float x = fabsf(g) > 13.0f ? 13.0f : fabsf(g);
    const float z = x > 5.0f ? 5.0f : x;
    float t = 0x1.426f2ap-22f;
    t = fmaf(t, z, -0x1.b53ce2p-18f);
    t = fmaf(t, z, 0x1.e2038ap-15f);
    t = fmaf(t, z, -0x1.e6f716p-13f);
    t = fmaf(t, z, -0x1.2c0962p-14f);
    t = fmaf(t, z, 0x1.cb7f08p-8f);
    t = fmaf(t, z, -0x1.adde50p-5f);
    t = fmaf(t, z, 0x1.0c6d20p-2f);
    t = fmaf(t, z, -0x1.26aed0p0f);
    const float exponent = fmaf(x * x, -0.5f * kLog2E, t * z);
    return fmaf(x * exp2f(exponent), -0.5f, g > 0 ? g : 0.0f);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    const float t = g * fmaf(g * g, kGeluTanhCube, kGeluTanhLinear);
    return Over<kExact>(g, 1 + exp2f(t));
  } else if constexpr (kActivation == Activation::kRelu) {
    return g < 0 ? 0.0f : g;
  } else {
    const float r = g < 0 ? 0.0f : g;
    return r * r;
  }
}

}  // namespace mojo
