// Sizes and choices of MoE and QMoE.
#pragma once

#include "common/attributes.h"
#include "moe/common/ids.h"

namespace mojo {

// MoEShape are the sizes of a MoE.
struct MoEShape {
  size_t tokens = 0;
  size_t k = 0;  // experts of a token
  size_t experts = 0;
  size_t hidden = 0;  // width of X and Y
  size_t inner = 0;   // width of the activation
  size_t packed = 0;  // width of the first product: 2 * inner, or inner without a gate
};

inline MoEShape ShapeOf(const MoESizes& z) { return {z.A, z.K, z.E, z.H, z.I, z.G}; }

// CheckIds checks every id: an id out of range would read memory outside the weights.
OrtStatus* CheckIds(const Api& api, const OpDef& def, const int64_t* ids, const MoEShape& shape);

}  // namespace mojo
