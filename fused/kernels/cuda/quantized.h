// Quantized weights, from what the runtime hands to what the kernels take.
#ifndef MOJO_KERNELS_CUDA_QUANTIZED_H_
#define MOJO_KERNELS_CUDA_QUANTIZED_H_

#include "common/quantized.h"
#include "cuda/backends.h"

namespace mojo {

// SetWeights puts tensors that are known to fit their attributes together.
void SetWeights(const QuantizedAttributes& attributes, const QuantizedTensors& tensors, MojoQuantizedWeights* weights);

// CheckCode errs for a code that the kernels do not multiply with such activations; packing is that of experts.
OrtStatus* CheckCode(const Api& api, const OpDef& def, Code code, Activations activations,
                     MojoPacking packing = kMojoHalves);

// ToMojoRounding translates what activations are rounded to.
MojoRounding ToMojoRounding(Activations activations);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_QUANTIZED_H_
