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

// LatentTensors are the tensors of a running LatentAttention, and their sizes.
struct LatentTensors : CacheLengths {
  size_t heads = 0;
  size_t queries = 0;  // S
  size_t nope = 0, rotated = 0, latent = 0, value_width = 0;
  const void *q = nullptr, *c = nullptr, *k_pe = nullptr, *w = nullptr;
  HeadSteps q_steps, y_steps;
  const void* past_latents = nullptr;  // null: left out
  const int64_t* key_valid = nullptr;  // null: left out
  size_t valid_step = 0;               // from one sequence to the next
  void* y = nullptr;
  void* present = nullptr;  // null: left out

  size_t Width() const { return latent + rotated; }  // of what is kept of a token
};

// ReadLatentAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttributes& attributes,
                               LatentTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
