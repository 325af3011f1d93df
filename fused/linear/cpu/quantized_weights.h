// Weights of Linear and Embedding as the inner loops take them.
#pragma once

#include "cpu/simd/quantized.h"
#include "linear/common/quantized.h"

namespace mojo {

// TheLinear is the loops for this machine, chosen at the first call as TheKernels is.
const LinearFns* TheLinear();

// ToWeights combines tensors that are known to fit their attributes.
QuantizedWeights ToWeights(const QuantizedAttributes& attributes, const QuantizedTensors& tensors);

// PanelsOf is count panels of the weights, from number first on.
QuantizedWeights PanelsOf(const QuantizedWeights& weights, size_t first, size_t count);

}  // namespace mojo
