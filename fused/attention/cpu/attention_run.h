// One run of Attention on the CPU, once its inputs are known to be right.
#pragma once

#include "attention/common/attention.h"
#include "cpu/scratch.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// AttentionTypes are the element types of queries and result, and of keys and values.
struct AttentionTypes {
  ElementType rows, keys;
};

// RunAttention computes y, and fills present_key and present_value. If they are omitted and there is a past, they are
// scratch memory, which comes from memory.
OrtStatus* RunAttention(const Api& api, OrtKernelContext* context, const HostMemory& memory,
                        const AttentionAttributes& attributes, const AttentionTypes& types, AttentionTensors* tensors);

}  // namespace mojo
