// Quantized weights: converts the runtime's data to kernel arguments.
#pragma once

#include "cuda/backends.h"
#include "linear/common/quantized.h"

namespace mojo {

// ToMojoWeights combines tensors already checked against their attributes.
MojoQuantizedWeights ToMojoWeights(const QuantizedAttributes& attributes, const QuantizedTensors& tensors);

// GetWeights is GetQuantized and ToMojoWeights.
OrtStatus* GetWeights(const CallBase& call, const QuantizedPlace& place, const QuantizedAttributes& attributes,
                      MojoQuantizedWeights* weights);

// CheckCode returns an error for a code that the kernels cannot multiply by such activations; packing is the experts'.
OrtStatus* CheckCode(const Api& api, const OpDef& def, Code code, Activations activations,
                     Packing packing = Packing::kHalves);

}  // namespace mojo
