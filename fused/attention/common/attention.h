// Tensors of Attention and LatentAttention.
#ifndef MOJO_KERNELS_COMMON_ATTENTION_H_
#define MOJO_KERNELS_COMMON_ATTENTION_H_

#include "attention/common/attention_tensors.h"
#include "common/attributes.h"

namespace mojo {

// ReadAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadAttention(const Api& api, OrtKernelContext* context, const AttentionAttributes& attributes,
                         AttentionTensors* out);

// ReadLatentAttention is ReadAttention for LatentAttention.
OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttentionAttributes& attributes,
                               LatentTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ATTENTION_H_
