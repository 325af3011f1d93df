// Inputs and shape rules of Linear, and the output shape of Embedding.
#ifndef MOJO_KERNELS_COMMON_LINEAR_H_
#define MOJO_KERNELS_COMMON_LINEAR_H_

#include "common/quantized.h"

namespace mojo {

// LinearTensors are those of one run.
struct LinearTensors {
  QuantizedTensors weights;
  const void *x, *bias;  // bias may be null
  void* y;
  size_t rows;
};

// LinearForm is the attributes of Linear.
struct LinearForm {
  QuantizedAttributes weights;
  Activations activations;
};

OrtStatus* ReadAttributes(const KernelInit& init, LinearForm* out);

// ReadLinear reads the inputs, checks them and makes the output.
OrtStatus* ReadLinear(const Api& api, OrtKernelContext* context, const QuantizedAttributes& attributes,
                      LinearTensors* tensors);

// EmbeddingShape is the shape of Embedding's output.
OrtStatus* EmbeddingShape(const Api& api, const Shape& ids, const QuantizedAttributes& attributes, Shape* y);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LINEAR_H_
