// Inputs and shape rules of LatentAttention.
#ifndef MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
#define MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_

#include "common/attention.h"

namespace mojo {

// ReadLatentAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttentionAttributes& attributes,
                               LatentTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
