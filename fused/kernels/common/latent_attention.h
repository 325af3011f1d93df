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
struct LatentTensors {
  size_t batch = 0, heads = 0;
  size_t queries = 0;  // S
  size_t added = 0;    // N
  size_t nope = 0, rotated = 0, latent = 0, value_width = 0;
  size_t past = 0;  // P, or M with past_lengths
  size_t room = 0;  // tokens of present
  const void *q = nullptr, *c = nullptr, *k_pe = nullptr, *w = nullptr;
  HeadSteps q_steps, y_steps;
  const void* past_latents = nullptr;     // null: left out
  const int64_t* past_lengths = nullptr;  // null: left out
  bool on_device = false;                 // the tensors are, so that nothing reads past_lengths
  bool one_length = false;                // past_lengths has one number for all
  const int64_t* key_valid = nullptr;     // null: left out
  size_t valid_step = 0;                  // from one sequence to the next
  void* y = nullptr;
  void* present = nullptr;  // null: left out

  size_t Width() const { return latent + rotated; }  // of what is kept of a token
  size_t Past(size_t b) const {
    return past_lengths == nullptr ? past : static_cast<size_t>(past_lengths[one_length ? 0 : b]);
  }
  size_t Length(size_t b) const { return Past(b) + added; }
  // Longest is the greatest length, or the least that it can be where lengths are not known.
  size_t Longest() const;
};

// ReadLatentAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadLatentAttention(const Api& api, OrtKernelContext* context, const LatentAttributes& attributes,
                               LatentTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_LATENT_ATTENTION_H_
