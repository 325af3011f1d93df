// Inputs and shape rules of BiasGELU.
#ifndef MOJO_KERNELS_COMMON_BIAS_GELU_H_
#define MOJO_KERNELS_COMMON_BIAS_GELU_H_

#include "common/add_layer_norm.h"

namespace mojo {

// BiasGELUTensors are the tensors of a running BiasGELU, and their sizes.
struct BiasGELUTensors {
  const void* x = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  size_t rows = 0;
  size_t width = 0;
};

// ReadBiasGELU reads the inputs of a running node, checks their shapes and allocates the output.
inline OrtStatus* ReadBiasGELU(const Api& api, OrtKernelContext* context, BiasGELUTensors* out) {
  Shape x;
  if (OrtStatus* s = ReadRows(api, context, kBiasGELU, &out->x, &x, &out->rows, &out->width)) return s;
  if (OrtStatus* s = ReadRow(api, context, kBiasGELU, kBiasGELUBias, x, &out->bias)) return s;
  return MakeOutput(api, context, kBiasGELU, 0, x, &out->y);
}

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_BIAS_GELU_H_
