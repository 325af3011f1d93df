// The attributes and tensors of LinearAttention, for all devices.
#ifndef MOJO_KERNELS_COMMON_LINEAR_ATTENTION_H_
#define MOJO_KERNELS_COMMON_LINEAR_ATTENTION_H_

#include "common/attributes.h"
#include "linearattention/common/linear_tensors.h"

namespace mojo {

// ReadLinearAttributes is ReadAttributes, and checks a rule that the catalogue's equations cannot express.
OrtStatus* ReadLinearAttributes(const KernelInit& init, LinearAttentionAttributes* out);

// ReadLinearAttention reads the inputs of a running node, checks their shapes and allocates the outputs.
OrtStatus* ReadLinearAttention(const Api& api, OrtKernelContext* context, const LinearAttentionAttributes& attributes,
                               LinearAttentionTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LINEAR_ATTENTION_H_
