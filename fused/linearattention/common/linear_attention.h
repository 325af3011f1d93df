// The attributes and tensors of LinearAttention, for all devices.
#pragma once

#include "common/attributes.h"
#include "linearattention/common/linear_tensors.h"

namespace mojo {

// ReadAttributes for LinearAttention also checks a rule that the catalogue's equations cannot express.
OrtStatus* ReadAttributes(const KernelInit& init, LinearAttentionAttributes* out);

// ReadLinearAttention returns the tensors of a running node whose inputs call has read, and allocates the outputs.
OrtStatus* ReadLinearAttention(LinearAttentionCall* call, LinearAttentionTensors* out);

}  // namespace mojo
