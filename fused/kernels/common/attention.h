// Attributes, inputs and shape rules of Attention.
#ifndef MOJO_KERNELS_COMMON_ATTENTION_H_
#define MOJO_KERNELS_COMMON_ATTENTION_H_

#include "common/attention_tensors.h"
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

// ReadAttention reads the inputs of a running node, checks shapes and lengths, and allocates the outputs.
OrtStatus* ReadAttention(const Api& api, OrtKernelContext* context, const AttentionAttributes& attributes,
                         AttentionTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ATTENTION_H_
