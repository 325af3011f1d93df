// The arguments of the kernels of LinearAttention, and the factor of a decay. linear_attention.cu says more.
#pragma once

#include "cuda/common.cuh"

namespace mojo {
namespace {

// Params are the arguments of a kernel.
struct Params {
  const void* q;
  const void* k;
  const void* v;
  const float* past;
  const float* decay;
  const float* beta;
  void* y;
  float* present;
  float* states;  // of LongKeys: present, or scratch memory
  int64_t batch;
  int tokens, key, value, q_heads, k_heads, heads, y_heads, beta_heads, channels;
  int tiles;  // of a head's columns
  float scale, epsilon;
  bool l2_norm;
  bool vectors;  // 16 bytes of a state at a time
  int each;      // heads of y with the same state
  Divisor by_tiles, by_heads;
  Divisor by_keys, by_queries;  // heads with the same head of k, and heads of y with the same head of q
};

// Factor is e^x to little more than half a unit in the last place, as on the CPU: a factor is applied once for each
// token, so the error of expf would add up. It is 0 if e^x is subnormal; a NaN stays.
__device__ __forceinline__ float Factor(float x) {
  const float v = fmaxf(fminf(x, 89.69f), -87.33f);
  const float n = rintf(v * 0x1.715476p0f);
  // log 2 in two parts; the product with the first part is exact.
  const float r = fmaf(n, 0x1.bd0106p-13f, fmaf(n, -0x1.63p-1f, v));
  float q = 1.0f / 5040;
  q = fmaf(q, r, 1.0f / 720);
  q = fmaf(q, r, 1.0f / 120);
  q = fmaf(q, r, 1.0f / 24);
  q = fmaf(q, r, 1.0f / 6);
  q = fmaf(q, r, 0.5f);
  const float power = fmaf(r * r, q, r) + 1.0f;
  if (!(x >= -87.33f)) return x < 0 ? 0.0f : x;
  const int up = n > 0;  // 2^128 overflows float
  return power * (1 + up) * __int_as_float((static_cast<int>(n) - up + 127) << 23);
}

}  // namespace
}  // namespace mojo
