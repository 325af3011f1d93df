// Inputs and shape rules of Attention.
#ifndef MOJO_KERNELS_COMMON_ATTENTION_H_
#define MOJO_KERNELS_COMMON_ATTENTION_H_

#include "common/attention_tensors.h"
#include "common/attributes.h"

namespace mojo {

// ReadAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadAttention(const Api& api, OrtKernelContext* context, const AttentionAttributes& attributes,
                         AttentionTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ATTENTION_H_
