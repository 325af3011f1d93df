// Shape rules of RMSNorm and AddRMSNorm.
#include "common/rms_norm.h"

namespace mojo {

OrtStatus* SplitAtAxis(const Api& api, const OpDef& def, const Shape& x, int64_t axis, size_t* rows, size_t* width) {
  const size_t normed = static_cast<size_t>(-axis);
  if (x.rank < normed) {
    return Errorf(api, "mojo.%s: X has shape %s; axis %lld needs at least %zu dimensions", def.name, ShapeText(x).text,
                  static_cast<long long>(axis), normed);
  }
  *rows = 1;
  *width = 1;
  for (size_t i = 0; i < x.rank - normed; ++i) *rows *= static_cast<size_t>(x.dims[i]);
  for (size_t i = x.rank - normed; i < x.rank; ++i) *width *= static_cast<size_t>(x.dims[i]);
  return nullptr;
}

OrtStatus* CheckScale(const Api& api, const OpDef& def, const Shape& x, int64_t axis, const Shape& scale) {
  const size_t normed = static_cast<size_t>(-axis);
  bool same = scale.rank == normed && x.rank >= normed;
  for (size_t i = 0; same && i < normed; ++i) {
    same = scale.dims[i] == x.dims[x.rank - normed + i];
  }
  if (same) return nullptr;
  const size_t first = x.rank >= normed ? x.rank - normed : 0;
  return Errorf(api, "mojo.%s: scale has shape %s and X %s; with axis %lld scale must be %s", def.name,
                ShapeText(scale).text, ShapeText(x).text, static_cast<long long>(axis),
                ShapeText(x.dims + first, x.rank - first).text);
}

}  // namespace mojo
