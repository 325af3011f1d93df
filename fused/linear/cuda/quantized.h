// Quantized weights: converts the runtime's data to kernel arguments.
#ifndef MOJO_KERNELS_CUDA_QUANTIZED_H_
#define MOJO_KERNELS_CUDA_QUANTIZED_H_

#include "cuda/backends.h"
#include "linear/common/quantized.h"

namespace mojo {

// SetWeights combines tensors already checked against their attributes.
void SetWeights(const QuantizedAttributes& attributes, const QuantizedTensors& tensors, MojoQuantizedWeights* weights);

// CheckCode returns an error for a code that the kernels cannot multiply by such activations; packing is the experts'.
OrtStatus* CheckCode(const Api& api, const OpDef& def, Code code, Activations activations,
                     MojoPacking packing = kMojoHalves);

// ToMojoRounding translates the type that activations are rounded to.
MojoRounding ToMojoRounding(Activations activations);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_QUANTIZED_H_
