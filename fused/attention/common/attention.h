// Tensors of Attention and LatentAttention.
#pragma once

#include "attention/common/attention_tensors.h"
#include "common/attributes.h"

namespace mojo {

// ReadAttention returns the tensors of a running node whose inputs call has read. It checks lengths, and allocates the
// outputs.
OrtStatus* ReadAttention(AttentionCall* call, AttentionTensors* out);

// ReadLatentAttention is ReadAttention for LatentAttention.
OrtStatus* ReadLatentAttention(LatentAttentionCall* call, LatentTensors* out);

}  // namespace mojo
