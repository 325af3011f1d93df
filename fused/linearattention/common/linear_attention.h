// The attributes and tensors of LinearAttention, for all devices.
#pragma once

#include "common/attributes.h"
#include "linearattention/common/linear_tensors.h"

namespace mojo {

// ReadLinearAttributes is ReadAttributes, and checks a rule that the catalogue's equations cannot express.
OrtStatus* ReadLinearAttributes(const KernelInit& init, LinearAttentionAttributes* out);

// ReadLinearAttention reads the inputs of a running node, checks their shapes and allocates the outputs.
OrtStatus* ReadLinearAttention(const Api& api, OrtKernelContext* context, const LinearAttentionAttributes& attributes,
                               LinearAttentionTensors* out);

}  // namespace mojo
