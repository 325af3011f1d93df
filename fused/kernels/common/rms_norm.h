// Shape rules of RMSNorm, AddRMSNorm, and of ops that have a norm in them.
#ifndef MOJO_KERNELS_COMMON_RMS_NORM_H_
#define MOJO_KERNELS_COMMON_RMS_NORM_H_

#include "common/attributes.h"

namespace mojo {

// SplitAtAxis returns rows (product of the dims before axis) and width (product of those from axis
// on); axis is negative, and an error where X has fewer dims.
OrtStatus* SplitAtAxis(const Api& api, const OpDef& def, const Shape& x, int64_t axis, size_t* rows, size_t* width);

// CheckScale checks that scale has the shape X.shape[axis:].
OrtStatus* CheckScale(const Api& api, const OpDef& def, const Shape& x, int64_t axis, const Shape& scale);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_RMS_NORM_H_
