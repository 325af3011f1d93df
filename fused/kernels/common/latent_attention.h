// Attributes, inputs and shape rules of LatentAttention.
#ifndef MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
#define MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_

#include "common/attention.h"

namespace mojo {

// LatentAttributes are the attributes of LatentAttention.
struct LatentAttributes {
  AttentionAttributes attention;  // of its attention to keys and values by heads
  bool w_out_in;
};

OrtStatus* ReadAttributes(const KernelInit& init, LatentAttributes* out);

// ReadLatentAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttributes& attributes,
                               LatentTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
