// Attributes and layout of RotaryEmbedding, and of ops that have a rotation in them.
#pragma once

#include "common/attributes.h"
#include "rotary/common/rotary_layout.h"

namespace mojo {

// ReadAttributes for a rotation of X also checks its width against the last dimension of X, if the model fixes it.
OrtStatus* ReadAttributes(const KernelInit& init, RotaryEmbeddingAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out);

// LayOutRotary lays cos and sin out, whose shapes fit.
RotaryLayout LayOutRotary(const RotaryEmbeddingAttributes& attributes, const Shape& x, const Shape& cos,
                          const Shape& sin);

}  // namespace mojo
