// Attributes, inputs and shape rules of Attention.
#ifndef MOJO_KERNELS_COMMON_ATTENTION_H_
#define MOJO_KERNELS_COMMON_ATTENTION_H_

#include "common/attributes.h"

namespace mojo {

// AttentionAttributes are the attributes of Attention.
struct AttentionAttributes {
  float scale;
  bool causal;
  size_t window;  // 0: none
  float softcap;  // 0: none
  bool empty_mean;
  bool cyclic;                                          // head_order
  bool q_by_token, k_by_token, v_by_token, y_by_token;  // bsnh
};

OrtStatus* ReadAttributes(const KernelInit& init, AttentionAttributes* out);

// HeadSteps are the distances in a tensor of heads, in elements: from one sequence, head or token to the next.
struct HeadSteps {
  size_t batch = 0, head = 0, row = 0;
};

// CacheLengths are the lengths of the sequences of a cache.
struct CacheLengths {
  size_t batch = 0;
  size_t added = 0;                       // N, the new keys or latents
  size_t past = 0;                        // P, or M with past_lengths
  size_t room = 0;                        // of what becomes of the cache
  const int64_t* past_lengths = nullptr;  // null: left out
  bool on_device = false;                 // the tensors are, so that nothing reads past_lengths
  bool one_length = false;                // past_lengths has one number for all

  // Past is how many tokens come before the new ones in a sequence, Length how many there are with them. Longest is the
  // greatest length, or the least that it can be where lengths are not known.
  size_t Past(size_t b) const {
    return past_lengths == nullptr ? past : static_cast<size_t>(past_lengths[one_length ? 0 : b]);
  }
  size_t Length(size_t b) const { return Past(b) + added; }
  size_t Longest() const;
};

// AttentionTensors are the tensors of a running Attention, and their sizes.
struct AttentionTensors : CacheLengths {
  size_t heads = 0, key_heads = 0;
  size_t queries = 0;  // S
  size_t width = 0, value_width = 0;
  bool values_in_keys = false;  // values are the first channels of keys, and have no cache
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  HeadSteps q_steps, k_steps, v_steps, y_steps;
  const void *past_key = nullptr, *past_value = nullptr;  // null: left out
  const int64_t* key_valid = nullptr;                     // null: left out
  size_t valid_step = 0;                                  // from one sequence to the next
  const float* bias = nullptr;                            // null: left out
  size_t bias_steps[4] = {};                              // of sequence, head, query and key; 0 where broadcast
  size_t bias_keys = 0;                                   // the last dimension
  const float* sink = nullptr;                            // null: left out
  void* y = nullptr;
  void *present_key = nullptr, *present_value = nullptr;  // null: left out
};

// ReadAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadAttention(const Api& api, OrtKernelContext* context, const AttentionAttributes& attributes,
                         AttentionTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ATTENTION_H_
