// Attributes and layout of RotaryEmbedding, and of ops that have a rotation in them.
#ifndef MOJO_KERNELS_COMMON_ROTARY_EMBEDDING_H_
#define MOJO_KERNELS_COMMON_ROTARY_EMBEDDING_H_

#include "common/attributes.h"

namespace mojo {

// ReadAttributes for a rotation of X also checks its width against the last dimension of X, if the model fixes it.
OrtStatus* ReadAttributes(const KernelInit& init, RotaryEmbeddingAttributes* out);
OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out);

// RotaryLayout is the layout of cos and sin relative to X: the leading dims of X, merged if that changes nothing, and
// the step, in elements, of cos and sin along each (0 if broadcast).
struct RotaryLayout {
  size_t rank = 0;  // merged dims, at least 1
  size_t dims[kMaxRank];
  size_t cos_step[kMaxRank];
  size_t sin_step[kMaxRank];
  size_t rows = 0;        // product of dims
  size_t width = 0;       // last dim of X
  size_t first = 0;       // the first channel that is rotated
  size_t rotated = 0;     // how many are
  bool cos_wide = false;  // an element for each of them, rather than for each pair
  bool sin_wide = false;
};

// LayOutRotary lays cos and sin out, whose shapes fit.
RotaryLayout LayOutRotary(const RotaryEmbeddingAttributes& attributes, const Shape& x, const Shape& cos,
                          const Shape& sin);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ROTARY_EMBEDDING_H_
