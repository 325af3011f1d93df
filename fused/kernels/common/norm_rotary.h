// Attributes of NormRotary.
#ifndef MOJO_KERNELS_COMMON_NORM_ROTARY_H_
#define MOJO_KERNELS_COMMON_NORM_ROTARY_H_

#include "common/rms_norm.h"
#include "common/rotary_embedding.h"

namespace mojo {

// NormRotaryAttributes are the attributes of NormRotary.
struct NormRotaryAttributes {
  float epsilon;
  bool scale_after_cast;
  RotaryEmbeddingAttributes rotary;
};

OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_NORM_ROTARY_H_
