// One run of LatentAttention on the CPU, once its inputs are known to be right.
#pragma once

#include "attention/common/attention.h"
#include "cpu/scratch.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// RunLatentAttention computes y and fills present, in the form that takes fewer multiplications: naive, with keys and
// values of all tokens, or absorbed, with the latents as the keys of all heads.
OrtStatus* RunLatentAttention(const Api& api, OrtKernelContext* context, const HostMemory& memory,
                              const LatentAttentionAttributes& attributes, ElementType type,
                              const LatentTensors& tensors);

}  // namespace mojo
