// The activations in double, without cancellation: the reference of tests in C++ and CUDA.
#pragma once

#include <math.h>

namespace mojo_test {

inline double Silu(double g, double alpha) { return g / (1 + exp(-alpha * g)); }
inline double Gelu(double g) { return 0.5 * g * erfc(-g / sqrt(2.0)); }

// GeluTanh is g/2 (1 + tanh(z)), written as g sigmoid(2z).
inline double GeluTanh(double g) {
  const double z = sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
  return g / (1 + exp(-2 * z));
}

}  // namespace mojo_test
