// Inputs and shape rules of HalfLinear.
#ifndef MOJO_KERNELS_COMMON_HALF_LINEAR_H_
#define MOJO_KERNELS_COMMON_HALF_LINEAR_H_

#include "common/attributes.h"
#include "common/schema.h"

namespace mojo {

// HalfLinearTensors are those of one run.
struct HalfLinearTensors {
  const void *x, *w, *bias;  // bias may be null
  void* y;
  size_t rows, n, k;
};

// ReadHalfLinear reads the inputs, checks their shapes against each other and makes the output.
OrtStatus* ReadHalfLinear(const Api& api, OrtKernelContext* context, Layout layout, HalfLinearTensors* tensors);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_HALF_LINEAR_H_
